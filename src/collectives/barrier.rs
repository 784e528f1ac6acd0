//! barrier: no rank leaves before all ranks have entered.
//!
//! Over messages: dissemination (Hensgen, Finkel and Manber 1988). In round k every rank sends to the rank 2^k ahead and
//! receives from the rank 2^k behind; after log2(size) rounds it has heard from all ranks, directly or indirectly.

use super::Raw;
use crate::error::Result;
use crate::transport::{Call, Incoming, Outgoing, Verb};
use crate::world::Group;

impl Group {
    /// Blocks until every member has called this.
    pub fn barrier(&self) -> Result<()> {
        self.raw().barrier()
    }

    fn barrier_by_messages(&self, call: &Call) -> Result<()> {
        let slot = self.slot(self.signature(Verb::Barrier, call));
        let size = self.size();
        let mut distance = 1;
        while distance < size {
            let (to, from) = ((self.rank() + distance) % size, (self.rank() + size - distance) % size);
            let (send, receive) = (Outgoing { to, bytes: &[] }, Incoming { from, bytes: &mut [] });
            self.exchange(call, &slot, vec![send], vec![receive])?;
            distance *= 2;
        }
        Ok(())
    }
}

impl Raw<'_> {
    /// Blocks until every member has called this.
    pub fn barrier(&self) -> Result<()> {
        let group = self.group;
        group.call(Verb::Barrier, |call| match group.channel() {
            Some(channel) => channel.barrier(call, group.signature(Verb::Barrier, call)),
            None => group.barrier_by_messages(call),
        })
    }
}
