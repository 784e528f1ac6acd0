//! Layer 2: bytes between ranks. `local` (threads) and `shm` (processes of one host) are one engine over one arena;
//! `mpi` connects hosts; `hosts` puts the two together.

pub(crate) mod arena;
mod call;
pub(crate) mod hosts;
pub(crate) mod local;
mod mailbox;
mod message;
pub(crate) mod mpi;
mod owned_exchange;
pub(crate) mod process;
mod nonblocking;
pub(crate) mod shm;
mod signature;
pub(crate) mod wait;

pub use arena::{ArenaBuffer, WholeArena};

pub(crate) use call::Call;
pub use call::Interrupt;
pub(crate) use message::{Envelope, Incoming, Outgoing, Slot};
pub use mpi::{MpiInterface, MpiLibrary, mpi_libraries};
pub(crate) use owned_exchange::OwnedExchange;
pub(crate) use nonblocking::{NonblockingTransport, Ticket};
pub(crate) use signature::{Signature, Verb};
pub use wait::POLL_INTERVAL;

use std::time::Duration;

use crate::error::{Lost, Missing, Result};
use crate::memory::{DType, ReduceOp};

/// Why a member that does not take part in its group any more is lost to the others.
pub(crate) const REVOKED: &str = "it revoked this group, or gave up on it after an error";

/// A way to carry bytes between the ranks of a world. Ranks here are always ranks of the world.
pub(crate) trait Transport: NonblockingTransport + Send + Sync {
    /// The name that users see: "alone", "local", "shm", "mpi", "shm+mpi".
    fn name(&self) -> &'static str;

    /// This process's (or thread's) rank.
    fn rank(&self) -> usize;

    /// How many ranks there are.
    fn size(&self) -> usize;

    /// Waits until all of an exchange is done. The caller cancels the ticket afterwards, whatever came of it.
    ///
    /// Fails with Timeout at `call.deadline`, PeerLost when a peer that is still needed is gone, Mismatch when a message
    /// arrives whose signature or length is not the expected one (that message stays queued), Interrupted when
    /// `call.interrupt` says so.
    fn complete(&self, call: &Call, ticket: &Ticket) -> Result<()>;

    /// A whole all_reduce of the `members` (ranks of the world, in group order), where this transport has a faster way than
    /// messages one after the other; `None` where it has not. Folded in group order like every other way.
    fn all_reduce(
        &self,
        _call: &Call,
        _slot: &Slot,
        _members: &[usize],
        _bytes: &mut [u8],
        _kind: (DType, ReduceOp),
    ) -> Option<Result<()>> {
        None
    }

    /// Sends a message with memory of its own; returns at once. It is delivered in order with this rank's other messages of
    /// that slot, while some thread of this rank is inside a call (a server's thread is, in [`Transport::receive_next`]).
    /// Fails with PeerLost where it is known at once that it cannot arrive; that it arrived is for the receiver to say.
    fn post(&self, call: &Call, to: usize, slot: &Slot, bytes: Vec<u8>) -> Result<()>;

    /// The next message from anybody with this context and tag, whatever its length and signature, and its sender;
    /// `None` when none came within `limit`. Messages of one sender come in the order in which they were sent. No `Incoming`
    /// may wait for the same context and tag. It makes progress for all exchanges of this rank, does not keep other threads
    /// from theirs, and sleeps when nothing happens. The call only names itself in errors.
    fn receive_next(
        &self,
        call: &Call,
        context: u32,
        tag: u32,
        limit: Duration,
    ) -> Result<Option<(usize, Vec<u8>)>>;

    /// Waits, at most for `limit`, until everything that was posted has left this rank; true when it has.
    fn flush(&self, call: &Call, limit: Duration) -> Result<bool>;

    /// Why no message of a rank comes any more, or `None` as far as this rank can see.
    fn lost(&self, rank: usize) -> Option<Lost>;

    /// What is known of a rank that others wait for.
    fn missing(&self, rank: usize) -> Missing;

    /// Takes leave of the other ranks, at most for `limit`; no call is made afterwards.
    fn leave(&self, _limit: Duration) {}

    /// Does all of these and returns when all are done: everything received is in its buffer, everything sent may be
    /// overwritten. Several threads may exchange at once. A message to oneself is allowed. Errors as in `complete`;
    /// after one the buffers are no longer referenced.
    fn exchange(
        &self,
        call: &Call,
        slot: &Slot,
        sends: &[Outgoing],
        receives: &mut [Incoming],
    ) -> Result<()> {
        // SAFETY: the buffers are borrowed for this whole function, and the ticket is cancelled before it ends.
        let ticket = unsafe { self.begin(slot, sends, receives) };
        let cancel = CancelOnDrop(|| self.cancel(ticket));
        let outcome = self.complete(call, &ticket);
        drop(cancel);
        outcome
    }
}

/// Cancels an exchange when it goes out of scope, also when a caller's hook panics: no buffer may be referenced then.
pub(crate) struct CancelOnDrop<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for CancelOnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
