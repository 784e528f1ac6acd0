//! Wire format: the payload first, so that it need not be copied, then a small trailer with all other fields.
//!
//! Little-endian. All input is validated: a truncated or malformed message is an error, never a panic, and no allocation exceeds
//! what the message's own length accounts for.

use crate::error::{Error, Result};

/// The first byte of a trailer: the version of this format.
const VERSION: u8 = 1;

/// Room for the trailer of most messages, so that appending it to a payload does not copy the payload.
pub(super) const TRAILER_ROOM: usize = 512;

/// Appends the trailer that `write` produces to a payload.
pub(super) fn append_trailer(payload: Vec<u8>, write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer { bytes: payload };
    let start = writer.bytes.len();
    writer.u8(VERSION);
    write(&mut writer);
    let length = (writer.bytes.len() - start) as u64;
    writer.u64(length);
    writer.bytes
}

/// Decodes a message's trailer and returns it with the payload.
pub(super) fn split_trailer<R>(
    mut bytes: Vec<u8>,
    read: impl FnOnce(&mut Reader) -> Result<R>,
) -> Result<(R, Vec<u8>)> {
    let (start, end) = bounds(&bytes)?;
    let mut reader = Reader { rest: &bytes[start + 1..end] };
    let trailer = read(&mut reader)?;
    if !reader.rest.is_empty() {
        return Err(malformed(format!("{} bytes too many", reader.rest.len())));
    }
    bytes.truncate(start);
    Ok((trailer, bytes))
}

/// The number with which a trailer begins, if that much can be read.
pub(super) fn number(bytes: &[u8]) -> Option<u64> {
    let (start, end) = bounds(bytes).ok()?;
    Reader { rest: &bytes[start + 1..end] }.u64().ok()
}

/// The bounds of the trailer, without its length field.
fn bounds(bytes: &[u8]) -> Result<(usize, usize)> {
    let (front, length) =
        bytes.split_last_chunk::<8>().ok_or_else(|| malformed(format!("{} bytes", bytes.len())))?;
    let length = u64::from_le_bytes(*length);
    let start = usize::try_from(length).ok().and_then(|length| front.len().checked_sub(length));
    let start = start.filter(|_| length > 0);
    let start =
        start.ok_or_else(|| malformed(format!("a trailer of {length} bytes in {} bytes", front.len())))?;
    match front[start] {
        VERSION => Ok((start, front.len())),
        other => Err(malformed(format!("a message of form {other}"))),
    }
}

/// The error for a message that this version cannot have written.
pub(super) fn malformed(received: impl Into<String>) -> Error {
    let advice = "use the same version of unisono on every rank";
    Error::usage("a message between tables", "a whole message of this version", received, advice)
}

/// Appends numbers and strings.
pub(super) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub fn numbers(&mut self, values: &[i64]) {
        self.u64(values.len() as u64);
        match cfg!(target_endian = "little") {
            true => self.bytes.extend_from_slice(bytemuck::cast_slice(values)),
            false => values.iter().for_each(|value| self.bytes.extend_from_slice(&value.to_le_bytes())),
        }
    }

    pub fn blob(&mut self, bytes: &[u8]) {
        self.u64(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    pub fn text(&mut self, text: &str) {
        self.blob(text.as_bytes());
    }

    pub fn list<T>(&mut self, items: &[T], mut write: impl FnMut(&mut Writer, &T)) {
        self.u64(items.len() as u64);
        items.iter().for_each(|item| write(self, item));
    }

    /// An optional value.
    pub fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Writer, T)) {
        self.u8(u8::from(value.is_some()));
        if let Some(value) = value {
            write(self, value);
        }
    }
}

/// Reads numbers and strings from the front.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or_else(|| malformed(format!("{} bytes where {count} should follow", self.rest.len())))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// The number of items that follow, each of at least `bytes` bytes.
    fn count(&mut self, bytes: usize) -> Result<usize> {
        let count = self.u64()?;
        match usize::try_from(count) {
            Ok(count) if count <= self.rest.len() / bytes => Ok(count),
            _ => Err(malformed(format!("{} bytes where {count} items should follow", self.rest.len()))),
        }
    }

    pub fn numbers(&mut self) -> Result<Vec<i64>> {
        let count = self.count(8)?;
        let (words, _) = self.take(8 * count)?.as_chunks::<8>();
        Ok(words.iter().map(|word| i64::from_le_bytes(*word)).collect())
    }

    pub fn blob(&mut self) -> Result<Vec<u8>> {
        let count = self.count(1)?;
        Ok(self.take(count)?.to_vec())
    }

    pub fn text(&mut self) -> Result<String> {
        String::from_utf8(self.blob()?).map_err(|_| malformed("bytes that are no text"))
    }

    pub fn list<T>(&mut self, mut read: impl FnMut(&mut Reader<'a>) -> Result<T>) -> Result<Vec<T>> {
        let count = self.count(1)?;
        (0..count).map(|_| read(self)).collect()
    }

    pub fn flag(&mut self) -> Result<bool> {
        Ok(self.option(|_| Ok(()))?.is_some())
    }

    pub fn option<T>(&mut self, read: impl FnOnce(&mut Reader<'a>) -> Result<T>) -> Result<Option<T>> {
        match self.u8()? {
            0 => Ok(None),
            1 => read(self).map(Some),
            other => Err(malformed(format!("{other} where 0 or 1 should stand"))),
        }
    }
}
