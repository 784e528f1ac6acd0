//! The contents of `manifest.json`, and its consistency checks.

use std::collections::HashSet;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{TensorSpec, checksum, damaged, names};
use crate::error::{Error, Result};
use crate::memory::DType;

pub(super) const FORMAT: &str = "unisono-tables";
const VERSION: u64 = 1;

/// Read first, also from manifests of other programs and of later versions.
#[derive(Deserialize)]
struct VersionHeader {
    format: String,
    version: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestFile<'a> {
    #[serde(rename = "format")]
    _format: String,
    #[serde(rename = "version")]
    _version: u64,
    checksum: String,
    #[serde(borrow)]
    content: &'a RawValue,
}

/// The entire checkpoint: its data files, its tensors, and the caller's metadata.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    pub id: String,
    pub tables: Value,
    pub files: Vec<DataFile>,
    pub tensors: Vec<StoredTensor>,
}

/// The output of one writer. The committing rank needs that of every writer: send it as bytes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PartManifest {
    pub(super) id: String,
    /// None if all pieces were empty.
    pub(super) file: Option<DataFile>,
    pub(super) tensors: Vec<StoredTensor>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DataFile {
    pub name: String,
    pub bytes: u64,
    pub checksum: String,
}

/// A tensor and the locations of its rows.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredTensor {
    pub name: String,
    pub dtype: String,
    pub shape: Vec<usize>,
    pub pieces: Vec<PieceLocation>,
}

/// Some rows of a tensor: stored under `key` in the file with this index.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PieceLocation {
    pub file: usize,
    pub key: String,
    pub first_row: usize,
    pub rows: usize,
}

impl PartManifest {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<PartManifest> {
        serde_json::from_slice(bytes).map_err(|error| {
            Error::usage("save", "what another rank wrote", error.to_string(), "run one version on all ranks")
        })
    }
}

impl StoredTensor {
    pub(super) fn tensor(&self) -> Option<TensorSpec> {
        let dtype = DType::from_name(&self.dtype)?;
        Some(TensorSpec { name: self.name.clone(), dtype, shape: self.shape.clone() })
    }
}

/// Whether this is a unisono manifest, of any version, even if damaged further on.
pub(super) fn is_unisono_manifest(text: &[u8]) -> bool {
    serde_json::from_slice::<VersionHeader>(text).is_ok_and(|header| header.format == FORMAT)
}

pub(super) fn encode(content: &Manifest) -> Result<Vec<u8>> {
    let text = serde_json::to_string_pretty(content)
        .map_err(|error| Error::internal("save", format!("the manifest cannot be written: {error}")))?;
    let checksum = checksum::of(text.as_bytes());
    let whole = format!(
        "{{\"format\": \"{FORMAT}\", \"version\": {VERSION}, \"checksum\": \"{checksum}\", \"content\": {text}}}\n"
    );
    Ok(whole.into_bytes())
}

/// Decodes a manifest and validates everything that can be validated without the data files.
pub(super) fn decode(operation: &str, location: &str, text: &[u8]) -> Result<Manifest> {
    let foreign = |error: serde_json::Error| damaged(operation, location, "a manifest", error.to_string());
    let header: VersionHeader = serde_json::from_slice(text).map_err(foreign)?;
    if header.format != FORMAT {
        return Err(damaged(
            operation,
            location,
            format!("the format `{FORMAT}`"),
            format!("`{}`", header.format),
        ));
    }
    if header.version != VERSION {
        return Err(Error::usage(
            operation,
            format!("version {VERSION} in {location}"),
            format!("version {}", header.version),
            "read it with the version of unisono that wrote it",
        ));
    }
    let envelope: ManifestFile = serde_json::from_slice(text).map_err(foreign)?;
    let found = checksum::of(envelope.content.get().as_bytes());
    if found != envelope.checksum {
        return Err(damaged(operation, location, format!("the checksum {}", envelope.checksum), found));
    }
    let content: Manifest = serde_json::from_str(envelope.content.get()).map_err(foreign)?;
    match check(&content) {
        Ok(()) => Ok(content),
        Err((expected, received)) => Err(damaged(operation, location, expected, received)),
    }
}

/// The expected and the actual value.
type Fault = (String, String);

/// Checks that files, tensors and pieces are consistent: every row of every tensor is stored exactly once.
pub(super) fn check(content: &Manifest) -> Result<(), Fault> {
    if !names::is_id(&content.id) {
        return Err(("an id of 32 hexadecimal digits".into(), format!("`{}`", content.id)));
    }
    let mut seen = HashSet::new();
    for file in &content.files {
        if names::id_of_data(&file.name) != Some(content.id.as_str()) {
            let expected = format!("data files named {}", names::data_file(&content.id, 0));
            return Err((expected, format!("`{}`", file.name)));
        }
        if !seen.insert(&file.name) {
            return Err(("every data file once".into(), format!("`{}` twice", file.name)));
        }
    }
    let mut seen = HashSet::new();
    let mut places = HashSet::new();
    for stored in &content.tensors {
        if stored.name.is_empty() || !seen.insert(&stored.name) {
            return Err(("a name of its own for every tensor".into(), format!("`{}` again", stored.name)));
        }
        for piece in &stored.pieces {
            if piece.file >= content.files.len() || !places.insert((piece.file, &piece.key)) {
                let received = format!("`{}` in file {}", piece.key, piece.file);
                return Err(("every piece at a place of its own, in a listed file".into(), received));
            }
        }
        check_rows(stored)?;
    }
    Ok(())
}

fn check_rows(stored: &StoredTensor) -> Result<(), Fault> {
    let StoredTensor { name, dtype, shape, pieces } = stored;
    let tensor = stored.tensor().filter(|tensor| tensor.checked_row_bytes().is_some()).ok_or_else(|| {
        ("a known type and a size within memory".to_string(), format!("`{name}` of {dtype} {shape:?}"))
    })?;
    let mut ranges: Vec<Range<usize>> = Vec::with_capacity(pieces.len());
    for PieceLocation { first_row, rows, .. } in pieces {
        let end = first_row.checked_add(*rows).filter(|end| *rows > 0 && *end <= tensor.rows());
        let end = end.ok_or_else(|| {
            let expected = format!("pieces within the {} rows of `{name}`", tensor.rows());
            (expected, format!("{rows} rows from row {first_row} on"))
        })?;
        ranges.push(*first_row..end);
    }
    ranges.sort_by_key(|range| range.start);
    ranges.push(tensor.rows()..tensor.rows());
    let mut next = 0;
    for range in ranges {
        let expected = || format!("each of the {} rows of `{name}` once", tensor.rows());
        if range.start > next {
            return Err((expected(), format!("none of rows {next}..{}", range.start)));
        }
        if range.start < next {
            return Err((expected(), format!("row {} twice", range.start)));
        }
        next = range.end;
    }
    Ok(())
}
