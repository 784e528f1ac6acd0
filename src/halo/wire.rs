//! How parcels travel between neighbours: through SPSC buffers in shared memory, or as messages.

use super::neighbours::{StartedCall, wait};
use super::packing::PackUnpack;
use super::verbs;
use crate::error::{Error, Result};
use crate::memory::DType;
use crate::transport::arena::spsc::{Inbox, Outbox, STEPS};
use crate::transport::{Call, MatchKey, OwnedExchange, Signature};
use crate::world::Group;

/// A neighbour, and the buffer space that each direction needs, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Neighbour {
    pub member: usize,
    pub to: usize,
    pub from: usize,
}

/// The connections to all neighbours. Methods identify a neighbour by its index in the list.
pub(super) struct Wire {
    neighbours: Vec<Neighbour>,
    /// Bytes that have been unpacked of the parcel from each neighbour.
    unpacked: Vec<usize>,
    backend: WireBackend,
}

/// Bytes that are packed before others are unpacked: with the rows that they come from, they stay in the L2 cache.
pub(super) const CHUNK_BYTES: usize = 24 << 10;

enum WireBackend {
    SharedMemory { outbox: Outbox, inbox: Inbox, number: u64 },
    Messages(Messages),
}

/// Buffers of messages that are not in flight, and the messages that are.
struct Messages {
    sends: Vec<Vec<u8>>,
    receives: Vec<Vec<u8>>,
    posted: Option<OwnedExchange>,
}

/// Sent in place of an offset by a rank that has no SPSC buffer for the receiver.
const NO_BUFFER: i64 = -1;

impl Wire {
    /// Collective over the group; `fingerprint` must be equal on all members.
    pub fn new(group: &Group, neighbours: Vec<Neighbour>, fingerprint: u64, direct: bool) -> Result<Wire> {
        let endpoint = group.endpoint().filter(|_| direct && group.channel().is_some());
        let local_rank_of =
            |member: usize| endpoint.and_then(|endpoint| endpoint.local_rank_of(group.members()[member]));
        let receivers: Option<Vec<(usize, usize)>> =
            neighbours.iter().map(|one| Some((local_rank_of(one.member)?, one.to))).collect();
        // Without space in the arena, the exchange falls back to messages.
        let outbox =
            endpoint.zip(receivers).and_then(|(endpoint, receivers)| Outbox::new(endpoint, &receivers).ok());

        // Each rank sends to each: the fingerprint, whether it has SPSC buffers, and the offset of the one for that member.
        const NUMBERS: usize = 3;
        let mut mine = [fingerprint as i64, i64::from(outbox.is_some()), NO_BUFFER].repeat(group.size());
        if let Some(outbox) = &outbox {
            for (neighbour, one) in neighbours.iter().enumerate() {
                mine[NUMBERS * one.member + 2] = outbox.offset(neighbour) as i64;
            }
        }
        let mut theirs = vec![0i64; mine.len()];
        group.all_to_all(&mine, &mut theirs)?;
        let received_from = |member: usize| &theirs[NUMBERS * member..NUMBERS * (member + 1)];
        check_agreement(group, fingerprint, |member| received_from(member)[0] as u64)?;

        let all_have_room = (0..group.size()).all(|member| received_from(member)[1] == 1);
        let backend = match (outbox, endpoint) {
            (Some(outbox), Some(endpoint)) if all_have_room => {
                let buffer_of = |one: &Neighbour| {
                    let offset = received_from(one.member)[2];
                    (local_rank_of(one.member).unwrap_or(endpoint.local_rank), offset as usize, one.from)
                };
                if neighbours.iter().any(|one| received_from(one.member)[2] == NO_BUFFER) {
                    return Err(Error::internal("halo plan", "a neighbour that does not know of this rank"));
                }
                let inbox = Inbox::new(endpoint, neighbours.iter().map(buffer_of));
                WireBackend::SharedMemory { outbox, inbox, number: 0 }
            }
            _ => WireBackend::Messages(Messages {
                sends: neighbours.iter().map(|one| Vec::with_capacity(one.to)).collect(),
                receives: neighbours.iter().map(|one| Vec::with_capacity(one.from)).collect(),
                posted: None,
            }),
        };
        let unpacked = vec![0; neighbours.len()];
        Ok(Wire { neighbours, unpacked, backend })
    }

