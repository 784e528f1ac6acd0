//! Writes metrics and images of a run for TensorBoard.
//!
//! An event file is a sequence of records, each framed by its length and two checksums; a record is a protocol buffer.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use prost::Message;
use unisono::{Error, Result};

use super::files::{events_name, saved_events};
use crate::data::{Picture, encode_png};

/// The masked checksum of a record: the CRC of data that contains CRCs would be weak.
fn masked(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

fn framed(record: &[u8]) -> Vec<u8> {
    let length = (record.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), record, &masked(record)].concat()
}

/// TensorFlow's `event.proto` and `summary.proto`, as far as they are needed. Optional numbers are written even if they are zero.
#[derive(prost::Message)]
struct Event {
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, optional, tag = "2")]
    step: Option<i64>,
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<EventSummary>,
}

#[derive(prost::Message)]
struct EventSummary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<SummaryValue>,
}

#[derive(prost::Message)]
struct SummaryValue {
    #[prost(string, tag = "1")]
    tag: String,
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
    #[prost(message, optional, tag = "4")]
    image: Option<SummaryImage>,
}

#[derive(prost::Message)]
struct SummaryImage {
    #[prost(int32, tag = "1")]
    height: i32,
    #[prost(int32, tag = "2")]
    width: i32,
    #[prost(int32, tag = "3")]
    colorspace: i32,
    #[prost(bytes = "vec", tag = "4")]
    encoded_image_string: Vec<u8>,
}

/// A record with an event of this step.
fn record(step: u64, file_version: Option<String>, value: Option<SummaryValue>) -> Vec<u8> {
    let wall_time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let summary = value.map(|value| EventSummary { value: vec![value] });
    let event = Event { wall_time, step: Some(step as i64), file_version, summary };
    framed(&event.encode_to_vec())
}

/// The step of the record at the start of `bytes`, and the record's length including its frame; `None` if the record is
/// incomplete or damaged.
fn read(bytes: &[u8]) -> Option<(u64, usize)> {
    let length = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
    let end = usize::try_from(length).ok()?.checked_add(12)?;
    let record = bytes.get(12..end)?;
    if bytes[8..12] != masked(&bytes[..8]) || *bytes.get(end..end.checked_add(4)?)? != masked(record) {
        return None;
    }
    let event = Event::decode(record).ok()?;
    Some((event.step.unwrap_or(0) as u64, end + 4))
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
        let unwritten = match kept {
            0 => record(0, Some("brain.Event:2".into()), None),
            _ => Vec::new(),
        };
        Ok(Events { path, file, unwritten })
    }

    /// Adds a scalar of a step.
    pub(super) fn scalar(&mut self, name: &str, step: u64, value: f64) {
        let value = SummaryValue { tag: name.into(), simple_value: Some(value as f32), image: None };
        self.unwritten.extend(record(step, None, Some(value)));
    }

    /// Adds an image of a step.
    pub(super) fn picture(&mut self, name: &str, step: u64, picture: &Picture) {
        let shape = picture.shape;
        let image = SummaryImage {
            height: shape.rows as i32,
            width: shape.columns as i32,
            colorspace: shape.maps as i32,
            encoded_image_string: encode_png(picture),
        };
        let value = SummaryValue { tag: name.into(), simple_value: None, image: Some(image) };
        self.unwritten.extend(record(step, None, Some(value)));
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
        // RFC 3720, B.4; a record stores them rotated and shifted.
        for (bytes, sum) in
            [(&b"123456789"[..], 0xe306_9283_u32), (&[0; 32], 0x8a91_36aa), (&[0xff; 32], 0x62a8_ab43)]
        {
            assert_eq!(masked(bytes), sum.rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes());
        }
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
