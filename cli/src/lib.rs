//! The program `unisono` as a library: `init` writes a project, `run` starts ranks, `train` trains models, `doctor` diagnoses the
//! machine, `bench` runs benchmarks.
//!
//! `cargo install unisono-cli` installs the program. Other programs that contain it, as the Python package does, call [`main`]:
//!
//! ```
//! let arguments = ["completions", "bash"].map(Into::into).to_vec();
//! let this_program = vec![std::env::current_exe()?.into()]; // starts the ranks
//! let status = unisono_cli::main(arguments, this_program);
//! assert_eq!(status, 0);
//! # Ok::<(), std::io::Error>(())
//! ```

mod bandwidth;
mod bench;
mod doctor;
mod init;
mod json;
mod launcher;
mod run;
mod shell;
mod stdout;
mod train;

use std::ffi::OsString;

use clap::{CommandFactory, Parser, Subcommand};

#[derive(Parser)]
#[command(name = "unisono", version, about = "Spread the training of a model over many processes.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write a small project to start from: a script, an experiment file and a page that explains them.
    Init(init::InitArgs),
    /// Start ranks on this host and wait until all have exited.
    Run(run::RunArgs),
    /// Train the model of an experiment file.
    Train(train::TrainArgs),
    /// Compare an experiment on many processes with one process, layer by layer.
    Check(train::CheckArgs),
    /// Compare the curves and the final weights of two runs.
    Compare(train::CompareArgs),
    /// Check the gradients of an experiment against finite differences.
    Grad(train::GradientArgs),
    /// Predict the test samples of an experiment from one of its checkpoints.
    Predict(train::PredictArgs),
    /// Print the JSON schema of experiment files.
    Schema(train::SchemaArgs),
    /// Show what this machine has, and test every transport.
    Doctor(doctor::DoctorArgs),
    /// Run a benchmark on this machine.
    Bench(bench::BenchArgs),
    /// Print a script with which a shell completes the arguments of this program.
    Completions(shell::CompletionsArgs),
    /// Print the manual page of this program or of one of its commands.
    Man(shell::ManArgs),
    #[command(hide = true)]
    Reaper,
    #[command(hide = true)]
    CheckRank(doctor::CheckRank),
    #[command(hide = true)]
    BenchRank(bench::BenchRank),
}

/// Runs the program and returns its exit status. `arguments` exclude the program's name; `this_program` is the command line
/// that starts this program again (the wheel passes `[sys.executable, "-m", "unisono"]`).
///
/// Must be called on the main thread of a process that runs nothing else: it installs handlers for SIGINT, SIGTERM, SIGHUP
/// and SIGCHLD, and adopts every child process that appears meanwhile. A Python caller first resets SIGINT to `SIG_DFL`;
/// otherwise Ctrl-C raises KeyboardInterrupt as well.
///
/// ```
/// assert_eq!(unisono_cli::main(vec!["run".into(), "-n".into(), "0".into(), "true".into()], vec![]), 2);
/// ```
pub fn main(arguments: Vec<OsString>, this_program: Vec<OsString>) -> i32 {
    let name = OsString::from("unisono");
    let parsed = match Arguments::try_parse_from(std::iter::once(name).chain(arguments.iter().cloned())) {
        Ok(parsed) => parsed,
        Err(error) => {
            if let Err(failure) = error.print() {
                stdout::failed(&failure);
            }
            return stdout::status(error.exit_code());
        }
    };
    let status = match parsed.command {
        Command::Init(options) => init::init(&options),
        Command::Run(options) => run::run(options, &this_program),
        Command::Train(options) => train::train(&options, &arguments, &this_program),
        Command::Check(options) => train::check(&options, &arguments, &this_program),
        Command::Compare(options) => train::compare(&options),
        Command::Grad(options) => train::check_gradients(&options),
        Command::Predict(options) => train::predict(&options),
        Command::Schema(options) => train::schema(&options),
        Command::Doctor(options) => doctor::doctor(&options, &this_program),
        Command::Bench(options) => bench::bench(&options, &this_program),
        Command::Completions(options) => shell::completions(&options, &Arguments::command()),
        Command::Man(options) => shell::manual(&options, &Arguments::command()),
        Command::Reaper => launcher::reaper::run(),
        Command::CheckRank(options) => doctor::check_rank(&options),
        Command::BenchRank(options) => bench::bench_rank(&options),
    };
    stdout::status(status)
}
