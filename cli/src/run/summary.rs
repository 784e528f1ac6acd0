//! The summary at the end of a failed job: which rank failed first, and how the others ended.

use std::fmt::Write;
use std::time::Duration;

use rustix::io::Errno;

use crate::launcher::{Cause, LaunchOutcome, RankReport, Termination, signal_name};

/// The summary of a failed job; empty for a successful one.
pub(crate) fn summary<'a, L: Iterator<Item = &'a [u8]>>(
    outcome: &LaunchOutcome,
    timeout: Option<Duration>,
    last_lines: impl Fn(usize) -> L,
) -> Vec<u8> {
    let Some(cause) = outcome.cause else { return Vec::new() };
    let mut text = Vec::new();
    let first = match cause {
        Cause::Rank(rank) => {
            let report = &outcome.ranks[rank];
            let after = seconds(report.after);
            let (how, pid) = (report.termination, report.pid);
            let again = match report.restarts {
                0 => String::new(),
                1 => ", started again once before".into(),
                times => format!(", started again {times} times before"),
            };
            note(
                &mut text,
                format_args!(
                    "rank {rank} (process {pid}) failed first: {how}, {after} after the start{again}"
                ),
            );
            let lines: Vec<&[u8]> = last_lines(rank).collect();
            if !lines.is_empty() {
                note(&mut text, format_args!("its last lines:"));
            }
            for line in lines {
                text.extend_from_slice(b"    ");
                text.extend_from_slice(line);
                text.push(b'\n');
            }
            Some(rank)
        }
        Cause::Timeout => {
            let limit = seconds(timeout.unwrap_or_default());
            note(&mut text, format_args!("the job took longer than --timeout {limit} and was ended"));
            None
        }
        Cause::Signal(signal) if outcome.ranks.is_empty() => {
            note(
                &mut text,
                format_args!("{} came before any rank had started", signal_name(signal.as_raw())),
            );
            None
        }
        Cause::Signal(signal) => {
            note(&mut text, format_args!("{} was passed on to the ranks", signal_name(signal.as_raw())));
            None
        }
        Cause::Output(Errno::PIPE) => {
            note(&mut text, format_args!("the reader of standard output is gone, so the job was ended"));
            return text;
        }
        Cause::Output(_) => {
            note(&mut text, format_args!("standard output failed, so the job was ended"));
            return text;
        }
    };
    for (rank, report) in outcome.ranks.iter().enumerate().filter(|(rank, _)| Some(*rank) != first) {
        let description = description(report, first.map(|first| &outcome.ranks[first]));
        note(&mut text, format_args!("rank {rank} (process {}): {description}", report.pid));
    }
    text
}

fn description(report: &RankReport, first: Option<&RankReport>) -> String {
    let mut description = match &report.activity {
        Some(activity) => format!("{activity}; then "),
        None => String::new(),
    };
    // Writing to a string cannot fail.
    let _ = match (report.last_signal, first) {
        (Some(signal), _) if report.termination == Termination::Signal(signal.as_raw()) => {
            write!(description, "ended by the launcher with {}", report.termination)
        }
        (Some(signal), _) => {
            write!(
                description,
                "{} after the launcher sent {}",
                report.termination,
                signal_name(signal.as_raw())
            )
        }
        (None, Some(first)) if report.after >= first.after => {
            write!(description, "{}, {} later", report.termination, seconds(report.after - first.after))
        }
        (None, _) => write!(description, "{}, {} after the start", report.termination, seconds(report.after)),
    };
    description
}

fn note(text: &mut Vec<u8>, line: std::fmt::Arguments<'_>) {
    text.extend_from_slice(format!("unisono: {line}\n").as_bytes());
}

fn seconds(time: Duration) -> String {
    match time.as_secs_f64() {
        short if short < 10.0 => format!("{short:.2} s"),
        long => format!("{long:.1} s"),
    }
}
