//! `unisono doctor`: shows what this machine has, and tests every transport.

mod capture;
mod cuda;
mod machine;
mod memory;
mod mpi;
mod mps;
mod python;
mod report;
mod transports;

use std::ffi::OsString;

use clap::Args;

use crate::launcher::Signals;
use crate::stdout;
use capture::ProbeRunner;
use report::{Mark, ReportSection};
pub(crate) use transports::{CheckRank, check_rank};

#[derive(Args)]
pub(crate) struct DoctorArgs {
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

pub(crate) fn doctor(options: &DoctorArgs, this_program: &[OsString]) -> i32 {
    let signals = match Signals::install() {
        Ok(signals) => signals,
        Err(error) => {
            eprintln!("unisono: cannot listen to signals: {error}");
            return 1;
        }
    };
    let mut runner = ProbeRunner { this_program, signals };
    let mut sections = Vec::new();
    // Each section is printed as soon as it is complete: the tests at the end take a while.
    let mut show = |section: ReportSection| {
        if !options.json {
            stdout::line(&section);
        }
        sections.push(section);
    };
    show(machine::machine());
    show(memory::bandwidth());
    show(machine::shared_memory());
    let found = mpi::find();
    show(mpi::section(&found));
    show(python::section(&mut runner));
    show(cuda::section(&mut runner));
    let transports = transports::section(&mut runner, &found);
    let shared_memory_works = transports.mark_of("shared memory") == Some(Mark::Ok);
    show(transports);
    if options.json {
        stdout::line(report::json(&sections));
    }
    i32::from(!shared_memory_works)
}
