//! scatter: every rank gets its part of the root's values.
//!
//! Over messages: the root sends to every rank.

use super::*;

pub(super) const SCATTER: CollectiveVerb = CollectiveVerb {
    descriptor: VerbDescriptor::new(3, "scatter"),
    lengths: Lengths::Scatter,
    execute: |call, buffers| call.scatter(buffers.pair()?),
    jobs: Some(|plan| {
        let ranks = plan.parts.iter().enumerate();
        ranks.map(|(to, part)| plan.copy((plan.root, part.start), (to, 0), part.len())).collect()
    }),
};

impl Group {
    /// Distributes equal parts of the root's values in rank order; the others pass no input.
    pub fn scatter<T: Element>(&self, input: Option<&[T]>, output: &mut [T], root: usize) -> Result<()> {
        let counts = vec![output.len(); self.size()];
        self.scatter_varied(input, &counts, output, root)
    }

    /// Distributes parts of the root's values; `counts` is the number of elements of each part.
    pub fn scatter_varied<T: Element>(
        &self,
        input: Option<&[T]>,
        counts: &[usize],
        output: &mut [T],
        root: usize,
    ) -> Result<()> {
        let input = input.map(bytemuck::cast_slice::<T, u8>);
        self.raw().scatter(input, counts, bytemuck::cast_slice_mut::<T, u8>(output), T::DTYPE, root)
    }
}

impl Raw<'_> {
    /// Distributes parts of the root's values; `counts` is the number of elements of each part. Only the root's input is
    /// used.
    pub fn scatter<'b>(
        &self,
        input: Option<impl Into<Buffer<'b>>>,
        counts: &[usize],
        output: impl Into<BufferMut<'b>>,
        dtype: DType,
        root: usize,
    ) -> Result<()> {
        let spec = CollectiveSpec::new(&SCATTER, dtype).counts(counts).root(root);
        self.execute_between(&spec, input.map(Into::into), Some(output.into()))
    }
}

impl HostCall<'_> {
    fn scatter(&self, (input, output): (&[u8], &mut [u8])) -> Result<()> {
        let (rank, root) = (self.group.rank(), self.spec.root_rank());
        let Some(channel) = self.group.channel() else {
            return match self.group.hierarchy(self.call)? {
                Some(levels) if self.has_many_hosts(Some(levels)) => {
                    self.scatter_over_rails(levels, input, output)
                }
                None if self.has_many_hosts(None) => self.scatter_flat(input, output),
                _ => self.scatter_by_messages(input, output),
            };
        };
        let part_ranges = self.spec.part_ranges();
        let part = |member: usize| if rank == root { part_ranges[member].clone() } else { 0..0 };
        let expected = |member: usize| if member == root { part_ranges[rank].len() } else { 0 };
        channel.parts(self.call, self.signature, input, part, expected, |start, pieces: &[RawSlice]| {
            // SAFETY: the root publishes valid memory, and never this member's output.
            unsafe { pieces[root].copy_to(output, start) };
        })
    }

    fn scatter_by_messages(&self, input: &[u8], output: &mut [u8]) -> Result<()> {
        let (group, root, match_key) = (self.group, self.spec.root_rank(), self.match_key());
        if !self.is_root() {
            let receive = Incoming { from: root, bytes: output };
            return group.exchange(self.call, &match_key, Vec::new(), vec![receive]);
        }
        let part_ranges = self.spec.part_ranges();
        output.copy_from_slice(&input[part_ranges[root].clone()]);
        let sends = self.outgoing(|to| &input[part_ranges[to].clone()]);
        group.exchange(self.call, &match_key, sends, Vec::new())
    }
}
