//! Writes metrics and images of a run for TensorBoard.
//!
//! An event file is a sequence of records, each framed by its length and two checksums; a record is a protocol buffer. Both
//! formats are public and small: the few fields needed here are encoded by hand.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use unisono::{Error, Result};

use super::files::{events_name, saved_events};
use crate::data::{Picture, encode_png};

/// CRC-32C (Castagnoli), byte by byte with a table of 256 entries.
fn crc32c(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut index = 0;
        while index < 256 {
            let mut value = index as u32;
            let mut bit = 0;
            while bit < 8 {
                value = (value >> 1) ^ (0x82f6_3b78 * (value & 1));
                bit += 1;
            }
            table[index] = value;
            index += 1;
        }
        table
    };
    !bytes.iter().fold(!0, |sum: u32, byte| TABLE[((sum ^ u32::from(*byte)) & 255) as usize] ^ (sum >> 8))
}

/// The masked checksum of a record: the CRC of data that contains CRCs would be weak.
fn masked(bytes: &[u8]) -> [u8; 4] {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

fn framed(record: &[u8]) -> Vec<u8> {
    let length = (record.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), record, &masked(record)].concat()
}

/// A protocol buffer under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 128 {
            self.0.push(value as u8 | 128);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Writes a field's key: its number and wire type (0 a varint, 1 eight bytes, 2 length-delimited bytes, 5 four bytes).
    fn key(&mut self, field: u64, stored: u64) {
        self.varint(field << 3 | stored);
    }

    fn whole(mut self, field: u64, value: u64) -> Message {
        self.key(field, 0);
        self.varint(value);
        self
    }

    fn double(mut self, field: u64, value: f64) -> Message {
        self.key(field, 1);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn single(mut self, field: u64, value: f32) -> Message {
        self.key(field, 5);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn bytes(mut self, field: u64, value: &[u8]) -> Message {
        self.key(field, 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }
}

/// An event: its time, its step, and one more field.
fn event(step: u64, field: u64, content: &[u8]) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    framed(&Message::default().double(1, now).whole(2, step).bytes(field, content).0)
}

const FILE_VERSION: u64 = 3;
const SUMMARY: u64 = 5;

/// An event with a summary of one value.
fn summary(step: u64, value: Message) -> Vec<u8> {
    event(step, SUMMARY, &Message::default().bytes(1, &value.0).0)
}

/// The step of the record at the start of `bytes`, and the record's length including its frame; `None` if the record is
/// incomplete.
fn read(bytes: &[u8]) -> Option<(u64, usize)> {
    let length = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
    let end = usize::try_from(length).ok()?.checked_add(12)?;
    let record = bytes.get(12..end)?;
    if bytes[8..12] != masked(&bytes[..8]) || *bytes.get(end..end.checked_add(4)?)? != masked(record) {
        return None;
    }
    // A double with its key, then the key of the step.
    let mut step = 0;
    for (index, byte) in record.get(10..)?.iter().enumerate().take(10) {
        step |= u64::from(byte & 127) << (7 * index);
        if byte & 128 == 0 {
            break;
        }
    }
    Some((step, end + 4))
}

/// The event file of a run.
pub(super) struct Events {
    path: PathBuf,
    file: File,
    unwritten: Vec<u8>,
}

impl Events {
    /// Creates an event file in a folder, or continues the newest one of a resumed run, truncated after a step.
    pub(super) fn open(folder: &Path, resumed: Option<u64>) -> Result<Events> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let found = resumed.and_then(|_| saved_events(folder).pop());
        let is_new = found.is_none();
        let path = found.unwrap_or_else(|| folder.join(events_name(now)));
        let failed = |error| Error::io("write", path.display().to_string(), error, "give another --out");
        let old = if is_new { Vec::new() } else { std::fs::read(&path).map_err(failed)? };
        let mut kept = 0;
        while let Some((step, length)) = read(&old[kept..]) {
            if resumed.is_none_or(|steps| step > steps) {
                break;
            }
            kept += length;
        }
        let file = OpenOptions::new().append(true).create_new(is_new).open(&path).map_err(failed)?;
        file.set_len(kept as u64).map_err(failed)?;
        let unwritten = if kept == 0 { event(0, FILE_VERSION, b"brain.Event:2") } else { Vec::new() };
        Ok(Events { path, file, unwritten })
    }

    /// Adds a scalar of a step.
    pub(super) fn scalar(&mut self, name: &str, step: u64, value: f64) {
        let value = Message::default().bytes(1, name.as_bytes()).single(2, value as f32);
        self.unwritten.extend(summary(step, value));
    }

    /// Adds an image of a step.
    pub(super) fn picture(&mut self, name: &str, step: u64, picture: &Picture) {
        let shape = picture.shape;
        let image = Message::default()
            .whole(1, shape.rows as u64)
            .whole(2, shape.columns as u64)
            .whole(3, shape.maps as u64)
            .bytes(4, &encode_png(picture));
        self.unwritten.extend(summary(step, Message::default().bytes(1, name.as_bytes()).bytes(4, &image.0)));
    }

    /// Appends all pending events to the file with one write.
    pub(super) fn flush(&mut self) -> Result<()> {
        let written = self.file.write_all(&self.unwritten);
        self.unwritten.clear();
        written.map_err(|error| Error::io("write", self.path.display().to_string(), error, "make room"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Shape;

    /// An independent decoder: the fields of a message, each with its number and bytes.
    fn fields(mut rest: &[u8]) -> Vec<(u64, Vec<u8>)> {
        fn varint(rest: &mut &[u8]) -> u64 {
            let mut value = 0;
            let mut shift = 0;
            loop {
                let byte = rest[0];
                *rest = &rest[1..];
                value += u64::from(byte % 128) << shift;
                shift += 7;
                if byte < 128 {
                    return value;
                }
            }
        }
        let mut found = Vec::new();
        while !rest.is_empty() {
            let key = varint(&mut rest);
            let length = match key % 8 {
                0 => {
                    found.push((key / 8, varint(&mut rest).to_le_bytes().to_vec()));
                    continue;
                }
                1 => 8,
                5 => 4,
                2 => varint(&mut rest) as usize,
                other => panic!("stored as {other}"),
            };
            found.push((key / 8, rest[..length].to_vec()));
            rest = &rest[length..];
        }
        found
    }

    /// (step, tag, value or `None` for images) of every summary in a file.
    fn scalars(file: &[u8]) -> Vec<(u64, String, Option<f32>)> {
        let mut found = Vec::new();
        let mut at = 0;
        while at < file.len() {
            let length = u64::from_le_bytes(file[at..at + 8].try_into().expect("8 bytes")) as usize;
            let record = fields(&file[at + 12..at + 12 + length]);
            at += length + 16;
            let field = |number: u64| record.iter().find(|(field, _)| *field == number);
            let step = u64::from_le_bytes(field(2).expect("a step").1[..].try_into().expect("8 bytes"));
            let Some((_, summary)) = field(5) else { continue };
            let value = fields(&fields(summary)[0].1);
            let tag = String::from_utf8(value[0].1.clone()).expect("tags are text");
            let number =
                (value[1].0 == 2).then(|| f32::from_le_bytes(value[1].1[..].try_into().expect("four bytes")));
            found.push((step, tag, number));
        }
        found
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("unisono-events-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        folder
    }

    #[test]
    fn the_checksum_is_that_of_its_specification() {
        // RFC 3720, B.4.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn a_reader_of_its_own_finds_what_was_written() {
        let folder = folder("written");
        let mut events = Events::open(&folder, None).expect("it can be opened");
        events.scalar("loss", 1, 0.5);
        events.scalar("loss", 300, 0.25);
        events.picture("filters", 300, &Picture { shape: Shape::new(1, 2, 2), pixels: vec![0, 1, 2, 3] });
        events.flush().expect("it can be written");
        let file = std::fs::read(&events.path).expect("it is there");
        let name = |name: &str| name.to_string();
        assert_eq!(
            scalars(&file),
            [(1, name("loss"), Some(0.5)), (300, name("loss"), Some(0.25)), (300, name("filters"), None)]
        );
        std::fs::remove_dir_all(&folder).expect("it can be removed");
    }

    #[test]
    fn a_resumed_file_has_each_step_once() {
        let folder = folder("resumed");
        let mut events = Events::open(&folder, None).expect("it can be opened");
        (1..=200).for_each(|step| events.scalar("loss", step, step as f64));
        events.flush().expect("it can be written");
        // A killed process may leave half a record.
        let mut bytes = std::fs::read(&events.path).expect("it is there");
        bytes.truncate(bytes.len() - 3);
        std::fs::write(&events.path, &bytes).expect("it can be written");
        let mut events = Events::open(&folder, Some(150)).expect("it can be opened again");
        (151..=160).for_each(|step| events.scalar("loss", step, 0.0));
        events.flush().expect("it can be written");
        let found = scalars(&std::fs::read(&events.path).expect("it is there"));
        assert_eq!(found.iter().map(|(step, ..)| *step).collect::<Vec<_>>(), (1..=160).collect::<Vec<_>>());
        std::fs::remove_dir_all(&folder).expect("it can be removed");
    }
}
