//! Opens a checkpoint: validates everything first, then reads any rows of any tensor.

use std::collections::HashMap;
use std::io::ErrorKind;

use serde_json::Value;

use super::checksum::Checksum;
use super::header::{self, TensorEntry};
use super::manifest::{self, DataFile, Manifest};
use super::names::MANIFEST;
use super::store::{Blob, CheckpointStore, open_store};
use super::{TensorSpec, damaged};
use crate::error::{Error, Result};

/// A longer file than this, in bytes, is no manifest.
const MAX_MANIFEST_BYTES: u64 = 1 << 28;
/// How often a reader tries again when a concurrent save replaces the checkpoint.
const ATTEMPTS: usize = 4;

/// The data files whose checksums one reader verifies: every `of`-th, starting at `index`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChecksumShare {
    pub index: usize,
    pub of: usize,
}

/// A validated checkpoint.
pub(crate) struct Checkpoint {
    id: String,
    tables: Value,
    tensors: Vec<TensorSpec>,
    /// The pieces of each tensor, sorted by row.
    pieces: Vec<Vec<PieceInFile>>,
    numbers: HashMap<String, usize>,
    files: Vec<Box<dyn Blob>>,
}

/// Rows of a tensor, stored at byte `begin` of a file.
struct PieceInFile {
    first_row: usize,
    rows: usize,
    file: usize,
    begin: u64,
}

/// Opens the checkpoint at `target` and validates all of it: manifest, lengths, checksums, headers, pieces.
#[cfg(test)]
pub(crate) fn open(target: &str) -> Result<Checkpoint> {
    open_share(target, ChecksumShare { index: 0, of: 1 })
}

/// Opens the checkpoint at `target`, but verifies the checksums of a share of the data files only, so that several readers can
/// divide the work. The checkpoint is fully validated if all readers succeed and have the same id.
pub(crate) fn open_share(target: &str, share: ChecksumShare) -> Result<Checkpoint> {
    let store = open_store("load", target)?;
    let mut content = read_manifest(&*store)?;
    for _ in 1..ATTEMPTS {
        let id = content.id.clone();
        let opened = Checkpoint::check(&*store, content, share);
        if opened.is_ok() {
            return opened;
        }
        content = match read_manifest(&*store) {
            Ok(again) if again.id != id => again,
            _ => return opened,
        };
    }
    Checkpoint::check(&*store, content, share)
}

/// The bytes of the manifest; `None` if there is no checkpoint.
pub(super) fn read_manifest_text(operation: &str, store: &dyn CheckpointStore) -> Result<Option<Vec<u8>>> {
    let Some(blob) = store.open(MANIFEST)? else { return Ok(None) };
    if blob.length() > MAX_MANIFEST_BYTES {
        let expected = format!("at most {MAX_MANIFEST_BYTES} bytes");
        let received = format!("{} bytes", blob.length());
        return Err(damaged(operation, &store.location(MANIFEST), expected, received));
    }
    let mut text = vec![0; blob.length() as usize];
    blob.read_at(0, &mut text)?;
    Ok(Some(text))
}

fn read_manifest(store: &dyn CheckpointStore) -> Result<Manifest> {
    let location = store.location(MANIFEST);
    let text = read_manifest_text("load", store)?.ok_or_else(|| {
        let advice = "check the path; a save that did not finish leaves no checkpoint";
        Error::io("load", location.clone(), ErrorKind::NotFound, advice)
    })?;
    manifest::decode("load", &location, &text)
}

impl Checkpoint {
    fn check(store: &dyn CheckpointStore, content: Manifest, share: ChecksumShare) -> Result<Checkpoint> {
        let mut files = Vec::with_capacity(content.files.len());
        let mut entries: HashMap<(usize, String), (u64, TensorEntry)> = HashMap::new();
        for (number, file) in content.files.iter().enumerate() {
            let (blob, start, found) = open_file(store, file)?;
            files.push(blob);
            entries.extend(found.into_iter().map(|entry| ((number, entry.key.clone()), (start, entry))));
        }
        let (mut tensors, mut pieces) = (Vec::new(), Vec::new());
        for stored in &content.tensors {
            let tensor = stored.tensor().ok_or_else(|| Error::internal("load", "a type that was checked"))?;
            let mut located = Vec::with_capacity(stored.pieces.len());
            for piece in &stored.pieces {
                let expected = (tensor.dtype, tensor.shape_of(piece.rows));
                let found = entries.remove(&(piece.file, piece.key.clone()));
                match found {
                    Some((start, entry)) if (entry.dtype, &entry.shape) == (expected.0, &expected.1) => {
                        let (first_row, rows, file) = (piece.first_row, piece.rows, piece.file);
                        located.push(PieceInFile { first_row, rows, file, begin: start + entry.begin });
                    }
                    other => {
                        let location = store.location(&content.files[piece.file].name);
                        let expected = format!("`{}` of {} {:?}", piece.key, expected.0, expected.1);
                        let received = other.map_or("none".to_string(), |(_, entry)| {
                            format!("one of {} {:?}", entry.dtype, entry.shape)
                        });
                        return Err(damaged("load", &location, expected, received));
                    }
                }
            }
            located.sort_by_key(|piece| piece.first_row);
            tensors.push(tensor);
            pieces.push(located);
        }
        if let Some((number, key)) = entries.into_keys().next() {
            let location = store.location(&content.files[number].name);
            return Err(damaged("load", &location, "only what the manifest lists", format!("also `{key}`")));
        }
        for number in (share.index..files.len()).step_by(share.of.max(1)) {
            verify_checksum(store, &content.files[number], &*files[number])?;
        }
        let numbers = tensors.iter().map(|tensor| tensor.name.clone()).zip(0..).collect();
        Ok(Checkpoint { id: content.id, tables: content.tables, tensors, pieces, numbers, files })
    }

