//! One writer's part of a checkpoint: its pieces, streamed into a safetensors file.

use std::collections::{HashMap, HashSet};

use super::checksum::Checksum;
use super::header::{self, TensorEntry};
use super::manifest::{DataFile, PartManifest, PieceLocation, StoredTensor};
use super::store::{CheckpointStore, NewFile, Upload, open_store};
use super::{PieceSource, TensorPiece, commit, names};
use crate::error::{Error, Result};

/// Writes these pieces as part number `part` of the save `id`. The part has no effect before [`commit`](super::commit). Each
/// writer of a save has its own number. It needs memory for one chunk only.
pub(crate) fn write_part(
    target: &str,
    id: &str,
    part: usize,
    pieces: &[TensorPiece],
    source: &dyn PieceSource,
) -> Result<PartManifest> {
    names::check_id("save", id)?;
    let store = open_store("save", target)?;
    commit::reject_foreign(&*store)?;
    let layout = PartLayout::of(pieces)?;
    let file = match layout.entries.is_empty() {
        true => None,
        false => Some(write(&*store, id, part, &layout, source)?),
    };
    Ok(PartManifest { id: id.into(), file, tensors: layout.tensors })
}

/// The offsets of all pieces in the file.
struct PartLayout {
    /// In file order, each with the index of its piece.
    entries: Vec<(usize, TensorEntry)>,
    tensors: Vec<StoredTensor>,
}

impl PartLayout {
    fn of(pieces: &[TensorPiece]) -> Result<PartLayout> {
        let mut layout = PartLayout { entries: Vec::new(), tensors: Vec::new() };
        let mut known = HashMap::new();
        let mut used_keys = HashSet::from([header::METADATA.to_string()]);
        for (index, piece) in pieces.iter().enumerate() {
            let TensorPiece { tensor, first_row, rows } = *piece;
            let number = *known.entry(tensor.name.as_str()).or_insert(layout.tensors.len());
            if number == layout.tensors.len() {
                layout.tensors.push(StoredTensor {
                    name: tensor.name.clone(),
                    dtype: tensor.dtype.name().into(),
                    shape: tensor.shape.clone(),
                    pieces: Vec::new(),
                });
            }
            let fits = first_row.checked_add(rows).is_some_and(|end| end <= tensor.rows());
            let row = tensor.checked_row_bytes().filter(|_| fits).ok_or_else(|| {
                let expected = format!("rows within `{}` of shape {:?}", tensor.name, tensor.shape);
                let received = format!("{rows} rows from row {first_row} on");
                Error::usage("save", expected, received, "pass rows that the tensor has")
            })?;
            if rows == 0 {
                continue;
            }
            let mut key = match rows == tensor.rows() {
                true => tensor.name.clone(),
                false => format!("{}[{first_row}..{}]", tensor.name, first_row + rows),
            };
            while !used_keys.insert(key.clone()) {
                key.push('\'');
            }
            layout.tensors[number].pieces.push(PieceLocation { file: 0, key: key.clone(), first_row, rows });
            let (shape, end) = (tensor.shape_of(rows), (rows * row) as u64);
            layout.entries.push((index, TensorEntry { key, dtype: tensor.dtype, shape, begin: 0, end }));
        }
        layout.assign_offsets()?;
        Ok(layout)
    }

    /// Assigns offsets: wide types come first, so that every value is aligned if a reader maps the file.
    fn assign_offsets(&mut self) -> Result<()> {
        self.entries.sort_by_key(|(_, entry)| std::cmp::Reverse(entry.dtype.size()));
        let mut at: u64 = 0;
        for (_, entry) in &mut self.entries {
            let end = at.checked_add(entry.end).ok_or_else(|| {
                let expected = "pieces that together have less than 2^64 bytes";
                Error::usage("save", expected, "more", "spread the tensors over more writers")
            })?;
            (entry.begin, entry.end) = (at, end);
            at = end;
        }
        Ok(())
    }
}

fn write(
    store: &dyn CheckpointStore,
    id: &str,
    part: usize,
    layout: &PartLayout,
    source: &dyn PieceSource,
) -> Result<DataFile> {
    let entries: Vec<TensorEntry> = layout.entries.iter().map(|(_, entry)| entry.clone()).collect();
    let header = header::encode(id, &entries);
    if header.len() as u64 > header::MAX_HEADER_BYTES {
        let received = format!("{} pieces", entries.len());
        let expected = format!("a header of at most {} bytes", header::MAX_HEADER_BYTES);
        return Err(Error::usage("save", expected, received, "spread the tensors over more writers"));
    }
    let data = entries.last().map_or(0, |entry| entry.end);
    let bytes = header.len() as u64 + data;
    let name = names::data_file(id, part);
    let file = NewFile { name: &name, partial: &names::partial(id, &name), bytes, replace: false };
    let mut output = ChecksumWriter { upload: store.create(file)?, checksum: Checksum::new() };
    output.write(&header)?;
    let mut buffer = vec![0; store.chunk().min(usize::try_from(data).unwrap_or(usize::MAX))];
    for (piece, entry) in &layout.entries {
        let length = (entry.end - entry.begin) as usize;
        for offset in (0..length).step_by(buffer.len().max(1)) {
            let chunk = &mut buffer[..(length - offset).min(store.chunk())];
            source.read(*piece, offset, chunk)?;
            output.write(chunk)?;
        }
    }
    output.upload.finish()?;
    Ok(DataFile { name, bytes, checksum: output.checksum.text() })
}

/// Computes the checksum of the bytes it writes.
struct ChecksumWriter<'a> {
    upload: Box<dyn Upload + 'a>,
    checksum: Checksum,
}

impl ChecksumWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.checksum.update(bytes);
        self.upload.write(bytes)
    }
}
