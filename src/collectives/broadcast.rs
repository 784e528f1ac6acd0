//! broadcast: every rank gets the root's values.
//!
//! Over messages: a binomial tree; positions are counted from the root.

use super::Raw;
use crate::error::Result;
use crate::memory::{DType, Element};
use crate::transport::arena::channel::{Channel, RawSlice};
use crate::transport::{Call, Incoming, Outgoing, Signature, Verb};
use crate::world::Group;

impl Group {
    /// Copies the root's values to every member.
    pub fn broadcast<T: Element>(&self, values: &mut [T], root: usize) -> Result<()> {
        self.raw().broadcast(bytemuck::cast_slice_mut(values), T::DTYPE, root)
    }

    /// broadcast as a step of a call.
    pub(super) fn broadcast_by_messages(
        &self,
        call: &Call,
        signature: Signature,
        bytes: &mut [u8],
        root: usize,
    ) -> Result<()> {
        let slot = self.slot(signature);
        let size = self.size();
        let position = (self.rank() + size - root) % size;
        let rank_at = |position: usize| (position + root) % size;
        // The highest bit of a rank's position determines its parent; higher bits determine its children.
        let mut bit = 1;
        while bit <= position {
            bit *= 2;
        }
        if position > 0 {
            let from = rank_at(position - bit / 2);
            self.exchange(call, &slot, Vec::new(), vec![Incoming { from, bytes }])?;
        }
        let children =
            std::iter::successors(Some(bit), |bit| Some(bit * 2)).take_while(|bit| position + bit < size);
        let sends = children.map(|bit| Outgoing { to: rank_at(position + bit), bytes }).collect();
        self.exchange(call, &slot, sends, Vec::new())
    }
}

impl Raw<'_> {
    /// Copies the root's values to every member.
    pub fn broadcast(&self, bytes: &mut [u8], dtype: DType, root: usize) -> Result<()> {
        let group = self.group;
        self.check_root(Verb::Broadcast, root)?;
        let count = self.elements(Verb::Broadcast, bytes.len(), dtype)?;
        group.call(Verb::Broadcast, |call| {
            let signature = self.signature(Verb::Broadcast, call).of(dtype, count as u64).root(root);
            let signature = self.enclosing.unwrap_or(signature);
            match (group.channel(), group.hierarchy(call)?) {
                (Some(channel), _) => broadcast_shared(channel, call, signature, bytes, root, group.rank()),
                (None, Some(levels)) => {
                    // The root's host gets the values first, then the other hosts' leaders, then the members of their hosts.
                    let root_host = levels.host_of[root];
                    let on_root_host = levels.host_of[group.rank()] == root_host;
                    if on_root_host {
                        let root =
                            levels.local.members().iter().position(|&rank| rank == group.members()[root]);
                        let local = group.step_of(call, &levels.local);
                        local.raw().steps_of(signature).broadcast(bytes, dtype, root.unwrap_or(0))?;
                    }
                    if let Some(leaders) = &levels.leaders {
                        let leaders = group.step_of(call, leaders);
                        leaders.raw().steps_of(signature).broadcast(bytes, dtype, root_host)?;
                    }
                    if on_root_host {
                        Ok(())
                    } else {
                        let local = group.step_of(call, &levels.local);
                        local.raw().steps_of(signature).broadcast(bytes, dtype, 0)
                    }
                }
                (None, None) => group.broadcast_by_messages(call, signature, bytes, root),
            }
        })
    }
}

fn broadcast_shared(
    channel: &Channel,
    call: &Call,
    signature: Signature,
    bytes: &mut [u8],
    root: usize,
    rank: usize,
) -> Result<()> {
    let length = bytes.len();
    let input = if rank == root { RawSlice::of(bytes) } else { RawSlice::of(&[]) };
    let copy = |start: usize, pieces: &[RawSlice]| {
        if rank != root {
            // SAFETY: the root publishes valid memory, and never another member's buffer.
            unsafe { pieces[root].copy_to(bytes, start) };
        }
    };
    // SAFETY: `bytes` is borrowed by this function; the root does not write to it.
    unsafe {
        channel.share(call, signature, input, None, |member| if member == root { length } else { 0 }, copy)
    }
}
