//! A rank's endpoint in the arena: its peer slot, its heap, and its view of the other local ranks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::backoff::Backoff;
use super::buffer::ArenaBuffer;
use super::free_list::FreeList;
use super::lock::LockOwners;
use super::process_record::PeerStatus;
use super::{Arena, PeerSlot, channel, spsc};
use crate::error::{Error, Lost, Missing, Result};
use crate::transport::cpus::Cpus;
use crate::transport::{Verb, process};

/// One local rank's handle to the arena.
pub(crate) struct LocalEndpoint {
    pub arena: Arc<Arena>,
    pub local_rank: usize,
    /// World rank of each local rank.
    pub ranks: Vec<usize>,
    pub backoff: Backoff,
    allocator: Mutex<Allocator>,
}

/// Which bytes of this rank's heap are in use. Kept in private memory: only the owner allocates from its heap.
struct Allocator {
    heap: FreeList,
    /// Channels that this rank created and has left while other members may still be in them: offset and number of members.
    retired_channels: Vec<(usize, usize)>,
    /// Memory of SPSC buffers that were dropped before their receivers had consumed everything.
    deferred_frees: Vec<DeferredFree>,
}

/// A range to free once every listed buffer (its offset) has been consumed up to the given sequence number.
struct DeferredFree {
    start: usize,
    bytes: usize,
    buffers: Vec<(usize, u64)>,
}

/// Time limit for a rank to report its source location.
const LOCATION_TIMEOUT: Duration = Duration::from_millis(500);

const NOT_IN_CHILDREN: &str =
    "do not call init in a process that a rank started; remove UNISONO_RANK from its environment";
const RESTART_JOB: &str = "no process can continue what it had begun; start the entire job again";
const JOIN_ONCE: &str = "a rank joins its job once; keep the world until the program ends";

/// Maximum number of local ranks: a lock word has no room for more.
pub(crate) const MAX_LOCAL_RANKS: usize = 4096;

/// Bits of a token that hold the local rank plus one. The bits above hold the incarnation; the highest bit belongs to the lock.
const LOCAL_RANK_BITS: u32 = MAX_LOCAL_RANKS.ilog2() + 1;
const INCARNATION_MASK: u32 = (1 << (31 - LOCAL_RANK_BITS)) - 1;

fn token(local_rank: usize, incarnation: u32) -> u32 {
    debug_assert!(local_rank < MAX_LOCAL_RANKS);
    (local_rank as u32 + 1) | (incarnation & INCARNATION_MASK) << LOCAL_RANK_BITS
}

/// The local rank in a token; out of range if the token is damaged.
fn local_rank_in(token: u32) -> usize {
    ((token & ((1 << LOCAL_RANK_BITS) - 1)) as usize).wrapping_sub(1)
}

impl LocalEndpoint {
    /// Attaches this process as the given local rank, unless a live process already has that rank.
    pub fn attach(arena: Arc<Arena>, local_rank: usize, ranks: Vec<usize>) -> Result<LocalEndpoint> {
        LocalEndpoint::reattach(arena, local_rank, ranks, 0)
    }

    /// Attaches this process as restart number `restarts` of the rank: it may replace an earlier process that has ended, if the
    /// launcher started this one to replace it.
    pub fn reattach(
        arena: Arc<Arena>,
        local_rank: usize,
        ranks: Vec<usize>,
        restarts: u32,
    ) -> Result<LocalEndpoint> {
        assert!(local_rank < arena.local_size() && ranks.len() == arena.local_size());
        let slot = arena.peer_slot(local_rank);
        if let Some(conflict) = attach_conflict(slot, ranks[local_rank], restarts) {
            return Err(conflict);
        }
        slot.register();
        arena.add_cpus(&Cpus::own());
        // Peers may still use heap memory that earlier incarnations allocated, so allocation continues above it.
        let (start, used) =
            (arena.layout.heap(local_rank), slot.process.heap_high_water().min(arena.layout.heap_bytes));
        let heap = FreeList::new(start + used, arena.layout.heap_bytes - used);
        let backoff = Backoff::new(arena.is_oversubscribed());
        let allocator =
            Mutex::new(Allocator { heap, retired_channels: Vec::new(), deferred_frees: Vec::new() });
        Ok(LocalEndpoint { arena, local_rank, ranks, backoff, allocator })
    }

    /// Adapts waits and algorithms to the cores that the ranks have, once all have attached.
    pub fn all_attached(&self) {
        self.arena.decide_cores();
        self.backoff.set_oversubscribed(self.arena.is_oversubscribed());
    }

    pub fn own_slot(&self) -> &PeerSlot {
        self.arena.peer_slot(self.local_rank)
    }

