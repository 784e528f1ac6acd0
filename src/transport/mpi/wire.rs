//! What travels between two ranks: letters (a header, with the bytes of a small message behind it) and chunks of bytes.
//!
//! A small message is one letter. A large one is offered by a letter; when its receive is posted, the receiver answers
//! with a letter that names the MPI tag for the bytes, and only then do they travel, straight between the two callers'
//! buffers. So a sender whose receiver never comes has nothing under way that could not be taken back.

use bytemuck::{Pod, Zeroable};

use crate::transport::Envelope;

/// The MPI tag of letters; chunks use the tags above it.
pub(super) const LETTER_TAG: u16 = 0;
/// The largest tag that every MPI must support.
pub(super) const LAST_TAG: u16 = 32_767;
/// The longest message that travels inside its letter: copying it costs less than an offer's round trip.
pub(super) const INLINE: usize = 16 << 10;
/// Bytes of one chunk of a large message: few enough to be drained quickly when a call gives up.
pub(super) const CHUNK: usize = 4 << 20;
/// Chunks of one message that may be under way at once.
pub(super) const WINDOW: usize = 2;

/// A message and its bytes, which follow.
pub(super) const MESSAGE: u32 = 1;
/// Sender: I have this message for you.
pub(super) const OFFER: u32 = 2;
/// Receiver: send the bytes under this tag.
pub(super) const READY: u32 = 3;
/// Sender: I gave the message up after sending `envelope.bytes` of it, because the rank in `tag` is dead or for my own
/// reasons ([`NO_RANK`]).
pub(super) const ABANDON: u32 = 4;
/// Receiver: I am making another call, the one in the envelope.
pub(super) const REFUSE: u32 = 5;

/// Nobody in particular.
pub(super) const NO_RANK: u32 = u32::MAX;

/// The front of every letter.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Header {
    pub kind: u32,
    /// The MPI tag for the bytes, or what the kind of letter says.
    pub tag: u32,
    /// The message's number at its sender.
    pub message: u64,
    pub envelope: Envelope,
}

impl Header {
    pub const SIZE: usize = std::mem::size_of::<Header>();

    /// The header and the message of a letter that arrived in a world of `size` ranks; or what is wrong with the letter,
    /// which then is not one of this version's.
    pub fn read(letter: &[u8], size: usize) -> Result<(Header, &[u8]), String> {
        let (header, bytes) = letter
            .split_at_checked(Header::SIZE)
            .ok_or_else(|| format!("{} bytes, where a header has {}", letter.len(), Header::SIZE))?;
        let header: Header = bytemuck::pod_read_unaligned(header);
        let Header { kind, tag, envelope, .. } = header;
        let carried = if kind == MESSAGE { envelope.bytes } else { 0 };
        let problem = match kind {
            MESSAGE | OFFER | READY | ABANDON | REFUSE if bytes.len() as u64 != carried => {
                format!("{} bytes behind a header of kind {kind} that announces {carried}", bytes.len())
            }
            OFFER if !(INLINE as u64 + 1..=isize::MAX as u64).contains(&envelope.bytes) => {
                format!("an offer of {} bytes", envelope.bytes)
            }
            READY if !(u32::from(LETTER_TAG) + 1..=u32::from(LAST_TAG)).contains(&tag) => {
                format!("a request for bytes under the tag {tag}")
            }
            ABANDON if tag != NO_RANK && tag as usize >= size => format!("the death of rank {tag} of {size}"),
            MESSAGE | OFFER | READY | ABANDON | REFUSE => return Ok((header, bytes)),
            _ => format!("a header of the unknown kind {kind}"),
        };
        Err(problem)
    }
}
