//! Hydra, MPICH's launcher: if a rank dies and the job is to go on, it sends SIGUSR1 to the others.
//!
//! The signal ends a process that does not expect it. MPICH's own handler is no better: the next MPI call asks the launcher which
//! ranks have died and blocks until it replies, which it never does if the link to its host is cut. Lost ranks are detected by
//! other means here (see `status`), so this process ignores the signal.

use std::env;
use std::ffi::c_int;
use std::fs;

const SIGUSR1: c_int = 10;
const DEFAULT_ACTION: usize = 0;
const IGNORE_ACTION: usize = 1;

/// The C library's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct SignalAction {
    handler: usize,
    mask: [u64; 16],
    flags: c_int,
    restorer: usize,
}

// SAFETY: the C library's own declarations; `signal` has a handler in place of the type that also has special values.
unsafe extern "C" {
    fn signal(number: c_int, handler: extern "C" fn(c_int)) -> usize;
    fn sigaction(number: c_int, new: *const SignalAction, old: *mut SignalAction) -> c_int;
}

// Has one address: an inlined copy would have another.
#[inline(never)]
extern "C" fn ignore(_number: c_int) {}

/// Lets this process outlive that signal, and replaces MPICH's handler by that of the program, which `before` is: the action
/// before MPI was initialised. `mpi` is the address of a function of the MPI library. A program may also set a handler later.
/// If it initialised MPI itself, a handler that it had set before that is not known.
pub(super) fn outlive_lost_ranks(mpi: usize, before: Option<SignalAction>) {
    // Hydra does not set the variable on other hosts than its own, but MPICH has a handler there, too.
    ignore_unless_handled(mpi, before, env::var_os("HYDI_CONTROL_FD").is_some());
}

fn ignore_unless_handled(mpi: usize, before: Option<SignalAction>, by_hydra: bool) {
    let Some(now) = action() else { return };
    let is_program =
        |action: &SignalAction| action.handler > IGNORE_ACTION && !are_in_one_file(action.handler, mpi);
    let would_end = now.handler == DEFAULT_ACTION && by_hydra;
    if would_end || are_in_one_file(now.handler, mpi) {
        match before.filter(is_program) {
            // SAFETY: this action was in force before; null discards the present one.
            Some(before) => unsafe { sigaction(SIGUSR1, &before, std::ptr::null_mut()) },
            // Not SIG_IGN, which programs that this process starts would inherit.
            // SAFETY: the handler does nothing, so it may run at any time.
            None => unsafe { signal(SIGUSR1, ignore) as c_int },
        };
    }
}

/// What SIGUSR1 does to this process.
pub(super) fn action() -> Option<SignalAction> {
    let mut action = SignalAction { handler: 0, mask: [0; 16], flags: 0, restorer: 0 };
    // SAFETY: null leaves the action as it is, and the other pointer is to a live structure as large as the C library's.
    let code = unsafe { sigaction(SIGUSR1, std::ptr::null(), &mut action) };
    (code == 0).then_some(action)
}

/// Whether two functions of this process come from the same file.
fn are_in_one_file(one: usize, other: usize) -> bool {
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return false };
    file_at(&maps, one).is_some_and(|file| file_at(&maps, other) == Some(file))
}

/// The file that is mapped at an address, according to this text of /proc/self/maps.
fn file_at(maps: &str, address: usize) -> Option<&str> {
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let [start, end] = [start, end].map(|text| usize::from_str_radix(text, 16).unwrap_or(0));
        let path = rest.find('/').map(|index| &rest[index..]);
        path.filter(|_| (start..end).contains(&address))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    extern "C" fn of_the_program(_number: c_int) {}

    fn address(handler: extern "C" fn(c_int)) -> usize {
        handler as *const () as usize
    }

    /// A function of another file than this program's.
    fn elsewhere() -> usize {
        let library = libloading::os::unix::Library::this();
        // SAFETY: only the address is taken; nothing is called.
        let symbol = unsafe { library.get::<*const ()>("getpid") }.expect("the C library has it");
        symbol.as_raw_ptr() as usize
    }

    fn handler() -> usize {
        action().expect("the C library knows the signal").handler
    }

    /// One test, because a process has one action for each signal.
    #[test]
    fn the_signal_is_ignored_unless_the_program_handles_it() {
        assert_eq!(handler(), DEFAULT_ACTION);
        let at_start = action();
        ignore_unless_handled(elsewhere(), at_start, false);
        assert_eq!(handler(), DEFAULT_ACTION, "no launcher sends it");
        ignore_unless_handled(elsewhere(), at_start, true);
        assert_eq!(handler(), address(ignore));
        // SAFETY: the handler does nothing.
        unsafe { signal(SIGUSR1, of_the_program) };
        ignore_unless_handled(elsewhere(), at_start, true);
        assert_eq!(handler(), address(of_the_program), "the program's own");
        // The handler is in the same file as the function: it is the MPI library's.
        ignore_unless_handled(address(of_the_program), at_start, false);
        assert_eq!(handler(), address(ignore));
        // SAFETY: the handler does nothing.
        unsafe { signal(SIGUSR1, of_the_program) };
        // One that the program had set before it, in another file.
        let of_another_file = SignalAction { handler: elsewhere(), ..at_start.unwrap() };
        ignore_unless_handled(address(of_the_program), Some(of_another_file), false);
        assert_eq!(handler(), elsewhere());
        // SAFETY: the handler does nothing.
        unsafe { signal(SIGUSR1, ignore) };
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::USR1).unwrap();
    }

    #[test]
    fn files_are_found_by_address() {
        let maps = "1000-2000 r-xp 00000000 08:01 12 /usr/lib/lib mpi.so.12\n\
                    2000-3000 rw-p 00000000 00:00 0\n\
                    3000-4000 r-xp 00000000 08:01 13 /usr/bin/program\n\
                    4000-5000 r-xp 00000000 00:00 0 [vdso]\nnot a line\n";
        assert_eq!(file_at(maps, 0x1000), Some("/usr/lib/lib mpi.so.12"));
        assert_eq!(file_at(maps, 0x1fff), Some("/usr/lib/lib mpi.so.12"));
        assert_eq!(file_at(maps, 0x3800), Some("/usr/bin/program"));
        assert!([0, 0x2000, 0x4000, 0x5000].iter().all(|&address| file_at(maps, address).is_none()));
    }
}
