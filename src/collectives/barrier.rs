//! barrier: no rank leaves before all ranks have entered.
//!
//! Over messages: dissemination (Hensgen, Finkel and Manber 1988). In round k every rank sends to the rank 2^k ahead and
//! receives from the rank 2^k behind; after log2(size) rounds it has heard from all ranks, directly or indirectly.

use super::*;

pub(super) const BARRIER: VerbDescriptor = VerbDescriptor::new(1, "barrier");

impl Group {
    /// Blocks until every member has called this.
    pub fn barrier(&self) -> Result<()> {
        self.call(BARRIER.verb, |call| {
            let signature = Signature::new(BARRIER.verb, call.number);
            match self.channel() {
                Some(channel) => channel.barrier(call, signature),
                None => self.barrier_by_messages(call, signature),
            }
        })
    }

    fn barrier_by_messages(&self, call: &Call, signature: Signature) -> Result<()> {
        let (match_key, size) = (self.match_key(signature), self.size());
        let mut distance = 1;
        while distance < size {
            let (to, from) = ((self.rank() + distance) % size, (self.rank() + size - distance) % size);
            let (send, receive) = (Outgoing { to, bytes: &[] }, Incoming { from, bytes: &mut [] });
            self.exchange(call, &match_key, vec![send], vec![receive])?;
            distance *= 2;
        }
        Ok(())
    }
}

impl Raw<'_> {
    /// Blocks until every member has called this.
    pub fn barrier(&self) -> Result<()> {
        self.group.barrier()
    }
}
