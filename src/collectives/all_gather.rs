//! all_gather: every rank gets all ranks' values, concatenated in rank order.
//!
//! Over messages: every rank sends its values to all others at once; over several hosts in two levels (`levels.rs`).

use std::ops::Range;

use super::raw::HostCall;
use super::spec::CollectiveSpec;
use super::verbs;
use crate::error::Result;
use crate::memory::{DType, Element};
use crate::transport::arena::channel::{Channel, RawSlice};
use crate::transport::{Call, Incoming, Outgoing, Signature};
use crate::world::Group;

impl Group {
    /// Concatenates the members' values, all of the same length, in rank order.
    pub fn all_gather<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        let counts = vec![input.len(); self.size()];
        self.all_gather_varied(input, output, &counts)
    }

    /// Concatenates the members' values in rank order; `counts` is the number of elements of each member.
    pub fn all_gather_varied<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        counts: &[usize],
    ) -> Result<()> {
        let (input, output) =
            (bytemuck::cast_slice::<T, u8>(input), bytemuck::cast_slice_mut::<T, u8>(output));
        self.raw().all_gather(input, output, counts, T::DTYPE)
    }
}

impl HostCall<'_> {
    pub(super) fn all_gather(&self, input: &[u8], output: &mut [u8]) -> Result<()> {
        let Some(channel) = self.group.channel() else {
            let own = self.spec.part_ranges()[self.group.rank()].clone();
            output[own].copy_from_slice(input);
            return self.all_gather_across(output);
        };
        // SAFETY: both are borrowed by this function, and the output has all parts.
        unsafe {
            self.all_gather_through(
                channel,
                &self.spec.part_ranges(),
                RawSlice::of(input),
                output.as_mut_ptr(),
            )
        }
    }

    /// This rank's part of `output`, at `own`, is already in place.
    pub(super) fn all_gather_in_place(&self, output: &mut [u8], own: Range<usize>) -> Result<()> {
        let Some(channel) = self.group.channel() else {
            return self.all_gather_across(output);
        };
        let bytes = own.len();
        let output = output.as_mut_ptr();
        let input = RawSlice { pointer: output.wrapping_add(own.start), bytes };
        // SAFETY: as above; the input is this rank's part of the output.
        unsafe { self.all_gather_through(channel, &self.spec.part_ranges(), input, output) }
    }

    /// Every member of the channel gets the range of each member.
    ///
    /// # Safety
    /// `output` is valid for writing all ranges; `input` is valid for reading, and separate from it or this rank's range of it.
    pub(super) unsafe fn all_gather_through(
        &self,
        channel: &Channel,
        ranges: &[Range<usize>],
        input: RawSlice,
        output: *mut u8,
    ) -> Result<()> {
        let copy = |start: usize, pieces: &[RawSlice]| {
            for (piece, range) in pieces.iter().zip(ranges) {
                let target = output.wrapping_add(range.start + start);
                if !std::ptr::eq(target, piece.pointer) {
                    // SAFETY: members publish pieces of valid memory, each at most as long as the rest of its part, and never of
                    // this member's output, except its own part in place.
                    unsafe { target.copy_from_nonoverlapping(piece.pointer, piece.bytes) };
                }
            }
        };
        let length = |member: usize| ranges[member].len();
        // SAFETY: the input is valid until this returns and not written to.
        unsafe { channel.share(self.call, self.signature, input, None, length, copy) }
    }

    /// As a step of a call: all ranks' bytes, equally many on every rank, concatenated in rank order.
    pub(super) fn all_gather_bytes(
        group: &Group,
        call: &Call,
        signature: Signature,
        mine: &[u8],
    ) -> Result<Vec<u8>> {
        let counts = vec![mine.len(); group.size()];
        let spec = CollectiveSpec::new(verbs::ALL_GATHER, DType::U8).counts(&counts);
        let mut all = vec![0u8; mine.len() * group.size()];
        HostCall { group, call, spec: &spec, signature }.all_gather(mine, &mut all)?;
        Ok(all)
    }

    /// As a call over messages, also between hosts. Part `rank` of `bytes` is already in place.
    pub(super) fn all_gather_across(&self, bytes: &mut [u8]) -> Result<()> {
        match self.group.hierarchy(self.call)? {
            Some(levels) => self.all_gather_in_levels(levels, bytes),
            None => self.all_gather_by_messages(bytes),
        }
    }

    fn all_gather_by_messages(&self, bytes: &mut [u8]) -> Result<()> {
        let group = self.group;
        let mut mine: &[u8] = &[];
        let mut receives = Vec::with_capacity(group.size());
        let mut rest = bytes;
        for (rank, &count) in self.spec.counts.iter().enumerate() {
            let (part, after) = rest.split_at_mut(count * self.spec.dtype.size());
            rest = after;
            match rank == group.rank() {
                true => mine = part,
                false => receives.push(Incoming { from: rank, bytes: part }),
            }
        }
        let others = (0..group.size()).filter(|&rank| rank != group.rank());
        let sends = others.map(|to| Outgoing { to, bytes: mine }).collect();
        group.exchange(self.call, &self.slot(), sends, receives)
    }
}
