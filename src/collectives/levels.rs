//! Collectives over several hosts, in two levels: shared memory inside a host, messages between hosts.
//!
//! All ranks of a host take part in the messages. Rank `i` of a host exchanges parts with rank `i mod n` of a host with `n` ranks,
//! so a part leaves a host once for every other host that needs it: for N bytes on h hosts, a host sends N·(h−1)/h bytes in
//! all_gather as in reduce_scatter, the least that is possible. broadcast and all_reduce go through the first rank of each host, its
//! leader.

use std::ops::Range;

use super::raw::HostCall;
use super::{circulant::FEW_HOSTS, disjoint_mut};
use crate::error::Result;
use crate::memory::{DType, ReduceOp, half_floats, reduce};
use crate::transport::arena::channel::RawSlice;
use crate::transport::{Incoming, Outgoing};
use crate::world::Hierarchy;

/// Bytes that go through both levels at once. The levels of one window overlap with those of the next, and partial sums stay in
/// the cache, in memory that the allocator keeps.
const WINDOW: usize = 1 << 20;

/// The same for many hosts: enough that the steps between them cost little beside the bytes.
pub(super) const LONG_WINDOW: usize = 16 << 20;

/// The windows of a buffer that goes through the leaders.
pub(super) fn windows_of(levels: &Hierarchy, bytes: usize) -> impl Iterator<Item = Range<usize>> {
    windows(bytes, if levels.hosts.len() > FEW_HOSTS { LONG_WINDOW } else { WINDOW })
}

/// The windows of `step` bytes of a buffer. An empty buffer has one window, too: the ranks compare their calls.
pub(super) fn windows(bytes: usize, step: usize) -> impl Iterator<Item = Range<usize>> {
    (0..bytes.max(1)).step_by(step).map(move |start| start..bytes.min(start + step))
}