    /// The local rank of a world rank, or `None` if it is on another host.
    pub fn local_rank_of(&self, rank: usize) -> Option<usize> {
        match self.ranks.get(rank) {
            Some(&found) if found == rank => Some(rank),
            _ => self.ranks.iter().position(|&other| other == rank),
        }
    }

    /// Publishes what this rank is doing.
    #[inline]
    pub fn set_activity(&self, verb: Verb, number: u64, context: u32, inside: bool) {
        self.own_slot().set_activity(verb, number, context, inside);
    }

    /// Publishes that this rank waits for peers outside any group call, until the guard is dropped. If the rank is also inside a
    /// group call, that call remains its published activity.
    pub fn set_waiting(&self, verb: Verb, number: u64) -> WaitingGuard<'_> {
        let slot = Some(self.own_slot()).filter(|slot| !slot.activity().inside);
        slot.inspect(|slot| slot.set_activity(verb, number, NO_GROUP, true));
        WaitingGuard { slot, verb, number }
    }

    /// How a rank was lost, or `None` while it is alive, has not joined yet, or is on another host. It may be restarted.
    pub fn lost(&self, rank: usize) -> Option<Lost> {
        let slot = self.arena.peer_slot(self.local_rank_of(rank)?);
        slot.lost().map(|cause| cause.lost(rank, slot.pid()))
    }

    /// How a rank was lost for good, or `None` while it is alive, has not joined yet, may be restarted, or is on another host.
    pub fn permanently_lost(&self, rank: usize) -> Option<Lost> {
        let slot = self.arena.peer_slot(self.local_rank_of(rank)?);
        match slot.process.status() {
            PeerStatus::Unrecoverable(cause) => Some(cause.lost(rank, slot.pid())),
            PeerStatus::Alive | PeerStatus::Restarting => None,
        }
    }

    /// Why messages to and groups with a rank no longer work: it is lost, or one of the two ranks was restarted.
    pub fn unreachable(&self, rank: usize) -> Option<Lost> {
        self.lost(rank).or_else(|| self.restarted(rank))
    }

    /// Set if this rank or the given one was restarted: messages and groups between the two do not survive a restart.
    pub fn restarted(&self, rank: usize) -> Option<Lost> {
        let slot = self.arena.peer_slot(self.local_rank_of(rank)?);
        let again = [(self.ranks[self.local_rank], self.own_slot()), (rank, slot)]
            .into_iter()
            .find(|(_, slot)| slot.incarnation() > 1);
        let how =
            |rank| format!("rank {rank} was started again; messages and groups with it do not survive that");
        again.map(|(found, _)| Lost::new(rank, slot.pid(), how(found)))
    }

    /// Describes a rank that is lost for the given reason.
    pub fn lost_because(&self, rank: usize, how: &str) -> Lost {
        let pid = self.local_rank_of(rank).and_then(|local_rank| self.arena.peer_slot(local_rank).pid());
        Lost::new(rank, pid, how)
    }

    /// Status of late ranks, for an error message. All of them share one time limit to report their source locations.
    pub fn all_missing(&self, ranks: impl Iterator<Item = usize>) -> Vec<Missing> {
        let until = Instant::now() + LOCATION_TIMEOUT;
        ranks.map(|rank| self.missing(rank, until)).collect()
    }

    /// Status of a late rank, for an error message; the rank has until `until` to report its source location.
    pub fn missing(&self, rank: usize, until: Instant) -> Missing {
        let Some(local_rank) = self.local_rank_of(rank) else {
            return Missing::new(rank, None, "what it was doing is not known");
        };
        let slot = self.arena.peer_slot(local_rank);
        let location = slot.request_location(until.saturating_duration_since(Instant::now()));
        let (doing, verb) = slot.describe();
        Missing {
            location,
            call: verb.map(|verb| verb.name().into()),
            ..Missing::new(rank, slot.pid(), doing)
        }
    }

    /// Allocates a user's buffer from this rank's heap.
    pub fn allocate(self: &Arc<LocalEndpoint>, bytes: usize) -> Result<ArenaBuffer> {
        // One page more, so that the buffers of different ranks can start at different offsets within a page.
        let start = self.reserve(bytes.saturating_add(4096))?;
        Ok(ArenaBuffer::new(self.clone(), start, bytes))
    }

    /// Reserves full pages of this rank's heap; first frees what peers have stopped using.
    pub(super) fn reserve(&self, bytes: usize) -> Result<usize> {
        let mut allocator = self.allocator();
        let Allocator { heap, retired_channels, deferred_frees } = &mut *allocator;
        retired_channels.retain(|&(base, members)| {
            let left = channel::all_left(&self.arena, base, members);
            if left {
                heap.free(base, channel::bytes(members));
            }
            !left
        });
        deferred_frees.retain(|DeferredFree { start, bytes, buffers }| {
            let consumed =
                buffers.iter().all(|&(buffer, number)| spsc::is_consumed(&self.arena, buffer, number));
            if consumed {
                heap.free(*start, *bytes);
            }
            !consumed
        });
        let start = heap.allocate(bytes).ok_or_else(|| {
            Error::usage(
                "empty",
                format!("at most {} bytes, the largest free piece of this rank's arena", heap.largest()),
                format!("{bytes} bytes"),
                "drop arrays made by empty() that are no longer needed",
            )
        })?;
        let end = start - self.arena.layout.heap(self.local_rank) + bytes.max(1).next_multiple_of(4096);
        self.own_slot().process.raise_heap_high_water(end);
        Ok(start)
    }

    pub(super) fn release(&self, start: usize, bytes: usize) {
        self.allocator().heap.free(start, bytes.saturating_add(4096));
    }

    /// Registers a channel that this rank created and has left: its memory is freed when the other members have left too.
    pub(super) fn retire_channel(&self, base: usize, members: usize) {
        self.allocator().retired_channels.push((base, members));
    }

    /// Registers dropped SPSC buffers: their memory is freed when each has been consumed up to its sequence number.
    pub(super) fn defer_free(&self, start: usize, bytes: usize, buffers: Vec<(usize, u64)>) {
        let bytes = bytes.saturating_add(4096);
        self.allocator().deferred_frees.push(DeferredFree { start, bytes, buffers });
    }

    fn allocator(&self) -> MutexGuard<'_, Allocator> {
        self.allocator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This process's owner token for locks in shared memory: its local rank and its incarnation.
    pub fn token(&self) -> u32 {
        token(self.local_rank, self.own_slot().incarnation())
    }

    /// The rank behind a token.
    pub fn owner_rank(&self, token: u32) -> Option<usize> {
        self.ranks.get(local_rank_in(token)).copied()
    }

    /// Leaves the job in an orderly way.
    pub fn leave(&self) {
        let slot = self.own_slot();
        // A forked child inherits the endpoint but must not leave on behalf of its parent.
        if slot.pid() == Some(process::own_pid()) {
            slot.process.mark_left();
            // Wake waiting peers now rather than at the end of their poll interval.
            (0..self.arena.local_size())
                .for_each(|local_rank| self.arena.peer_slot(local_rank).doorbell.ring());
        }
    }
}

