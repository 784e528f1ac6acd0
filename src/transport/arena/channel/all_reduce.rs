//! all_reduce over a channel: each member reduces its part of every window, and the others copy the result.
//!
//! Lower bound on the bytes moved for N bytes on p members: 2·p·N (every buffer is read once and written once). Buffers in
//! the arena reach that bound: a member reads its part from all buffers and writes it to all. Private buffers go through
//! the slots, which stay in the cache.

use std::ops::Range;

use super::call_record::CallRecord;
use super::share::IN_PLACE;
use super::{Channel, RawSlice};
use crate::error::Result;
use crate::memory::prefetch::prefetch_early;
use crate::memory::stream::stream;
use crate::memory::{DType, ReduceOp, reduce};
use crate::transport::{Call, Signature};

/// Up to this length every member may reduce the full buffer itself: one step instead of two.
const SMALL: usize = 32 * 1024;

/// The bytes that all members together may read from each other in that one step. Beyond, a second step costs less.
const READ_AT_ONCE: usize = 2 * SMALL;

// Members overwrite the buffers that they share, so these must not be read in place.
const _: () = assert!(SMALL < IN_PLACE);

/// A member that collects the results of window i publishes the parts of window i + 3 next.
const AHEAD: usize = 3;

/// Results are copied in pieces of this many bytes, each with as much prefetching.
const COPIED_AT_ONCE: usize = 1024;

/// A result is copied to the slot in blocks of this many bytes, while each block is still in the L1 cache.
const BLOCK: usize = 16 * 1024;

impl Channel {
    /// Reduces `buffer` over all members, in rank order, in place.
    pub fn all_reduce(
        &self,
        call: &Call,
        signature: Signature,
        buffer: &mut [u8],
        dtype: DType,
        operation: ReduceOp,
    ) -> Result<()> {
        let bytes = buffer.len();
        if self.takes_one_step(bytes) {
            return self.all_reduce_small(call, signature, buffer, dtype, operation);
        }
        #[cfg(all(test, not(unisono_loom)))]
        if self.count_all_reduce(bytes) {
            return Ok(());
        }
        let exposed = self.endpoint.arena.expose(RawSlice::of(buffer));
        let offset = exposed.as_ref().map(|exposed| exposed.offset);
        let mut work = || self.all_reduce_long(call, signature, buffer, offset, (dtype, operation));
        if exposed.is_some() { self.with_exposed(exposed.as_ref(), work) } else { work() }
    }

    /// Whether every member reduces the full buffer itself. For N bytes, p members then read p·(p−1)·N bytes from each other instead
    /// of 2·(p−1)·N. On shared cores the second step costs two switches between ranks, more than short reads do.
    fn takes_one_step(&self, bytes: usize) -> bool {
        let read = bytes.saturating_mul(self.size() * (self.size() - 1));
        bytes <= SMALL && (read <= READ_AT_ONCE || self.endpoint.arena.is_oversubscribed())
    }

