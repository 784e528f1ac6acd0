//! Which CUDA components are present, and whether two ranks that share a device can use it.

use std::time::Duration;

use unisono::cuda::{Component, survey};
use unisono::{Result, World};

use super::capture::ProbeRunner;
use super::mps;
use super::report::{Mark, ReportSection};

const LIMIT: Duration = Duration::from_secs(60);

pub(super) fn section(runner: &mut ProbeRunner) -> ReportSection {
    let mut section = ReportSection::new("CUDA (needed for arrays in device memory only)");
    let survey = survey();
    let mut add = |name: &str, found: &Component| match found {
        Ok(words) => section.add(Mark::Ok, name, words),
        Err(missing) => section.add(Mark::Missing, name, missing.to_string()),
    };
    add("driver", &survey.driver);
    for (number, device) in survey.devices.iter().enumerate() {
        add(&format!("device {number}"), device);
    }
    add("NVRTC", &survey.compiler);
    add("NCCL", &survey.nccl);
    mps::add(&mut section, runner, !survey.devices.is_empty());
    if survey.devices.is_empty() {
        return section;
    }
    let mut program = runner.this_program.to_vec();
    program.extend(["check-rank".into(), "cuda".into()]);
    let captured = runner.capture(2, program, vec![("UNISONO_TRANSPORT".into(), "shm".into())], LIMIT);
    let shared = captured.output.iter().find_map(|line| line.strip_prefix("path "));
    match (captured.problem, shared) {
        (Some(problem), _) => section.add(Mark::Failed, "2 ranks on one device", problem),
        (None, words) => section.add(Mark::Ok, "2 ranks on one device", words.unwrap_or("they said nothing")),
    }
    if survey.devices.len() > 1 {
        let path = if survey.nccl.is_ok() { "nccl" } else { "ipc within a host, staged between hosts" };
        section.add(Mark::Fact, "a device for each rank", path);
    }
    section
}

/// The test on each of the two ranks.
pub(super) fn check_rank() -> Result<()> {
    let world = World::init()?;
    let (path, seconds) = world.group().raw().trial(0)?;
    if world.rank() == 0 {
        println!("path {path}: all_reduce of 4 KB in {:.1} µs, the fastest of 100", seconds * 1e6);
    }
    Ok(())
}
