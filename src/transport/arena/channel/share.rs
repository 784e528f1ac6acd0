//! Each member publishes bytes that all members may read, such as its values in all_gather.

use super::call_record::CallRecord;
use super::{Channel, RawSlice};
use crate::error::Result;
use crate::transport::{Call, Signature};

/// Data in the arena is read in place from this length on; shorter data is copied to the slot, which saves a step.
pub(super) const IN_PLACE: usize = 64 * 1024;

impl Channel {
    /// Publishes `input` to all members, or to a single `reader` (equal on all members). `length` gives the number of bytes from
    /// each member (equal on all members). On the readers, `consume` gets for each window its start and the slice of each member
    /// in it (this member's own slice points into `input`).
    ///
    /// A single reader's own bytes are not published, and the other members may run several windows ahead of it.
    ///
    /// # Safety
    /// `input` is valid for reading `length` of this member until this returns. If it is in the arena and [`IN_PLACE`] bytes or
    /// longer, other members read it in place: then only the single reader may write to it in `consume`.
    pub unsafe fn share(
        &self,
        call: &Call,
        signature: Signature,
        input: RawSlice,
        reader: Option<usize>,
        length: impl Fn(usize) -> usize,
        consume: impl FnMut(usize, &[RawSlice]),
    ) -> Result<()> {
        #[cfg(all(test, not(unisono_loom)))]
        if self.count_share(reader, &length) {
            return Ok(());
        }
        let is_sole_reader = reader == Some(self.me);
        let exposed = match input.bytes >= IN_PLACE && !is_sole_reader {
            true => self.endpoint.arena.expose(input),
            false => None,
        };
        let offset = exposed.as_ref().map(|exposed| exposed.offset);
        // SAFETY: guaranteed by the caller.
        let work = || unsafe { self.share_at(call, signature, (input, offset), reader, length, consume) };
        if exposed.is_some() { self.with_exposed(exposed.as_ref(), work) } else { work() }
    }

    /// As [`Channel::share`], for an input at `offset` in the arena, or outside of it if `None`.
    ///
    /// # Safety
    /// As [`Channel::share`].
    unsafe fn share_at(
        &self,
        call: &Call,
        signature: Signature,
        (input, offset): (RawSlice, Option<usize>),
        reader: Option<usize>,
        length: impl Fn(usize) -> usize,
        mut consume: impl FnMut(usize, &[RawSlice]),
    ) -> Result<()> {
        let is_reader = reader.is_none_or(|reader| reader == self.me);
        let is_sole_reader = reader == Some(self.me);
        let fills = offset.is_none() && !is_sole_reader;
        let rotation = self.rotation();
        let fill = |slot: *mut u8, start: usize| {
            let start = start.min(input.bytes);
            let bytes = rotation.window.min(input.bytes - start);
            // SAFETY: the rest of the input is valid, a slot has room for a window, and this member may write to it now.
            unsafe { self.writer.copy(input.pointer.add(start), slot, bytes) };
        };
        self.enter(call, CallRecord::new(signature).at(offset), |slot| {
            if fills {
                fill(slot, 0);
            }
        })?;

        let in_place: Vec<Option<usize>> =
            (0..self.size()).map(|member| self.record(member).offset()).collect();
        let touches = in_place.iter().any(Option::is_some);
        let longest = (0..self.size()).map(&length).max().unwrap_or(0);
        let needs_no_slot =
            |member: usize| length(member) == 0 || in_place[member].is_some() || reader == Some(member);
        let all_in_place = (0..self.size()).all(needs_no_slot);
        let window = if all_in_place { longest } else { rotation.window }.max(1);
        let mut pieces = Vec::with_capacity(self.size());
        for start in (0..longest.max(1)).step_by(window) {
            if start > 0 {
                self.writable(call)?;
                if fills {
                    fill(self.slot(self.me, self.next()), start);
                }
                self.publish();
                if is_reader {
                    self.wait_all(call, self.current())?;
                }
            }
            if !is_reader {
                continue;
            }
            pieces.clear();
            pieces.extend((0..self.size()).map(|member| {
                let bytes = length(member).saturating_sub(start).min(window);
                let pointer = match in_place[member] {
                    _ if member == self.me => input.pointer.wrapping_add(start),
                    Some(offset) if bytes > 0 => {
                        self.endpoint.arena.range(offset + start, bytes).cast_const()
                    }
                    _ => self.slot(member, self.current()).cast_const(),
                };
                RawSlice { pointer, bytes }
            }));
            if touches {
                self.touch(call, || {
                    consume(start, &pieces);
                    Ok(())
                })?;
            } else {
                consume(start, &pieces);
            }
        }
        if touches { self.settle(call) } else { Ok(()) }
    }
}
