//! NumPy's `.npz` files: zip archives of `.npy` files.

use std::io::Read;
use std::path::Path;

use unisono::Result;

use super::file::damaged;
use super::npy::{Array, parse};

fn number(bytes: &[u8], at: usize, size: usize) -> Option<usize> {
    let field = bytes.get(at..at.checked_add(size)?)?;
    Some(field.iter().rev().fold(0, |value, byte| value << 8 | usize::from(*byte)))
}

/// One member of the archive: its name, how it is packed, its packed bytes and its length.
struct Member<'a> {
    name: String,
    method: usize,
    packed: &'a [u8],
    length: usize,
}

/// The member that the central directory describes at `at`, and where the next description begins.
fn member(bytes: &[u8], at: usize) -> Option<(Member<'_>, usize)> {
    let field = |offset: usize, size: usize| number(bytes, at + offset, size);
    if bytes.get(at..at + 4)? != b"PK\x01\x02" {
        return None;
    }
    let (name, extra, comment) = (field(28, 2)?, field(30, 2)?, field(32, 2)?);
    let name_text = String::from_utf8(bytes.get(at + 46..at + 46 + name)?.to_vec()).ok()?;
    let local = field(42, 4)?;
    let start = local + 30 + number(bytes, local + 26, 2)? + number(bytes, local + 28, 2)?;
    let packed = bytes.get(start..start.checked_add(field(20, 4)?)?)?;
    let member = Member { name: name_text, method: field(10, 2)?, packed, length: field(24, 4)? };
    Some((member, at + 46 + name + extra + comment))
}

/// Reads all arrays of a file, by name.
pub(crate) fn read(path: &Path) -> Result<Vec<(String, Array)>> {
    let bytes = std::fs::read(path).map_err(|error| damaged(path, "a file that can be read", error))?;
    let wrong = |received: &str| damaged(path, "a .npz file (a zip archive of .npy files)", received);
    let end = bytes.windows(4).rposition(|word| word == b"PK\x05\x06");
    let end = end.ok_or_else(|| wrong("a file without a directory"))?;
    let count = number(&bytes, end + 10, 2).ok_or_else(|| wrong("a directory that ends too early"))?;
    let mut at = number(&bytes, end + 16, 4).ok_or_else(|| wrong("a directory that ends too early"))?;
    let mut arrays = Vec::with_capacity(count);
    for _ in 0..count {
        let (member, next) = member(&bytes, at).ok_or_else(|| wrong("a broken directory"))?;
        at = next;
        let unpacked = match member.method {
            0 => member.packed.to_vec(),
            8 => {
                let mut unpacked = Vec::new();
                let limit = member.length as u64 + 1;
                let read =
                    flate2::read::DeflateDecoder::new(member.packed).take(limit).read_to_end(&mut unpacked);
                read.map_err(|error| wrong(&error.to_string()))?;
                unpacked
            }
            method => return Err(wrong(&format!("{} packed by method {method}", member.name))),
        };
        if unpacked.len() != member.length {
            return Err(wrong(&format!("{} of {} bytes", member.name, unpacked.len())));
        }
        let name = member.name.strip_suffix(".npy").unwrap_or(&member.name).to_string();
        arrays.push((name, parse(path, &unpacked)?));
    }
    Ok(arrays)
}
