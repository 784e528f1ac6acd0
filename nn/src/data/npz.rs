//! NumPy's `.npz` files: zip archives of `.npy` files.

use std::io::{Cursor, Read};
use std::path::Path;

use unisono::Result;
use zip::ZipArchive;

use super::file::damaged;
use super::npy::{Array, parse};
use crate::memory;

/// The arrays of a file, by name.
pub(crate) fn read(path: &Path) -> Result<Vec<(String, Array)>> {
    let bytes = std::fs::read(path).map_err(|error| damaged(path, "a file that can be read", error))?;
    unpack(path, &bytes)
}

/// The arrays of an archive; the checksum of each is verified.
pub(super) fn unpack(path: &Path, bytes: &[u8]) -> Result<Vec<(String, Array)>> {
    let wrong = |received: &dyn std::fmt::Display| {
        damaged(path, "a .npz file (a zip archive of .npy files)", received)
    };
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(|error| wrong(&error))?;
    let mut arrays = Vec::new();
    for index in 0..archive.len() {
        let mut member = archive.by_index(index).map_err(|error| wrong(&error))?;
        let name = member.name().map_err(|error| wrong(&error))?.into_owned();
        let length = member.size();
        let operation = format!("load {}", path.display());
        let advice = "write the file again, or take fewer arrays";
        memory::check_fits(
            &operation,
            "unpacked arrays",
            usize::try_from(length).unwrap_or(usize::MAX),
            advice,
        )?;
        let mut unpacked = Vec::new();
        // Reads one byte more than the directory lists, to reach the end of the member and so verify its checksum.
        let read = (&mut member).take(length.saturating_add(1)).read_to_end(&mut unpacked);
        read.map_err(|error| wrong(&format!("`{name}`: {error}")))?;
        if unpacked.len() as u64 != length {
            return Err(wrong(&format!("`{name}` of {} bytes where {length} are listed", unpacked.len())));
        }
        let short = name.strip_suffix(".npy").unwrap_or(&name);
        if arrays.iter().any(|(other, _)| other == short) {
            return Err(wrong(&format!("`{name}` twice")));
        }
        arrays.push((short.to_string(), parse(path, &unpacked)?));
    }
    Ok(arrays)
}
