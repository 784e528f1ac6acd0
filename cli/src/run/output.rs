//! What ranks print, shown with their rank before each line, kept for the summary, and written to log files.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::io::Errno;

use super::lines::Lines;
use super::writer::Writer;
use crate::launcher::{Audience, Stream};

/// How many of a rank's last lines are kept.
const LAST: usize = 20;
/// Colours that are told apart on light and dark ground, without red, which looks like an error.
const COLOURS: [u8; 6] = [36, 33, 32, 35, 34, 96];

struct Speaker {
    prefixes: [Vec<u8>; 2],
    lines: [Lines; 2],
    last: VecDeque<Vec<u8>>,
    log: Option<File>,
}

/// The launcher's output.
pub(crate) struct Output {
    pub(crate) writer: Writer,
    speakers: Vec<Speaker>,
    /// Whether the launcher itself keeps silent.
    quiet: bool,
}

impl Output {
    pub(crate) fn new(size: usize, log_dir: Option<&Path>, quiet: bool) -> io::Result<Output> {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let coloured = [io::stdout().is_terminal() && !plain, io::stderr().is_terminal() && !plain];
        let speaker = |rank: usize| {
            let log =
                log_dir.map(|folder| File::create(folder.join(format!("rank-{rank}.log")))).transpose()?;
            let prefixes = coloured.map(|coloured| prefix(rank, size, coloured));
            io::Result::Ok(Speaker {
                prefixes,
                lines: [Lines::new(), Lines::new()],
                last: VecDeque::new(),
                log,
            })
        };
        let speakers = (0..size).map(speaker).collect::<io::Result<_>>()?;
        Ok(Output { writer: Writer::start()?, speakers, quiet })
    }

    /// A rank's last lines, from both its outputs.
    pub(crate) fn last_lines(&self, rank: usize) -> impl Iterator<Item = &[u8]> {
        self.speakers[rank].last.iter().map(Vec::as_slice)
    }

    /// A message from the launcher itself.
    pub(crate) fn note(&self, text: impl Into<Vec<u8>>) {
        self.writer.write(Stream::Stderr, text.into());
    }
}

impl Audience for Output {
    fn hear(&mut self, rank: usize, stream: Stream, bytes: &[u8]) {
        let speaker = &mut self.speakers[rank];
        let mut shown = Vec::with_capacity(bytes.len() + bytes.len() / 4);
        let (prefix, last) = (&speaker.prefixes[stream as usize], &mut speaker.last);
        speaker.lines[stream as usize].push(bytes, |line| show(&mut shown, prefix, last, line));
        if let Some(Err(error)) = speaker.log.as_mut().map(|log| log.write_all(bytes)) {
            speaker.log = None;
            self.note(format!("unisono: the log of rank {rank} ends here: {error}\n"));
        }
        self.writer.write(stream, shown);
    }

    fn end(&mut self, rank: usize, stream: Stream) {
        let speaker = &mut self.speakers[rank];
        let mut shown = Vec::new();
        let (prefix, last) = (&speaker.prefixes[stream as usize], &mut speaker.last);
        speaker.lines[stream as usize].finish(|line| show(&mut shown, prefix, last, line));
        self.writer.write(stream, shown);
    }

    fn notice(&mut self, line: &str) {
        if !self.quiet {
            self.note(format!("unisono: {line}\n"));
        }
    }

    fn has_room(&self) -> bool {
        self.writer.has_room()
    }

    fn news(&self) -> Option<BorrowedFd<'_>> {
        Some(self.writer.news())
    }

    fn failure(&self) -> Option<Errno> {
        self.writer.failure()
    }
}

fn show(shown: &mut Vec<u8>, prefix: &[u8], last: &mut VecDeque<Vec<u8>>, line: &[u8]) {
    shown.extend_from_slice(prefix);
    shown.extend_from_slice(line);
    shown.push(b'\n');
    let mut kept = if last.len() == LAST { last.pop_front().unwrap_or_default() } else { Vec::new() };
    kept.clear();
    kept.extend_from_slice(line);
    last.push_back(kept);
}

/// "[ 3] " for rank 3 of 12.
fn prefix(rank: usize, size: usize, coloured: bool) -> Vec<u8> {
    let width = (size - 1).to_string().len();
    match coloured {
        true => format!("\x1b[{}m[{rank:width$}]\x1b[0m ", COLOURS[rank % COLOURS.len()]).into_bytes(),
        false => format!("[{rank:width$}] ").into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_aligned() {
        assert_eq!(prefix(3, 4, false), b"[3] ");
        assert_eq!(prefix(3, 11, false), b"[ 3] ");
        assert_eq!(prefix(10, 11, true), b"\x1b[34m[10]\x1b[0m ");
    }
}
