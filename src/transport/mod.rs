//! Layer 2: transports, which carry bytes between ranks. `local` (threads) and `shm` (processes of one host) run the
//! same engine over one arena; `mpi` connects hosts; `hosts` combines the two.

pub(crate) mod arena;
mod call;
#[cfg(all(test, not(unisono_loom)))]
pub(crate) mod counting;
mod cpus;
mod exchanges;
pub(crate) mod hosts;
pub(crate) mod local;
mod mailbox;
mod matching;
mod message;
pub(crate) mod mpi;
mod nonblocking;
mod owned_exchange;
pub(crate) mod process;
pub(crate) mod shm;
mod signature;
mod verb;
pub(crate) mod wait;

pub(crate) use arena::flag::Flag;
pub use arena::{ArenaBuffer, WholeArena};

pub use call::Interrupt;
pub(crate) use call::{Call, CallTime};
pub(crate) use message::{Envelope, Incoming, MatchKey, Outgoing};
pub use mpi::{MpiInterface, MpiLibrary, mpi_libraries};
pub(crate) use nonblocking::{NonblockingTransport, Ticket};
pub(crate) use owned_exchange::OwnedExchange;
pub(crate) use signature::Signature;
pub(crate) use verb::{VERBS, Verb, VerbDescriptor, VerbTable, verbs};
pub use wait::POLL_INTERVAL;

use std::time::Duration;

use crate::error::{Lost, Missing, Result};
use crate::memory::{DType, ReduceOp};

/// Cause of loss reported for a rank that left the world in an orderly way.
pub(crate) const LEFT_EARLY: &str = "it left the world (its program ended, called shutdown, or left a with block) while others still needed it";

/// Cause of loss reported for a member that no longer takes part in its group.
pub(crate) const REVOKED: &str = "it revoked this group, or gave up on it after an error";

/// A message that was received, with its sender.
pub(crate) type Delivery = (usize, Vec<u8>);

/// Carries bytes between the ranks of a world. Every rank number in this trait is a world rank.
pub(crate) trait Transport: NonblockingTransport + Send + Sync {
    /// The name shown to users: "alone", "local", "shm", "mpi", "shm+mpi".
    fn name(&self) -> &'static str;

    /// This process's (or thread's) rank.
    fn rank(&self) -> usize;

    /// The number of ranks.
    fn size(&self) -> usize;

    /// Blocks until the exchange has completed. The caller cancels the ticket afterwards, whatever the outcome.
    ///
    /// Fails with Timeout at `call.deadline`, with PeerLost when a peer that is still needed has died, with Mismatch
    /// when a message arrives whose signature or length differs from the expected one (that message stays queued), and
    /// with Interrupted when `call.interrupt` returns true.
    fn complete(&self, call: &Call, ticket: &Ticket) -> Result<()>;

    /// The flag that peers raise when they have moved bytes to or from this rank, if they do.
    fn doorbell(&self) -> Option<&Flag> {
        None
    }

    /// A complete all_reduce over the `members` (world ranks, in group order), if this transport has a faster algorithm
    /// than a sequence of messages; `None` otherwise. Folds in group order, like every other algorithm.
    fn all_reduce(
        &self,
        _call: &Call,
        _slot: &MatchKey,
        _members: &[usize],
        _bytes: &mut [u8],
        _kind: (DType, ReduceOp),
    ) -> Option<Result<()>> {
        None
    }

    /// The channel of a group whose members share a host of a modelled machine.
    #[cfg(all(test, not(unisono_loom)))]
    fn counted_channel(&self, _context: u32, _members: &[usize]) -> Option<arena::channel::Channel> {
        None
    }

    /// Sends a message whose buffer the transport owns; returns immediately (a buffered send). The message is delivered
    /// in order with this rank's other messages of the same match key, while some thread of this rank is inside a call (a
    /// server thread is, in [`Transport::receive_next`]). Fails with PeerLost if the message is known to be
    /// undeliverable; only the receiver can confirm delivery.
    fn post(&self, call: &Call, to: usize, match_key: &MatchKey, bytes: Vec<u8>) -> Result<()>;

    /// The next message from any source with this context and tag, whatever its length and signature, and its sender;
    /// `None` if none arrives within `limit`. Messages from one sender are received in the order sent. No `Incoming`
    /// may be posted for the same context and tag. The call makes progress on all exchanges of this rank, does not
    /// block the progress of other threads, and sleeps while idle. `call` serves only to identify the call in errors.
    fn receive_next(&self, call: &Call, context: u32, tag: u32, limit: Duration) -> Result<Option<Delivery>>;

    /// Memory for a message to post, of this length and with any content. Memory of earlier messages is reused: writing to
    /// fresh pages is slow.
    fn buffer(&self, bytes: usize) -> Vec<u8> {
        vec![0; bytes]
    }

    /// Takes back the memory of a received message, for [`Transport::buffer`] and for later messages.
    fn recycle(&self, _bytes: Vec<u8>) {}

    /// Waits, at most for `limit`, until at most `bytes` of the messages posted to a rank have not left; true if so. Makes
    /// progress at least once.
    fn drain(&self, call: &Call, to: usize, bytes: usize, limit: Duration) -> Result<bool>;

    /// Waits, at most for `limit`, until every posted message has left this rank; true if all have.
    fn flush(&self, call: &Call, limit: Duration) -> Result<bool>;

    /// Why no further message can arrive from a rank, or `None` if this rank knows of no reason.
    fn lost(&self, rank: usize) -> Option<Lost>;

    /// The known state of ranks that this rank waits for, in their order. May take some seconds, for the ranks to reply.
    fn missing(&self, ranks: &[usize]) -> Vec<Missing>;

    /// Disconnects from the other ranks, waiting at most `limit`; no call follows. `may_have_lost_rank`: a call has failed because
    /// a rank has died or has given up.
    fn leave(&self, _limit: Duration, _may_have_lost_rank: bool) {}

    /// Performs all sends and receives and returns when all are complete: received data is in its buffers, and send
    /// buffers may be overwritten. Several threads may exchange concurrently. A rank may send to itself. Errors are
    /// those of `complete`; after an error the buffers are no longer referenced.
    fn exchange(
        &self,
        call: &Call,
        match_key: &MatchKey,
        sends: &[Outgoing],
        receives: &mut [Incoming],
    ) -> Result<()> {
        // SAFETY: the buffers are borrowed for the duration of this function, and the ticket is cancelled before it
        // returns.
        let ticket = unsafe { self.begin(match_key, sends, receives) };
        let cancel = CancelOnDrop(|| self.cancel(ticket));
        let outcome = self.complete(call, &ticket);
        drop(cancel);
        outcome
    }
}

/// Cancels an exchange on drop, including when a caller's hook panics: no buffer may remain referenced then.
pub(crate) struct CancelOnDrop<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for CancelOnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
