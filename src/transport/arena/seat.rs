//! A rank's own place in the arena: its notices, its heap, and what it knows of the other seats.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::buffer::ArenaBuffer;
use super::heap::Heap;
use super::lock::Lock;
use super::patience::Patience;
use super::stay::Fate;
use super::{Arena, Place, channel, lanes};
use crate::error::{Error, Lost, Missing, Result};
use crate::transport::{Verb, process};

/// One rank at its place in the arena.
pub(crate) struct Seat {
    pub arena: Arc<Arena>,
    pub index: usize,
    /// The world rank of each seat.
    pub ranks: Vec<usize>,
    pub patience: Patience,
    book: Mutex<Book>,
}

/// Who uses which bytes of this seat's heap.
struct Book {
    heap: Heap,
    /// Channels that this seat founded and left, while others may still be in them: where, and of how many members.
    retired: Vec<(usize, usize)>,
    /// Lanes that this seat gave up while their receivers had not taken everything.
    lingering: Vec<Lingering>,
}

/// Memory of lanes: where, how many bytes, and which lanes are to be taken up to which number first.
struct Lingering {
    start: usize,
    bytes: usize,
    lanes: Vec<(usize, u64)>,
}

/// How long a rank may take to say where it is in its program.
pub(crate) const LOCATION_LIMIT: Duration = Duration::from_millis(500);

const NOT_IN_CHILDREN: &str =
    "do not call init in a process that a rank started; remove UNISONO_RANK from its environment";
const ALL_AGAIN: &str = "what it had begun cannot be taken up; start the whole job again";
const ONCE: &str = "a rank joins its job once; keep the world until the program ends";

/// How many seats an arena has at most: a lock's word has room for no more.
pub(crate) const MOST_SEATS: usize = 4096;

/// The bits of a token that name the seat, counted from 1. Those above name its process; the highest bit is the lock's own.
const SEAT_BITS: u32 = MOST_SEATS.ilog2() + 1;
const PROCESS_MASK: u32 = (1 << (31 - SEAT_BITS)) - 1;

fn token(seat: usize, incarnation: u32) -> u32 {
    debug_assert!(seat < MOST_SEATS);
    (seat as u32 + 1) | (incarnation & PROCESS_MASK) << SEAT_BITS
}

/// Gives a lock back when it goes out of scope.
pub(crate) struct Held<'a>(&'a Lock);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl Seat {
    /// Sits down, unless another living process sits there.
    pub fn take(arena: Arc<Arena>, index: usize, ranks: Vec<usize>) -> Result<Seat> {
        Seat::take_again(arena, index, ranks, 0)
    }

    /// Sits down as the process of the given restart: where another has sat, if that one is gone and the launcher has
    /// started this one in its place.
    pub fn take_again(arena: Arc<Arena>, index: usize, ranks: Vec<usize>, restarts: u32) -> Result<Seat> {
        assert!(index < arena.seats() && ranks.len() == arena.seats());
        let place = arena.place(index);
        if let Some(refused) = refusal(place, ranks[index], restarts) {
            return Err(refused);
        }
        place.sit_down();
        // Others may still use what processes before this one had in the heap: it stays as it is.
        let (start, used) = (arena.layout.heap(index), place.stay.heap_used().min(arena.layout.heap_bytes));
        let heap = Heap::new(start + used, arena.layout.heap_bytes - used);
        let patience = Patience::for_ranks(arena.seats());
        let book = Mutex::new(Book { heap, retired: Vec::new(), lingering: Vec::new() });
        Ok(Seat { arena, index, ranks, patience, book })
    }

    pub fn place(&self) -> &Place {
        self.arena.place(self.index)
    }

    /// The seat of a rank of the world, if it is on this host.
    pub fn seat_of(&self, rank: usize) -> Option<usize> {
        match self.ranks.get(rank) {
            Some(&found) if found == rank => Some(rank),
            _ => self.ranks.iter().position(|&other| other == rank),
        }
    }

    /// Notes what this rank is doing.
    #[inline]
    pub fn note(&self, verb: Verb, number: u64, context: u32, inside: bool) {
        self.place().note(verb, number, context, inside);
    }

