//! all_gather: every rank gets all ranks' values, concatenated in rank order.
//!
//! Over messages: every rank sends its values to all others at once; over several hosts in two levels (`levels.rs`).

use super::*;

pub(super) const ALL_GATHER: CollectiveVerb = CollectiveVerb {
    descriptor: VerbDescriptor::new(5, "all_gather"),
    lengths: Lengths::Gather,
    execute: |call, buffers| match buffers {
        Buffers::OwnPart(output, own) => call.all_gather_in_place(output, own),
        buffers => call.all_gather(buffers.pair()?),
    },
    jobs: Some(|plan| (0..plan.size).flat_map(|to| plan.gather_at(to)).collect()),
};

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

impl Raw<'_> {
    /// Concatenates the members' values in rank order; `counts` is the number of elements of each member.
    pub fn all_gather<'b>(
        &self,
        input: impl Into<Buffer<'b>>,
        output: impl Into<BufferMut<'b>>,
        counts: &[usize],
        dtype: DType,
    ) -> Result<()> {
        let spec = CollectiveSpec::new(&ALL_GATHER, dtype).counts(counts);
        self.execute_between(&spec, Some(input.into()), Some(output.into()))
    }

    /// As [`Raw::all_gather`] in host memory, where this rank's values are already in their place in the output.
    pub fn all_gather_in_place(&self, output: &mut [u8], counts: &[usize], dtype: DType) -> Result<()> {
        let spec = CollectiveSpec::new(&ALL_GATHER, dtype).counts(counts);
        // Invalid counts, which may overflow here, are rejected before the range is used.
        let bytes =
            |counts: &[usize]| counts.iter().fold(0usize, |sum, &n| sum.wrapping_add(n)) * dtype.size();
        let (before, rest) = counts.split_at(self.group.rank().min(counts.len()));
        let start = bytes(before);
        let own = start..start.wrapping_add(bytes(&rest[..rest.len().min(1)]));
        self.execute(&spec, Buffers::OwnPart(output, own))
    }
}

impl HostCall<'_> {
    fn all_gather(&self, (input, output): (&[u8], &mut [u8])) -> Result<()> {
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
    fn all_gather_in_place(&self, output: &mut [u8], own: Range<usize>) -> Result<()> {
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
        let spec = CollectiveSpec::new(&ALL_GATHER, DType::U8).counts(&counts);
        let mut all = vec![0u8; mine.len() * group.size()];
        HostCall { group, call, spec: &spec, signature }.all_gather((mine, &mut all))?;
        Ok(all)
    }

    /// As a call over messages, also between hosts. Part `rank` of `bytes` is already in place.
    pub(super) fn all_gather_across(&self, bytes: &mut [u8]) -> Result<()> {
        match self.group.hierarchy(self.call)? {
            Some(levels) if rails::has_rails(levels) => self.all_gather_over_rails(levels, bytes),
            Some(levels) => self.all_gather_in_levels(levels, bytes),
            None if self.has_many_hosts(None) => self.all_gather_flat(bytes),
            None => self.all_gather_by_messages(bytes),
        }
    }

    fn all_gather_by_messages(&self, bytes: &mut [u8]) -> Result<()> {
        let (mine, receives) = self.incoming(bytes, &self.spec.part_ranges());
        let mine = &*mine;
        self.group.exchange(self.call, &self.match_key(), self.outgoing(|_| mine), receives)
    }
}
