//! Point-to-point messages: send and receive descriptors, and the envelope that precedes each message's bytes.

use bytemuck::{Pod, Zeroable};

use super::signature::Signature;

/// A message to one peer.
pub(crate) struct Outgoing<'a> {
    /// The receiver's world rank.
    pub to: usize,
    pub bytes: &'a [u8],
}

/// A receive buffer for a message from one peer; the message must have exactly this length.
pub(crate) struct Incoming<'a> {
    /// The sender's world rank.
    pub from: usize,
    pub bytes: &'a mut [u8],
}

/// Matching criteria: messages match by context (group) and tag; `signature` is what a matched message must carry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatchKey {
    /// The group's context id, the same on all its members.
    pub context: u32,
    /// The user's tag, or [`MatchKey::COLLECTIVE`].
    pub tag: u32,
    pub signature: Signature,
}

impl MatchKey {
    /// The tag of messages within collectives. User tags are smaller.
    pub const COLLECTIVE: u32 = u32::MAX;

    /// The tag of messages that create a group.
    pub const CREATE_GROUP: u32 = u32::MAX - 1;

    /// The tag of messages that create the levels of a group over several hosts.
    pub const CREATE_LEVELS: u32 = u32::MAX - 2;

    /// The tag of requests to a table server.
    pub const REQUEST: u32 = u32::MAX - 3;

    /// The tag of a server's replies.
    pub const REPLY: u32 = u32::MAX - 4;

    /// User tags are below this.
    pub const TAGS: u32 = 1 << 31;
}

/// Precedes a message's bytes. Messages from one sender with equal `context` and `tag` arrive in order.
#[derive(Clone, Copy, Debug, Pod, Zeroable, PartialEq)]
#[repr(C)]
pub(crate) struct Envelope {
    pub context: u32,
    pub tag: u32,
    pub bytes: u64,
    pub signature: Signature,
}

impl Envelope {
    pub const SIZE: usize = std::mem::size_of::<Envelope>();

    pub fn new(match_key: &MatchKey, bytes: usize) -> Envelope {
        Envelope {
            context: match_key.context,
            tag: match_key.tag,
            bytes: bytes as u64,
            signature: match_key.signature,
        }
    }
}

/// Above this size, in bytes, messages are rare enough to probe the allocator first.
const LARGE: usize = 1 << 20;

/// Zeroed memory for a message whose length another rank states; `None` if that much cannot be allocated.
pub(crate) fn zeroed(bytes: u64) -> Option<Vec<u8>> {
    let bytes = usize::try_from(bytes).ok()?;
    if bytes > LARGE {
        // A failed allocation would abort the process, so probe first. The compiler must not elide the probe.
        let mut attempt: Vec<u8> = Vec::new();
        attempt.try_reserve_exact(bytes).ok()?;
        drop(std::hint::black_box(attempt));
    }
    Some(vec![0; bytes])
}
