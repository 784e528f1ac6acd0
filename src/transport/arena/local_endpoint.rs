//! A rank's own place in the arena: its notices, its heap, and what it knows of the other seats.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::buffer::ArenaBuffer;
use super::free_list::FreeList;
use super::lock::Lock;
use super::backoff::Backoff;
use super::process_record::PeerStatus;
use super::{Arena, PeerSlot, channel, spsc};
use crate::error::{Error, Lost, Missing, Result};
use crate::transport::{Verb, process};

/// One rank at its place in the arena.
pub(crate) struct LocalEndpoint {
    pub arena: Arc<Arena>,
    pub local_rank: usize,
    /// The world rank of each seat.
    pub ranks: Vec<usize>,
    pub backoff: Backoff,
    allocator: Mutex<Allocator>,
}

/// Who uses which bytes of this seat's heap.
struct Allocator {
    heap: FreeList,
    /// Channels that this seat founded and left, while others may still be in them: where, and of how many members.
    retired_channels: Vec<(usize, usize)>,
    /// Lanes that this seat gave up while their receivers had not taken everything.
    deferred_frees: Vec<DeferredFree>,
}

/// Memory of lanes: where, how many bytes, and which lanes are to be taken up to which number first.
struct DeferredFree {
    start: usize,
    bytes: usize,
    buffers: Vec<(usize, u64)>,
}

/// How long a rank may take to say where it is in its program.
pub(crate) const LOCATION_TIMEOUT: Duration = Duration::from_millis(500);

const NOT_IN_CHILDREN: &str =
    "do not call init in a process that a rank started; remove UNISONO_RANK from its environment";
const RESTART_JOB: &str = "what it had begun cannot be taken up; start the whole job again";
const JOIN_ONCE: &str = "a rank joins its job once; keep the world until the program ends";

/// How many seats an arena has at most: a lock's word has room for no more.
pub(crate) const MAX_LOCAL_RANKS: usize = 4096;

/// The bits of a token that name the seat, counted from 1. Those above name its process; the highest bit is the lock's own.
const LOCAL_RANK_BITS: u32 = MAX_LOCAL_RANKS.ilog2() + 1;
const INCARNATION_MASK: u32 = (1 << (31 - LOCAL_RANK_BITS)) - 1;

fn token(local_rank: usize, incarnation: u32) -> u32 {
    debug_assert!(local_rank < MAX_LOCAL_RANKS);
    (local_rank as u32 + 1) | (incarnation & INCARNATION_MASK) << LOCAL_RANK_BITS
}

/// Gives a lock back when it goes out of scope.
pub(crate) struct SharedLockGuard<'a>(&'a Lock);

impl Drop for SharedLockGuard<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl LocalEndpoint {
    /// Sits down, unless another living process sits there.
    pub fn attach(arena: Arc<Arena>, local_rank: usize, ranks: Vec<usize>) -> Result<LocalEndpoint> {
        LocalEndpoint::reattach(arena, local_rank, ranks, 0)
    }

    /// Sits down as the process of the given restart: where another has sat, if that one is gone and the launcher has
    /// started this one in its place.
    pub fn reattach(arena: Arc<Arena>, local_rank: usize, ranks: Vec<usize>, restarts: u32) -> Result<LocalEndpoint> {
        assert!(local_rank < arena.local_size() && ranks.len() == arena.local_size());
        let slot = arena.peer_slot(local_rank);
        if let Some(conflict) = attach_conflict(slot, ranks[local_rank], restarts) {
            return Err(conflict);
        }
        slot.register();
        // Others may still use what processes before this one had in the heap: it stays as it is.
        let (start, used) = (arena.layout.heap(local_rank), slot.process.heap_high_water().min(arena.layout.heap_bytes));
        let heap = FreeList::new(start + used, arena.layout.heap_bytes - used);
        let backoff = Backoff::for_ranks(arena.local_size());
        let allocator = Mutex::new(Allocator { heap, retired_channels: Vec::new(), deferred_frees: Vec::new() });
        Ok(LocalEndpoint { arena, local_rank, ranks, backoff, allocator })
    }

    pub fn own_slot(&self) -> &PeerSlot {
        self.arena.peer_slot(self.local_rank)
    }

    /// The seat of a rank of the world, if it is on this host.
    pub fn local_rank_of(&self, rank: usize) -> Option<usize> {
        match self.ranks.get(rank) {
            Some(&found) if found == rank => Some(rank),
            _ => self.ranks.iter().position(|&other| other == rank),
        }
    }

    /// Notes what this rank is doing.
    #[inline]
    pub fn set_activity(&self, verb: Verb, number: u64, context: u32, inside: bool) {
        self.own_slot().set_activity(verb, number, context, inside);
    }

