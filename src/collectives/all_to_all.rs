//! all_to_all: every rank sends a part to every rank.
//!
//! Over messages: all sends and receives at once.

use super::*;

pub(super) const ALL_TO_ALL: CollectiveVerb = CollectiveVerb {
    descriptor: VerbDescriptor::new(9, "all_to_all"),
    lengths: Lengths::Exchange,
    execute: |call, buffers| call.all_to_all(buffers.pair()?),
    jobs: Some(|plan| {
        let sent =
            |from: usize, to: usize| plan.all_counts[2 * from * plan.size + to] as usize * plan.element;
        let before = |from: usize, to: usize| (0..to).map(|other| sent(from, other)).sum();
        let behind = |from: usize, to: usize| (0..from).map(|other| sent(other, to)).sum();
        let pairs = (0..plan.size).flat_map(|to| (0..plan.size).map(move |from| (from, to)));
        let copy = |(from, to)| plan.copy((from, before(from, to)), (to, behind(from, to)), sent(from, to));
        pairs.map(copy).collect()
    }),
};

impl Group {
    /// Part `r` of the input goes to rank `r`; part `r` of the output comes from it. All parts have the same length.
    pub fn all_to_all<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        if !input.len().is_multiple_of(self.size()) {
            let expected = format!("a length that {} members can share equally", self.size());
            let (verb, advice) = (ALL_TO_ALL.descriptor.verb, "pad the input or use the varied form");
            return Err(self.raw().reject(verb, expected, input.len().to_string(), advice));
        }
        let counts = vec![input.len() / self.size(); self.size()];
        self.all_to_all_varied(input, &counts, output, &counts)
    }

    /// As [`Group::all_to_all`], with parts of any length: the numbers of elements sent to and received from each member.
    pub fn all_to_all_varied<T: Element>(
        &self,
        input: &[T],
        send_counts: &[usize],
        output: &mut [T],
        receive_counts: &[usize],
    ) -> Result<()> {
        let (input, output) =
            (bytemuck::cast_slice::<T, u8>(input), bytemuck::cast_slice_mut::<T, u8>(output));
        self.raw().all_to_all(input, send_counts, output, receive_counts, T::DTYPE)
    }
}

impl Raw<'_> {
    /// Sends a part to each member and receives one from each; a sender's count for a receiver must equal the receiver's
    /// count for that sender.
    pub fn all_to_all<'b>(
        &self,
        input: impl Into<Buffer<'b>>,
        send_counts: &[usize],
        output: impl Into<BufferMut<'b>>,
        receive_counts: &[usize],
        dtype: DType,
    ) -> Result<()> {
        let spec = CollectiveSpec::new(&ALL_TO_ALL, dtype).counts(send_counts);
        let spec = CollectiveSpec { receive_counts, ..spec };
        self.execute_between(&spec, Some(input.into()), Some(output.into()))
    }
}

impl HostCall<'_> {
    fn all_to_all(&self, (input, output): (&[u8], &mut [u8])) -> Result<()> {
        let spec = self.spec;
        let (to, from) = (spec.part_ranges(), byte_ranges(spec.receive_counts, spec.dtype.size()));
        if self.group.channel().is_some() {
            self.compare()?;
        }
        self.exchange_parts((input, &to), (output, &from))
    }

    /// As a step of a call: sends one range of the input to each rank, and receives one range of the output from each. Ranges of the
    /// output follow each other, and have the lengths that the senders' ranges have.
    pub(super) fn exchange_parts(
        &self,
        (input, to): (&[u8], &[Range<usize>]),
        (output, from): (&mut [u8], &[Range<usize>]),
    ) -> Result<()> {
        let Some(channel) = self.group.channel() else {
            let (own, receives) = self.incoming(output, from);
            own.copy_from_slice(&input[to[self.group.rank()].clone()]);
            let sends = self.outgoing(|other| &input[to[other].clone()]);
            return self.group.exchange(self.call, &self.match_key(), sends, receives);
        };
        let copy = |start: usize, pieces: &[RawSlice]| {
            for (piece, range) in pieces.iter().zip(from) {
                // SAFETY: members publish pieces of valid memory, and never of this member's output.
                unsafe { piece.copy_to(output, range.start + start) };
            }
        };
        let (part, length) = (|member: usize| to[member].clone(), |member: usize| from[member].len());
        channel.parts(self.call, self.signature, input, part, length, copy)
    }

    /// Exchanges all ranks' counts, so that all ranks detect together if what one sends is not what another expects.
    fn compare(&self) -> Result<()> {
        let both = self.spec.counts.iter().chain(self.spec.receive_counts);
        let mine: Vec<u64> = both.map(|&count| count as u64).collect();
        let mine = bytemuck::cast_slice(&mine);
        let all = HostCall::all_gather_bytes(self.group, self.call, self.signature, mine)?;
        let all: Vec<u64> = all.chunks_exact(size_of::<u64>()).map(bytemuck::pod_read_unaligned).collect();
        compare_counts(self.call, self.signature, self.group, &all)
    }
}

/// Compares all ranks' counts: for each rank, what it sends to each member, then what it expects from each.
pub(super) fn compare_counts(call: &Call, signature: Signature, group: &Group, all: &[u64]) -> Result<()> {
    let size = group.size();
    let count = |member: usize, index: usize| all[2 * member * size + index];
    for from in 0..size {
        for to in 0..size {
            let (sent, expected) = (count(from, to), count(to, size + from));
            if sent != expected {
                let (from, to) = (group.members()[from], group.members()[to]);
                let sends = format!("{signature} and sends {sent} elements to rank {to}");
                let expects = format!("{signature} and expects {expected} elements from rank {from}");
                return Err(call.mismatch(vec![(from, sends), (to, expects)]));
            }
        }
    }
    Ok(())
}