    /// Whether parcels go directly through shared memory.
    pub fn is_direct(&self) -> bool {
        matches!(self.backend, WireBackend::SharedMemory { .. })
    }

    /// Packs and sends parcels. Returns when the caller's arrays have been read. With `interleaved`, what has arrived
    /// meanwhile is unpacked along with what was just packed, because the two are adjacent in memory; [`Wire::receive`]
    /// unpacks the rest.
    pub fn send(
        &mut self,
        group: &Group,
        call: &Call,
        (started, dtype, fingerprint): (StartedCall, DType, u64),
        packer: &mut impl PackUnpack,
        interleaved: bool,
    ) -> Result<()> {
        let Wire { neighbours, unpacked, backend } = self;
        unpacked.fill(0);
        match backend {
            WireBackend::SharedMemory { outbox, inbox, number: last } => {
                let number = sequence_number(started, *last);
                *last = number;
                for (neighbour, one) in neighbours.iter().enumerate() {
                    let (to, from) = packer.lengths(neighbour);
                    if to == 0 {
                        continue;
                    }
                    let missing = |member: usize| one.member == member && !outbox.is_free(neighbour);
                    wait(group, call, None, || outbox.is_free(neighbour), missing)?;
                    let piece = if interleaved { CHUNK_BYTES.max(to / STEPS as usize) } else { usize::MAX };
                    let mut packed = 0;
                    while packed < to {
                        packed = outbox.send(neighbour, number, to, |done, room| {
                            packer.pack(neighbour, done, piece, room)
                        });
                        if interleaved {
                            // Not further than was packed: beyond that, memory would be fetched twice.
                            let limit = (from as u128 * packed as u128 / to as u128) as usize;
                            let span = (unpacked[neighbour], limit);
                            let unpack = |bytes: &[u8]| packer.unpack(neighbour, span.0, bytes);
                            unpacked[neighbour] = inbox.read_available(neighbour, number, from, span, unpack);
                        }
                    }
                }
                Ok(())
            }
            WireBackend::Messages(messages) => {
                let rank = |neighbour: usize| group.members()[neighbours[neighbour].member];
                let (mut sends, mut receives) = (Vec::new(), Vec::new());
                for neighbour in 0..neighbours.len() {
                    let (to, from) = packer.lengths(neighbour);
                    if to > 0 {
                        let mut buffer = std::mem::take(&mut messages.sends[neighbour]);
                        buffer.resize(to, 0);
                        packer.pack(neighbour, 0, usize::MAX, &mut buffer);
                        sends.push((rank(neighbour), buffer));
                    }
                    if from > 0 {
                        let mut buffer = std::mem::take(&mut messages.receives[neighbour]);
                        buffer.resize(from, 0);
                        receives.push((rank(neighbour), buffer));
                    }
                }
                let ranks = (0..neighbours.len()).map(rank);
                group.check_reachable(call, ranks)?;
                let signature = Signature::new(started.verb, started.number).of(dtype, Signature::VARIES);
                let signature = signature.plan(fingerprint);
                let match_key = MatchKey { context: group.context(), tag: MatchKey::COLLECTIVE, signature };
                let posted = OwnedExchange::begin(group.transport(), &match_key, sends, receives);
                posted.progress(call)?;
                messages.posted = Some(posted);
                Ok(())
            }
        }
    }