    /// Notes that this rank waits for others outside any group, until the result is dropped. If it is inside a group's call
    /// too, then that is what it is doing.
    pub fn set_waiting(&self, verb: Verb, number: u64) -> WaitingGuard<'_> {
        let slot = Some(self.own_slot()).filter(|slot| !slot.activity().inside);
        slot.inspect(|slot| slot.set_activity(verb, number, NO_GROUP, true));
        WaitingGuard { slot, verb, number }
    }

    /// How a rank was lost, or `None` while it lives, has not come yet, or is on another host.
    pub fn lost(&self, rank: usize) -> Option<Lost> {
        let slot = self.arena.peer_slot(self.local_rank_of(rank)?);
        slot.lost().map(|how| Lost { rank, pid: slot.pid(), how: how.into() })
    }

    /// How a rank was lost, or `None` while it lives, has not come yet, may be started again, or is on another host.
    pub fn permanently_lost(&self, rank: usize) -> Option<Lost> {
        let slot = self.arena.peer_slot(self.local_rank_of(rank)?);
        match slot.process.status() {
            PeerStatus::Dead(how) => Some(Lost { rank, pid: slot.pid(), how: how.into() }),
            PeerStatus::Alive | PeerStatus::Restarting => None,
        }
    }

    /// Why messages and groups with a rank are at an end: it is lost, or one of the two ranks was started again.
    pub fn unreachable(&self, rank: usize) -> Option<Lost> {
        self.lost(rank).or_else(|| self.restarted(rank))
    }

    /// Why messages and groups with a rank do not work: one of the two ranks was started again.
    pub fn restarted(&self, rank: usize) -> Option<Lost> {
        let slot = self.arena.peer_slot(self.local_rank_of(rank)?);
        let again = [(self.ranks[self.local_rank], self.own_slot()), (rank, slot)]
            .into_iter()
            .find(|(_, slot)| slot.incarnation() > 1);
        let how =
            |rank| format!("rank {rank} was started again; messages and groups with it do not survive that");
        again.map(|(found, _)| Lost { rank, pid: slot.pid(), how: how(found) })
    }

    /// How a rank's process ended, or `None` while it lives, has not come yet, or is on another host. It may come back.
    pub fn dead(&self, rank: usize) -> Option<Lost> {
        let slot = self.arena.peer_slot(self.local_rank_of(rank)?);
        slot.is_dead().then(|| Lost { rank, pid: slot.pid(), how: "its process ended".into() })
    }

    /// A rank that is lost for a reason of its own.
    pub fn lost_because(&self, rank: usize, how: &str) -> Lost {
        let pid = self.local_rank_of(rank).and_then(|local_rank| self.arena.peer_slot(local_rank).pid());
        Lost { rank, pid, how: how.into() }
    }

    /// What is known of ranks that others wait for. All of them together get one limit to say where they are.
    pub fn all_missing(&self, ranks: impl Iterator<Item = usize>) -> Vec<Missing> {
        let until = Instant::now() + LOCATION_TIMEOUT;
        ranks.map(|rank| self.missing(rank, until)).collect()
    }

    /// What is known of a rank that others wait for; it has until then to say where it is.
    pub fn missing(&self, rank: usize, until: Instant) -> Missing {
        let Some(local_rank) = self.local_rank_of(rank) else {
            return Missing { rank, pid: None, doing: "on another host".into(), location: None };
        };
        let slot = self.arena.peer_slot(local_rank);
        let location = slot.request_location(until.saturating_duration_since(Instant::now()));
        Missing { rank, pid: slot.pid(), doing: slot.describe(), location }
    }

    /// Takes memory from this seat's heap for a user.
    pub fn allocate(self: &Arc<LocalEndpoint>, bytes: usize) -> Result<ArenaBuffer> {
        // A page more, so that each seat's buffers can begin at another place within the page.
        let start = self.reserve(bytes.saturating_add(4096))?;
        Ok(ArenaBuffer::new(self.clone(), start, bytes))
    }

    /// Takes whole pages from this seat's heap.
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
            let consumed = buffers.iter().all(|&(buffer, number)| spsc::is_consumed(&self.arena, buffer, number));
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

    /// Takes note of a channel that this seat founded and left: its memory comes back when the others have left too.
    pub(super) fn retire_channel(&self, base: usize, members: usize) {
        self.allocator().retired_channels.push((base, members));
    }

    /// Takes note of lanes that were given up: their memory comes back when they are taken up to these numbers.
    pub(super) fn defer_free(&self, start: usize, bytes: usize, buffers: Vec<(usize, u64)>) {
        let bytes = bytes.saturating_add(4096);
        self.allocator().deferred_frees.push(DeferredFree { start, bytes, buffers });
    }

    fn allocator(&self) -> MutexGuard<'_, Allocator> {
        self.allocator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This process's name on locks in shared memory: its seat, and which process of that seat it is.
    pub fn token(&self) -> u32 {
        token(self.local_rank, self.own_slot().incarnation())
    }

    /// Whether the process behind a token is gone.
    pub fn is_dead(&self, token: u32) -> bool {
        let local_rank = ((token & ((1 << LOCAL_RANK_BITS) - 1)) as usize).wrapping_sub(1);
        if local_rank >= self.arena.local_size() {
            return true;
        }
        let slot = self.arena.peer_slot(local_rank);
        self::token(local_rank, slot.incarnation()) != token || slot.process_ended()
    }

    /// Holds a lock for a moment; no deadline, because its holders never wait while they hold it.
    pub fn acquire<'a>(&'a self, lock: &'a Lock) -> Result<SharedLockGuard<'a>> {
        lock.acquire(self.token(), None, |token| self.is_dead(token))?;
        Ok(SharedLockGuard(lock))
    }

    /// Leaves the seat in good order.
    pub fn leave(&self) {
        let slot = self.own_slot();
        // A forked child inherits the seat but not the right to leave it.
        if slot.pid() == Some(process::own_pid()) {
            slot.process.mark_left();
            // Whoever waits for us shall notice at once, not at the next nap's end.
            (0..self.arena.local_size()).for_each(|local_rank| self.arena.peer_slot(local_rank).doorbell.ring());
        }
    }
}

/// Why this process may not sit down at a place.
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
        (Some(how), _) => (format!("a second start of rank {rank} (process {pid}: {how})"), JOIN_ONCE),
    };
    Some(Error::usage("init", format!("to be the only process of rank {rank}"), received, advice))
}

/// A wait that is on the notice board.
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

/// The number of no group.
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
