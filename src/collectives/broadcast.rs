//! broadcast: every rank gets the root's values.
//!
//! Over messages: a binomial tree; positions are counted from the root. Over several hosts, the tree connects their leaders.

use super::levels::windows_of;
use super::*;
use crate::world::Hierarchy;

pub(super) const BROADCAST: CollectiveVerb = CollectiveVerb {
    descriptor: VerbDescriptor::new(2, "broadcast"),
    lengths: Lengths::Equal,
    execute: |call, buffers| call.broadcast(buffers.single()?),
    jobs: Some(|plan| {
        let others = (0..plan.size).filter(|&rank| rank != plan.root);
        others.map(|rank| plan.copy((plan.root, 0), (rank, 0), plan.bytes)).collect()
    }),
};

impl Group {
    /// Copies the root's values to every member.
    pub fn broadcast<T: Element>(&self, values: &mut [T], root: usize) -> Result<()> {
        self.raw().broadcast(bytemuck::cast_slice_mut::<T, u8>(values), T::DTYPE, root)
    }
}

impl Raw<'_> {
    /// Copies the root's values to every member.
    #[inline]
    pub fn broadcast<'b>(&self, values: impl Into<BufferMut<'b>>, dtype: DType, root: usize) -> Result<()> {
        let spec = CollectiveSpec::new(&BROADCAST, dtype).root(root);
        self.execute(&spec, Buffers::in_place(values.into()))
    }
}

impl HostCall<'_> {
    fn broadcast(&self, bytes: &mut [u8]) -> Result<()> {
        if let Some(channel) = self.group.channel() {
            return self.broadcast_shared(channel, bytes);
        }
        match self.group.hierarchy(self.call)? {
            Some(levels) => self.broadcast_in_levels(levels, bytes),
            None if self.may_broadcast_in_parts(bytes.len()) => self.broadcast_in_parts(bytes),
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

    /// The leaders broadcast the values, and then every leader in its host. A root that is no leader first broadcasts them in its own.
    fn broadcast_in_levels(&self, levels: &Hierarchy, bytes: &mut [u8]) -> Result<()> {
        let (group, dtype, root) = (self.group, self.spec.dtype, self.spec.root_rank());
        let root_host = levels.host_of[root];
        let root_leads = levels.hosts[root_host].first() == Some(&root);
        let root_on_host = levels.hosts[root_host].iter().position(|&rank| rank == root).unwrap_or(0);
        let host_is_first = levels.host_of[group.rank()] == root_host && !root_leads;
        let local = || group.step_of(self.call, &levels.local);
        for window in windows_of(levels, bytes.len()) {
            let bytes = &mut bytes[window];
            if host_is_first {
                local().raw().steps_of(self.signature).broadcast(&mut *bytes, dtype, root_on_host)?;
            }
            if let Some(leaders) = &levels.leaders {
                let leaders = group.step_of(self.call, leaders);
                leaders.raw().steps_of(self.signature).broadcast(&mut *bytes, dtype, root_host)?;
            }
            if !host_is_first {
                local().raw().steps_of(self.signature).broadcast(bytes, dtype, 0)?;
            }
        }
        Ok(())
    }

    fn broadcast_by_messages(&self, bytes: &mut [u8]) -> Result<()> {
        let (group, root, match_key) = (self.group, self.spec.root_rank(), self.match_key());
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
            group.exchange(self.call, &match_key, Vec::new(), vec![Incoming { from, bytes }])?;
        }
        let children =
            std::iter::successors(Some(bit), |bit| Some(bit * 2)).take_while(|bit| position + bit < size);
        let sends = children.map(|bit| Outgoing { to: rank_at(position + bit), bytes }).collect();
        group.exchange(self.call, &match_key, sends, Vec::new())
    }
}
