//! Starts the real program with a deadline, and finds processes that it may have left behind.

#![allow(dead_code)]

use std::ffi::OsStr;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Time limit for everything that a test starts, on the slowest machine.
pub const DEADLINE: Duration = Duration::from_secs(180);

/// `unisono` with these arguments, in a clean environment. Signals have their default actions, even if the tests run in a
/// shell's background, which ignores some of them; the launcher would then ignore them too.
pub fn unisono<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT,HUP,TERM", env!("CARGO_BIN_EXE_unisono")]);
    command.args(arguments).env_remove("NO_COLOR").stdin(Stdio::null());
    command
}

/// `unisono run` with these arguments and a shell script as the program.
pub fn run_shell(arguments: &[&str], script: &str) -> Command {
    let mut command = unisono(["run"]);
    command.args(arguments).args(["--", "sh", "-c", script]);
    command
}

/// Runs a command to its end, or fails the test at the deadline.
pub fn finish(mut command: Command) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    finish_child(child)
}

/// Waits for a child with piped outputs, or fails the test at the deadline.
pub fn finish_child(child: Child) -> Output {
    let pid = child.id();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    match receiver.recv_timeout(DEADLINE) {
        Ok(output) => output.unwrap(),
        Err(_) => {
            kill("KILL", pid);
            panic!("unisono did not end within {DEADLINE:?}");
        }
    }
}

pub fn kill(signal: &str, pid: u32) {
    let sent = Command::new("kill").arg(format!("-{signal}")).arg(pid.to_string()).status().unwrap();
    assert!(sent.success(), "kill -{signal} {pid}");
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The sorted lines of standard output.
pub fn sorted_lines(output: &Output) -> Vec<String> {
    let mut lines: Vec<String> = text(&output.stdout).lines().map(Into::into).collect();
    lines.sort();
    lines
}

/// Waits until a condition holds, or fails the test at the deadline.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "did not happen: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A value unique to a test, put into the environment of a job so that its processes can be found.
pub fn mark() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    format!("UNISONO_TEST_MARK={}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// The living processes with this mark in their environment.
pub fn marked(mark: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes())
    })
    .collect()
}

/// Reads lines from a child's standard output until `count` of them satisfy `wanted`, or fails at the deadline.
pub fn await_lines(child: &mut Child, count: usize, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let pipe = child.stdout.as_mut().unwrap();
    let (start, mut found, mut line) = (Instant::now(), Vec::new(), Vec::new());
    while found.len() < count {
        let mut polled = [PollFd::new(pipe, PollFlags::IN)];
        let limit = Timespec { tv_sec: 1, tv_nsec: 0 };
        if poll(&mut polled, Some(&limit)).unwrap() == 0 {
            assert!(start.elapsed() < DEADLINE, "no more lines after {found:?}");
            continue;
        }
        // One byte at a time, so that later output stays in the pipe.
        let mut byte = [0];
        assert_eq!(pipe.read(&mut byte).unwrap(), 1, "the output ended after {found:?}");
        line.push(byte[0]);
        if byte[0] == b'\n' {
            let text = text(&std::mem::take(&mut line));
            found.extend(Some(text).filter(|text| wanted(text)));
        }
    }
    found
}

/// A private folder, removed on drop.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Folder {
        let name = mark().replace('=', "-");
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// The path of a file in the folder.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
