//! Wire protocol between two ranks: control messages (a header, followed by the data of an eager message) and chunks of
//! data.
//!
//! A small message is sent eagerly, inside one control message. A large one uses rendezvous: the sender announces it
//! (RTS); when the receive is posted, the receiver answers (CTS) with the MPI tag for the data, and only then does the
//! data move, directly between the two callers' buffers. So a sender whose receiver never arrives has nothing in flight
//! that could not be withdrawn.

use bytemuck::{Pod, Zeroable};

use crate::transport::Envelope;

/// The MPI tag of control messages; chunks use the tags above it.
pub(super) const CONTROL_TAG: u16 = 0;
/// The largest tag that every MPI must support (the minimum MPI_TAG_UB).
pub(super) const MAX_TAG: u16 = 32_767;
/// The eager limit in bytes: copying a message of this size costs less than an RTS/CTS round trip.
pub(super) const EAGER_LIMIT: usize = 16 << 10;
/// Bytes per chunk of a large message: few enough to be drained quickly when a call is cancelled.
pub(super) const CHUNK: usize = 4 << 20;
/// Chunks of one message in flight at once.
pub(super) const WINDOW: usize = 2;

/// Eager message: its data follows the header.
pub(super) const EAGER: u32 = 1;
/// Request to send: the sender announces a message of `envelope.bytes`.
pub(super) const RTS: u32 = 2;
/// Clear to send: the receiver asks for the data under the MPI tag in `tag`.
pub(super) const CTS: u32 = 3;
/// The sender cancelled the message after sending `envelope.bytes` of it, because the rank in `tag` is dead, or for a
/// reason of its own ([`NO_RANK`]).
pub(super) const CANCEL: u32 = 4;
/// The receiver rejects the message: it is making a different call, the one in `envelope`.
pub(super) const NACK: u32 = 5;

/// No rank.
pub(super) const NO_RANK: u32 = u32::MAX;

/// The header of every control message.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct ControlHeader {
    pub kind: u32,
    /// The MPI tag for the data, or a value that depends on the kind.
    pub tag: u32,
    /// The message id assigned by the sender.
    pub message: u64,
    pub envelope: Envelope,
}

impl ControlHeader {
    pub const SIZE: usize = std::mem::size_of::<ControlHeader>();

    /// Parses a control message that arrived in a world of `size` ranks into its header and data; the error states what
    /// is wrong with a frame that this version cannot have sent.
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