impl LockOwners for LocalEndpoint {
    fn has_ended(&self, token: u32) -> bool {
        let local_rank = local_rank_in(token);
        if local_rank >= self.arena.local_size() {
            return true;
        }
        let slot = self.arena.peer_slot(local_rank);
        self::token(local_rank, slot.incarnation()) != token || slot.process_ended()
    }

    fn missing(&self, token: u32) -> Option<Missing> {
        let owner = self.owner_rank(token).filter(|_| local_rank_in(token) != self.local_rank);
        owner.map(|rank| self.missing(rank, Instant::now() + LOCATION_TIMEOUT))
    }
}

/// The error if this process may not attach to the slot, or `None` if it may.
fn attach_conflict(slot: &PeerSlot, rank: usize, restarts: u32) -> Option<Error> {
    let pid = slot.pid()?;
    let process = &slot.process;
    let is_replacement = restarts > 0 && restarts == process.restarts() && process.process_ended();
    if is_replacement && process.status() == PeerStatus::Restarting {
        return None;
    }
    let (received, advice) = match (process.lost(), process.restart_obstacle()) {
        (None, _) => (format!("process {pid} that has this rank already"), NOT_IN_CHILDREN),
        (Some(_), Some(obstacle)) if is_replacement => {
            (format!("restart {restarts} of rank {rank} (process {pid}: {obstacle})"), RESTART_JOB)
        }
        (Some(cause), _) => {
            (format!("a second start of rank {rank} (process {pid}: {})", cause.text()), JOIN_ONCE)
        }
    };
    Some(Error::usage("init", format!("to be the only process of rank {rank}"), received, advice))
}

/// Publishes the end of a wait on drop.
pub(crate) struct WaitingGuard<'a> {
    slot: Option<&'a PeerSlot>,
    verb: Verb,
    number: u64,
}

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        self.slot.inspect(|slot| slot.set_activity(self.verb, self.number, NO_GROUP, false));
    }
}

/// The context number that stands for no group.
const NO_GROUP: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tokens_of_all_local_ranks_differ_and_leave_the_lock_its_bit() {
        let mut tokens: Vec<u32> = (0..MAX_LOCAL_RANKS)
            .flat_map(|local_rank| [1, 2, INCARNATION_MASK].map(|process| token(local_rank, process)))
            .collect();
        assert!(tokens.iter().all(|&token| token != 0 && token < 1 << 31));
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), 3 * MAX_LOCAL_RANKS);
    }
}
