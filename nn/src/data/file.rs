//! Files of data sets: plain or compressed, with errors that name them.

use std::io::Read;
use std::path::{Path, PathBuf};

use unisono::{Error, Result};

/// Reads a file, or the one beside it whose name ends with `.gz`.
pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    read_or(path, "say where the data set is with `folder`; `download: true` fetches MNIST and CIFAR-10")
}

/// The same with what to do where it is missing.
pub(super) fn read_or(path: &Path, advice: &str) -> Result<Vec<u8>> {
    let missing = |path: &Path, error| Error::io("load data", path.display().to_string(), error, advice);
    let packed = PathBuf::from(format!("{}.gz", path.display()));
    if path.is_file() || !packed.is_file() {
        let bytes = std::fs::read(path).map_err(|error| missing(path, error))?;
        return if bytes.starts_with(&[0x1f, 0x8b]) { unpack(path, &bytes) } else { Ok(bytes) };
    }
    let bytes = std::fs::read(&packed).map_err(|error| missing(&packed, error))?;
    unpack(&packed, &bytes)
}

fn unpack(path: &Path, bytes: &[u8]) -> Result<Vec<u8>> {
    let mut unpacked = Vec::new();
    match flate2::read::MultiGzDecoder::new(bytes).read_to_end(&mut unpacked) {
        Ok(_) => Ok(unpacked),
        Err(error) => Err(damaged(path, "gzip data", error)),
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
