//! Whether ranks that share a device can run concurrently, through NVIDIA's Multi-Process Service (MPS).

use std::time::Duration;

use super::capture::ProbeRunner;
use super::report::{Mark, ReportSection};
use crate::launcher::mps::{PROGRAM, find};

const LIMIT: Duration = Duration::from_secs(10);
/// Queries the daemon that the environment selects; `$0` is the client program.
const ASK: &str = "echo get_server_list | exec \"$0\"";
/// Printed by the client, on either stream, if no daemon is running.
const NONE: &str = "Cannot find MPS";

/// Adds one entry, on machines that have a device or the program.
pub(super) fn add(section: &mut ReportSection, runner: &mut ProbeRunner, has_device: bool) {
    let Some(program) = find() else {
        if has_device {
            let text = format!("no {PROGRAM}: ranks that share a device take turns");
            section.add(Mark::Missing, "MPS", text);
        }
        return;
    };
    let shown = program.display().to_string();
    let ask = vec!["sh".into(), "-c".into(), ASK.into(), program.into_os_string()];
    let captured = runner.capture(1, ask, Vec::new(), LIMIT);
    let runs = captured.problem.is_none() && !captured.output.iter().any(|line| line.contains(NONE));
    let state = match runs {
        true => "a daemon runs for this environment",
        false => "no daemon runs; `unisono run --mps` starts one for its job",
    };
    section.add(Mark::Ok, "MPS", format!("{shown}; {state}"));
}
