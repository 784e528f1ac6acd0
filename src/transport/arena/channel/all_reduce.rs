//! all_reduce: every member reduces its part of each window and the others copy the result.
//!
//! Bytes that must move for N bytes on p members: at least 2·p·N (every buffer is read once and written once). Buffers in
//! the arena reach that bound: a member reads its part from all and writes it to all. Private buffers go through the
//! slots, which stay in the cache.

use std::ops::Range;

use super::record::Record;
use super::{Channel, Piece, WINDOW};
use crate::error::Result;
use crate::memory::{DType, ReduceOp, reduce};
use crate::transport::{Call, Signature};

/// Up to this length every member reduces everything by itself: one step instead of two.
const SMALL: usize = 32 * 1024;

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
        if bytes <= SMALL {
            return self.all_reduce_small(call, signature, buffer, dtype, operation);
        }
        let offset = self.seat.arena.offset_of(Piece::of(buffer));
        let buffer = buffer.as_mut_ptr();
        let show = |slot: *mut u8, window: Range<usize>| {
            for member in (0..self.size()).filter(|&member| member != self.me && offset.is_none()) {
                let part = self.part(&window, member);
                // SAFETY: the part lies inside the buffer, and inside the slot at the same distance from the window's
                // start; this member may write to the slot now.
                unsafe {
                    slot.add(part.start - window.start)
                        .copy_from_nonoverlapping(buffer.add(part.start), part.len());
                }
            }
        };
        self.enter(call, Record::new(signature).at(offset), |slot| show(slot, 0..bytes.min(WINDOW)))?;

        let shown: Vec<Option<usize>> = (0..self.size()).map(|member| self.record(member).offset()).collect();
        if let Some(offsets) = shown.iter().copied().collect::<Option<Vec<usize>>>() {
            let part = self.part(&(0..bytes), self.me);
            let everywhere: Vec<*mut u8> =
                offsets.iter().map(|offset| self.seat.arena.at(offset + part.start)).collect();
            let sources: Vec<*const u8> = everywhere.iter().map(|pointer| pointer.cast_const()).collect();
            // SAFETY: every member shows a buffer of this length and leaves it to the others until `settle`; this part
            // of all of them is this member's alone.
            unsafe { reduce::combine(dtype, operation, part.len() / dtype.size(), &sources, &everywhere) };
            return self.settle(call);
        }

        let mut sources = vec![std::ptr::null(); self.size()];
        for start in (0..bytes).step_by(WINDOW) {
            let window = start..bytes.min(start + WINDOW);
            if start > 0 {
                self.writable(call)?;
                show(self.slot(self.me, self.next()), window.clone());
                self.publish();
            }
            let step = self.current();
            let part = self.part(&window, self.me);
            let in_slot = part.start - start;
            for (member, source) in sources.iter_mut().enumerate() {
                self.wait_for(call, member, step)?;
                *source = match shown[member] {
                    _ if member == self.me => buffer.wrapping_add(part.start).cast_const(),
                    Some(offset) => self.seat.arena.at(offset + part.start).cast_const(),
                    None => self.slot(member, step).wrapping_add(in_slot).cast_const(),
                };
            }
            let results =
                [buffer.wrapping_add(part.start), self.slot(self.me, step + 1).wrapping_add(in_slot)];
            // SAFETY: sources and results are valid for the part; everybody has published `step`, so nobody reads the
            // slot of the step after it yet, and nobody else writes to this part.
            unsafe { reduce::combine(dtype, operation, part.len() / dtype.size(), &sources, &results) };
            self.publish();
            for member in (0..self.size()).filter(|&member| member != self.me) {
                self.wait_for(call, member, self.current())?;
                let part = self.part(&window, member);
                // SAFETY: the member has published the result of its part, and nobody else touches it in the buffer.
                unsafe {
                    let result = self.slot(member, self.current()).add(part.start - start);
                    buffer.add(part.start).copy_from_nonoverlapping(result, part.len());
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
        let consume = |_, pieces: &[Piece]| {
            let sources: Vec<*const u8> = pieces.iter().map(|piece| piece.pointer).collect();
            // SAFETY: every piece has `bytes` bytes; the result is this member's own buffer, which is one of them.
            unsafe { reduce::combine(dtype, operation, bytes / dtype.size(), &sources, &[result]) };
        };
        // SAFETY: the buffer is borrowed by this function; `consume` writes to the one window that it is given.
        unsafe { self.share(call, signature, Piece { pointer: result, bytes }, |_| bytes, consume) }
    }

    /// The bytes of a window that `member` reduces; parts begin at whole cache lines.
    fn part(&self, window: &Range<usize>, member: usize) -> Range<usize> {
        let length = window.len().div_ceil(self.size()).next_multiple_of(64);
        let at = |member: usize| window.end.min(window.start + member * length);
        at(member)..at(member + 1)
    }
}
