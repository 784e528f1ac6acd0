//! Messages between two ranks: what to send, where to receive, and the envelope that travels in front.

use bytemuck::{Pod, Zeroable};

use super::signature::Signature;

/// Bytes for one peer.
pub(crate) struct Outgoing<'a> {
    /// The receiver's rank in the world.
    pub to: usize,
    pub bytes: &'a [u8],
}

/// Room for bytes of one peer; the message must have exactly this length.
pub(crate) struct Incoming<'a> {
    /// The sender's rank in the world.
    pub from: usize,
    pub bytes: &'a mut [u8],
}

/// Which messages belong together: those of one group, one tag; `signature` says what they must be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// The group's number, the same on all its members.
    pub context: u32,
    /// The user's tag, or [`Slot::COLLECTIVE`].
    pub tag: u32,
    pub signature: Signature,
}

impl Slot {
    /// The tag of messages inside collectives. Users' tags are smaller.
    pub const COLLECTIVE: u32 = u32::MAX;

    /// The tag of messages that found a group.
    pub const CREATE_GROUP: u32 = u32::MAX - 1;

    /// The tag of messages that found the floors of a group over several hosts.
    pub const CREATE_LEVELS: u32 = u32::MAX - 2;

    /// The tag of requests to a server of tables.
    pub const REQUEST: u32 = u32::MAX - 3;

    /// The tag of a server's replies.
    pub const REPLY: u32 = u32::MAX - 4;

    /// Users' tags are below this.
    pub const TAGS: u32 = 1 << 31;
}

/// What travels in front of a message's bytes. Messages of one sender with equal `context` and `tag` arrive in order.
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

    pub fn new(slot: &Slot, bytes: usize) -> Envelope {
        Envelope { context: slot.context, tag: slot.tag, bytes: bytes as u64, signature: slot.signature }
    }
}

/// Larger messages are rare enough to ask first whether there is memory for them.
const LARGE: usize = 1 << 20;

/// Memory for a message whose length another rank states; none where there is not so much.
pub(crate) fn zeroed(bytes: u64) -> Option<Vec<u8>> {
    let bytes = usize::try_from(bytes).ok()?;
    if bytes > LARGE {
        // A failed allocation would end the process. The compiler must not leave the attempt out.
        let mut attempt: Vec<u8> = Vec::new();
        attempt.try_reserve_exact(bytes).ok()?;
        drop(std::hint::black_box(attempt));
    }
    Some(vec![0; bytes])
}
