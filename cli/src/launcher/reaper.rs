//! The reaper: a small process beside the launcher that ends the job if the launcher is killed.
//!
//! Ranks die with the launcher (parent-death signal); the reaper kills the processes that ranks have started. It reads
//! lines from a pipe whose write end only the launcher holds: `job NAME=VALUE` (identifies the job's processes by their
//! environment), `group N` (a rank's process group), `ended N` (the id of that group may be reused from now on),
//! `folder PATH` (to be removed) and `done`. End of file without `done` means that the launcher has died.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::processes;

/// The reaper repeats its scan this often, to catch processes that are being forked during a scan.
const SWEEPS: usize = 50;
const SWEEP_INTERVAL: Duration = Duration::from_millis(20);

/// The launcher's side of the reaper: its process and the pipe to it.
pub(crate) struct Reaper {
    pid: Pid,
    lines: ChildStdin,
}

impl Reaper {
    /// Starts a reaper for the job whose processes have `marker` ("NAME=VALUE") in their environment.
    pub(crate) fn start(this_program: &[OsString], marker: &str) -> io::Result<Reaper> {
        let (program, arguments) = this_program.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut child = Command::new(program)
            .args(arguments)
            .arg("reaper")
            // If the launcher runs inside a rank of another job, its reaper must not be killed by that job's reaper.
            .env_remove(super::JOB_VARIABLE)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let lines = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut reaper = Reaper { pid: Pid::from_child(&child), lines };
        reaper.send(format_args!("job {marker}"));
        Ok(reaper)
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Registers a rank: the leader of the process group with the same number.
    pub(crate) fn watch_group(&mut self, leader: Pid) {
        self.send(format_args!("group {leader}"));
    }

    /// Unregisters the process group of a rank that was reaped.
    pub(crate) fn forget_group(&mut self, leader: Pid) {
        self.send(format_args!("ended {leader}"));
    }

    /// Registers a folder that must not outlive the job.
    pub(crate) fn watch_folder(&mut self, path: &str) {
        self.send(format_args!("folder {path}"));
    }

    /// Ends the reaper: the job is over and has left no process.
    pub(crate) fn dismiss(mut self) {
        self.send(format_args!("done"));
        // The reaper may still be starting (a Python interpreter takes a while); it has nothing left to do.
        let _ = kill_process(self.pid, Signal::KILL);
        let _ = rustix::process::waitpid(Some(self.pid), rustix::process::WaitOptions::empty());
    }

    fn send(&mut self, line: std::fmt::Arguments<'_>) {
        // If the reaper was killed, the write fails; the job continues without a reaper.
        let _ = self.lines.write_all(format!("{line}\n").as_bytes());
    }
}

/// The main function of the reaper process, run by the hidden subcommand.
pub(crate) fn run() -> i32 {
    let mut marker = None;
    let mut groups = HashSet::new();
    let mut folders = Vec::new();
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        match line.split_once(' ') {
            Some(("job", value)) => marker = Some(value.to_string()),
            Some(("group", number)) => drop(number.parse().map(|number: i32| groups.insert(number))),
            Some(("ended", number)) => drop(number.parse().map(|number: i32| groups.remove(&number))),
            Some(("folder", path)) => folders.push(path.to_string()),
            _ if line == "done" => return 0,
            _ => {}
        }
    }
    for group in groups.into_iter().filter_map(Pid::from_raw) {
        // The group may already have exited.
        let _ = kill_process_group(group, Signal::KILL);
    }
    if let Some(marker) = marker {
        for _ in 0..SWEEPS {
            let remaining = processes::with_environment(marker.as_bytes());
            if remaining.is_empty() {
                break;
            }
            for pid in remaining {
                let _ = kill_process(pid, Signal::KILL);
            }
            std::thread::sleep(SWEEP_INTERVAL);
        }
    }
    for folder in folders {
        // The launcher may already have removed it.
        let _ = std::fs::remove_dir_all(folder);
    }
    0
}
