//! Queries about processes of this host: identity, liveness, whether stopped, namespaces.

use std::fs;
use std::os::linux::fs::MetadataExt;

/// PID of this process.
pub(crate) fn own_pid() -> u32 {
    std::process::id()
}

/// When a process started, in clock ticks since boot: distinguishes it from a later process with the same PID.
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    stat_field(pid, START_TIME)?.parse().ok()
}

/// Whether a process is running, as far as this one can determine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Liveness {
    Alive,
    Exited,
    /// Undetermined: this process has no file descriptor left or no permission to inspect the other. Proves nothing.
    Unknown,
}

/// Whether the process that started at `started` (0 if unknown) is still running. A zombie is not, unless only its first thread has
/// ended and others are running.
pub(crate) fn liveness(pid: u32, started: u64) -> Liveness {
    let text = match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(text) => text,
        // The entry is also missing for processes that this one may not see; and reading it needs a file descriptor, which a
        // signal does not.
        Err(_) => return if exists(pid) { Liveness::Unknown } else { Liveness::Exited },
    };
    liveness_in(&text, started)
}

/// As [`liveness`], from the text of /proc/PID/stat.
fn liveness_in(text: &str, started: u64) -> Liveness {
    let number = |index: usize| field(text, index).and_then(|value| value.parse::<u64>().ok());
    match (field(text, 0), number(START_TIME)) {
        (Some("X"), _) => Liveness::Exited,
        (Some("Z"), _) if number(THREADS).is_none_or(|threads| threads <= 1) => Liveness::Exited,
        (Some(_), Some(found)) if started == 0 || started == found => Liveness::Alive,
        (Some(_), Some(_)) => Liveness::Exited,
        _ => Liveness::Unknown,
    }
}

/// Whether any process, including a zombie, has this PID; false only if that is certain.
fn exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// Whether the process was stopped by a signal or a debugger.
pub(crate) fn is_stopped(pid: u32) -> bool {
    matches!(stat_field(pid, 0).as_deref(), Some("T" | "t"))
}

/// The PID namespace of this process's PIDs; zero if /proc is not available or belongs to another namespace.
pub(crate) fn pid_namespace() -> u64 {
    let shown = fs::read_link("/proc/self").ok().and_then(|link| link.to_str()?.parse().ok());
    if shown == Some(own_pid()) { namespace("self", "pid") } else { 0 }
}

/// The network namespace of a process, which scopes the names of abstract sockets; zero if it cannot be
/// determined.
pub(crate) fn network_namespace(pid: Option<u32>) -> u64 {
    namespace(&pid.map_or_else(|| "self".into(), |pid| pid.to_string()), "net")
}

fn namespace(process: &str, kind: &str) -> u64 {
    fs::metadata(format!("/proc/{process}/ns/{kind}")).map_or(0, |namespace| namespace.st_ino())
}

/// PID of a process's parent.
pub(crate) fn parent(pid: u32) -> Option<u32> {
    stat_field(pid, 1)?.parse().ok()
}

/// Index of the number of threads in /proc/PID/stat, as counted by [`field`].
const THREADS: usize = 17;

/// Index of the start time.
const START_TIME: usize = 19;

fn stat_field(pid: u32, index: usize) -> Option<String> {
    field(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?, index).map(str::to_owned)
}

/// A field of /proc/PID/stat, counted from the field after the command name (which may contain spaces).
fn field(text: &str, index: usize) -> Option<&str> {
    text[text.rfind(')')? + 1..].split_whitespace().nth(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_live_processes_from_dead_ones() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let started = start_time(child.id()).unwrap();
        assert_eq!(liveness(child.id(), started), Liveness::Alive);
        assert_eq!(liveness(child.id(), 0), Liveness::Alive, "the start time is not known");
        assert_eq!(liveness(child.id(), started + 1), Liveness::Exited, "another process with the same id");
        child.kill().unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while liveness(child.id(), started) != Liveness::Exited {
            assert!(std::time::Instant::now() < deadline, "a killed process still counts as alive");
        }
        child.wait().unwrap();
        assert_eq!(liveness(child.id(), started), Liveness::Exited);
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_lives_on_in_the_others() {
        let stat = |state: &str, threads: usize| {
            format!("7 (a (b) c) {state} 1 7 7 0 -1 4227084 0 0 0 0 0 0 0 0 20 0 {threads} 0 1234 0 0")
        };
        assert_eq!(liveness_in(&stat("Z", 1), 1234), Liveness::Exited);
        assert_eq!(liveness_in(&stat("Z", 0), 1234), Liveness::Exited);
        assert_eq!(liveness_in(&stat("Z", 2), 1234), Liveness::Alive);
        assert_eq!(liveness_in(&stat("Z", 2), 99), Liveness::Exited, "another process with the same id");
        assert_eq!(liveness_in(&stat("X", 2), 1234), Liveness::Exited);
        assert_eq!(liveness_in(&stat("S", 1), 1234), Liveness::Alive);
        assert_eq!(liveness_in("7 (cut", 1234), Liveness::Unknown);
    }
}
