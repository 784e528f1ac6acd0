//! Checkpoints: tensors and some JSON metadata in a folder or an object store, safe against crashes and corruption.
//!
//! A checkpoint is a folder (or a prefix of an object store) with
//!
//! - `manifest.json`: `{"format": "unisono-tables", "version": 1, "checksum": …, "content": {…}}`. The content lists the data
//!   files with their lengths and checksums, every tensor with its pieces, and the caller's metadata. The checksum covers the
//!   content's bytes exactly as they are in the file.
//! - `<id>-<part>.safetensors`: the output of one writer, a valid safetensors file. A piece is some rows of a tensor; its key is
//!   the tensor's name, followed by the row range in brackets unless the piece is the entire tensor.
//!
//! The manifest is written last and renamed atomically. So a folder contains either the complete old checkpoint or the complete
//! new one at any moment; files of unfinished saves are never read, and the next save removes them. A reader validates everything
//! before it uses anything.
//!
//! This module is independent of tables and ranks: the caller decides which rank writes which piece, and which rank commits.

mod checksum;
mod commit;
mod header;
mod manifest;
mod names;
mod open;
mod part;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use commit::{commit, discard};
pub(crate) use manifest::PartManifest;
pub(crate) use names::new_id;
pub(crate) use open::{Checkpoint, ChecksumShare, open_share};
pub(crate) use part::write_part;

use crate::error::{Error, Result};
use crate::memory::DType;

const _: () = assert!(cfg!(target_endian = "little"), "safetensors files hold little-endian values");

/// A tensor as the caller sees it, independent of the pieces in which it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TensorSpec {
    pub name: String,
    pub dtype: DType,
    /// Row-major; rows run along the first axis. A tensor without axes has one row.
    pub shape: Vec<usize>,
}

impl TensorSpec {
    pub(crate) fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Bytes per row; `None` if the tensor would not fit into memory.
    fn checked_row_bytes(&self) -> Option<usize> {
        let mut columns = self.shape.iter().skip(1);
        let row = columns.try_fold(self.dtype.size(), |bytes, axis| bytes.checked_mul(*axis))?;
        row.checked_mul(self.rows()).filter(|whole| *whole <= isize::MAX as usize)?;
        Some(row)
    }

    /// Bytes per row of a tensor that was written or opened, whose size is therefore in range.
    pub(crate) fn row_bytes(&self) -> usize {
        self.checked_row_bytes().unwrap_or(0)
    }

    /// The shape of a piece of this tensor with `rows` rows.
    fn shape_of(&self, rows: usize) -> Vec<usize> {
        let mut shape = self.shape.clone();
        shape.iter_mut().take(1).for_each(|axis| *axis = rows);
        shape
    }
}

/// Some rows of a tensor, written by one writer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TensorPiece<'a> {
    pub tensor: &'a TensorSpec,
    pub first_row: usize,
    pub rows: usize,
}

/// Provides a writer with the bytes of its pieces.
pub(crate) trait PieceSource {
    /// Fills `out` with the bytes of the piece with this index, starting at `offset`. It is called in order, once for each byte;
    /// an error ends the save and leaves nothing of this part behind.
    fn read(&self, piece: usize, offset: usize, out: &mut [u8]) -> Result<()>;
}

/// The error for invalid contents of the checkpoint's own files.
fn damaged(
    operation: &str,
    location: &str,
    expected: impl std::fmt::Display,
    received: impl Into<String>,
) -> Error {
    Error::usage(
        operation,
        format!("{expected} in {location}"),
        received,
        "take another checkpoint: this one is damaged, or was not written by unisono",
    )
}
