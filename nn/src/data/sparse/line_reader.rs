//! Lines of a part of a file.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use unisono::{Error, Result};

use super::Mistake;

/// A longer line is an error: the file is probably not a text file.
const LONGEST_LINE: usize = 16 << 20;

/// Reads the lines that begin in a range of a file.
pub(super) struct LineReader {
    path: PathBuf,
    file: BufReader<File>,
    line: Vec<u8>,
    /// Where the part begins, where the last line began, where the next line begins, and where the part ends.
    start: u64,
    last: u64,
    position: u64,
    end: u64,
}

impl LineReader {
    /// Opens one of `parts` parts: each line belongs to the part in which it begins.
    pub(super) fn open(path: &Path, part: usize, parts: usize) -> Result<LineReader> {
        let failure =
            |error| Error::io("read", path.display().to_string(), error, "give the path of a text file");
        let file = File::open(path).map_err(failure)?;
        let metadata = file.metadata().map_err(failure)?;
        if !metadata.is_file() {
            let received = path.display().to_string();
            return Err(Error::usage("read", "a regular file", received, "give the path of a text file"));
        }
        let at = |part: usize| (u128::from(metadata.len()) * part as u128 / parts as u128) as u64;
        let (start, end) = (at(part), at(part + 1));
        let mut reader = LineReader {
            path: path.into(),
            file: BufReader::with_capacity(1 << 18, file),
            line: Vec::new(),
            start,
            last: start,
            position: start,
            end,
        };
        if start > 0 {
            // The line around the byte before the part belongs to another part; if that byte ends it, this is empty.
            reader.position = start - 1;
            reader.file.seek(SeekFrom::Start(start - 1)).map_err(failure)?;
            reader.read_line()?;
        }
        Ok(reader)
    }

    /// The next line of the part, without its end; `None` at the end of the part.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>> {
        if self.position >= self.end || !self.read_line()? {
            return Ok(None);
        }
        Ok(Some(self.line.strip_suffix(b"\n").unwrap_or(&self.line)))
    }

    /// Reads up to the next end of a line; returns whether there was anything left to read.
    fn read_line(&mut self) -> Result<bool> {
        self.line.clear();
        self.last = self.position;
        let limit = LONGEST_LINE as u64 + 1;
        let read = self.file.by_ref().take(limit).read_until(b'\n', &mut self.line);
        let count = read.map_err(|error| {
            Error::io("read", self.path.display().to_string(), error, "check the disk and the file")
        })?;
        self.position += count as u64;
        if count > LONGEST_LINE {
            return Err(self
                .error(&Mistake { expected: "a line of at most 16 MiB", received: "a longer one".into() }));
        }
        Ok(count > 0)
    }

    /// Bytes of the part that have been read, and its size.
    pub(super) fn progress(&self) -> (u64, u64) {
        (self.position.clamp(self.start, self.end) - self.start, self.end - self.start)
    }

    /// The error for a mistake in the last line.
    pub(super) fn error(&self, mistake: &Mistake) -> Error {
        let place = match self.line_number() {
            Some(number) => format!("{}:{number}", self.path.display()),
            None => format!("{}, at byte {}", self.path.display(), self.last),
        };
        Error::usage(
            "read",
            mistake.expected,
            format!("{} ({place})", mistake.received),
            "check that the file has this format, and that it is complete",
        )
    }

    /// The number of the last line, counted from the start of the file.
    fn line_number(&self) -> Option<u64> {
        let mut before = BufReader::with_capacity(1 << 18, File::open(&self.path).ok()?.take(self.last));
        let mut number = 1;
        loop {
            let bytes = before.fill_buf().ok()?;
            if bytes.is_empty() {
                return Some(number);
            }
            number += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
            let count = bytes.len();
            before.consume(count);
        }
    }
}
