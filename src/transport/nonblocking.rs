//! The nonblocking primitives under `exchange` (begin, poll, cancel), which let two transports make progress side by
//! side.

use super::{Call, Incoming, MatchKey, Outgoing};
use crate::error::Result;

/// Identifies an exchange in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Ticket(pub u64);

/// A transport whose exchanges can be started, polled and cancelled.
pub(crate) trait NonblockingTransport {
    /// Starts an exchange.
    ///
    /// # Safety
    /// All buffers must stay valid and untouched until `cancel` has been called.
    unsafe fn begin(&self, match_key: &MatchKey, sends: &[Outgoing], receives: &mut [Incoming]) -> Ticket;

    /// Makes progress on all exchanges; true when this ticket's exchange is complete. Never blocks.
    fn poll(&self, call: &Call, ticket: &Ticket) -> Result<bool>;

    /// Makes progress on all exchanges. Returns whether anything moved or is still to be moved; false only if no call of
    /// this rank is needed until a peer acts. Never blocks.
    fn progress(&self) -> bool;

    /// Ends an exchange, complete or not; afterwards its buffers are no longer referenced.
    fn cancel(&self, ticket: Ticket);

    /// The ranks that this exchange still waits for.
    fn awaited(&self, ticket: &Ticket) -> Vec<usize>;
}