impl HostCall<'_> {
    /// Part `rank` of `bytes` is already in place. Each rank exchanges it with one rank of every other host; then the ranks of a
    /// host share what they have received.
    pub(super) fn all_gather_in_levels(&self, levels: &Hierarchy, bytes: &mut [u8]) -> Result<()> {
        let (index, size, ranges) = (levels.local.rank(), levels.local.size(), self.spec.part_ranges());
        let mut parts = disjoint_mut(bytes, &ranges);
        let mine = std::mem::take(&mut parts[self.group.rank()]);
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        for ranks in self.other_hosts(levels) {
            sends.push(Outgoing { to: ranks[index % ranks.len()], bytes: mine });
            for &from in ranks.iter().skip(index).step_by(size) {
                receives.push(Incoming { from, bytes: std::mem::take(&mut parts[from]) });
            }
        }
        self.group.exchange(self.call, &self.match_key(), sends, receives)?;
        let local = HostCall { group: &levels.local, ..*self };
        rounds(levels)
            .try_for_each(|ranks| local.all_gather_ranges(&for_each_local(levels, ranks, &ranges), bytes))
    }

    /// As a step on one host: every rank gets the range of each rank. The ranges are disjoint.
    fn all_gather_ranges(&self, ranges: &[Range<usize>], bytes: &mut [u8]) -> Result<()> {
        let own = ranges[self.group.rank()].clone();
        if let Some(channel) = self.group.channel() {
            let output = bytes.as_mut_ptr();
            let input = RawSlice { pointer: output.wrapping_add(own.start), bytes: own.len() };
            // SAFETY: all ranges are inside `bytes`, and the input is this rank's.
            return unsafe { self.all_gather_through(channel, ranges, input, output) };
        }
        let mut parts = disjoint_mut(bytes, ranges);
        let mine = &*std::mem::take(&mut parts[self.group.rank()]);
        let others = parts.into_iter().enumerate().filter(|(from, _)| *from != self.group.rank());
        let receives = others.map(|(from, bytes)| Incoming { from, bytes }).collect();
        self.group.exchange(self.call, &self.match_key(), self.outgoing(|_| mine), receives)
    }

    /// The ranks of a host reduce their values; each rank then sends partial sums to one rank of every other host, and reduces
    /// those that it receives for its part, in the order of hosts.
    ///
    /// # Safety
    /// As [`HostCall::reduce_scatter_across`].
    pub(super) unsafe fn reduce_scatter_in_levels(
        &self,
        levels: &Hierarchy,
        input: *const u8,
        output: *mut u8,
    ) -> Result<()> {
        let ranges = self.spec.part_ranges();
        let mine = ranges[self.group.rank()].len();
        let length = ranges.last().map_or(0, |last| last.end);
        let longest = ranges.iter().map(Range::len).max().unwrap_or(0);
        for Range { start, end } in windows(longest, WINDOW) {
            let window = |range: &Range<usize>| {
                let at = |offset: usize| range.end.min(range.start + offset);
                at(start)..at(end)
            };
            let windows = ranges.iter().map(window).collect();
            // SAFETY: the caller vouches for the input; the output, which may be part of it, is written after this borrow.
            let sum =
                unsafe { self.reduce_window(levels, std::slice::from_raw_parts(input, length), windows)? };
            let start = start.min(mine);
            // SAFETY: the window is inside this rank's part, for which the caller vouches.
            sum.store(unsafe { std::slice::from_raw_parts_mut(output.add(start), end.min(mine) - start) });
        }
        Ok(())
    }

    /// Reduces one window of each rank's part; returns that of this rank.
    fn reduce_window(
        &self,
        levels: &Hierarchy,
        input: &[u8],
        mut windows: Vec<Range<usize>>,
    ) -> Result<WindowSum> {
        let (stored, operation) = self.spec.reduction();
        let within = if operation == ReduceOp::Avg { ReduceOp::Sum } else { operation };
        let (own, index) = (self.group.rank(), levels.local.rank());
        // A partial sum may exceed the range of a half type, and is rounded once.
        let wide = half_floats::to_single_ranges(input, &mut windows, stored);
        let (input, dtype) = match &wide {
            Some(wide) => (bytemuck::cast_slice(wide), DType::F32),
            None => (input, stored),
        };
        let local = HostCall { group: &levels.local, ..*self };
        let (mut mine, mut sums) = (Vec::new(), Vec::new());
        for ranks in rounds(levels) {
            let ranges = for_each_local(levels, ranks, &windows);
            let mut sum = vec![0; ranges[index].len()];
            local.reduce_scatter_ranges(input, &ranges, (dtype, within), &mut sum)?;
            match ranks.get(index) {
                Some(&rank) if rank == own => mine = sum,
                Some(&rank) => sums.push((rank, sum)),
                None => {}
            }
        }
        let mut arrived: Vec<Vec<u8>> = self.other_hosts(levels).map(|_| vec![0; mine.len()]).collect();
        let sends = sums.iter().map(|(to, sum)| Outgoing { to: *to, bytes: sum }).collect();
        let receives = self.other_hosts(levels).zip(&mut arrived);
        let receives = receives.map(|(ranks, bytes)| Incoming { from: ranks[index % ranks.len()], bytes });
        self.group.exchange(self.call, &self.match_key(), sends, receives.collect())?;
        let target = mine.as_mut_ptr();
        let mut sources: Vec<*const u8> = arrived.iter().map(|bytes| bytes.as_ptr()).collect();
        sources.insert(levels.host_of[own], target.cast_const());
        // SAFETY: all of them have the length of this rank's window, and the target is one of the sources.
        unsafe { reduce::combine(dtype, within, mine.len() / dtype.size(), &sources, &[target]) };
        if operation == ReduceOp::Avg {
            reduce::divide(&mut mine, dtype, self.group.size());
        }
        Ok(WindowSum { bytes: mine, stored, is_wide: wide.is_some() })
    }

    /// The ranks of every other host.
    fn other_hosts<'a>(&self, levels: &'a Hierarchy) -> impl Iterator<Item = &'a Vec<usize>> + use<'a> {
        let own = levels.host_of[self.group.rank()];
        levels.hosts.iter().enumerate().filter(move |(host, _)| *host != own).map(|(_, ranks)| ranks)
    }
}

/// The reduced values of one window, as f32 if they are stored in a half type.
pub(super) struct WindowSum {
    pub bytes: Vec<u8>,
    pub stored: DType,
    pub is_wide: bool,
}

impl WindowSum {
    pub fn store(self, output: &mut [u8]) {
        if self.is_wide {
            let values = self.bytes.as_chunks().0.iter().map(|&bytes| f32::from_ne_bytes(bytes));
            half_floats::from_single(&values.collect::<Vec<f32>>(), output, self.stored);
        } else {
            output.copy_from_slice(&self.bytes);
        }
    }
}

/// The ranks whose parts the ranks of this host handle at the same time, one each.
fn rounds(levels: &Hierarchy) -> impl Iterator<Item = &[usize]> {
    levels.hosts.iter().flat_map(|ranks| ranks.chunks(levels.local.size()))
}

