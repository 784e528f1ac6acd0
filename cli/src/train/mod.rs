//! `unisono train`, `check`, `compare`, `grad`, `predict` and `schema`: experiments from a YAML file.

mod bar;
mod comparison;
mod parallelism;
mod processes;
mod terminal;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use parallelism::{CheckParallelism, ParallelOverrides, TrainParallelism};
use processes::Processes;
use unisono::{Kind, World};
use unisono_nn::{Experiment, TrainOptions};

use crate::stdout;

#[derive(Args)]
pub(crate) struct TrainArgs {
    /// The experiment file, in our own format or neon's.
    file: PathBuf,
    /// Change a setting: epochs=3, model.layers.0.maps=16.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    changes: Vec<String>,
    #[command(flatten)]
    parallelism: TrainParallelism,
    /// Continue an interrupted run in the same folder.
    #[arg(long)]
    resume: bool,
    /// Folder for the results [default: runs/NAME].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write a timeline of the run to this file, for chrome://tracing and Perfetto.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Show no progress.
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Args)]
pub(crate) struct CheckArgs {
    /// The experiment.
    file: PathBuf,
    /// Change a setting.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    changes: Vec<String>,
    #[command(flatten)]
    parallelism: CheckParallelism,
}

#[derive(Args)]
pub(crate) struct CompareArgs {
    /// The folder of a run.
    one: PathBuf,
    /// The folder of another run of the same experiment.
    other: PathBuf,
    /// Tolerance, relative to the largest number.
    #[arg(long, value_name = "X", default_value = "1e-3")]
    within: f64,
}

#[derive(Args)]
pub(crate) struct GradientArgs {
    /// The experiment.
    file: PathBuf,
    /// Change a setting.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    changes: Vec<String>,
    /// Number of elements to check in each weight.
    #[arg(long, value_name = "N", default_value = "10", value_parser = crate::run::positive)]
    tries: usize,
}

#[derive(Args)]
pub(crate) struct SchemaArgs {
    /// Print Markdown tables instead.
    #[arg(long)]
    markdown: bool,
}

#[derive(Args)]
pub(crate) struct PredictArgs {
    /// The experiment: experiment.yaml of a run's folder, or the file that it was trained from.
    file: PathBuf,
    /// One of its checkpoints, or a folder: the newest checkpoint in it.
    checkpoint: PathBuf,
    /// Change a setting.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    changes: Vec<String>,
}

/// Prints an error; returns 2 if the user can correct it, 1 if the machine failed.
pub(crate) fn failed(error: &unisono::Error) -> i32 {
    // One write call, because other ranks may write too.
    let _ = std::io::stderr().write_all(format!("unisono: {error}\n").as_bytes());
    status(error)
}

fn status(error: &unisono::Error) -> i32 {
    match error.kind() {
        Kind::Usage | Kind::Io | Kind::Unsupported => 2,
        _ => 1,
    }
}

/// The experiment of a file with the options applied, and the processes it runs on.
fn find(
    parallelism: ParallelOverrides<'_>,
    file: &Path,
    changes: &[String],
) -> unisono::Result<(Processes, Experiment)> {
    let experiment = parallelism.read(file, changes)?;
    Ok((Processes::find(&experiment, parallelism.ranks)?, experiment))
}

/// Trains in this process, or in new processes that are started with the same arguments.
pub(crate) fn train(options: &TrainArgs, arguments: &[OsString], this_program: &[OsString]) -> i32 {
    match find(options.parallelism.parallelism(), &options.file, &options.changes) {
        Ok((Processes::Spawn(size), _)) => processes::start(size, arguments, this_program),
        Ok((Processes::Joined(world), experiment)) => train_joined(options, &world, &experiment),
        Err(error) => failed_together(&error),
    }
}

/// Compares in this process, or in new processes that are started with the same arguments.
pub(crate) fn check(options: &CheckArgs, arguments: &[OsString], this_program: &[OsString]) -> i32 {
    let parallelism = options.parallelism.parallelism();
    match find(parallelism, &options.file, &options.changes) {
        Ok((Processes::Spawn(size), _)) => processes::start(size, arguments, this_program),
        Ok((Processes::Joined(world), _)) if world.size() == 1 && parallelism.ranks.is_none() => {
            let advice = "pass their number with -n, or a --grid";
            failed(&unisono::Error::usage("check", "several processes to compare with one", "one", advice))
        }
        Ok((Processes::Joined(world), experiment)) => comparison::check_joined(&world, &experiment),
        Err(error) => failed_together(&error),
    }
}

/// Compares two runs; returns 1 if they differ.
pub(crate) fn compare(options: &CompareArgs) -> i32 {
    match unisono_nn::compare(&options.one, &options.other, options.within) {
        Ok(found) => {
            let title = format!("{} and {}", options.one.display(), options.other.display());
            comparison::show(&found, &title)
        }
        Err(error) => failed(&error),
    }
}

/// Reports, on rank 0 only, an error that every process has found.
fn failed_together(error: &unisono::Error) -> i32 {
    let first = ["UNISONO_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"]
        .iter()
        .find_map(|name| std::env::var(name).ok())
        .is_none_or(|rank| rank == "0");
    if first { failed(error) } else { status(error) }
}

fn train_joined(options: &TrainArgs, world: &World, experiment: &Experiment) -> i32 {
    let out = options.out.clone().unwrap_or_else(|| PathBuf::from("runs").join(&experiment.name));
    let settings = TrainOptions { out, resume: options.resume, trace: options.trace.clone() };
    let shows = !options.quiet && world.rank() == 0;
    let mut bar = shows.then(|| bar::Bar::new(world.size(), options.resume));
    let result = match &mut bar {
        None => unisono_nn::train_in_world(world, experiment, &settings, &mut ()),
        Some(bar) => unisono_nn::train_in_world(world, experiment, &settings, bar),
    };
    drop(bar);
    match result {
        Ok(summary) => {
            if world.rank() == 0 {
                // Unchanged, because a path need not be valid text.
                let line = [summary.out.as_os_str().as_encoded_bytes(), b"\n"].concat();
                stdout::bytes(&line);
            }
            0
        }
        Err(failure) if failure.own => failed(&failure.error),
        Err(failure) => status(&failure.error),
    }
}

pub(crate) fn check_gradients(options: &GradientArgs) -> i32 {
    let checks = Experiment::read(&options.file, &options.changes)
        .and_then(|experiment| unisono_nn::check_gradients(&experiment, options.tries));
    match checks {
        Err(error) => failed(&error),
        Ok(checks) => {
            for check in &checks {
                let word = if check.passes() { "good" } else { "WRONG" };
                let (weight, tried, worst) = (&check.weight, check.tried, check.worst);
                stdout::line(format_args!("{word}  {weight:<40} {tried:>4} tried, worst {worst:.1e}"));
            }
            i32::from(!checks.iter().all(|check| check.passes()))
        }
    }
}

pub(crate) fn predict(options: &PredictArgs) -> i32 {
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
    stdout::bytes(text.as_bytes());
    if predictions.iter().any(|prediction| prediction.class.is_some()) {
        eprintln!("{wrong} of {} are misclassified", predictions.len());
    }
    0
}

pub(crate) fn schema(options: &SchemaArgs) -> i32 {
    let text = match options.markdown {
        true => unisono_nn::reference(),
        false => format!("{:#}\n", unisono_nn::schema()),
    };
    stdout::bytes(text.as_bytes());
    0
}
