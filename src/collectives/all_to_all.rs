//! all_to_all: everybody sends a part to everybody.
//!
//! Over messages: all at once.

use super::{Raw, ranges};
use crate::error::Result;
use crate::memory::{DType, Element};
use crate::transport::arena::channel::Piece;
use crate::transport::{Incoming, Outgoing, Signature, Verb};
use crate::world::Group;

impl Group {
    /// Part `r` of the input goes to rank `r`; part `r` of the output comes from it. All parts are equally long.
    pub fn all_to_all<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        if !input.len().is_multiple_of(self.size()) {
            let expected = format!("a length that {} members can share equally", self.size());
            let advice = "pad the input or use the varied form";
            return Err(self.raw().refuse(Verb::AllToAll, expected, input.len().to_string(), advice));
        }
        let counts = vec![input.len() / self.size(); self.size()];
        self.all_to_all_varied(input, &counts, output, &counts)
    }

    /// As [`Group::all_to_all`], with parts of any length: how many go to each member and how many come from it.
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
    /// Sends a part to each member and receives one from each; a sender's count for a receiver must be the receiver's
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
            return Err(self.refuse(Verb::AllToAll, expected, receive_counts[rank].to_string(), advice));
        }
        let (to, from) = (ranges(send_counts, dtype.size()), ranges(receive_counts, dtype.size()));
        group.call(Verb::AllToAll, |call| {
            let signature = group.signature(Verb::AllToAll, call).of(dtype, Signature::VARIES);
            let Some(channel) = &group.core.channel else {
                output[from[rank].clone()].copy_from_slice(&input[to[rank].clone()]);
                let others = || (0..group.size()).filter(|&other| other != rank);
                let sends = others()
                    .map(|to_rank| Outgoing { to: to_rank, bytes: &input[to[to_rank].clone()] })
                    .collect();
                let mut rest = output;
                let mut receives = Vec::with_capacity(group.size());
                for (from_rank, place) in from.iter().enumerate() {
                    let (bytes, after) = rest.split_at_mut(place.len());
                    rest = after;
                    if from_rank != rank {
                        receives.push(Incoming { from: from_rank, bytes });
                    }
                }
                return group.exchange(call, &group.slot(signature), sends, receives);
            };
            let part = |member: usize| to[member].clone();
            channel.parts(
                call,
                signature,
                input,
                part,
                |member| from[member].len(),
                |start, pieces: &[Piece]| {
                    for (piece, place) in pieces.iter().zip(&from) {
                        // SAFETY: members show pieces of valid memory, and never of this member's output.
                        unsafe { piece.copy_to(output, place.start + start) };
                    }
                },
            )
        })
    }
}
