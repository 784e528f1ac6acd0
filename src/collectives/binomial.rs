//! gather and scatter between many hosts, along binomial trees: ⌈log2 p⌉ steps. Each subtree is a range of consecutive blocks.

use super::circulant::BlockRing;
use super::disjoint_mut;
use super::raw::HostCall;
use crate::error::Result;
use crate::transport::{Incoming, Outgoing};

impl BlockRing<'_> {
    /// The caller's children in a binomial tree with this root: their positions, and the number of blocks below each.
    /// The largest subtree comes first.
    fn children(&self, root: usize) -> Vec<(usize, usize)> {
        let (size, relative) = (self.size(), self.relative_rank(root));
        let below = if relative == 0 { size } else { relative & relative.wrapping_neg() };
        let bits = std::iter::successors(Some(1), |bit| Some(bit * 2))
            .take_while(|&bit| bit < below && relative + bit < size);
        let mut children: Vec<_> =
            bits.map(|bit| ((root + relative + bit) % size, bit.min(size - relative - bit))).collect();
        children.reverse();
        children
    }

    /// The caller's parent in that tree, and the number of blocks below the caller; `None` at the root.
    fn parent(&self, root: usize) -> Option<(usize, usize)> {
        let (size, relative) = (self.size(), self.relative_rank(root));
        let bit = relative & relative.wrapping_neg();
        (relative > 0).then(|| ((root + relative - bit) % size, bit.min(size - relative)))
    }

    /// The caller's rank relative to the root.
    fn relative_rank(&self, root: usize) -> usize {
        (self.me + self.size() - root) % self.size()
    }
}

impl HostCall<'_> {
    /// The member at position `root` gets all blocks; each member's own is already in place. Others' blocks may be overwritten.
    pub(super) fn gather_binomial(&self, ring: &BlockRing, bytes: &mut [u8], root: usize) -> Result<()> {
        let children = ring.children(root);
        let spans: Vec<_> = children.iter().map(|&(child, below)| ring.span(child, below)).collect();
        let from =
            children.iter().zip(&spans).flat_map(|(&(child, _), span)| vec![ring.ranks[child]; span.len()]);
        let parts = disjoint_mut(bytes, spans.iter().flatten());
        let receives = from.zip(parts).map(|(from, bytes)| Incoming { from, bytes }).collect();
        self.group.exchange(self.call, &self.match_key(), Vec::new(), receives)?;
        let Some((parent, below)) = ring.parent(root) else { return Ok(()) };
        let to = ring.ranks[parent];
        let span = ring.span(ring.me, below).into_iter();
        let sends = span.map(|range| Outgoing { to, bytes: &bytes[range] }).collect();
        self.group.exchange(self.call, &self.match_key(), sends, Vec::new())
    }

    /// Every member gets its block of those of the member at position `root`; others' blocks may be overwritten.
    pub(super) fn scatter_binomial(&self, ring: &BlockRing, bytes: &mut [u8], root: usize) -> Result<()> {
        if let Some((parent, below)) = ring.parent(root) {
            let (from, span) = (ring.ranks[parent], ring.span(ring.me, below));
            let parts = disjoint_mut(bytes, span.iter());
            let receives = parts.into_iter().map(|bytes| Incoming { from, bytes }).collect();
            self.group.exchange(self.call, &self.match_key(), Vec::new(), receives)?;
        }
        self.scatter_to_children(ring, bytes, root)
    }

    /// What the root does in [`HostCall::scatter_binomial`].
    pub(super) fn scatter_to_children(&self, ring: &BlockRing, bytes: &[u8], root: usize) -> Result<()> {
        let mut sends = Vec::new();
        for (child, below) in ring.children(root) {
            let to = ring.ranks[child];
            let span = ring.span(child, below).into_iter();
            sends.extend(span.map(|range| Outgoing { to, bytes: &bytes[range] }));
        }
        self.group.exchange(self.call, &self.match_key(), sends, Vec::new())
    }
}
