//! What processes there are, read from /proc: who descends from whom, and who belongs to a job.

use std::collections::HashSet;
use std::fs;

use rustix::process::Pid;

struct Process {
    pid: i32,
    parent: i32,
    ended: bool,
}

/// Every process that can be seen, in no order. What vanishes meanwhile is left out.
fn processes() -> Vec<Process> {
    pids().filter_map(|pid| parse(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?)).collect()
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn parse(pid: i32, stat: &[u8]) -> Option<Process> {
    // The name is in parentheses and may itself hold spaces and parentheses: start after the last one.
    let after_name = &stat[stat.iter().rposition(|&byte| byte == b')')? + 1..];
    let mut fields = std::str::from_utf8(after_name).ok()?.split_ascii_whitespace();
    let state = fields.next()?;
    Some(Process { pid, parent: fields.next()?.parse().ok()?, ended: matches!(state, "Z" | "X") })
}

/// The living descendants of this process, without the subtrees that begin at `except`.
pub(crate) fn descendants(except: &HashSet<i32>) -> Vec<Pid> {
    let all = processes();
    let mut family = vec![rustix::process::getpid().as_raw_nonzero().get()];
    let mut found = Vec::new();
    while let Some(parent) = family.pop() {
        for process in all.iter().filter(|process| process.parent == parent && !except.contains(&process.pid))
        {
            family.push(process.pid);
            if !process.ended {
                found.extend(Pid::from_raw(process.pid));
            }
        }
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
        let process = parse(7, b"7 (a) b) c) Z 42 7 7 0").unwrap();
        assert_eq!((process.pid, process.parent, process.ended), (7, 42, true));
        assert!(parse(7, b"garbage").is_none());
    }
}
