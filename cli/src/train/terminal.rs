//! The terminal of the parent process, which passes standard error through unchanged.

use std::io::{self, Write};

use indicatif::{ProgressDrawTarget, TermLike};

/// Width of that terminal; unset if there is none.
pub(super) const WIDTH_VARIABLE: &str = "UNISONO_TERMINAL_WIDTH";

#[derive(Debug)]
struct ParentTerminal {
    width: u16,
}

/// Where to draw: on this process's terminal, or on that of its parent.
pub(super) fn target() -> ProgressDrawTarget {
    const TIMES_A_SECOND: u8 = 8;
    match std::env::var(WIDTH_VARIABLE).ok().and_then(|width| width.parse().ok()) {
        Some(width) => {
            ProgressDrawTarget::term_like_with_hz(Box::new(ParentTerminal { width }), TIMES_A_SECOND)
        }
        None => ProgressDrawTarget::stderr_with_hz(TIMES_A_SECOND),
    }
}

impl ParentTerminal {
    /// Moves the cursor with the escape sequence that ends in this letter.
    fn move_cursor(&self, count: usize, letter: char) -> io::Result<()> {
        match count {
            0 => Ok(()),
            _ => write!(io::stderr(), "\x1b[{count}{letter}"),
        }
    }
}

impl TermLike for ParentTerminal {
    fn width(&self) -> u16 {
        self.width
    }

    fn move_cursor_up(&self, count: usize) -> io::Result<()> {
        self.move_cursor(count, 'A')
    }

    fn move_cursor_down(&self, count: usize) -> io::Result<()> {
        self.move_cursor(count, 'B')
    }

    fn move_cursor_right(&self, count: usize) -> io::Result<()> {
        self.move_cursor(count, 'C')
    }

    fn move_cursor_left(&self, count: usize) -> io::Result<()> {
        self.move_cursor(count, 'D')
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        writeln!(io::stderr(), "{text}")
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        io::stderr().write_all(text.as_bytes())
    }

    fn clear_line(&self) -> io::Result<()> {
        io::stderr().write_all(b"\r\x1b[2K")
    }

    fn flush(&self) -> io::Result<()> {
        io::stderr().flush()
    }
}