    /// Notes that this rank waits for others outside any group, until the result is dropped. If it is inside a group's call
    /// too, then that is what it is doing.
    pub fn note_wait(&self, verb: Verb, number: u64) -> Noted<'_> {
        let place = Some(self.place()).filter(|place| !place.activity().inside);
        place.inspect(|place| place.note(verb, number, NO_GROUP, true));
        Noted { place, verb, number }
    }

    /// How a rank was lost, or `None` while it lives, has not come yet, or is on another host.
    pub fn lost(&self, rank: usize) -> Option<Lost> {
        let place = self.arena.place(self.seat_of(rank)?);
        place.lost().map(|how| Lost { rank, pid: place.pid(), how: how.into() })
    }

    /// How a rank was lost, or `None` while it lives, has not come yet, may be started again, or is on another host.
    pub fn lost_for_good(&self, rank: usize) -> Option<Lost> {
        let place = self.arena.place(self.seat_of(rank)?);
        match place.stay.fate() {
            Fate::Lost(how) => Some(Lost { rank, pid: place.pid(), how: how.into() }),
            Fate::Here | Fate::Returning => None,
        }
    }

    /// Why messages and groups with a rank are at an end: it is lost, or one of the two ranks was started again.
    pub fn unreachable(&self, rank: usize) -> Option<Lost> {
        self.lost(rank).or_else(|| self.started_again(rank))
    }

    /// Why messages and groups with a rank do not work: one of the two ranks was started again.
    pub fn started_again(&self, rank: usize) -> Option<Lost> {
        let place = self.arena.place(self.seat_of(rank)?);
        let again = [(self.ranks[self.index], self.place()), (rank, place)]
            .into_iter()
            .find(|(_, place)| place.incarnation() > 1);
        let how =
            |rank| format!("rank {rank} was started again; messages and groups with it do not survive that");
        again.map(|(found, _)| Lost { rank, pid: place.pid(), how: how(found) })
    }

    /// How a rank's process ended, or `None` while it lives, has not come yet, or is on another host. It may come back.
    pub fn dead(&self, rank: usize) -> Option<Lost> {
        let place = self.arena.place(self.seat_of(rank)?);
        place.is_dead().then(|| Lost { rank, pid: place.pid(), how: "its process ended".into() })
    }

    /// A rank that is lost for a reason of its own.
    pub fn lost_because(&self, rank: usize, how: &str) -> Lost {
        let pid = self.seat_of(rank).and_then(|seat| self.arena.place(seat).pid());
        Lost { rank, pid, how: how.into() }
    }

    /// What is known of ranks that others wait for. All of them together get one limit to say where they are.
    pub fn all_missing(&self, ranks: impl Iterator<Item = usize>) -> Vec<Missing> {
        let until = Instant::now() + LOCATION_LIMIT;
        ranks.map(|rank| self.missing(rank, until)).collect()
    }

    /// What is known of a rank that others wait for; it has until then to say where it is.
    pub fn missing(&self, rank: usize, until: Instant) -> Missing {
        let Some(seat) = self.seat_of(rank) else {
            return Missing { rank, pid: None, doing: "on another host".into(), location: None };
        };
        let place = self.arena.place(seat);
        let location = place.ask_location(until.saturating_duration_since(Instant::now()));
        Missing { rank, pid: place.pid(), doing: place.in_words(), location }
    }

    /// Takes memory from this seat's heap for a user.
    pub fn allocate(self: &Arc<Seat>, bytes: usize) -> Result<ArenaBuffer> {
        // A page more, so that each seat's buffers can begin at another place within the page.
        let start = self.reserve(bytes.saturating_add(4096))?;
        Ok(ArenaBuffer::new(self.clone(), start, bytes))
    }

    /// Takes whole pages from this seat's heap.
    pub(super) fn reserve(&self, bytes: usize) -> Result<usize> {
        let mut book = self.book();
        let Book { heap, retired, lingering } = &mut *book;
        retired.retain(|&(base, members)| {
            let deserted = channel::is_deserted(&self.arena, base, members);
            if deserted {
                heap.give_back(base, channel::bytes(members));
            }
            !deserted
        });
        lingering.retain(|Lingering { start, bytes, lanes }| {
            let over = lanes.iter().all(|&(lane, number)| lanes::is_taken(&self.arena, lane, number));
            if over {
                heap.give_back(*start, *bytes);
            }
            !over
        });
        let taken = heap.take(bytes).ok_or_else(|| {
            Error::usage(
                "empty",
                format!("at most {} bytes, the largest free piece of this rank's arena", heap.largest()),
                format!("{bytes} bytes"),
                "drop arrays made by empty() that are no longer needed",
            )
        })?;
        let end = taken - self.arena.layout.heap(self.index) + bytes.max(1).next_multiple_of(4096);
        self.place().stay.use_heap(end);
        Ok(taken)
    }

    pub(super) fn give_back(&self, start: usize, bytes: usize) {
        self.book().heap.give_back(start, bytes.saturating_add(4096));
    }

    /// Takes note of a channel that this seat founded and left: its memory comes back when the others have left too.
    pub(super) fn retire(&self, base: usize, members: usize) {
        self.book().retired.push((base, members));
    }

    /// Takes note of lanes that were given up: their memory comes back when they are taken up to these numbers.
    pub(super) fn linger(&self, start: usize, bytes: usize, lanes: Vec<(usize, u64)>) {
        let bytes = bytes.saturating_add(4096);
        self.book().lingering.push(Lingering { start, bytes, lanes });
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This process's name on locks in shared memory: its seat, and which process of that seat it is.
    pub fn token(&self) -> u32 {
        token(self.index, self.place().incarnation())
    }

    /// Whether the process behind a token is gone.
    pub fn is_dead(&self, token: u32) -> bool {
        let seat = ((token & ((1 << SEAT_BITS) - 1)) as usize).wrapping_sub(1);
        if seat >= self.arena.seats() {
            return true;
        }
        let place = self.arena.place(seat);
        self::token(seat, place.incarnation()) != token || place.process_ended()
    }

    /// Holds a lock for a moment; no deadline, because its holders never wait while they hold it.
    pub fn hold<'a>(&'a self, lock: &'a Lock) -> Result<Held<'a>> {
        lock.acquire(self.token(), None, |token| self.is_dead(token))?;
        Ok(Held(lock))
    }

    /// Leaves the seat in good order.
    pub fn leave(&self) {
        let place = self.place();
        // A forked child inherits the seat but not the right to leave it.
        if place.pid() == Some(process::own()) {
            place.stay.end();
            // Whoever waits for us shall notice at once, not at the next nap's end.
            (0..self.arena.seats()).for_each(|seat| self.arena.place(seat).bell.ring());
        }
    }
}

