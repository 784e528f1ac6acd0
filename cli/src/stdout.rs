//! Standard output of the commands: what cannot be written is reported once and makes the program fail.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether something could not be written. One for the process, as standard output is.
static FAILED: AtomicBool = AtomicBool::new(false);

/// Prints text and a line feed.
pub(crate) fn line(text: impl Display) {
    bytes(format!("{text}\n").as_bytes());
}

/// Prints bytes as they are.
pub(crate) fn bytes(bytes: &[u8]) {
    if FAILED.load(Ordering::Relaxed) {
        return;
    }
    let mut stdout = io::stdout().lock();
    if let Err(error) = stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        failed(&error);
    }
}

/// Reports an error of standard output. A reader that has seen enough, as `head` has, is none.
pub(crate) fn failed(error: &io::Error) {
    if error.kind() != ErrorKind::BrokenPipe && !FAILED.swap(true, Ordering::Relaxed) {
        // If standard error fails too, the exit status remains.
        let _ = writeln!(io::stderr(), "unisono: cannot write to standard output: {error}");
    }
}

/// The exit status of a command whose own would be `status`.
pub(crate) fn status(status: i32) -> i32 {
    match status {
        0 => i32::from(FAILED.load(Ordering::Relaxed)),
        status => status,
    }
}
