//! How a process terminated: as text and as an exit status.

use std::fmt;

use rustix::process::{Signal, WaitStatus};

/// How a process terminated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Termination {
    /// It exited with this status.
    Status(i32),
    /// It was killed by this signal.
    Signal(i32),
}

impl Termination {
    pub(crate) fn of(status: WaitStatus) -> Termination {
        match (status.exit_status(), status.terminating_signal()) {
            (Some(status), _) => Termination::Status(status),
            (None, signal) => Termination::Signal(signal.unwrap_or(Signal::KILL.as_raw())),
        }
    }

    pub(crate) fn failed(self) -> bool {
        self != Termination::Status(0)
    }

    /// The status that a shell would report.
    pub(crate) fn exit_status(self) -> i32 {
        match self {
            Termination::Status(status) => status,
            Termination::Signal(signal) => 128 + signal,
        }
    }
}

impl fmt::Display for Termination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Termination::Status(status) => write!(f, "exit status {status}"),
            Termination::Signal(signal) => write!(f, "{}", signal_name(*signal)),
        }
    }
}

/// The name of a signal: "SIGSEGV" for 11.
pub(crate) fn signal_name(number: i32) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
        "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
        "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    match usize::try_from(number - 1).ok().and_then(|index| NAMES.get(index)) {
        Some(name) => format!("SIG{name}"),
        None => format!("signal {number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_their_names_and_shell_statuses() {
        for signal in [Signal::HUP, Signal::INT, Signal::KILL, Signal::SEGV, Signal::TERM, Signal::SYS] {
            assert!(format!("{signal:?}").contains(&signal_name(signal.as_raw())[3..]), "{signal:?}");
        }
        assert_eq!(signal_name(40), "signal 40");
        assert_eq!(Termination::Signal(9).exit_status(), 137);
        assert_eq!(Termination::Status(3).to_string(), "exit status 3");
    }
}
