//! A server's reply: bytes, or the server's error with all its fields.

use std::io;
use std::time::Duration;

use super::compress;
use super::wire::{self, Reader, Writer, malformed};
use crate::error::{Error, Lost, Missing, Result};

/// A server's reply to the request with this number.
#[derive(Debug)]
pub(crate) struct RemoteReply {
    pub number: u64,
    pub outcome: Result<Vec<u8>>,
    /// Whether the bytes are compressed elements.
    pub packed: bool,
}

impl RemoteReply {
    /// Encodes the reply for the wire.
    pub fn encode(self) -> Vec<u8> {
        let RemoteReply { number, outcome, packed } = self;
        let (payload, error) = match outcome {
            Ok(payload) => (payload, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        wire::append_trailer(payload, |writer| {
            writer.u64(number);
            writer.u8(u8::from(packed));
            writer.option(error, |writer, error| write_error(writer, &error));
        })
    }

    /// Decodes what [`RemoteReply::encode`] wrote; compressed elements are decompressed.
    pub fn decode(bytes: Vec<u8>) -> Result<RemoteReply> {
        let ((number, packed, error), payload) = wire::split_trailer(bytes, |reader| {
            let (number, packed) = (reader.u64()?, reader.option(|_| Ok(()))?.is_some());
            Ok((number, packed, reader.option(read_error)?))
        })?;
        let outcome = match (error, packed) {
            (Some(error), _) => Err(error),
            (None, true) => compress::unpack_reply(&payload),
            (None, false) => Ok(payload),
        };
        Ok(RemoteReply { number, outcome, packed: false })
    }
}

/// Adds the server's rank to its error, so that the caller on another rank learns where it happened.
pub(crate) fn with_server_rank(mut error: Error, server: usize) -> Error {
    match &mut error {
        Error::Usage { operation, .. }
        | Error::Io { operation, .. }
        | Error::Unsupported { operation, .. }
        | Error::Internal { operation, .. } => operation.push_str(&format!(" on rank {server}")),
        // These already name the rank on which they occurred.
        _ => {}
    }
    error
}

fn write_error(writer: &mut Writer, error: &Error) {
    match error {
        Error::Usage { rank, operation, expected, received, advice } => {
            writer.u8(1);
            writer.option(*rank, |writer, rank| writer.u64(rank as u64));
            [operation, expected, received, advice].into_iter().for_each(|text| writer.text(text));
        }
        Error::Mismatch { rank, group, number, calls } => {
            writer.u8(2);
            writer.u64(*rank as u64);
            writer.text(group);
            writer.u64(*number);
            writer.list(calls, |writer, (rank, call)| {
                writer.u64(*rank as u64);
                writer.text(call);
            });
        }
        Error::Timeout { rank, operation, number, group, waited, missing } => {
            writer.u8(3);
            write_call(writer, *rank, operation, *number, group);
            writer.u64(waited.as_nanos() as u64);
            writer.list(missing, |writer, missing| {
                write_rank(writer, missing.rank, missing.pid, &missing.doing);
                writer.option(missing.call.as_deref(), Writer::text);
                writer.option(missing.location.as_deref(), Writer::text);
            });
        }
        Error::PeerLost { rank, operation, number, group, lost } => {
            writer.u8(4);
            write_call(writer, *rank, operation, *number, group);
            writer.list(lost, |writer, lost| {
                write_rank(writer, lost.rank, lost.pid, &lost.how);
                writer.option(lost.left.then_some(()), |_, ()| ());
            });
        }
        Error::Io { operation, what, source, advice } => {
            writer.u8(5);
            [operation, what, &source.to_string(), advice].into_iter().for_each(|text| writer.text(text));
        }
        Error::Unsupported { operation, what, advice } => {
            writer.u8(6);
            [operation, what, advice].into_iter().for_each(|text| writer.text(text));
        }
        Error::Interrupted { rank, operation, number, group } => {
            writer.u8(7);
            write_call(writer, *rank, operation, *number, group);
        }
        Error::Internal { operation, what } => {
            writer.u8(8);
            [operation, what].into_iter().for_each(|text| writer.text(text));
        }
    }
}

fn write_call(writer: &mut Writer, rank: usize, operation: &str, number: u64, group: &str) {
    writer.u64(rank as u64);
    writer.text(operation);
    writer.u64(number);
    writer.text(group);
}

fn write_rank(writer: &mut Writer, rank: usize, pid: Option<u32>, words: &str) {
    writer.u64(rank as u64);
    writer.option(pid, Writer::u32);
    writer.text(words);
}

fn read_rank(reader: &mut Reader) -> Result<usize> {
    reader.u64().map(|rank| rank as usize)
}

fn read_error(reader: &mut Reader) -> Result<Error> {
    Ok(match reader.u8()? {
        1 => Error::Usage {
            rank: reader.option(read_rank)?,
            operation: reader.text()?,
            expected: reader.text()?,
            received: reader.text()?,
            advice: reader.text()?,
        },
        2 => Error::Mismatch {
            rank: read_rank(reader)?,
            group: reader.text()?,
            number: reader.u64()?,
            calls: reader.list(|reader| Ok((read_rank(reader)?, reader.text()?)))?,
        },
        3 => Error::Timeout {
            rank: read_rank(reader)?,
            operation: reader.text()?,
            number: reader.u64()?,
            group: reader.text()?,
            waited: Duration::from_nanos(reader.u64()?),
            missing: reader.list(|reader| {
                let (rank, pid) = (read_rank(reader)?, reader.option(Reader::u32)?);
                let (doing, call) = (reader.text()?, reader.option(Reader::text)?);
                Ok(Missing { rank, pid, doing, call, location: reader.option(Reader::text)? })
            })?,
        },
        4 => Error::PeerLost {
            rank: read_rank(reader)?,
            operation: reader.text()?,
            number: reader.u64()?,
            group: reader.text()?,
            lost: reader.list(|reader| {
                let (rank, pid) = (read_rank(reader)?, reader.option(Reader::u32)?);
                let (how, left) = (reader.text()?, reader.option(|_| Ok(()))?.is_some());
                Ok(Lost { rank, pid, how, left })
            })?,
        },
        5 => {
            let (operation, what, source) = (reader.text()?, reader.text()?, reader.text()?);
            Error::io(&operation, what, io::Error::other(source), &reader.text()?)
        }
        6 => {
            let (operation, what) = (reader.text()?, reader.text()?);
            Error::unsupported(&operation, what, reader.text()?)
        }
        7 => Error::Interrupted {
            rank: read_rank(reader)?,
            operation: reader.text()?,
            number: reader.u64()?,
            group: reader.text()?,
        },
        8 => Error::internal(&reader.text()?, reader.text()?),
        other => return Err(malformed(format!("an error of kind {other}"))),
    })
}
