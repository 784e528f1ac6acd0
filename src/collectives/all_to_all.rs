//! all_to_all: every rank sends a part to every rank.
//!
//! Over messages: all sends and receives at once.

use std::ops::Range;

use super::byte_ranges;
use super::raw::HostCall;
use super::verbs;
use crate::error::Result;
use crate::memory::Element;
use crate::transport::arena::channel::RawSlice;
use crate::transport::{Call, Incoming, Outgoing, Signature};
use crate::world::Group;

impl Group {
    /// Part `r` of the input goes to rank `r`; part `r` of the output comes from it. All parts have the same length.
    pub fn all_to_all<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        if !input.len().is_multiple_of(self.size()) {
            let expected = format!("a length that {} members can share equally", self.size());
            let advice = "pad the input or use the varied form";
            return Err(self.raw().reject(verbs::ALL_TO_ALL, expected, input.len().to_string(), advice));
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

impl HostCall<'_> {
    pub(super) fn all_to_all(&self, input: &[u8], output: &mut [u8]) -> Result<()> {
        let (group, spec) = (self.group, self.spec);
        let (to, from) = (spec.part_ranges(), byte_ranges(spec.receive_counts, spec.dtype.size()));
        let Some(channel) = group.channel() else {
            return self.all_to_all_by_messages(input, &to, output, &from);
        };
        self.compare()?;
        let copy = |start: usize, pieces: &[RawSlice]| {
            for (piece, range) in pieces.iter().zip(&from) {
                // SAFETY: members publish pieces of valid memory, and never of this member's output.
                unsafe { piece.copy_to(output, range.start + start) };
            }
        };
        let (part, length) = (|member: usize| to[member].clone(), |member: usize| from[member].len());
        channel.parts(self.call, self.signature, input, part, length, copy)
    }

    fn all_to_all_by_messages(
        &self,
        input: &[u8],
        to: &[Range<usize>],
        output: &mut [u8],
        from: &[Range<usize>],
    ) -> Result<()> {
        let (group, rank) = (self.group, self.group.rank());
        output[from[rank].clone()].copy_from_slice(&input[to[rank].clone()]);
        let outgoing = |other: usize| Outgoing { to: other, bytes: &input[to[other].clone()] };
        let sends = (0..group.size()).filter(|&other| other != rank).map(outgoing).collect();
        let mut rest = output;
        let mut receives = Vec::with_capacity(group.size());
        for (other, range) in from.iter().enumerate() {
            let (bytes, after) = rest.split_at_mut(range.len());
            rest = after;
            if other != rank {
                receives.push(Incoming { from: other, bytes });
            }
        }
        group.exchange(self.call, &self.slot(), sends, receives)
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