/// Why this process may not sit down at a place.
fn refusal(place: &Place, rank: usize, restarts: u32) -> Option<Error> {
    let pid = place.pid()?;
    let stay = &place.stay;
    let in_its_place = restarts > 0 && restarts == stay.restarts() && stay.process_ended();
    if in_its_place && stay.fate() == Fate::Returning {
        return None;
    }
    let (received, advice) = match (stay.lost(), stay.obstacle()) {
        (None, _) => (format!("process {pid} that has this rank already"), NOT_IN_CHILDREN),
        (Some(_), Some(obstacle)) if in_its_place => {
            (format!("restart {restarts} of rank {rank} (process {pid}: {obstacle})"), ALL_AGAIN)
        }
        (Some(how), _) => (format!("a second start of rank {rank} (process {pid}: {how})"), ONCE),
    };
    Some(Error::usage("init", format!("to be the only process of rank {rank}"), received, advice))
}

/// A wait that is on the notice board.
pub(crate) struct Noted<'a> {
    place: Option<&'a Place>,
    verb: Verb,
    number: u64,
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        self.place.inspect(|place| place.note(self.verb, self.number, NO_GROUP, false));
    }
}

/// The number of no group.
const NO_GROUP: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tokens_of_all_seats_differ_and_leave_the_lock_its_bit() {
        let mut tokens: Vec<u32> = (0..MOST_SEATS)
            .flat_map(|seat| [1, 2, PROCESS_MASK].map(|process| token(seat, process)))
            .collect();
        assert!(tokens.iter().all(|&token| token != 0 && token < 1 << 31));
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), 3 * MOST_SEATS);
    }
}
