//! Data set files: plain or compressed, on disk or embedded in the program, with errors that name them.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use unisono::{Error, Result};

use crate::memory;

const ADVICE: &str =
    "set `folder` to the location of the data set; `download: true` fetches MNIST and CIFAR-10";

/// An opened file.
#[derive(Debug)]
pub(super) struct DataSetFile {
    pub(super) path: PathBuf,
    backing: Backing,
    /// Whether the file is compressed, and so can only be read sequentially from its start.
    pub(super) compressed: bool,
}

/// Where the file's bytes are stored.
#[derive(Debug)]
enum Backing {
    Disk(File),
    /// Embedded in the program.
    Embedded(Cow<'static, [u8]>),
}

/// Whether a file with these first bytes is gzip-compressed.
fn is_compressed(start: &[u8]) -> bool {
    start.starts_with(&[0x1f, 0x8b])
}

/// Opens a file, or the file of the same name with the suffix `.gz`.
pub(super) fn open(path: &Path) -> Result<DataSetFile> {
    open_or(path, ADVICE)
}

/// [`open`] with the advice to give if the file is missing.
pub(super) fn open_or(path: &Path, advice: &str) -> Result<DataSetFile> {
    let beside = PathBuf::from(format!("{}.gz", path.display()));
    let path = if path.is_file() || !beside.is_file() { path.to_path_buf() } else { beside };
    let start = || -> std::io::Result<(File, bool)> {
        let file = File::open(&path)?;
        let mut word = [0; 2];
        let length = file.read_at(&mut word, 0)?;
        Ok((file, is_compressed(&word[..length])))
    };
    match start() {
        Ok((file, compressed)) => Ok(DataSetFile { path, backing: Backing::Disk(file), compressed }),
        Err(error) => Err(Error::io("load data", path.display().to_string(), error, advice)),
    }
}

impl DataSetFile {
    /// A file embedded in the program; errors refer to it by `name`.
    pub(super) fn embedded(name: &str, bytes: impl Into<Cow<'static, [u8]>>) -> DataSetFile {
        let (path, bytes) = (Path::new("(in this program)").join(name), bytes.into());
        DataSetFile { path, compressed: is_compressed(&bytes), backing: Backing::Embedded(bytes) }
    }

    /// A reader over the decompressed contents, from the start.
    pub(super) fn reader(&self) -> Result<Box<dyn Read + '_>> {
        let bytes: Box<dyn BufRead + '_> = match &self.backing {
            Backing::Disk(_) => {
                let file = File::open(&self.path).map_err(|error| self.failed(error))?;
                Box::new(BufReader::with_capacity(1 << 16, file))
            }
            Backing::Embedded(bytes) => Box::new(&bytes[..]),
        };
        Ok(if self.compressed { Box::new(flate2::bufread::MultiGzDecoder::new(bytes)) } else { bytes })
    }

    /// The decompressed contents, up to a quarter of the machine's memory: a few compressed bytes may expand to any size.
    pub(super) fn all(&self) -> Result<Vec<u8>> {
        let most = memory::bytes() / 4;
        let mut bytes = Vec::new();
        let mut reader = self.reader()?.take(most as u64 + 1);
        reader.read_to_end(&mut bytes).map_err(|error| self.failed(error))?;
        match bytes.len() <= most {
            true => Ok(bytes),
            false => Err(damaged(&self.path, format!("at most {most} bytes"), "more")),
        }
    }

    /// Reads a range of an uncompressed file.
    pub(super) fn read_at(&self, bytes: &mut [u8], at: u64) -> Result<()> {
        let read = match &self.backing {
            Backing::Disk(file) => file.read_exact_at(bytes, at),
            Backing::Embedded(all) => all.get(at as usize..).unwrap_or_default().read_exact(bytes),
        };
        read.map_err(|error| self.failed(error))
    }

    /// The length of the file in bytes.
    pub(super) fn length(&self) -> Result<u64> {
        match &self.backing {
            Backing::Disk(file) => Ok(file.metadata().map_err(|error| self.failed(error))?.len()),
            Backing::Embedded(bytes) => Ok(bytes.len() as u64),
        }
    }

    pub(super) fn failed(&self, error: std::io::Error) -> Error {
        let advice = "restore the complete file; it must not change during a run";
        match self.compressed {
            true => damaged(&self.path, "complete gzip data", error),
            false => Error::io("load data", self.path.display().to_string(), error, advice),
        }
    }
}

/// The error for a file with invalid contents.
pub(crate) fn damaged(path: &Path, expected: impl Into<String>, received: impl std::fmt::Display) -> Error {
    Error::usage(
        format!("load {}", path.display()),
        expected,
        received.to_string(),
        "fetch or write the file again",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_this_program_reads_like_one_on_a_disk() {
        let file = DataSetFile::embedded("letters", b"abcdef");
        let mut part = [0; 3];
        file.read_at(&mut part, 2).expect("it has six bytes");
        assert_eq!((&part, file.length().ok(), file.compressed), (b"cde", Some(6), false));
        assert_eq!(file.all().expect("it is there"), b"abcdef");
        for beyond in [4, 100] {
            let error = file.read_at(&mut part, beyond).expect_err("that is beyond its end");
            assert!(error.to_string().contains("letters"), "{error}");
        }
    }
}
