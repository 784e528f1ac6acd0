//! Checkpoints: tensors and a little JSON in a folder or an object store, safe against crashes and damage.
//!
//! A checkpoint is a folder (or a prefix of an object store) with
//!
//! - `manifest.json`: `{"format": "unisono-tables", "version": 1, "checksum": …, "content": {…}}`. The content names the
//!   data files with their lengths and checksums, every tensor with the pieces that it consists of, and what the caller
//!   wants to remember. The checksum is over the content's bytes as they stand in the file.
//! - `<id>-<part>.safetensors`: what one writer wrote, a valid safetensors file. A piece is some rows of a tensor;
//!   it is stored under the tensor's name, with its rows in brackets where it is not the whole.
//!
//! The manifest is written last and takes its name in one step. So a folder holds the old checkpoint or the new one,
//! whole, at any moment; files of unfinished saves are never looked at and go away with the next save.
//! A reader believes nothing before it has checked everything.
//!
//! It knows nothing of tables and nothing of ranks: whoever calls decides who writes which piece, and who commits.

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

/// A tensor as the caller sees it: which pieces it lies in is the checkpoint's business.
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

    /// The bytes of one row; none where the tensor would not fit into memory.
    fn checked_row_bytes(&self) -> Option<usize> {
        let mut columns = self.shape.iter().skip(1);
        let row = columns.try_fold(self.dtype.size(), |bytes, axis| bytes.checked_mul(*axis))?;
        row.checked_mul(self.rows()).filter(|whole| *whole <= isize::MAX as usize)?;
        Some(row)
    }

    /// The bytes of one row of a tensor that was written or opened, whose size is therefore in range.
    pub(crate) fn row_bytes(&self) -> usize {
        self.checked_row_bytes().unwrap_or(0)
    }

    /// The shape of some rows of this tensor.
    fn shape_of(&self, rows: usize) -> Vec<usize> {
        let mut shape = self.shape.clone();
        shape.iter_mut().take(1).for_each(|axis| *axis = rows);
        shape
    }
}

/// Some rows of a tensor, which one writer writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TensorPiece<'a> {
    pub tensor: &'a TensorSpec,
    pub first_row: usize,
    pub rows: usize,
}

/// Where a writer takes the bytes of its pieces from.
pub(crate) trait PieceSource {
    /// Fills `out` with the bytes of the piece with this index, from `offset` on. It is asked in order, each byte once;
    /// an error ends the save and leaves nothing of this part behind.
    fn read(&self, piece: usize, offset: usize, out: &mut [u8]) -> Result<()>;
}

/// Something in the checkpoint's own files is not as it must be.
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
