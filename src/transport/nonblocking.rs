//! The engine room of `exchange`: begin, poll, cancel, so that two transports can make progress side by side.

use super::{Call, Incoming, Outgoing, Slot};
use crate::error::Result;

/// Names one exchange that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Ticket(pub u64);

/// A transport whose exchanges can be polled.
pub(crate) trait NonblockingTransport {
    /// Begins an exchange.
    ///
    /// # Safety
    /// All buffers stay valid and untouched until `cancel` was called.
    unsafe fn begin(&self, slot: &Slot, sends: &[Outgoing], receives: &mut [Incoming]) -> Ticket;

    /// Makes progress with everything that has begun; true when all of this ticket is done. Never waits.
    fn poll(&self, call: &Call, ticket: &Ticket) -> Result<bool>;

    /// Ends an exchange, done or not; its buffers are no longer referenced afterwards.
    fn cancel(&self, ticket: Ticket);

    /// The ranks that this exchange still needs.
    fn awaited(&self, ticket: &Ticket) -> Vec<usize>;
}
