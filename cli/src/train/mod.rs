//! `unisono train` and its companions `grad`, `predict` and `schema`: experiments from a YAML file.

mod bar;
mod comparing;
mod processes;
mod terminal;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use processes::Processes;
use unisono::{Kind, World};
use unisono_nn::{Experiment, TrainOptions};

#[derive(Args)]
pub(crate) struct Options {
    /// The experiment: our own format, or neon's.
    file: PathBuf,
    /// Change a setting: epochs=3, model.layers.0.maps=16.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    changes: Vec<String>,
    #[command(flatten)]
    spread: Spread,
    /// Continue an interrupted run in the same folder.
    #[arg(long)]
    resume: bool,
    /// Where results go; runs/NAME without it.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write where the time goes to this file, for chrome://tracing and Perfetto.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Show no progress.
    #[arg(long, short)]
    quiet: bool,
}

/// How a run is spread over processes.
#[derive(Args)]
struct Spread {
    /// How many processes to start; as many as the grid has without it.
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = crate::run::positive)]
    ranks: Option<usize>,
    /// How many processes along each axis: data=2,h=2,w=2.
    #[arg(long, value_name = "AXES")]
    grid: Option<String>,
    /// What is divided: samples (data), rows and columns of samples (halo), inputs of layers (vector), or samples with
    /// weights that processes share through a table (table).
    #[arg(long, value_name = "MODE", value_parser = ["data", "halo", "vector", "table"])]
    mode: Option<String>,
    /// How far processes that share a table may drift apart: async, ssp:3, bsp.
    #[arg(long, value_name = "CONSISTENCY")]
    consistency: Option<String>,
}

impl Spread {
    /// The experiment as these options change it.
    fn read(&self, file: &Path, changes: &[String]) -> unisono::Result<Experiment> {
        // The axes say the mode where nothing else does.
        let axes = |names: &[&str]| {
            let grid = self.grid.as_deref().unwrap_or_default();
            grid.split(',').any(|axis| names.contains(&axis.split('=').next().unwrap_or_default().trim()))
        };
        let mode = match &self.mode {
            Some(mode) => Some(mode.as_str()),
            None if self.consistency.is_some() => Some("table"),
            None if axes(&["h", "w"]) => Some("halo"),
            None if axes(&["v"]) => Some("vector"),
            None if self.grid.is_some() => Some("data"),
            None => None,
        };
        let Some(mode) = mode else { return Experiment::read(file, changes) };
        let more = [("grid", &self.grid), ("consistency", &self.consistency)];
        let more = more.iter().filter_map(|(key, value)| Some(format!(", {key}: '{}'", value.as_ref()?)));
        let change = format!("distributed={{type: {mode}{}}}", more.collect::<String>());
        Experiment::read_with_option(file, changes, &self.typed(), &change)
    }

    /// These options as the user typed them.
    fn typed(&self) -> String {
        let options = [("--mode", &self.mode), ("--grid", &self.grid), ("--consistency", &self.consistency)];
        let options = options.iter().filter_map(|(name, value)| Some(format!("{name} {}", value.as_ref()?)));
        options.collect::<Vec<_>>().join(" ")
    }
}

#[derive(Args)]
pub(crate) struct CheckOptions {
    /// The experiment.
    file: PathBuf,
    /// Change a setting.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    changes: Vec<String>,
    #[command(flatten)]
    spread: Spread,
}

#[derive(Args)]
pub(crate) struct CompareOptions {
    /// The folder of a run.
    one: PathBuf,
    /// The folder of another run of the same experiment.
    other: PathBuf,
    /// How far numbers may differ, relative to the largest of them.
    #[arg(long, value_name = "X", default_value = "1e-3")]
    within: f64,
}

#[derive(Args)]
pub(crate) struct GradientOptions {
    /// The experiment.
    file: PathBuf,
    /// Change a setting.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    changes: Vec<String>,
    /// How many elements of each weight to try.
    #[arg(long, value_name = "N", default_value = "10")]
    tries: usize,
}

#[derive(Args)]
pub(crate) struct SchemaOptions {
    /// Print tables for people instead.
    #[arg(long)]
    markdown: bool,
}

#[derive(Args)]
pub(crate) struct PredictOptions {
    /// The experiment: experiment.yaml of a run's folder, or the file that it was trained from.
    file: PathBuf,
    /// A checkpoint of it, or a folder: then the newest in it.
    checkpoint: PathBuf,
    /// Change a setting.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    changes: Vec<String>,
}

/// Prints what went wrong; 2 where the user can mend it, 1 where the machine failed.
pub(crate) fn failed(error: &unisono::Error) -> i32 {
    // In one piece: other ranks may write too.
    let _ = std::io::stderr().write_all(format!("unisono: {error}\n").as_bytes());
    status(error)
}

fn status(error: &unisono::Error) -> i32 {
    match error.kind() {
        Kind::Usage | Kind::Io | Kind::Unsupported => 2,
        _ => 1,
    }
}

