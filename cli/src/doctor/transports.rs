//! Tests an all_reduce over each transport: threads, processes, and every MPI library found.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use clap::Args;
use unisono::transport::MpiInterface;
use unisono::{Error, Group, ReduceOp, Result, World};

use super::capture::ProbeRunner;
use super::mpi::MpiInstallation;
use super::report::{Mark, ReportSection};

const RANKS: usize = 2;
const LIMIT: Duration = Duration::from_secs(20);
const ELEMENTS: usize = 1000;
const CALLS: usize = 100;

/// Variables that would make the ranks under test detect the wrong launcher.
const LAUNCHER_VARIABLES: [&str; 3] = ["UNISONO_RANK", "UNISONO_SIZE", "UNISONO_JOB"];

/// The hidden subcommand that each rank under test runs.
#[derive(Args)]
pub(crate) struct CheckRank {
    /// The transport that must be in use; "cuda" tests device memory.
    transport: String,
}

pub(crate) fn check_rank(options: &CheckRank) -> i32 {
    let check = || {
        if options.transport == "cuda" {
            return super::cuda::check_rank();
        }
        let world = World::init()?;
        if world.size() != RANKS || world.transport() != options.transport {
            let received = format!("{} ranks over {}", world.size(), world.transport());
            let expected = format!("{RANKS} ranks over {}", options.transport);
            return Err(Error::usage("doctor", expected, received, "see which launcher started these ranks"));
        }
        let seconds = all_reduce(world.group())?;
        if world.rank() == 0 {
            crate::stdout::line(format_args!("time {seconds}"));
        }
        Ok(())
    };
    match check() {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{error}");
            1
        }
    }
}

/// The fastest time of an all_reduce in seconds; every result is checked.
fn all_reduce(group: &Group) -> Result<f64> {
    let expected: usize = (1..=group.size()).sum();
    let mut fastest = f64::INFINITY;
    for _ in 0..CALLS {
        let mut values = vec![(group.rank() + 1) as f32; ELEMENTS];
        let start = Instant::now();
        group.all_reduce(&mut values, ReduceOp::Sum)?;
        fastest = fastest.min(start.elapsed().as_secs_f64());
        if values.iter().any(|value| *value != expected as f32) {
            return Err(Error::internal("doctor", format!("all_reduce is wrong at rank {}", group.rank())));
        }
    }
    Ok(fastest)
}

pub(super) fn section(runner: &mut ProbeRunner, found: &[MpiInstallation]) -> ReportSection {
    let mut section = ReportSection::new("all_reduce between 2 ranks (4 KB, the fastest of 100)");
    let start = Instant::now();
    let (mark, text) = describe(threads(), start);
    section.add(mark, "threads", text);

    let start = Instant::now();
    let mut program = runner.this_program.to_vec();
    program.extend(["check-rank".into(), "shm".into()]);
    let environment = vec![("UNISONO_TRANSPORT".into(), "shm".into())];
    let (mark, text) = describe(ranks(runner, RANKS, program, environment), start);
    section.add(mark, "shared memory", text);

    for mpi in found {
        let start = Instant::now();
        let (mark, text) = match &mpi.launcher {
            Some(launcher) => describe(under_mpiexec(runner, mpi, launcher.into()), start),
            None => (Mark::Missing, "no mpiexec beside it".into()),
        };
        section.add(mark, mpi.interface.to_string(), format!("{}: {text}", mpi.library.display()));
    }
    section
}

fn describe(outcome: Result<f64, String>, start: Instant) -> (Mark, String) {
    match outcome {
        Ok(seconds) => {
            let all = start.elapsed().as_secs_f64();
            (Mark::Ok, format!("{:.1} µs; {all:.2} s with starting", seconds * 1e6))
        }
        Err(problem) => (Mark::Failed, problem),
    }
}

fn threads() -> Result<f64, String> {
    let worlds = World::threads(RANKS).map_err(|error| error.to_string())?;
    let results: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> = worlds.iter().map(|world| scope.spawn(|| all_reduce(world.group()))).collect();
        running.into_iter().map(|thread| thread.join()).collect()
    });
    let mut slowest = 0.0f64;
    for result in results {
        let seconds =
            result.map_err(|_| "a thread panicked".to_string())?.map_err(|error| error.to_string())?;
        slowest = slowest.max(seconds);
    }
    Ok(slowest)
}

fn under_mpiexec(runner: &mut ProbeRunner, mpi: &MpiInstallation, launcher: OsString) -> Result<f64, String> {
    let mut program: Vec<OsString> = vec!["env".into()];
    program.extend(LAUNCHER_VARIABLES.iter().flat_map(|name| ["-u".into(), OsString::from(name)]));
    program.extend([launcher, "-n".into(), RANKS.to_string().into()]);
    program.extend(runner.this_program.iter().cloned());
    program.extend(["check-rank".into(), "mpi".into()]);
    let mut environment: Vec<(OsString, OsString)> = vec![
        ("UNISONO_TRANSPORT".into(), "mpi".into()),
        ("UNISONO_LIBMPI".into(), mpi.library.clone().into_os_string()),
    ];
    if mpi.interface == MpiInterface::OpenMpi {
        // The machine under test may have one core only, and the test may run as root in a container.
        let allowed =
            ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"];
        environment.extend(allowed.map(|name| (name.into(), "1".into())));
        environment.push(("PRTE_MCA_rmaps_default_mapping_policy".into(), ":oversubscribe".into()));
    }
    ranks(runner, 1, program, environment)
}

/// Runs a program that prints "time SECONDS", and returns the seconds.
fn ranks(
    runner: &mut ProbeRunner,
    ranks: usize,
    program: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
) -> Result<f64, String> {
    let captured = runner.capture(ranks, program, environment, LIMIT);
    match captured.problem {
        Some(problem) => Err(problem),
        None => {
            let time = captured.output.iter().find_map(|line| line.strip_prefix("time ")?.parse().ok());
            time.ok_or_else(|| format!("it printed no result: {}", captured.output.join(" / ")))
        }
    }
}
