//! What travels between two ranks: letters (a header, with the bytes of a small message behind it) and chunks of bytes.
//!
//! A small message is one letter. A large one is offered by a letter; when its receive is posted, the receiver answers
//! with a letter that names the MPI tag for the bytes, and only then do they travel, straight between the two callers'
//! buffers. So a sender whose receiver never comes has nothing under way that could not be taken back.

use bytemuck::{Pod, Zeroable};

use crate::transport::Envelope;

/// The MPI tag of letters; chunks use the tags above it.
pub(super) const CONTROL_TAG: u16 = 0;
/// The largest tag that every MPI must support.
pub(super) const MAX_TAG: u16 = 32_767;
/// The longest message that travels inside its letter: copying it costs less than an offer's round trip.
pub(super) const EAGER_LIMIT: usize = 16 << 10;
/// Bytes of one chunk of a large message: few enough to be drained quickly when a call gives up.
pub(super) const CHUNK: usize = 4 << 20;
/// Chunks of one message that may be under way at once.
pub(super) const WINDOW: usize = 2;

/// A message and its bytes, which follow.
pub(super) const EAGER: u32 = 1;
/// Sender: I have this message for you.
pub(super) const RTS: u32 = 2;
/// Receiver: send the bytes under this tag.
pub(super) const CTS: u32 = 3;
/// Sender: I gave the message up after sending `envelope.bytes` of it, because the rank in `tag` is dead or for my own
/// reasons ([`NO_RANK`]).
pub(super) const CANCEL: u32 = 4;
/// Receiver: I am making another call, the one in the envelope.
pub(super) const NACK: u32 = 5;

/// Nobody in particular.
pub(super) const NO_RANK: u32 = u32::MAX;

/// The front of every letter.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct ControlHeader {
    pub kind: u32,
    /// The MPI tag for the bytes, or what the kind of letter says.
    pub tag: u32,
    /// The message's number at its sender.
    pub message: u64,
    pub envelope: Envelope,
}

impl ControlHeader {
    pub const SIZE: usize = std::mem::size_of::<ControlHeader>();

    /// The header and the message of a letter that arrived in a world of `size` ranks; or what is wrong with the letter,
    /// which then is not one of this version's.
    pub fn read(frame: &[u8], size: usize) -> Result<(ControlHeader, &[u8]), String> {
        let (header, bytes) = frame
            .split_at_checked(ControlHeader::SIZE)
            .ok_or_else(|| format!("{} bytes, where a header has {}", frame.len(), ControlHeader::SIZE))?;
        let header: ControlHeader = bytemuck::pod_read_unaligned(header);
        let ControlHeader { kind, tag, envelope, .. } = header;
        let carried = if kind == EAGER { envelope.bytes } else { 0 };
        let problem = match kind {
            EAGER | RTS | CTS | CANCEL | NACK if bytes.len() as u64 != carried => {
                format!("{} bytes behind a header of kind {kind} that announces {carried}", bytes.len())
            }
            RTS if !(EAGER_LIMIT as u64 + 1..=isize::MAX as u64).contains(&envelope.bytes) => {
                format!("an offer of {} bytes", envelope.bytes)
            }
            CTS if !(u32::from(CONTROL_TAG) + 1..=u32::from(MAX_TAG)).contains(&tag) => {
                format!("a request for bytes under the tag {tag}")
            }
            CANCEL if tag != NO_RANK && tag as usize >= size => format!("the death of rank {tag} of {size}"),
            EAGER | RTS | CTS | CANCEL | NACK => return Ok((header, bytes)),
            _ => format!("a header of the unknown kind {kind}"),
        };
        Err(problem)
    }
}