/// For each rank of this host, the range of the part that it handles; empty if there is none.
fn for_each_local(levels: &Hierarchy, ranks: &[usize], ranges: &[Range<usize>]) -> Vec<Range<usize>> {
    (0..levels.local.size())
        .map(|index| ranks.get(index).map_or(0..0, |&rank| ranges[rank].clone()))
        .collect()
}

#[cfg(all(test, not(unisono_loom)))]
mod tests {
    use half::f16;

    use crate::memory::ReduceOp;
    use crate::testing;
    use crate::world::World;

    /// The host of each rank: even and uneven numbers of ranks, ranks of a host that follow each other or do not.
    const LAYOUTS: [&[usize]; 6] =
        [&[0, 0, 1, 1], &[0, 1, 0, 1], &[0, 0, 0, 1], &[0, 1, 1, 1], &[0, 1, 1, 0, 2], &[0, 0, 1, 1, 1, 2]];

    /// Runs `body` on this layout twice: the ranks of a host share memory, or exchange messages.
    fn spawn(layout: &[usize], body: impl Fn(&World) + Sync) {
        testing::spawn_placed(layout, &body);
        testing::spawn_without_channels(layout, &body);
    }

    fn value(rank: usize, index: usize) -> i64 {
        (rank * 31 + index * 7) as i64 % 50 - 20
    }

    /// Parts of various lengths; some are empty.
    fn counts(ranks: usize, scale: usize) -> Vec<usize> {
        (0..ranks).map(|rank| scale * (rank * 5 % 4)).collect()
    }

    #[test]
    fn gathers_parts_of_any_length_on_any_layout() {
        for layout in LAYOUTS {
            for scale in [1, 50_000] {
                let counts = counts(layout.len(), scale);
                let part =
                    |rank: usize| (0..counts[rank]).map(|index| value(rank, index)).collect::<Vec<i64>>();
                let expected: Vec<i64> = (0..layout.len()).flat_map(part).collect();
                spawn(layout, |world| {
                    let mut all = vec![0; expected.len()];
                    world.group().all_gather_varied(&part(world.rank()), &mut all, &counts).unwrap();
                    assert!(all == expected, "{layout:?}, {counts:?}");
                });
            }
        }
    }

    #[test]
    fn reduces_parts_of_any_length_on_any_layout() {
        for layout in LAYOUTS {
            for scale in [1, 50_000] {
                let (ranks, counts) = (layout.len(), counts(layout.len(), scale));
                let total: usize = counts.iter().sum();
                let sum = |index: usize| (0..ranks).map(|rank| value(rank, index)).sum::<i64>();
                let expected: Vec<i64> = (0..total).map(sum).collect();
                spawn(layout, |world| {
                    let (group, rank) = (world.group(), world.rank());
                    let mine: Vec<i64> = (0..total).map(|index| value(rank, index)).collect();
                    let start: usize = counts[..rank].iter().sum();
                    let mut part = vec![0; counts[rank]];
                    group.reduce_scatter_varied(&mine, &mut part, &counts, ReduceOp::Sum).unwrap();
                    assert!(part == expected[start..start + counts[rank]], "{layout:?}, {counts:?}");
                    let mut all = mine.clone();
                    group.all_reduce(&mut all, ReduceOp::Sum).unwrap();
                    assert!(all == expected, "{layout:?}, {total}");
                    let mut at_root = mine.clone();
                    group.reduce(&mut at_root, ReduceOp::Sum, ranks - 1).unwrap();
                    assert!(at_root == if rank == ranks - 1 { &expected } else { &mine }[..], "{layout:?}");
                });
            }
        }
    }

    /// Partial sums exceed the range of the type, and the mean is rounded once.
    #[test]
    fn means_of_half_types_are_those_of_one_host() {
        for layout in LAYOUTS {
            spawn(layout, |world| {
                let (group, ranks) = (world.group(), layout.len());
                let mut values = vec![f16::from_f32(30000.0 + 32.0 * world.rank() as f32); 2 * ranks];
                let mean = f16::from_f32(30000.0 + 16.0 * (ranks - 1) as f32);
                let mut part = vec![f16::ZERO; 2];
                group.reduce_scatter(&values, &mut part, ReduceOp::Avg).unwrap();
                assert_eq!(part, [mean; 2], "{layout:?}");
                group.all_reduce(&mut values, ReduceOp::Avg).unwrap();
                assert_eq!(values, vec![mean; 2 * ranks], "{layout:?}");
            });
        }
    }
}
