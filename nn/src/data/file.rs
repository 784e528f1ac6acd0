//! Files of data sets: plain or compressed, with errors that name them.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use unisono::{Error, Result};

const ADVICE: &str = "say where the data set is with `folder`; `download: true` fetches MNIST and CIFAR-10";

/// A file that is there.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) path: PathBuf,
    file: File,
    /// Whether it is compressed, and can only be read from its beginning on.
    pub(super) packed: bool,
}

/// Opens a file, or the one beside it whose name ends with `.gz`.
pub(super) fn open(path: &Path) -> Result<Opened> {
    open_or(path, ADVICE)
}

/// The same with what to do where it is missing.
pub(super) fn open_or(path: &Path, advice: &str) -> Result<Opened> {
    let beside = PathBuf::from(format!("{}.gz", path.display()));
    let path = if path.is_file() || !beside.is_file() { path.to_path_buf() } else { beside };
    let start = || -> std::io::Result<(File, bool)> {
        let file = File::open(&path)?;
        let mut word = [0; 2];
        let length = file.read_at(&mut word, 0)?;
        Ok((file, word[..length] == [0x1f, 0x8b]))
    };
    match start() {
        Ok((file, packed)) => Ok(Opened { path, file, packed }),
        Err(error) => Err(Error::io("load data", path.display().to_string(), error, advice)),
    }
}

impl Opened {
    /// What it has, unpacked, from the beginning on.
    pub(super) fn reader(&self) -> Result<Box<dyn Read>> {
        let file = File::open(&self.path).map_err(|error| self.failed(error))?;
        let file = std::io::BufReader::with_capacity(1 << 16, file);
        Ok(if self.packed { Box::new(flate2::bufread::MultiGzDecoder::new(file)) } else { Box::new(file) })
    }

    /// All of it.
    pub(super) fn all(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.reader()?.read_to_end(&mut bytes).map_err(|error| self.failed(error))?;
        Ok(bytes)
    }

    /// A part of it, where it is not compressed.
    pub(super) fn read_at(&self, bytes: &mut [u8], at: u64) -> Result<()> {
        self.file.read_exact_at(bytes, at).map_err(|error| self.failed(error))
    }

    /// How many bytes it has.
    pub(super) fn length(&self) -> Result<u64> {
        Ok(self.file.metadata().map_err(|error| self.failed(error))?.len())
    }

    pub(super) fn failed(&self, error: std::io::Error) -> Error {
        match self.packed {
            true => damaged(&self.path, "whole gzip data", error),
            false => Error::io("load data", self.path.display().to_string(), error, ADVICE),
        }
    }
}

/// A file that is not what it should be.
pub(crate) fn damaged(path: &Path, expected: impl Into<String>, received: impl std::fmt::Display) -> Error {
    Error::usage(
        format!("load {}", path.display()),
        expected,
        received.to_string(),
        "fetch or write the file again",
    )
}
