//! Runs another program with a time limit and captures its output.

use std::ffi::OsString;
use std::time::Duration;

use crate::launcher::{Cause, JobSpec, LaunchOutcome, Listener, OutputStream, Signals, launch, signal_name};

/// What is needed to run other programs.
pub(super) struct ProbeRunner<'a> {
    pub(super) this_program: &'a [OsString],
    pub(super) signals: Signals,
}

/// The output of a program, and why it failed, if it did.
pub(super) struct Captured {
    pub(super) output: Vec<String>,
    pub(super) problem: Option<String>,
}

impl ProbeRunner<'_> {
    /// Runs `ranks` ranks of a program and waits for them.
    pub(super) fn capture(
        &mut self,
        ranks: usize,
        program: Vec<OsString>,
        environment: Vec<(OsString, OsString)>,
        limit: Duration,
    ) -> Captured {
        let (timeout, grace) = (Some(limit), Duration::from_secs(2));
        let spec = JobSpec { environment, timeout, grace, ..JobSpec::new(ranks, program, self.this_program) };
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        let mut listener = Listener::new(|_, stream, line: &str| match stream {
            OutputStream::Stdout => output.push(line.to_string()),
            OutputStream::Stderr => errors.push(line.to_string()),
        });
        let outcome = launch(&spec, &mut listener, &mut self.signals);
        drop(listener);
        let problem = match &outcome {
            Ok(outcome) => problem(outcome, limit),
            Err(error) => Some(error.to_string()),
        };
        // The first lines name the cause; the following ones are mostly commentary of the launchers.
        let mut cause: Vec<String> = Vec::new();
        for line in errors.into_iter().filter(|line| line.contains(char::is_alphanumeric)) {
            if cause.len() < 4 && !cause.contains(&line) {
                cause.push(line);
            }
        }
        let problem =
            problem.map(|problem| std::iter::once(problem).chain(cause).collect::<Vec<_>>().join("\n"));
        Captured { output, problem }
    }
}

fn problem(outcome: &LaunchOutcome, limit: Duration) -> Option<String> {
    Some(match outcome.cause? {
        Cause::Timeout => format!("no end within {} s", limit.as_secs()),
        Cause::Rank(rank) => outcome.ranks[rank].termination.to_string(),
        Cause::Signal(signal) => format!("ended by {}", signal_name(signal.as_raw())),
        Cause::Output(error) => format!("its output could not be read: {error}"),
    })
}
