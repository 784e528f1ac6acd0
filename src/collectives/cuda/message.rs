//! send and recv of device memory. A short message is staged through the host; for a long one the sender offers its memory,
//! and the receiver copies from there or requests staging through the host: see `handshake.rs`.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::{Pod, Zeroable};

use super::super::Raw;
use super::handshake::{COPY, Handshake, STAGE};
use super::path::{PathChoice, RankFacts};
use super::session::facts;
use crate::cuda::{self, Device, Exported, Mapped, PinnedMemory, Span};
use crate::error::Result;
use crate::memory::DType;
use crate::transport::{Call, MatchKey, Verb};

/// Messages up to this many bytes are staged through the host: that takes one message instead of two.
const SHORT: usize = 64 << 10;

/// Bytes of a long message that are staged through the host at once.
const CHUNK: usize = 8 << 20;

/// Where the sender's bytes are, and the tag on which it waits for an answer.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct MemoryOffer {
    facts: RankFacts,
    exported: Exported,
    has_handle: u64,
    answer: u64,
}

impl Raw<'_> {
    pub(in super::super) fn send_from_device(
        &self,
        values: Span,
        dtype: DType,
        to: usize,
        tag: u32,
    ) -> Result<()> {
        let match_key = self.device_key(Verb::SEND, values, dtype, to, tag)?;
        let device = self.device(Verb::SEND, &values, &values)?;
        self.group.message_call(Verb::SEND, |call| {
            self.wait_for_memory(&device, call)?;
            let link = self.link(call, &device, to);
            if values.bytes() <= SHORT {
                return link.send_through_host(&match_key, values);
            }
            let answer = answer_tag(self.group.rank() < to);
            let exported = cuda::export(&device, &values);
            let offer = MemoryOffer {
                facts: facts(self.group, &device)?,
                has_handle: exported.is_ok().into(),
                exported: exported.unwrap_or_else(|_| Exported::local(&values)),
                answer: answer.into(),
            };
            let answers = MatchKey { tag: answer, ..match_key };
            match link.handshake.offer(&match_key, &answers, bytemuck::bytes_of(&offer))? {
                STAGE => link.send_through_host(&answers, values),
                _ => link.handshake.wait_for_copy(&answers),
            }
        })
    }

    pub(in super::super) fn recv_to_device(
        &self,
        values: Span,
        dtype: DType,
        from: usize,
        tag: u32,
    ) -> Result<()> {
        let match_key = self.device_key(Verb::RECV, values, dtype, from, tag)?;
        let device = self.device(Verb::RECV, &values, &values)?;
        self.group.message_call(Verb::RECV, |call| {
            self.wait_for_memory(&device, call)?;
            let link = self.link(call, &device, from);
            if values.bytes() <= SHORT {
                return link.receive_through_host(&match_key, values);
            }
            // An offer may have been withdrawn before this call was made; the next one may be of a second attempt.
            while !link.take_offer(&match_key, values)? {}
            Ok(())
        })
    }

    /// As [`Raw::message_key`]: sender and receiver must agree on the memory space.
    fn device_key(&self, verb: Verb, values: Span, dtype: DType, peer: usize, tag: u32) -> Result<MatchKey> {
        let match_key = self.message_key(verb, values.bytes(), dtype, peer, tag)?;
        Ok(MatchKey { signature: match_key.signature.on_device(true), ..match_key })
    }

    fn link<'a>(&'a self, call: &'a Call<'a>, device: &'a Arc<Device>, peer: usize) -> Link<'a> {
        Link { raw: self, handshake: Handshake { group: self.group, call, peer }, device }
    }

    /// The address of the offered bytes in this process, if they can be reached; the second value keeps the mapping open.
    fn reach(&self, device: &Arc<Device>, offer: &MemoryOffer) -> Result<Option<(u64, Option<Arc<Mapped>>)>> {
        let mine = facts(self.group, device)?;
        if mine.host != offer.facts.host || [mine.choice, offer.facts.choice].contains(&PathChoice::STAGED) {
            return Ok(None);
        }
        if mine.process == offer.facts.process {
            return Ok(Some((offer.exported.address(), None)));
        }
        let opened = (offer.has_handle == 1)
            .then(|| cuda::open(device, offer.facts.process, &offer.exported).ok())
            .flatten();
        Ok(opened.map(|(address, mapped)| (address, Some(mapped))))
    }
}

/// A tag for one answer: unique among the offers in flight between two ranks, and never that of a user's message. Offers to
/// higher and to lower ranks differ, because what follows an offer travels both ways.
fn answer_tag(upwards: bool) -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed) & (MatchKey::TAGS / 4 - 1);
    MatchKey::TAGS | number << 1 | u32::from(upwards)
}

