//! `unisono run`: starts ranks on this host and waits until all have exited.

mod lines;
mod mps;
mod output;
mod program;
mod summary;
mod writer;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

use crate::launcher::{self, JobSpec, RankOutput, Signals};
use crate::stdout;
use mps::Service;
use output::PrefixedOutput;
pub(crate) use program::python;
pub(crate) use summary::summary;
use unisono::launch::MAX_RANKS;

/// Exit status if the launcher itself fails.
const FAILURE: i32 = 1;
/// Exit status for a request that cannot be met, the same as for unknown options.
const USAGE: i32 = 2;

#[derive(Args)]
pub(crate) struct RunArgs {
    /// Number of ranks to start [default: one per core].
    #[arg(short = 'n', long = "ranks", value_name = "N", allow_negative_numbers = true, value_parser = rank_count)]
    ranks: Option<usize>,
    /// End the job after this many seconds, with exit status 124.
    #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = seconds)]
    timeout: Option<Duration>,
    /// Fail any call that waits longer than this many seconds for another rank (UNISONO_TIMEOUT).
    #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = seconds)]
    wait_timeout: Option<Duration>,
    /// How many seconds the other ranks may continue after one has failed.
    #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = seconds, default_value = "5")]
    grace: Duration,
    /// Restart ranks that fail, at most N times for the whole job. A rank that dies between two calls resumes where it
    /// stopped and the others wait for it; one that dies inside a call ends the job. See docs/guide/launching.md.
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        default_value = "0",
        hide_default_value = true
    )]
    restart: usize,
    /// Write everything each rank prints to DIR/rank-0.log, DIR/rank-1.log and so on.
    #[arg(long, value_name = "DIR")]
    log_dir: Option<PathBuf>,
    /// Set an environment variable for every rank; may be repeated.
    #[arg(long, value_name = "K=V", value_parser = OsStringValueParser::new().try_map(variable))]
    env: Vec<(OsString, OsString)>,
    /// Bind each rank to its own share of the cores.
    #[arg(long)]
    bind: bool,
    /// Run kernels of ranks that share an NVIDIA device concurrently, with a Multi-Process Service (MPS) started for the job.
    /// See docs/guide/on-gpus.md.
    #[arg(long)]
    mps: bool,
    /// Print only the output of the ranks, and no summary.
    #[arg(short, long)]
    quiet: bool,
    /// The program and its arguments; a .py file runs with the current Python.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

pub(crate) fn run(options: RunArgs, this_program: &[OsString]) -> i32 {
    let program = match program::command_line(&options.program, this_program) {
        Ok(program) => program,
        Err(message) => return report_error(program::NOT_FOUND, message),
    };
    let service = match options.mps.then(|| Service::choose(&options.env)).transpose() {
        Ok(service) => service,
        Err(message) => return report_error(USAGE, message),
    };
    if let Some(Err(error)) = options.log_dir.as_ref().map(std::fs::create_dir_all) {
        return report_error(
            FAILURE,
            format!("--log-dir {:?}: {error}", options.log_dir.unwrap_or_default()),
        );
    }
    let size = options.ranks.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, Into::into));
    let mut signals = match Signals::install() {
        Ok(signals) => signals,
        Err(error) => return report_error(FAILURE, format!("cannot listen to signals: {error}")),
    };
    let mut output = match PrefixedOutput::new(size, options.log_dir.as_deref(), options.quiet) {
        Ok(output) => output,
        Err(error) => return report_error(FAILURE, format!("cannot open the output: {error}")),
    };
    if let Some(Service::Shared(line)) = &service {
        output.notice(line);
    }
    let spec = JobSpec {
        size,
        program,
        environment: environment(options.env, options.wait_timeout),
        timeout: options.timeout,
        grace: options.grace,
        restarts: options.restart,
        bind: options.bind,
        mps: service.and_then(Service::program),
        this_program,
    };
    let status = match launcher::launch(&spec, &mut output, &mut signals) {
        Ok(outcome) => {
            if !options.quiet {
                output.note(summary(&outcome, spec.timeout, |rank| output.last_lines(rank)));
            }
            outcome.exit_status()
        }
        Err(error) => {
            output.note(format!("unisono: {error}\n"));
            FAILURE
        }
    };
    finish(&mut output, &mut signals);
    if let Some(error) = output.failure() {
        stdout::failed(&error.into());
    }
    status
}

