//! broadcast: every rank gets the root's values.
//!
//! Over messages: a binomial tree; positions are counted from the root.

use super::raw::HostCall;
use crate::error::Result;
use crate::memory::Element;
use crate::transport::arena::channel::{Channel, RawSlice};
use crate::transport::{Incoming, Outgoing};
use crate::world::{Group, Hierarchy};

impl Group {
    /// Copies the root's values to every member.
    pub fn broadcast<T: Element>(&self, values: &mut [T], root: usize) -> Result<()> {
        self.raw().broadcast(bytemuck::cast_slice_mut::<T, u8>(values), T::DTYPE, root)
    }
}

impl HostCall<'_> {
    pub(super) fn broadcast(&self, bytes: &mut [u8]) -> Result<()> {
        if let Some(channel) = self.group.channel() {
            return self.broadcast_shared(channel, bytes);
        }
        match self.group.hierarchy(self.call)? {
            Some(levels) => self.broadcast_in_levels(levels, bytes),
            None => self.broadcast_by_messages(bytes),
        }
    }

    fn broadcast_shared(&self, channel: &Channel, bytes: &mut [u8]) -> Result<()> {
        let (root, is_root, length) = (self.spec.root_rank(), self.is_root(), bytes.len());
        let input = if is_root { RawSlice::of(bytes) } else { RawSlice::of(&[]) };
        let copy = |start: usize, pieces: &[RawSlice]| {
            if !is_root {
                // SAFETY: the root publishes valid memory, and never another member's buffer.
                unsafe { pieces[root].copy_to(bytes, start) };
            }
        };
        let expected = |member: usize| if member == root { length } else { 0 };
        // SAFETY: `bytes` is borrowed by this function; the root does not write to it.
        unsafe { channel.share(self.call, self.signature, input, None, expected, copy) }
    }

    /// The root's host gets the values first, then the other hosts' leaders, then the members of their hosts.
    fn broadcast_in_levels(&self, levels: &Hierarchy, bytes: &mut [u8]) -> Result<()> {
        let (group, dtype, root) = (self.group, self.spec.dtype, self.spec.root_rank());
        let (root_host, own_host) = (levels.host_of[root], levels.host_of[group.rank()]);
        let local = || group.step_of(self.call, &levels.local);
        if own_host == root_host {
            let root = levels.local.members().iter().position(|&rank| rank == group.members()[root]);
            local().raw().steps_of(self.signature).broadcast(&mut *bytes, dtype, root.unwrap_or(0))?;
        }
        if let Some(leaders) = &levels.leaders {
            let leaders = group.step_of(self.call, leaders);
            leaders.raw().steps_of(self.signature).broadcast(&mut *bytes, dtype, root_host)?;
        }
        if own_host == root_host {
            return Ok(());
        }
        local().raw().steps_of(self.signature).broadcast(bytes, dtype, 0)
    }

    fn broadcast_by_messages(&self, bytes: &mut [u8]) -> Result<()> {
        let (group, root, slot) = (self.group, self.spec.root_rank(), self.slot());
        let size = group.size();
        let position = (group.rank() + size - root) % size;
        let rank_at = |position: usize| (position + root) % size;
        // The highest bit of a rank's position determines its parent; higher bits determine its children.
        let mut bit = 1;
        while bit <= position {
            bit *= 2;
        }
        if position > 0 {
            let from = rank_at(position - bit / 2);
            group.exchange(self.call, &slot, Vec::new(), vec![Incoming { from, bytes }])?;
        }
        let children =
            std::iter::successors(Some(bit), |bit| Some(bit * 2)).take_while(|bit| position + bit < size);
        let sends = children.map(|bit| Outgoing { to: rank_at(position + bit), bytes }).collect();
        group.exchange(self.call, &slot, sends, Vec::new())
    }
}