    /// As [`Channel::all_reduce`], for a buffer at `offset` in the arena, or outside of it if `None`.
    fn all_reduce_long(
        &self,
        call: &Call,
        signature: Signature,
        buffer: &mut [u8],
        offset: Option<usize>,
        (dtype, operation): (DType, ReduceOp),
    ) -> Result<()> {
        let (bytes, buffer) = (buffer.len(), buffer.as_mut_ptr());
        let length = self.rotation().window;
        let windows = bytes.div_ceil(length);
        let window = |index: usize| index * length..bytes.min((index + 1) * length);
        let fill_slot = |slot: *mut u8, window: Range<usize>| {
            for member in (0..self.size()).filter(|&member| member != self.me && offset.is_none()) {
                let part = self.part(&window, member);
                // SAFETY: the part is inside the buffer, and inside the slot at the same distance from the window's
                // start; this member may write to the slot now.
                unsafe {
                    self.writer.copy(buffer.add(part.start), slot.add(part.start - window.start), part.len());
                }
            }
        };
        let first = self.next();
        self.enter(call, CallRecord::new(signature).at(offset), |slot| fill_slot(slot, window(0)))?;

        let exposed_offsets: Vec<Option<usize>> =
            (0..self.size()).map(|member| self.record(member).offset()).collect();
        if let Some(offsets) = exposed_offsets.iter().copied().collect::<Option<Vec<usize>>>() {
            let part = self.part(&(0..bytes), self.me);
            let targets: Vec<*mut u8> = offsets
                .iter()
                .map(|&offset| self.endpoint.arena.range(offset, bytes).wrapping_add(part.start))
                .collect();
            let sources: Vec<*const u8> = targets.iter().map(|pointer| pointer.cast_const()).collect();
            let count = part.len() / dtype.size();
            self.touch(call, || {
                // SAFETY: every member exposes a buffer of this length and leaves it to the others until `settle`, or until it
                // has given up and no member touches it; this part of every buffer belongs to this member alone.
                unsafe { reduce::combine(dtype, operation, count, &sources, &targets) };
                Ok(())
            })?;
            return self.settle(call);
        }

        // Each window takes two steps: one publishes its parts, one its result. The next window's parts are published before
        // this window's result, so that no member waits for one that is slightly behind:
        // parts 0, parts 1, result 0, parts 2, result 1, …, result of the last.
        let parts_step = |index: usize| first.wrapping_add((2 * index).saturating_sub(1) as u32);
        let result_step = |index: usize| first.wrapping_add((2 * index + 2).min(2 * windows - 1) as u32);
        let mut sources = vec![std::ptr::null(); self.size()];
        for index in 0..windows {
            if index + 1 < windows {
                self.writable(call)?;
                fill_slot(self.slot(self.me, self.next()), window(index + 1));
                self.publish();
            }
            let part = self.part(&window(index), self.me);
            let in_slot = part.start - window(index).start;
            for (member, source) in sources.iter_mut().enumerate() {
                self.wait_for(call, member, parts_step(index))?;
                *source = match exposed_offsets[member] {
                    _ if member == self.me => buffer.wrapping_add(part.start).cast_const(),
                    Some(offset) => self.endpoint.arena.at(offset + part.start).cast_const(),
                    None => self.slot(member, parts_step(index)).wrapping_add(in_slot).cast_const(),
                };
            }
            self.writable(call)?;
            let slot = self.slot(self.me, self.next()).wrapping_add(in_slot);
            let mine = buffer.wrapping_add(part.start);
            let mut reduce = || {
                // SAFETY: sources and results are valid for the part; no member reads the slot of the next step yet, and no
                // other member writes to this part.
                unsafe { self.reduce_part(&mut sources, mine, slot, part.len(), (dtype, operation)) };
                Ok(())
            };
            if exposed_offsets.iter().any(Option::is_some) {
                self.touch(call, reduce)?
            } else {
                reduce()?
            }
            self.publish();
            if index > 0 {
                self.collect(call, (buffer, bytes), window(index - 1), result_step(index - 1))?;
            }
        }
        self.collect(call, (buffer, bytes), window(windows - 1), result_step(windows - 1))
    }

    /// Reduces a part into this member's buffer and into the slot from which the other members read it.
    ///
    /// # Safety
    /// All pointers are valid for `bytes` bytes; no other thread writes to the buffer's part or uses the slot meanwhile.
    unsafe fn reduce_part(
        &self,
        sources: &mut [*const u8],
        mine: *mut u8,
        slot: *mut u8,
        bytes: usize,
        (dtype, operation): (DType, ReduceOp),
    ) {
        if !self.writer.uses_non_temporal(bytes) {
            // SAFETY: guaranteed by the caller.
            return unsafe {
                reduce::combine(dtype, operation, bytes / dtype.size(), sources, &[mine, slot])
            };
        }
        for start in (0..bytes).step_by(BLOCK) {
            let (mine, bytes) = (mine.wrapping_add(start), BLOCK.min(bytes - start));
            // SAFETY: guaranteed by the caller; the block is inside the part.
            unsafe {
                reduce::combine(dtype, operation, bytes / dtype.size(), sources, &[mine]);
                stream(mine, slot.wrapping_add(start), bytes);
            }
            sources.iter_mut().for_each(|source| *source = source.wrapping_add(BLOCK));
        }
    }

    /// Copies the results of a window that the other members have published, each member starting with the one after it, so that
    /// they read from different caches. Meanwhile it prefetches what it will publish next: the results come
    /// from other cores, and leave the memory bus idle. With two members the results are only half of what they copy.
    fn collect(
        &self,
        call: &Call,
        (buffer, bytes): (*mut u8, usize),
        window: Range<usize>,
        step: u32,
    ) -> Result<()> {
        let (ahead, prefetches) = (AHEAD * self.rotation().window, self.size() > 2);
        for member in (1..self.size()).map(|distance| (self.me + distance) % self.size()) {
            self.wait_for(call, member, step)?;
            let part = self.part(&window, member);
            let result = self.slot(member, step).wrapping_add(part.start - window.start);
            for start in part.clone().step_by(COPIED_AT_ONCE) {
                let length = COPIED_AT_ONCE.min(part.end - start);
                if prefetches && start + ahead < bytes {
                    prefetch_early(buffer.wrapping_add(start + ahead), length);
                }
                // SAFETY: the member has published the result of its part, and no other thread touches that part of the buffer.
                unsafe {
                    let result = result.add(start - part.start);
                    buffer.add(start).copy_from_nonoverlapping(result, length);
                }
            }
        }
        Ok(())
    }

