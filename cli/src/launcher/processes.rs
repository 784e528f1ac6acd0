//! Enumerates processes through /proc: the descendants of this process and the processes of a job.

use std::collections::HashSet;
use std::fs;

use rustix::process::Pid;

struct Process {
    pid: i32,
    parent: i32,
    group: i32,
    ended: bool,
}

/// All visible processes, in no particular order. A process that exits during the scan is skipped.
fn processes() -> Vec<Process> {
    pids().filter_map(|pid| parse(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?)).collect()
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn parse(pid: i32, stat: &[u8]) -> Option<Process> {
    // The name is in parentheses and may itself contain spaces and parentheses: parse after the last closing one.
    let after_name = &stat[stat.iter().rposition(|&byte| byte == b')')? + 1..];
    let mut fields = std::str::from_utf8(after_name).ok()?.split_ascii_whitespace();
    let state = fields.next()?;
    let mut number = || fields.next()?.parse().ok();
    Some(Process { pid, parent: number()?, group: number()?, ended: matches!(state, "Z" | "X") })
}

/// The living descendants of this process, excluding the subtrees rooted at `except`.
pub(crate) fn descendants(except: &HashSet<i32>) -> Vec<Pid> {
    let found = living_descendants(except);
    found.iter().filter_map(|process| Pid::from_raw(process.pid)).collect()
}

/// The living descendants of this process that belong to a process group.
pub(crate) fn in_group(leader: Pid) -> Vec<Pid> {
    let mut found = living_descendants(&HashSet::new());
    found.retain(|process| process.group == leader.as_raw_nonzero().get());
    found.iter().filter_map(|process| Pid::from_raw(process.pid)).collect()
}

fn living_descendants(except: &HashSet<i32>) -> Vec<Process> {
    let mut all = processes();
    let mut frontier = vec![rustix::process::getpid().as_raw_nonzero().get()];
    let mut found = Vec::new();
    while let Some(parent) = frontier.pop() {
        let (children, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|process| process.parent == parent && !except.contains(&process.pid));
        frontier.extend(children.iter().map(|process| process.pid));
        found.extend(children.into_iter().filter(|process| !process.ended));
        all = others;
    }
    found
}

/// The processes, other than this one, that were started with this "NAME=VALUE" in their environment.
pub(crate) fn with_environment(entry: &[u8]) -> Vec<Pid> {
    let own = rustix::process::getpid();
    let marked = pids().filter(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == entry)
    });
    marked.filter_map(Pid::from_raw).filter(|&pid| pid != own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_confuse() {
        let process = parse(7, b"7 (a) b) c) Z 42 8 7 0").unwrap();
        assert_eq!((process.pid, process.parent, process.group, process.ended), (7, 42, 8, true));
        assert!(parse(7, b"garbage").is_none());
    }
}
