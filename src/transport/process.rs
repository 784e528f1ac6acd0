//! Facts about processes of this host: is it the same one, is it alive, is it stopped.

use std::fs;

/// This process's id.
pub(crate) fn own() -> u32 {
    std::process::id()
}

/// When a process started, in clock ticks since boot: tells a process from a later one with the same id.
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    stat_field(pid, 19)?.parse().ok()
}

/// Whether the process that started at `started` still runs. A zombie does not.
pub(crate) fn is_alive(pid: u32, started: u64) -> bool {
    let Some(state) = stat_field(pid, 0) else { return false };
    !matches!(state.as_str(), "Z" | "X") && start_time(pid) == Some(started)
}

/// Whether the process was stopped by a signal or a debugger.
pub(crate) fn is_stopped(pid: u32) -> bool {
    matches!(stat_field(pid, 0).as_deref(), Some("T" | "t"))
}

/// The parent of a process.
pub(crate) fn parent(pid: u32) -> Option<u32> {
    stat_field(pid, 1)?.parse().ok()
}

/// A field of /proc/PID/stat, counted from the one after the command's name (which may contain spaces).
fn stat_field(pid: u32, index: usize) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name = &text[text.rfind(')')? + 1..];
    after_name.split_whitespace().nth(index).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_the_living_from_the_dead() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let started = start_time(child.id()).unwrap();
        assert!(is_alive(child.id(), started));
        assert!(!is_alive(child.id(), started + 1), "another process with the same id is not ours");
        child.kill().unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while is_alive(child.id(), started) {
            assert!(std::time::Instant::now() < deadline, "a killed process still counts as alive");
        }
        child.wait().unwrap();
        assert!(!is_alive(child.id(), started));
    }
}