    /// The id of the save that wrote it.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The metadata passed to `commit`.
    pub(crate) fn metadata(&self) -> &Value {
        &self.tables
    }

    #[cfg(test)]
    pub(crate) fn tensors(&self) -> &[TensorSpec] {
        &self.tensors
    }

    pub(crate) fn tensor(&self, name: &str) -> Option<&TensorSpec> {
        self.numbers.get(name).map(|number| &self.tensors[*number])
    }

    /// Fills `out` with these rows, from all pieces that contain them.
    pub(crate) fn read_rows(
        &self,
        tensor: &str,
        first_row: usize,
        rows: usize,
        out: &mut [u8],
    ) -> Result<()> {
        let number = *self.numbers.get(tensor).ok_or_else(|| {
            let known = self.tensors.iter().map(|tensor| tensor.name.as_str());
            let expected = format!("one of {:?}", known.take(20).collect::<Vec<_>>());
            Error::usage("load", expected, format!("`{tensor}`"), "ask for a tensor of the checkpoint")
        })?;
        let row = self.tensors[number].row_bytes();
        let end = first_row.checked_add(rows).filter(|end| *end <= self.tensors[number].rows());
        let end = end.filter(|_| out.len() == row * rows).ok_or_else(|| {
            let expected = format!("rows of `{tensor}` of shape {:?}", self.tensors[number].shape);
            let received = format!("{rows} rows from row {first_row} on into {} bytes", out.len());
            Error::usage("load", expected, received, "pass rows that it has, and room for exactly them")
        })?;
        let pieces = &self.pieces[number];
        let begin = pieces.partition_point(|piece| piece.first_row + piece.rows <= first_row);
        for piece in pieces[begin..].iter().take_while(|piece| piece.first_row < end) {
            let from = piece.first_row.max(first_row);
            let to = (piece.first_row + piece.rows).min(end);
            let target = &mut out[(from - first_row) * row..(to - first_row) * row];
            let offset = piece.begin + ((from - piece.first_row) * row) as u64;
            self.files[piece.file].read_at(offset, target)?;
        }
        Ok(())
    }
}

/// Opens a data file and decodes its header; returns the file, the offset of its data, and its entries.
fn open_file(store: &dyn CheckpointStore, file: &DataFile) -> Result<(Box<dyn Blob>, u64, Vec<TensorEntry>)> {
    let location = store.location(&file.name);
    let blob = store.open(&file.name)?.ok_or_else(|| {
        let advice = "take another checkpoint, or copy this one again with all its files";
        Error::io("load", location.clone(), ErrorKind::NotFound, advice)
    })?;
    if blob.length() != file.bytes {
        let received = format!("{} bytes", blob.length());
        return Err(damaged("load", &location, format!("{} bytes", file.bytes), received));
    }
    let expected = "a safetensors header that fits its file";
    let wrong = |received: String| damaged("load", &location, expected, received);
    let prefix = header::LENGTH_BYTES as u64;
    if file.bytes < prefix {
        return Err(wrong(format!("{} bytes", file.bytes)));
    }
    let mut length = [0; header::LENGTH_BYTES];
    blob.read_at(0, &mut length)?;
    let length = u64::from_le_bytes(length);
    if length > header::MAX_HEADER_BYTES.min(file.bytes - prefix) {
        return Err(wrong(format!("a header of {length} bytes")));
    }
    let mut json = vec![0; length as usize];
    blob.read_at(prefix, &mut json)?;
    let start = prefix + length;
    let entries = header::decode(&json, file.bytes - start).map_err(wrong)?;
    Ok((blob, start, entries))
}

fn verify_checksum(store: &dyn CheckpointStore, file: &DataFile, blob: &dyn Blob) -> Result<()> {
    let mut checksum = Checksum::new();
    let mut buffer = vec![0; store.chunk().min(usize::try_from(file.bytes).unwrap_or(usize::MAX))];
    for offset in (0..file.bytes).step_by(store.chunk()) {
        let length = (file.bytes - offset).min(buffer.len() as u64) as usize;
        blob.read_at(offset, &mut buffer[..length])?;
        checksum.update(&buffer[..length]);
    }
    let found = checksum.text();
    if found != file.checksum {
        let expected = format!("the checksum {}", file.checksum);
        return Err(damaged("load", &store.location(&file.name), expected, found));
    }
    Ok(())
}