/// Trains here, or in processes that are started with the same arguments.
pub(crate) fn train(options: &Options, arguments: &[OsString], this_program: &[OsString]) -> i32 {
    let found = options
        .spread
        .read(&options.file, &options.changes)
        .and_then(|experiment| Ok((Processes::find(&experiment, options.spread.ranks)?, experiment)));
    match found {
        Ok((Processes::Start(size), _)) => processes::start(size, arguments, this_program),
        Ok((Processes::Here(world), experiment)) => train_here(options, &world, &experiment),
        Err(error) => failed_together(&error),
    }
}

/// Compares here, or in processes that are started with the same arguments.
pub(crate) fn check(options: &CheckOptions, arguments: &[OsString], this_program: &[OsString]) -> i32 {
    let found = options
        .spread
        .read(&options.file, &options.changes)
        .and_then(|experiment| Ok((Processes::find(&experiment, options.spread.ranks)?, experiment)));
    match found {
        Ok((Processes::Start(size), _)) => processes::start(size, arguments, this_program),
        Ok((Processes::Here(world), _)) if world.size() == 1 && options.spread.ranks.is_none() => {
            let advice = "say how many with -n, or give a --grid";
            failed(&unisono::Error::usage("check", "several processes to compare with one", "one", advice))
        }
        Ok((Processes::Here(world), experiment)) => comparing::here(&world, &experiment),
        Err(error) => failed_together(&error),
    }
}

/// Compares two runs; 1 where they differ.
pub(crate) fn compare(options: &CompareOptions) -> i32 {
    match unisono_nn::compare(&options.one, &options.other, options.within) {
        Ok(found) => {
            let title = format!("{} and {}", options.one.display(), options.other.display());
            comparing::show(&found, &title)
        }
        Err(error) => failed(&error),
    }
}

/// What every process finds wrong, the first one says.
fn failed_together(error: &unisono::Error) -> i32 {
    let first = ["UNISONO_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"]
        .iter()
        .find_map(|name| std::env::var(name).ok())
        .is_none_or(|rank| rank == "0");
    if first { failed(error) } else { status(error) }
}

fn train_here(options: &Options, world: &World, experiment: &Experiment) -> i32 {
    let out = options.out.clone().unwrap_or_else(|| PathBuf::from("runs").join(&experiment.name));
    let settings = TrainOptions { out, resume: options.resume, trace: options.trace.clone() };
    let shows = !options.quiet && world.rank() == 0;
    let result = match shows {
        false => unisono_nn::train_in_world(world, experiment, &settings, &mut ()),
        true => unisono_nn::train_in_world(world, experiment, &settings, &mut bar::Bar::new()),
    };
    match result {
        Ok(summary) => {
            if world.rank() == 0 {
                println!("{}", summary.out.display());
            }
            0
        }
        Err(failure) if failure.own => failed(&failure.error),
        Err(failure) => status(&failure.error),
    }
}

pub(crate) fn check_gradients(options: &GradientOptions) -> i32 {
    let checks = Experiment::read(&options.file, &options.changes)
        .and_then(|experiment| unisono_nn::check_gradients(&experiment, options.tries));
    match checks {
        Err(error) => failed(&error),
        Ok(checks) => {
            for check in &checks {
                let word = if check.passes() { "good" } else { "WRONG" };
                println!("{word}  {:<40} {:>4} tried, worst {:.1e}", check.weight, check.tried, check.worst);
            }
            i32::from(!checks.iter().all(|check| check.passes()))
        }
    }
}

pub(crate) fn predict(options: &PredictOptions) -> i32 {
    let predictions = Experiment::read(&options.file, &options.changes)
        .and_then(|experiment| unisono_nn::predict(&experiment, &options.checkpoint));
    let predictions = match predictions {
        Ok(predictions) => predictions,
        Err(error) => return failed(&error),
    };
    let mut wrong = 0;
    let mut text = String::from("sample,predicted,class,outputs\n");
    for prediction in &predictions {
        let class = prediction.class.map_or(String::new(), |class| class.to_string());
        wrong += usize::from(prediction.class.is_some_and(|class| class as usize != prediction.predicted));
        let outputs: Vec<String> = prediction.outputs.iter().map(|output| format!("{output:.6}")).collect();
        text += &format!("{},{},{class},{}\n", prediction.sample, prediction.predicted, outputs.join(" "));
    }
    // A reader may have seen enough, as `head` has.
    let _ = std::io::stdout().write_all(text.as_bytes());
    if predictions.iter().any(|prediction| prediction.class.is_some()) {
        eprintln!("{wrong} of {} are wrong", predictions.len());
    }
    0
}

pub(crate) fn schema(options: &SchemaOptions) -> i32 {
    let text = match options.markdown {
        true => unisono_nn::reference(),
        false => format!("{:#}\n", unisono_nn::schema()),
    };
    // A reader may have seen enough, as `head` has.
    let _ = std::io::stdout().write_all(text.as_bytes());
    0
}