    /// Waits for all parcels and unpacks them: in the order of neighbours if `in_order`, else as they arrive.
    pub fn receive(
        &mut self,
        group: &Group,
        call: &Call,
        started: StartedCall,
        packer: &mut impl PackUnpack,
        in_order: bool,
    ) -> Result<()> {
        let Wire { neighbours, unpacked, backend } = self;
        match backend {
            WireBackend::SharedMemory { inbox, number, .. } => {
                let number = *number;
                let mut pending =
                    PendingNeighbours::all(neighbours.len(), |neighbour| packer.lengths(neighbour).1);
                while let Some(first) = pending.first() {
                    let waited_for = |neighbour: usize| {
                        if in_order { neighbour == first } else { pending.contains(neighbour) }
                    };
                    let ready = |neighbour: usize| waited_for(neighbour) && inbox.is_ready(neighbour, number);
                    let any = || (0..neighbours.len()).find(|&neighbour| ready(neighbour));
                    let missing = |member: usize| {
                        let neighbour = neighbours.iter().position(|one| one.member == member);
                        neighbour.is_some_and(|neighbour| {
                            waited_for(neighbour) && !inbox.is_ready(neighbour, number)
                        })
                    };
                    wait(group, call, Some(started), || any().is_some(), missing)?;
                    if let Some(neighbour) = any() {
                        let (done, bytes) = (unpacked[neighbour], packer.lengths(neighbour).1);
                        inbox.read_available(neighbour, number, bytes, (done, bytes), |bytes| {
                            packer.unpack(neighbour, done, bytes)
                        });
                        inbox.consume(neighbour, number);
                        pending.remove(neighbour);
                    }
                }
                Ok(())
            }
            WireBackend::Messages(messages) => {
                let Some(posted) = messages.posted.take() else { return Ok(()) };
                let (sends, receives) = posted.finish(call)?;
                let index_of =
                    |rank: usize| neighbours.iter().position(|one| group.members()[one.member] == rank);
                for (rank, buffer) in sends {
                    if let Some(neighbour) = index_of(rank) {
                        messages.sends[neighbour] = buffer;
                    }
                }
                for (rank, buffer) in receives {
                    if let Some(neighbour) = index_of(rank) {
                        packer.unpack(neighbour, 0, &buffer);
                        messages.receives[neighbour] = buffer;
                    }
                }
                Ok(())
            }
        }
    }

    /// Cancels the exchange: discards what was sent and not received.
    pub fn cancel(&mut self, lengths: impl Fn(usize) -> usize) {
        match &mut self.backend {
            WireBackend::SharedMemory { inbox, number, .. } => {
                (0..self.neighbours.len())
                    .filter(|&neighbour| lengths(neighbour) > 0)
                    .for_each(|neighbour| inbox.discard(neighbour, *number));
            }
            WireBackend::Messages(messages) => messages.posted = None,
        }
    }
}

/// The sequence number of a transfer after another one. It identifies the call, because a rank may have one call rejected
/// and go on to the next; and it tells apart the two transfers that a call may make.
fn sequence_number(started: StartedCall, last: u64) -> u64 {
    let call = 2 * started.number + u64::from(started.verb == verbs::ADJOINT);
    let first = (2 * call + 1) * STEPS;
    if last == first { first + STEPS } else { first }
}

/// The neighbours whose parcels have not been unpacked: one bit each for up to 128 neighbours, a list for more.
struct PendingNeighbours(Bits);

enum Bits {
    Few(u128),
    Many(Vec<bool>),
}

impl PendingNeighbours {
    fn all(count: usize, lengths: impl Fn(usize) -> usize) -> PendingNeighbours {
        let wanted = (0..count).map(|neighbour| lengths(neighbour) > 0);
        PendingNeighbours(match count <= 128 {
            true => Bits::Few(
                wanted
                    .enumerate()
                    .fold(0, |bits, (neighbour, pending)| bits | u128::from(pending) << neighbour),
            ),
            false => Bits::Many(wanted.collect()),
        })
    }

    fn contains(&self, neighbour: usize) -> bool {
        match &self.0 {
            Bits::Few(bits) => bits >> neighbour & 1 == 1,
            Bits::Many(pending) => pending[neighbour],
        }
    }

    fn first(&self) -> Option<usize> {
        match &self.0 {
            Bits::Few(0) => None,
            Bits::Few(bits) => Some(bits.trailing_zeros() as usize),
            Bits::Many(pending) => pending.iter().position(|&pending| pending),
        }
    }

    fn remove(&mut self, neighbour: usize) {
        match &mut self.0 {
            Bits::Few(bits) => *bits &= !(1 << neighbour),
            Bits::Many(pending) => pending[neighbour] = false,
        }
    }
}

/// Fails on all ranks if ranks have made different plans.
fn check_agreement(group: &Group, mine: u64, theirs: impl Fn(usize) -> u64) -> Result<()> {
    let differ: Vec<usize> = (0..group.size()).filter(|&member| theirs(member) != mine).collect();
    if differ.is_empty() {
        return Ok(());
    }
    let ranks: Vec<usize> = differ.iter().map(|&member| group.members()[member]).collect();
    let received = format!("another one than this rank's at ranks {ranks:?}");
    let expected = "the same shape, partition, window, boundary and element type on every rank";
    let advice = "compare what these ranks pass";
    Err(Error::usage("halo plan", expected, received, advice).at_rank(group.members()[group.rank()]))
}
