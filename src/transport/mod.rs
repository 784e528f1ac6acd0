//! Layer 2: bytes between ranks. `local` (threads) and `shm` (processes of one host) are one engine over one arena;
//! `mpi` connects hosts; `hosts` puts the two together.

mod call;
mod message;
mod signature;

pub use call::Interrupt;
pub(crate) use call::Call;
pub(crate) use message::{Envelope, Incoming, Outgoing, Slot};
pub(crate) use signature::{Signature, Verb};

use crate::error::Result;

/// A way to carry bytes between the ranks of a world. Ranks here are always ranks of the world.
pub(crate) trait Transport: Send + Sync {
    /// The name that users see: "local", "shm", "mpi", "shm+mpi".
    fn name(&self) -> &'static str;

    /// This process's (or thread's) rank.
    fn rank(&self) -> usize;

    /// How many ranks there are.
    fn size(&self) -> usize;

    /// Does all of these and returns when all are done: everything received is in its buffer, everything sent may be
    /// overwritten. Several threads may exchange at once. A message to oneself is allowed.
    ///
    /// Fails with Timeout at `call.deadline`, PeerLost when a peer that is still needed is gone, Mismatch when a message
    /// arrives whose signature or length is not the expected one (that message stays queued), Interrupted when
    /// `call.interrupt` says so. After an error the buffers are no longer referenced.
    fn exchange(&self, call: &Call, slot: &Slot, sends: &[Outgoing], receives: &mut [Incoming]) -> Result<()>;
}