    fn all_reduce_small(
        &self,
        call: &Call,
        signature: Signature,
        buffer: &mut [u8],
        dtype: DType,
        operation: ReduceOp,
    ) -> Result<()> {
        let (bytes, result) = (buffer.len(), buffer.as_mut_ptr());
        let consume = |_, pieces: &[RawSlice]| {
            let sources: Vec<*const u8> = pieces.iter().map(|piece| piece.pointer).collect();
            // SAFETY: every slice has `bytes` bytes; the result is this member's own buffer, which is one of them.
            unsafe { reduce::combine(dtype, operation, bytes / dtype.size(), &sources, &[result]) };
        };
        // SAFETY: the buffer is borrowed by this function; `consume` writes only to the single window that it is given.
        unsafe { self.share(call, signature, RawSlice { pointer: result, bytes }, None, |_| bytes, consume) }
    }

    /// The bytes of a window that `member` reduces; parts start at cache-line boundaries.
    fn part(&self, window: &Range<usize>, member: usize) -> Range<usize> {
        let length = window.len().div_ceil(self.size()).next_multiple_of(64);
        let at = |member: usize| window.end.min(window.start + member * length);
        at(member)..at(member + 1)
    }
}

#[cfg(all(test, not(unisono_loom)))]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::transport::arena::LocalEndpoint;
    use crate::transport::{CallTime, Verb, local};

    /// One value of a rank. Their sums depend on the order of the ranks, and every length has its own values.
    fn value(rank: usize, index: usize, length: usize) -> f32 {
        1.0 / (1 + rank * length + index) as f32
    }

    /// On one core for each rank and on fewer, with private buffers, with buffers in the arena, and with some of each.
    #[test]
    fn one_step_and_two_give_the_same_bits() {
        for (ranks, oversubscribed) in
            [2, 3, 4, 6].into_iter().flat_map(|ranks| [(ranks, false), (ranks, true)])
        {
            let endpoints: Vec<Arc<LocalEndpoint>> =
                local::create(ranks).unwrap().into_iter().map(|one| one.endpoint).collect();
            endpoints[0].arena.set_oversubscribed(oversubscribed);
            std::thread::scope(|scope| {
                endpoints.iter().for_each(|endpoint| {
                    scope.spawn(move || reduce_all_lengths(endpoint, ranks));
                });
            });
        }
    }

    fn reduce_all_lengths(endpoint: &Arc<LocalEndpoint>, ranks: usize) {
        let channel = Channel::host_wide(endpoint);
        let rank = endpoint.local_rank;
        let lengths = [0, 1, 15, 16, 17, 64, 273, 1024, 1366, 2730, 4096, 8191, 8192, 8193, 70_000];
        let cases = lengths.into_iter().flat_map(|length| (0..3).map(move |shared| (length, shared)));
        for (number, (length, shared)) in cases.enumerate() {
            let mut buffer = endpoint.allocate(length * 4).unwrap();
            let mut private = vec![0.0f32; length];
            let values: &mut [f32] = match shared == 2 || (shared == 1 && rank.is_multiple_of(2)) {
                true => bytemuck::cast_slice_mut(&mut buffer),
                false => &mut private,
            };
            for (index, one) in values.iter_mut().enumerate() {
                *one = value(rank, index, length);
            }
            let call = Call {
                rank,
                operation: "all_reduce",
                number: number as u64,
                group: "world",
                members: &[],
                hosts: &[],
                time: CallTime::new(Duration::from_secs(60)),
                interrupt: None,
            };
            let signature = Signature::new(Verb::RECV, number as u64);
            channel
                .all_reduce(&call, signature, bytemuck::cast_slice_mut(values), DType::F32, ReduceOp::Sum)
                .unwrap();
            for (index, sum) in values.iter().enumerate() {
                let wanted =
                    (1..ranks).fold(value(0, index, length), |sum, rank| sum + value(rank, index, length));
                assert_eq!(sum.to_bits(), wanted.to_bits(), "element {index} of {length}, {ranks} ranks");
            }
        }
    }
}
