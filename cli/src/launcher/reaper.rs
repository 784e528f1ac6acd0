//! The keeper: a small process beside the launcher that ends the job when the launcher is killed.
//!
//! Ranks themselves die with the launcher (their parent-death signal); the keeper is for what they have started. It reads
//! lines from a pipe whose other end only the launcher holds: `job NAME=VALUE` (how to recognise the job's processes by
//! their environment), `group N` (a rank's process group), `ended N` (that group's number may be somebody else's soon),
//! `folder PATH` (to be removed) and `done`. If the pipe ends without `done`, the launcher is gone.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::processes;

/// How long the keeper looks for processes that are still being born.
const SWEEPS: usize = 50;
const SWEEP_INTERVAL: Duration = Duration::from_millis(20);

/// The launcher's end of the keeper.
pub(crate) struct Reaper {
    pid: Pid,
    lines: ChildStdin,
}

impl Reaper {
    /// Starts a keeper for the job whose processes have `marker` ("NAME=VALUE") in their environment.
    pub(crate) fn start(this_program: &[OsString], marker: &str) -> io::Result<Reaper> {
        let (program, arguments) = this_program.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut child = Command::new(program)
            .args(arguments)
            .arg("reaper")
            // A launcher inside a rank of another job: its keeper must outlive that job's own keeper.
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

    /// A rank began, as the leader of the process group of the same number.
    pub(crate) fn watch_group(&mut self, leader: Pid) {
        self.send(format_args!("group {leader}"));
    }

    /// That rank was waited for.
    pub(crate) fn forget_group(&mut self, leader: Pid) {
        self.send(format_args!("ended {leader}"));
    }

    /// The job has made this folder, which must not outlive it.
    pub(crate) fn watch_folder(&mut self, path: &str) {
        self.send(format_args!("folder {path}"));
    }

    /// The job is over and nothing is left of it.
    pub(crate) fn dismiss(mut self) {
        self.send(format_args!("done"));
        // It may still be starting (an interpreter takes its time); there is nothing left that it could do.
        let _ = kill_process(self.pid, Signal::KILL);
        let _ = rustix::process::waitpid(Some(self.pid), rustix::process::WaitOptions::empty());
    }

    fn send(&mut self, line: std::fmt::Arguments<'_>) {
        // A keeper that somebody killed cannot be told; the job goes on without.
        let _ = self.lines.write_all(format!("{line}\n").as_bytes());
    }
}

/// The keeper's own life: what the hidden subcommand runs.
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
        // Gone already is as good.
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
        // The launcher may have removed it itself.
        let _ = std::fs::remove_dir_all(folder);
    }
    0
}
