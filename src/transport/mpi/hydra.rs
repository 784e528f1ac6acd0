//! Hydra, MPICH's launcher: if a rank dies and the job is to go on, it sends SIGUSR1 to the others, which ends a process that does
//! not expect it.

use std::env;
use std::ffi::c_int;
use std::fs;

const SIGUSR1: c_int = 10;

// SAFETY: the C library's own declaration, with a handler in place of the type that also has special values.
unsafe extern "C" {
    fn signal(number: c_int, handler: extern "C" fn(c_int)) -> usize;
}

extern "C" fn ignore(_number: c_int) {}

/// Lets this process outlive that signal, if Hydra has started it. A handler of the program remains, now or later.
pub(super) fn outlive_lost_ranks() {
    if env::var_os("HYDI_CONTROL_FD").is_some() {
        ignore_by_default();
    }
}

fn ignore_by_default() {
    if fs::read_to_string("/proc/self/status").is_ok_and(|status| has_default_action(&status)) {
        // Not SIG_IGN, which programs that this process starts would inherit.
        // SAFETY: the handler does nothing, so it may run at any time.
        unsafe { signal(SIGUSR1, ignore) };
    }
}

/// Whether SIGUSR1 would end a process with this `/proc/self/status`.
fn has_default_action(status: &str) -> bool {
    let is_clear = |name: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix(name));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.is_some_and(|mask| mask >> (SIGUSR1 - 1) & 1 == 0)
    };
    is_clear("SigIgn:") && is_clear("SigCgt:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_of_the_program_is_found() {
        let status = |ignored, caught| format!("Name:\tx\nSigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\n");
        assert!(has_default_action(&status(0, 0)) && has_default_action(&status(!0x200, !0x200)));
        assert!(!has_default_action(&status(0x200, 0)) && !has_default_action(&status(0, 0x200)));
        assert!(!has_default_action("SigIgn:\t0\n") && !has_default_action(""));
    }

    #[test]
    fn the_signal_does_not_end_the_process() {
        ignore_by_default();
        let status = fs::read_to_string("/proc/self/status").unwrap();
        assert!(!has_default_action(&status), "{status}");
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::USR1).unwrap();
    }
}
