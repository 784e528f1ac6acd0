//! all_to_all: every rank sends a part to every rank.
//!
//! Over messages: all sends and receives at once.

use super::{Raw, byte_ranges};
use crate::error::Result;
use crate::memory::{DType, Element};
use crate::transport::arena::channel::{Channel, RawSlice};
use crate::transport::{Call, Incoming, Outgoing, Signature, Verb};
use crate::world::Group;

impl Group {
    /// Part `r` of the input goes to rank `r`; part `r` of the output comes from it. All parts have the same length.
    pub fn all_to_all<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        if !input.len().is_multiple_of(self.size()) {
            let expected = format!("a length that {} members can share equally", self.size());
            let advice = "pad the input or use the varied form";
            return Err(self.raw().reject(Verb::AllToAll, expected, input.len().to_string(), advice));
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
        let (input, output) = (bytemuck::cast_slice(input), bytemuck::cast_slice_mut(output));
        self.raw().all_to_all(input, send_counts, output, receive_counts, T::DTYPE)
    }
}

impl Raw<'_> {
    /// Sends a part to each member and receives one from each; a sender's count for a receiver must equal the receiver's
    /// count for that sender.
    pub fn all_to_all(
        &self,
        input: &[u8],
        send_counts: &[usize],
        output: &mut [u8],
        receive_counts: &[usize],
        dtype: DType,
    ) -> Result<()> {
        let group = self.group;
        let sent = self.check_counts(Verb::AllToAll, send_counts)?;
        let received = self.check_counts(Verb::AllToAll, receive_counts)?;
        self.check_length(Verb::AllToAll, "an input", input.len(), sent, dtype)?;
        self.check_length(Verb::AllToAll, "an output", output.len(), received, dtype)?;
        let rank = group.rank();
        if send_counts[rank] != receive_counts[rank] {
            let expected = format!("{} elements from oneself", send_counts[rank]);
            let advice = "what a rank sends itself it also receives";
            return Err(self.reject(Verb::AllToAll, expected, receive_counts[rank].to_string(), advice));
        }
        let (to, from) = (byte_ranges(send_counts, dtype.size()), byte_ranges(receive_counts, dtype.size()));
        group.call(Verb::AllToAll, |call| {
            let signature = self.signature(Verb::AllToAll, call).of(dtype, Signature::VARIES);
            let Some(channel) = group.channel() else {
                output[from[rank].clone()].copy_from_slice(&input[to[rank].clone()]);
                let others = || (0..group.size()).filter(|&other| other != rank);
                let sends = others()
                    .map(|to_rank| Outgoing { to: to_rank, bytes: &input[to[to_rank].clone()] })
                    .collect();
                let mut rest = output;
                let mut receives = Vec::with_capacity(group.size());
                for (from_rank, range) in from.iter().enumerate() {
                    let (bytes, after) = rest.split_at_mut(range.len());
                    rest = after;
                    if from_rank != rank {
                        receives.push(Incoming { from: from_rank, bytes });
                    }
                }
                return group.exchange(call, &group.slot(signature), sends, receives);
            };
            compare(channel, call, signature, group, (send_counts, receive_counts))?;
            let part = |member: usize| to[member].clone();
            channel.parts(
                call,
                signature,
                input,
                part,
                |member| from[member].len(),
                |start, pieces: &[RawSlice]| {
                    for (piece, range) in pieces.iter().zip(&from) {
                        // SAFETY: members publish pieces of valid memory, and never of this member's output.
                        unsafe { piece.copy_to(output, range.start + start) };
                    }
                },
            )
        })
    }
}

/// Exchanges all ranks' counts, so that all ranks detect together if what one sends is not what another expects.
fn compare(
    channel: &Channel,
    call: &Call,
    signature: Signature,
    group: &Group,
    (send_counts, receive_counts): (&[usize], &[usize]),
) -> Result<()> {
    let size = group.size();
    let mine: Vec<u64> = send_counts.iter().chain(receive_counts).map(|&count| count as u64).collect();
    let bytes = 2 * size * size_of::<u64>();
    let mut all = vec![0u8; size * bytes];
    let copy = |start: usize, pieces: &[RawSlice]| {
        for (member, piece) in pieces.iter().enumerate() {
            // SAFETY: members publish vectors of their own, never this one.
            unsafe { piece.copy_to(&mut all, member * bytes + start) };
        }
    };
    // SAFETY: the vector lives until the end of this function and is not written to.
    unsafe {
        channel.share(call, signature, RawSlice::of(bytemuck::cast_slice(&mine)), None, |_| bytes, copy)?
    };
    let all = all.chunks_exact(size_of::<u64>()).map(bytemuck::pod_read_unaligned::<u64>).collect::<Vec<_>>();
    compare_counts(call, signature, group, &all)
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
