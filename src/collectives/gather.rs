//! gather: the root gets all ranks' values, concatenated in rank order.
//!
//! Over messages: every rank sends to the root.

use super::*;

pub(super) const GATHER: CollectiveVerb = CollectiveVerb {
    descriptor: VerbDescriptor::new(4, "gather"),
    lengths: Lengths::Gather,
    execute: |call, buffers| call.gather(buffers.pair()?),
    jobs: Some(|plan| plan.gather_at(plan.root).collect()),
};

impl Group {
    /// Concatenates the members' values, all of the same length, at the root; the others pass no output.
    pub fn gather<T: Element>(&self, input: &[T], output: Option<&mut [T]>, root: usize) -> Result<()> {
        let counts = vec![input.len(); self.size()];
        self.gather_varied(input, output, &counts, root)
    }

    /// Concatenates the members' values at the root; `counts` is the number of elements of each member.
    pub fn gather_varied<T: Element>(
        &self,
        input: &[T],
        output: Option<&mut [T]>,
        counts: &[usize],
        root: usize,
    ) -> Result<()> {
        let output = output.map(bytemuck::cast_slice_mut::<T, u8>);
        self.raw().gather(bytemuck::cast_slice::<T, u8>(input), output, counts, T::DTYPE, root)
    }
}

impl Raw<'_> {
    /// Concatenates the members' values at the root; `counts` is the number of elements of each member. Only the root's
    /// output is used.
    pub fn gather<'b>(
        &self,
        input: impl Into<Buffer<'b>>,
        output: Option<impl Into<BufferMut<'b>>>,
        counts: &[usize],
        dtype: DType,
        root: usize,
    ) -> Result<()> {
        let spec = CollectiveSpec::new(&GATHER, dtype).counts(counts).root(root);
        self.execute_between(&spec, Some(input.into()), output.map(Into::into))
    }
}

impl HostCall<'_> {
    fn gather(&self, (input, output): (&[u8], &mut [u8])) -> Result<()> {
        let Some(channel) = self.group.channel() else {
            return match self.group.hierarchy(self.call)? {
                Some(levels) if self.has_many_hosts(Some(levels)) => {
                    self.gather_over_rails(levels, input, output)
                }
                None if self.has_many_hosts(None) => self.gather_flat(input, output),
                _ => self.gather_by_messages(input, output),
            };
        };
        let (part_ranges, is_root) = (self.spec.part_ranges(), self.is_root());
        let copy = |start: usize, pieces: &[RawSlice]| {
            if is_root {
                for (piece, range) in pieces.iter().zip(&part_ranges) {
                    // SAFETY: members publish pieces of valid memory, and never of the root's output.
                    unsafe { piece.copy_to(output, range.start + start) };
                }
            }
        };
        let (consumer, length) = (self.spec.root, |member: usize| part_ranges[member].len());
        // SAFETY: `input` is borrowed by this function and not written to.
        unsafe { channel.share(self.call, self.signature, RawSlice::of(input), consumer, length, copy) }
    }

    fn gather_by_messages(&self, input: &[u8], output: &mut [u8]) -> Result<()> {
        let (group, root, match_key) = (self.group, self.spec.root_rank(), self.match_key());
        if !self.is_root() {
            let send = Outgoing { to: root, bytes: input };
            return group.exchange(self.call, &match_key, vec![send], Vec::new());
        }
        let (own, receives) = self.incoming(output, &self.spec.part_ranges());
        own.copy_from_slice(input);
        group.exchange(self.call, &match_key, Vec::new(), receives)
    }
}
