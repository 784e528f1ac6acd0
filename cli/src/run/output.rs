//! Output of the ranks: prefixed with the rank, recorded for the summary, and written to log files.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::io::Errno;

use super::lines::LineSplitter;
use super::writer::OutputWriter;
use crate::launcher::{OutputStream, RankOutput};

/// Number of recent lines recorded for each rank.
const TAIL_LINES: usize = 20;
/// Terminal colours that are distinguishable on light and dark backgrounds; red is left out because it suggests an error.
const COLOURS: [u8; 6] = [36, 33, 32, 35, 34, 96];

struct RankStreams {
    prefixes: [Vec<u8>; 2],
    lines: [LineSplitter; 2],
    last: VecDeque<Vec<u8>>,
    log: Option<File>,
}

/// The launcher's output.
pub(crate) struct PrefixedOutput {
    pub(crate) writer: OutputWriter,
    streams: Vec<RankStreams>,
    /// Whether messages of the launcher are suppressed.
    quiet: bool,
}

impl PrefixedOutput {
    pub(crate) fn new(size: usize, log_dir: Option<&Path>, quiet: bool) -> io::Result<PrefixedOutput> {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let coloured = [io::stdout().is_terminal() && !plain, io::stderr().is_terminal() && !plain];
        let rank_streams = |rank: usize| {
            let log =
                log_dir.map(|folder| File::create(folder.join(format!("rank-{rank}.log")))).transpose()?;
            let prefixes = coloured.map(|coloured| prefix(rank, size, coloured));
            io::Result::Ok(RankStreams {
                prefixes,
                lines: [LineSplitter::new(), LineSplitter::new()],
                last: VecDeque::new(),
                log,
            })
        };
        let streams = (0..size).map(rank_streams).collect::<io::Result<_>>()?;
        Ok(PrefixedOutput { writer: OutputWriter::start()?, streams, quiet })
    }

    /// The most recent lines of a rank, from both streams.
    pub(crate) fn last_lines(&self, rank: usize) -> impl Iterator<Item = &[u8]> {
        self.streams[rank].last.iter().map(Vec::as_slice)
    }

    /// Writes a message of the launcher itself.
    pub(crate) fn note(&self, text: impl Into<Vec<u8>>) {
        self.writer.write(OutputStream::Stderr, text.into());
    }
}

impl RankOutput for PrefixedOutput {
    fn write(&mut self, rank: usize, stream: OutputStream, bytes: &[u8]) {
        let rank_streams = &mut self.streams[rank];
        let mut shown = Vec::with_capacity(bytes.len() + bytes.len() / 4);
        let (prefix, last) = (&rank_streams.prefixes[stream as usize], &mut rank_streams.last);
        rank_streams.lines[stream as usize].push(bytes, |line| show(&mut shown, prefix, last, line));
        if let Some(Err(error)) = rank_streams.log.as_mut().map(|log| log.write_all(bytes)) {
            rank_streams.log = None;
            self.note(format!("unisono: the log of rank {rank} ends here: {error}\n"));
        }
        self.writer.write(stream, shown);
    }

    fn end(&mut self, rank: usize, stream: OutputStream) {
        let rank_streams = &mut self.streams[rank];
        let mut shown = Vec::new();
        let (prefix, last) = (&rank_streams.prefixes[stream as usize], &mut rank_streams.last);
        rank_streams.lines[stream as usize].finish(|line| show(&mut shown, prefix, last, line));
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

    fn wakeup_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.writer.wakeup_fd())
    }

    fn failure(&self) -> Option<Errno> {
        self.writer.failure()
    }
}

fn show(shown: &mut Vec<u8>, prefix: &[u8], last: &mut VecDeque<Vec<u8>>, line: &[u8]) {
    shown.extend_from_slice(prefix);
    shown.extend_from_slice(line);
    shown.push(b'\n');
    let mut entry = if last.len() == TAIL_LINES { last.pop_front().unwrap_or_default() } else { Vec::new() };
    entry.clear();
    entry.extend_from_slice(line);
    last.push_back(entry);
}

/// The prefix of a rank's lines: "[ 3] " for rank 3 of 12.
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