/// Waits until all output is written; a signal ends the wait, because the reader may never continue.
fn finish(output: &mut PrefixedOutput, signals: &mut Signals) {
    output.writer.close();
    signals.take();
    while !output.writer.is_finished() {
        let mut polled: Vec<_> = signals
            .descriptors()
            .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
            .collect();
        let _ = poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 2_000_000 }));
        drop(polled);
        if signals.take().iter().any(|signal| *signal != Signal::CHILD) {
            return;
        }
    }
}

/// The environment variables of every rank: those that the user set, and defaults.
fn environment(
    mut asked: Vec<(OsString, OsString)>,
    wait_timeout: Option<Duration>,
) -> Vec<(OsString, OsString)> {
    if let Some(limit) = wait_timeout {
        asked.push(("UNISONO_TIMEOUT".into(), limit.as_secs_f64().to_string().into()));
    }
    // Python buffers its output to a pipe; the last lines of a killed rank would then be lost.
    let name = OsStr::new("PYTHONUNBUFFERED");
    if std::env::var_os(name).is_none() && asked.iter().all(|(asked, _)| asked != name) {
        asked.push((name.into(), "1".into()));
    }
    asked
}

fn report_error(status: i32, message: String) -> i32 {
    eprintln!("unisono: {message}");
    status
}

/// Parses an integer of at least 1.
pub(crate) fn positive(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|&number| number > 0)
        .ok_or_else(|| "expected a whole number of at least 1".into())
}

/// Parses a number of ranks for one host.
pub(crate) fn rank_count(text: &str) -> Result<usize, String> {
    match positive(text)? {
        number if number > MAX_RANKS => Err(format!("expected at most {MAX_RANKS} ranks on one host")),
        number => Ok(number),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    // Limits the value to about a thousand years, so that it can still be added to the current time.
    match text.parse::<f64>() {
        Ok(number) if (0.0..3e10).contains(&number) => Ok(Duration::from_secs_f64(number)),
        _ => Err("expected a number of seconds".into()),
    }
}

fn variable(text: OsString) -> Result<(OsString, OsString), String> {
    let bytes = text.as_bytes();
    match bytes.iter().position(|&byte| byte == b'=') {
        Some(end @ 1..) => {
            Ok((OsStr::from_bytes(&bytes[..end]).into(), OsStr::from_bytes(&bytes[end + 1..]).into()))
        }
        _ => Err("expected NAME=VALUE".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked() {
        assert_eq!(variable("A=b=c".into()), Ok(("A".into(), "b=c".into())));
        assert!(variable("=b".into()).is_err() && variable("A".into()).is_err());
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(seconds("-1").is_err() && seconds("nan").is_err() && seconds("1e300").is_err());
        assert!(positive("0").is_err() && positive("x").is_err() && positive("3") == Ok(3));
        assert!(rank_count("0").is_err() && rank_count("99999999999").is_err());
        assert_eq!(rank_count(&MAX_RANKS.to_string()), Ok(MAX_RANKS));
    }

    #[test]
    fn python_writes_at_once_unless_the_user_says_otherwise() {
        let own = vec![(OsString::from("PYTHONUNBUFFERED"), OsString::from("0"))];
        assert_eq!(environment(own.clone(), None), own);
        let limit = environment(vec![], Some(Duration::from_millis(1500)));
        assert_eq!(limit[0], ("UNISONO_TIMEOUT".into(), "1.5".into()));
    }
}
