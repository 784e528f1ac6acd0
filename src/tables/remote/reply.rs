//! A server's reply: bytes, or the server's error with all its fields.

use serde_json::json;

use super::compress;
use super::wire::{self, malformed};
use crate::error::{Error, Result};

/// A server's reply to the request with this number.
#[derive(Debug)]
pub(crate) struct RemoteReply {
    pub number: u64,
    pub outcome: Result<Vec<u8>>,
    /// Whether the bytes are compressed elements.
    pub packed: bool,
    /// Whether the reply continues in another message.
    pub more: bool,
}

/// A piece of a reply.
#[derive(Debug)]
pub(crate) struct ReplyPiece {
    /// The number of bytes in the pieces before this one.
    pub start: usize,
    pub bytes: Vec<u8>,
    pub is_last: bool,
}

impl ReplyPiece {
    /// The bytes of a reply that consists of one piece.
    pub fn whole(self) -> Result<Vec<u8>> {
        match self.start == 0 && self.is_last {
            true => Ok(self.bytes),
            false => Err(malformed("a reply in pieces")),
        }
    }
}

impl RemoteReply {
    /// Encodes the reply for the wire.
    pub fn encode(self) -> Vec<u8> {
        let RemoteReply { number, outcome, packed, more } = self;
        let (payload, error) = match outcome {
            Ok(payload) => (payload, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        wire::append_trailer(payload, |writer| {
            writer.u64(number);
            writer.u8(u8::from(packed));
            writer.u8(u8::from(more));
            writer.option(error, |writer, error| writer.text(&json!(error).to_string()));
        })
    }

    /// Decodes what [`RemoteReply::encode`] wrote; compressed elements are decompressed.
    pub fn decode(bytes: Vec<u8>) -> Result<RemoteReply> {
        let ((number, packed, more, error), payload) = wire::split_trailer(bytes, |reader| {
            let (number, packed, more) = (reader.u64()?, reader.flag()?, reader.flag()?);
            let read =
                |text: String| serde_json::from_str(&text).map_err(|error| malformed(error.to_string()));
            Ok((number, packed, more, reader.option(|reader| reader.text().and_then(read))?))
        })?;
        let outcome = match (error, packed) {
            (Some(error), _) => Err(error),
            (None, true) => compress::unpack_reply(&payload),
            (None, false) => Ok(payload),
        };
        Ok(RemoteReply { number, outcome, packed: false, more })
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
