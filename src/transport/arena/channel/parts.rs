//! Each member publishes a separate part for every other member, as in all_to_all.

use std::ops::Range;

use super::call_record::CallRecord;
use super::{Channel, RawSlice, SHARED_CORES};
use crate::error::Result;
use crate::transport::{Call, Signature};

impl Channel {
    /// Sends each member its part of `input`: `part` gives the bytes for a member, `expected` the number of bytes from a member.
    /// For each window `consume` gets its start within the part and the slice from each member.
    pub fn parts(
        &self,
        call: &Call,
        signature: Signature,
        input: &[u8],
        part: impl Fn(usize) -> Range<usize>,
        expected: impl Fn(usize) -> usize,
        mut consume: impl FnMut(usize, &[RawSlice]),
    ) -> Result<()> {
        #[cfg(all(test, not(unisono_loom)))]
        if self.count_parts(|member| part(member).len(), &expected) {
            return Ok(());
        }
        // Every slot is divided into one compartment per member.
        let compartment = SHARED_CORES.window / self.size() / 64 * 64;
        let fill = |slot: *mut u8, start: usize| {
            for member in (0..self.size()).filter(|&member| member != self.me) {
                let rest = &input[part(member)];
                let rest = &rest[start.min(rest.len())..];
                // SAFETY: the compartment is inside the slot, which this member may write to now.
                unsafe {
                    self.writer.copy(
                        rest.as_ptr(),
                        slot.add(member * compartment),
                        rest.len().min(compartment),
                    );
                }
            }
        };
        let largest = (0..self.size()).map(|member| part(member).len()).max().unwrap_or(0);
        self.enter(call, CallRecord::new(signature).largest(largest), |slot| fill(slot, 0))?;

        let longest = (0..self.size()).map(|member| self.record(member).largest as usize).max().unwrap_or(0);
        let mut pieces = Vec::with_capacity(self.size());
        for start in (0..longest.max(1)).step_by(compartment) {
            if start > 0 {
                self.writable(call)?;
                fill(self.slot(self.me, self.next()), start);
                self.publish();
                self.wait_all(call, self.current())?;
            }
            pieces.clear();
            pieces.extend((0..self.size()).map(|member| {
                let bytes = expected(member).saturating_sub(start).min(compartment);
                let pointer = match member == self.me {
                    true => input.as_ptr().wrapping_add(part(self.me).start + start),
                    false => {
                        self.slot(member, self.current()).wrapping_add(self.me * compartment).cast_const()
                    }
                };
                RawSlice { pointer, bytes }
            }));
            consume(start, &pieces);
        }
        Ok(())
    }
}
