//! The processes of a run: those that a launcher started, or new ones started here.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};

use unisono::halo::Grid;
use unisono::{Error, Result, World};
use unisono_nn::{Arrangement, Experiment, NodeValue};

use super::terminal::WIDTH_VARIABLE;
use crate::launcher::{JobSpec, LaunchOutcome, OutputStream, RankOutput, Signals, Termination, launch};
use crate::run::summary;

/// Where a run takes place.
pub(super) enum Processes {
    /// In this process, alone or together with the other ranks of its launcher.
    Joined(Box<World>),
    /// In this many processes that have yet to be started.
    Spawn(usize),
}

impl Processes {
    /// Determines the number of processes, and checks that the experiment can be distributed over them.
    pub(super) fn find(experiment: &Experiment, asked: Option<usize>) -> Result<Processes> {
        let world = World::init()?;
        let size = match world.size() {
            1 => asked.or_else(|| size_of_grid(experiment)).unwrap_or(1),
            size => size,
        };
        if let Some(asked) = asked.filter(|asked| *asked != size) {
            let received = format!("{size} processes of {}", world.launcher());
            return Err(Error::usage("train", format!("{asked} processes"), received, "leave -n out"));
        }
        Arrangement::new(experiment, size)?;
        Ok(if size == world.size() { Processes::Joined(Box::new(world)) } else { Processes::Spawn(size) })
    }
}

/// Size of the grid in the file, if the file gives the size of every axis.
fn size_of_grid(experiment: &Experiment) -> Option<usize> {
    let NodeValue::Text(text) = &experiment.resolved.get("distributed")?.get("grid")?.value else {
        return None;
    };
    let sizes = text.split(',').map(|axis| axis.split_once('=')?.1.trim().parse::<usize>().ok());
    let size = sizes.product::<Option<usize>>()?;
    Grid::parse(text, size).ok().map(|grid| grid.size())
}

/// Starts this program with the same arguments in `size` processes, and waits until they have exited.
pub(super) fn start(size: usize, arguments: &[OsString], this_program: &[OsString]) -> i32 {
    let failed = |message: String| {
        eprintln!("unisono: {message}");
        1
    };
    let mut signals = match Signals::install() {
        Ok(signals) => signals,
        Err(error) => return failed(format!("cannot install signal handlers: {error}")),
    };
    let width = || std::env::var("COLUMNS").unwrap_or_else(|_| "80".into());
    let width = std::io::stderr().is_terminal().then(width);
    let program = this_program.iter().chain(arguments).cloned().collect();
    let mut spec = JobSpec::new(size, program, this_program);
    spec.environment.extend(width.map(|width| (WIDTH_VARIABLE.into(), width.into())));
    match launch(&spec, &mut PassThrough, &mut signals) {
        Ok(outcome) => {
            if !all_exited(&outcome) {
                let _ = std::io::stderr().write_all(&summary(&outcome, None, |_| std::iter::empty()));
            }
            outcome.exit_status()
        }
        Err(error) => failed(error.to_string()),
    }
}

/// Whether every rank exited without a signal; one of them has then reported the cause.
fn all_exited(outcome: &LaunchOutcome) -> bool {
    outcome.ranks.iter().all(|rank| matches!(rank.termination, Termination::Status(_)))
}

/// Passes the output of the ranks through unchanged: only rank 0 prints, except for errors.
struct PassThrough;

impl RankOutput for PassThrough {
    fn write(&mut self, _: usize, stream: OutputStream, bytes: &[u8]) {
        match stream {
            OutputStream::Stdout => crate::stdout::bytes(bytes),
            // If standard error cannot be written, the failure cannot be reported anywhere.
            OutputStream::Stderr => drop(std::io::stderr().write_all(bytes)),
        }
    }

    fn end(&mut self, _: usize, _: OutputStream) {}
}
