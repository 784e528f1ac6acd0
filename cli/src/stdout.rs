//! Standard output of the commands: a write error is reported once and makes the program fail.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a write has failed. Global, because standard output belongs to the process.
static FAILED: AtomicBool = AtomicBool::new(false);

/// Prints text and a newline.
pub(crate) fn line(text: impl Display) {
    bytes(format!("{text}\n").as_bytes());
}

/// Prints bytes unchanged.
pub(crate) fn bytes(bytes: &[u8]) {
    if FAILED.load(Ordering::Relaxed) {
        return;
    }
    let mut stdout = io::stdout().lock();
    if let Err(error) = stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        failed(&error);
    }
}

/// Reports a write error of standard output. A closed pipe, as from `head`, is not an error.
pub(crate) fn failed(error: &io::Error) {
    if error.kind() != ErrorKind::BrokenPipe && !FAILED.swap(true, Ordering::Relaxed) {
        // If standard error fails too, the exit status still reports the failure.
        let _ = writeln!(io::stderr(), "unisono: cannot write to standard output: {error}");
    }
}

/// The exit status of a command that would return `status`.
pub(crate) fn status(status: i32) -> i32 {
    match status {
        0 => i32::from(FAILED.load(Ordering::Relaxed)),
        status => status,
    }
}