/// One message in flight between this rank and a peer, and the device of this rank's memory.
struct Link<'a> {
    raw: &'a Raw<'a>,
    handshake: Handshake<'a>,
    device: &'a Arc<Device>,
}

impl Link<'_> {
    /// Accepts the next offer; false if its sender has withdrawn it.
    fn take_offer(&self, match_key: &MatchKey, values: Span) -> Result<bool> {
        let mut offer = MemoryOffer::zeroed();
        self.handshake.receive(match_key, bytemuck::bytes_of_mut(&mut offer))?;
        let answers = MatchKey { tag: offer.answer as u32, ..*match_key };
        let reached = self.raw.reach(self.device, &offer)?;
        if !self.handshake.request_access(&answers, if reached.is_some() { COPY } else { STAGE })? {
            return Ok(false);
        }
        let Some((address, _open)) = reached else {
            return self.receive_through_host(&answers, values).map(|()| true);
        };
        let copy_stream = self.device.copy_stream();
        // SAFETY: the sender lends its bytes, as many as the signature states, until it has the answer; ours are lent too.
        let copied = unsafe { copy_stream.copy(values.address(), address, values.bytes()) }
            .and_then(|()| copy_stream.wait(&|| self.handshake.call.check_wait()));
        self.handshake.end_copy(&answers, copied).map(|()| true)
    }

    fn send_through_host(&self, match_key: &MatchKey, values: Span) -> Result<()> {
        let pinned = Pinned::take(self.device, values.bytes())?;
        for (start, bytes) in chunks(values.bytes()) {
            let from = values.address() + start as u64;
            // SAFETY: the chunk lies inside the span, which is lent for the call, and the copy is waited for.
            unsafe { self.device.copy_stream().copy(pinned.address(), from, bytes)? };
            self.device.copy_stream().wait(&|| self.handshake.call.check_wait())?;
            self.handshake.send(match_key, &pinned[..bytes])?;
        }
        Ok(())
    }

    fn receive_through_host(&self, match_key: &MatchKey, values: Span) -> Result<()> {
        let mut pinned = Pinned::take(self.device, values.bytes())?;
        for (start, bytes) in chunks(values.bytes()) {
            self.handshake.receive(match_key, &mut pinned[..bytes])?;
            let to = values.address() + start as u64;
            // SAFETY: as in `send_through_host`.
            unsafe { self.device.copy_stream().copy(to, pinned.address(), bytes)? };
            self.device.copy_stream().wait(&|| self.handshake.call.check_wait())?;
        }
        Ok(())
    }
}

/// Pinned memory for a message, or a chunk of one. Pinning takes longer than a short message, so the memory is reused.
struct Pinned(Option<PinnedMemory>);

/// Pinned memory that no message uses.
static FREE: Mutex<Vec<PinnedMemory>> = Mutex::new(Vec::new());

/// The most free buffers that are retained.
const MAX_FREE: usize = 4;

impl Pinned {
    fn take(device: &Arc<Device>, bytes: usize) -> Result<Pinned> {
        let bytes = if bytes <= SHORT { SHORT } else { CHUNK };
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        let known = free.iter().position(|memory| memory.len() == bytes).map(|at| free.swap_remove(at));
        drop(free);
        Ok(Pinned(Some(known.map_or_else(|| PinnedMemory::new(device, bytes), Ok)?)))
    }
}

impl Deref for Pinned {
    type Target = PinnedMemory;
    fn deref(&self) -> &PinnedMemory {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl DerefMut for Pinned {
    fn deref_mut(&mut self) -> &mut PinnedMemory {
        self.0.as_mut().expect("it is there until it is dropped")
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        // Half of them for each of the two lengths.
        let alike = |memory: &PinnedMemory| free.iter().filter(|other| other.len() == memory.len()).count();
        let kept = self.0.take().filter(|memory| alike(memory) < MAX_FREE / 2);
        free.extend(kept);
    }
}

/// The chunks of a message of `bytes` bytes; an empty message is one empty chunk, so that something is sent.
fn chunks(bytes: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..bytes.max(1)).step_by(CHUNK).map(move |start| (start, CHUNK.min(bytes - start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_a_message_once() {
        assert_eq!(chunks(0).collect::<Vec<_>>(), [(0, 0)]);
        assert_eq!(chunks(5).collect::<Vec<_>>(), [(0, 5)]);
        assert_eq!(chunks(CHUNK + 1).collect::<Vec<_>>(), [(0, CHUNK), (CHUNK, 1)]);
    }

    #[test]
    fn answers_have_tags_that_no_message_has() {
        let (one, other) = (answer_tag(true), answer_tag(false));
        assert!(one & 1 != other & 1 && one != answer_tag(true));
        assert!((MatchKey::TAGS..MatchKey::CREATE_GROUP - 100).contains(&one));
    }
}
