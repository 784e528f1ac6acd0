//! `unisono train` and its companions `grad`, `predict` and `schema`: experiments from a YAML file.

mod bar;

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use unisono::Kind;
use unisono_nn::{Experiment, TrainOptions};

#[derive(Args)]
pub(crate) struct Options {
    /// The experiment: our own format, or neon's.
    file: PathBuf,
    /// Change a setting: epochs=3, model.layers.0.maps=16.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    changes: Vec<String>,
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
pub(crate) struct PredictOptions {
    /// The experiment: experiment.yaml of a run's folder, or the file that it was trained from.
    file: PathBuf,
    /// A checkpoint of it.
    checkpoint: PathBuf,
    /// Change a setting.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    changes: Vec<String>,
}

/// Prints what went wrong; 2 where the user can mend it, 1 where the machine failed.
pub(crate) fn failed(error: &unisono::Error) -> i32 {
    eprintln!("unisono: {error}");
    match error.kind() {
        Kind::Usage | Kind::Io | Kind::Unsupported => 2,
        _ => 1,
    }
}

pub(crate) fn train(options: &Options) -> i32 {
    match try_to_train(options) {
        Ok(()) => 0,
        Err(error) => failed(&error),
    }
}

fn try_to_train(options: &Options) -> unisono::Result<()> {
    let experiment = Experiment::read(&options.file, &options.changes)?;
    let out = options.out.clone().unwrap_or_else(|| PathBuf::from("runs").join(&experiment.name));
    let settings = TrainOptions { out, resume: options.resume, trace: options.trace.clone() };
    let summary = match options.quiet {
        true => unisono_nn::train(&experiment, &settings, &mut ())?,
        false => unisono_nn::train(&experiment, &settings, &mut bar::Bar::new())?,
    };
    println!("{}", summary.out.display());
    Ok(())
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

pub(crate) fn schema() -> i32 {
    println!("{:#}", unisono_nn::schema());
    0
}
