//! Lanes: room in shared memory that one rank packs and another unpacks, straight from and to their arrays.
//!
//! A lane is handed over by two counters. The sender fills it and publishes a number; the receiver empties it and takes that
//! number; only then may the sender fill it again. Each rings the other's bell, which never goes away, so that a lane may.
//!
//! Loads have growing numbers, with gaps: both ranks know them, so that neither takes another load for the one it waits for.
//! A load is [`STEPS`] numbers. The sender may publish some of them before the rest is filled; then that share of the bytes is
//! the receiver's to read. Bells ring when all is there: who has nothing else to do waits for the whole load.

use std::sync::Arc;

use super::futex::{AtomicU64, Ordering};
use super::{Arena, Seat};
use crate::error::Result;

/// The numbers of a load; those of another begin at another multiple of it.
pub(crate) const STEPS: u64 = 256;

/// The part of a load of so many bytes that is there after these of its steps.
fn share(bytes: usize, steps: u64) -> usize {
    (bytes as u128 * u128::from(steps) / u128::from(STEPS)) as usize
}

/// A counter on cache lines of its own.
#[repr(C, align(128))]
struct Counter(AtomicU64);

/// Who may touch a lane: its sender while both counters are equal, its receiver while the first is ahead.
#[repr(C)]
struct Handover {
    published: Counter,
    taken: Counter,
}

impl Handover {
    fn is_published(&self, number: u64) -> bool {
        self.published.0.load(Ordering::Acquire) == number
    }

    /// How many steps of the load that ends with this number are there.
    fn steps_of(&self, number: u64) -> u64 {
        let published = self.published.0.load(Ordering::Acquire);
        if published > number { 0 } else { (published + STEPS).saturating_sub(number) }
    }

    fn publish(&self, number: u64) {
        self.published.0.store(number, Ordering::Release);
    }

    fn is_taken(&self, number: u64) -> bool {
        self.taken.0.load(Ordering::Acquire) >= number
    }

    fn take(&self, number: u64) {
        self.taken.0.store(number, Ordering::Release);
    }
}

fn handover(arena: &Arena, offset: usize) -> &Handover {
    assert!(offset.is_multiple_of(align_of::<Handover>()));
    // SAFETY: whoever made the lane put its counters there; they are atomic, and any bits are valid.
    unsafe { &*arena.range(offset, size_of::<Handover>()).cast() }
}

/// Bytes before a lane's data.
const HEAD: usize = size_of::<Handover>();

/// The lanes that a rank fills, in its own heap.
pub(crate) struct Outbox {
    seat: Arc<Seat>,
    start: usize,
    bytes: usize,
    lanes: Vec<OutLane>,
}

struct OutLane {
    offset: usize,
    bytes: usize,
    /// The seat of the receiver.
    to: usize,
    /// The number that was published last.
    last: u64,
    /// Bytes of the load that is being filled.
    filled: usize,
}

impl Outbox {
    /// Lanes to these seats, with room for so many bytes each.
    pub fn new(seat: &Arc<Seat>, lanes: &[(usize, usize)]) -> Result<Outbox> {
        // Ranks' data begins at different places within a page: equal ones are slow to copy between.
        let mut end = seat.index * 4096 / seat.arena.seats() / 128 * 128;
        let places: Vec<usize> = lanes
            .iter()
            .map(|(_, bytes)| {
                let place = end;
                end = (place + HEAD + bytes).next_multiple_of(align_of::<Handover>());
                place
            })
            .collect();
        let start = seat.reserve(end.saturating_add(4096))?;
        let lane = |(&(to, bytes), place): (&(usize, usize), &usize)| {
            let offset = start + place;
            // SAFETY: the memory was just reserved, and nobody else knows of it yet.
            unsafe { seat.arena.range(offset, HEAD).write_bytes(0, HEAD) };
            OutLane { offset, bytes, to, last: 0, filled: 0 }
        };
        let lanes = lanes.iter().zip(&places).map(lane).collect();
        Ok(Outbox { seat: seat.clone(), start, bytes: end, lanes })
    }

    /// Where the receiver finds a lane, in bytes from the start of the arena.
    pub fn offset(&self, lane: usize) -> usize {
        self.lanes[lane].offset
    }

    /// Whether the receiver has taken what was published last, so that the lane may be filled again.
    pub fn is_free(&self, lane: usize) -> bool {
        let lane = &self.lanes[lane];
        handover(&self.seat.arena, lane.offset).is_taken(lane.last)
    }

    /// Lets `fill` write the rest of a load of so many bytes, or the next piece of it, and publishes what is there: `fill`
    /// says how many bytes of the load are. Gives the same. The load ends with `number`; the lane must be free for its
    /// first piece.
    pub fn send(
        &mut self,
        lane: usize,
        number: u64,
        bytes: usize,
        fill: impl FnOnce(usize, &mut [u8]) -> usize,
    ) -> usize {
        let free = self.is_free(lane);
        let lane = &mut self.lanes[lane];
        assert!((free || lane.filled > 0) && lane.filled <= bytes && bytes <= lane.bytes);
        let data = self.seat.arena.range(lane.offset + HEAD + lane.filled, bytes - lane.filled);
        // SAFETY: the receiver has taken the last load, and of this one touches only what has been published.
        let filled = fill(lane.filled, unsafe { std::slice::from_raw_parts_mut(data, bytes - lane.filled) });
        assert!(lane.filled <= filled && filled <= bytes);
        let handover = handover(&self.seat.arena, lane.offset);
        if filled == bytes {
            (lane.last, lane.filled) = (number, 0);
            handover.publish(number);
            self.seat.arena.place(lane.to).bell.ring();
        } else {
            lane.filled = filled;
            let steps = (filled as u128 * u128::from(STEPS) / bytes as u128) as u64;
            handover.publish(number - STEPS + steps);
        }
        filled
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        let waiting = self.lanes.iter().map(|lane| (lane.offset, lane.last));
        let lanes: Vec<_> =
            waiting.filter(|&(offset, last)| !is_taken(&self.seat.arena, offset, last)).collect();
        match lanes.is_empty() {
            true => self.seat.give_back(self.start, self.bytes),
            // Somebody may still be reading: the memory comes back when nobody does.
            false => self.seat.linger(self.start, self.bytes, lanes),
        }
    }
}

/// Whether the receiver of a lane has taken this number.
pub(super) fn is_taken(arena: &Arena, lane: usize, number: u64) -> bool {
    handover(arena, lane).is_taken(number)
}

/// The lanes that a rank empties, in the heaps of their senders.
pub(crate) struct Inbox {
    seat: Arc<Seat>,
    lanes: Vec<InLane>,
}

struct InLane {
    offset: usize,
    bytes: usize,
    /// The seat of the sender.
    from: usize,
}

impl Inbox {
    /// The lanes from these seats, at these offsets, with room for so many bytes each.
    pub fn new(seat: &Arc<Seat>, lanes: impl Iterator<Item = (usize, usize, usize)>) -> Inbox {
        let lane = |(from, offset, bytes)| {
            // Ends the program here rather than at the first use, should a sender tell nonsense.
            seat.arena.range(offset, HEAD + bytes);
            InLane { offset, bytes, from }
        };
        Inbox { seat: seat.clone(), lanes: lanes.map(lane).collect() }
    }

    /// Whether the sender has published all of the load that ends with this number.
    pub fn is_ready(&self, lane: usize, number: u64) -> bool {
        handover(&self.seat.arena, self.lanes[lane].offset).is_published(number)
    }

    /// Lets `read` see what is there of a load of so many bytes that ends with this number, from the byte `done` on and not
    /// beyond `limit`; gives what `read` does.
    pub fn look(
        &self,
        lane: usize,
        number: u64,
        bytes: usize,
        (done, limit): (usize, usize),
        read: impl FnOnce(&[u8]) -> usize,
    ) -> usize {
        let InLane { offset, bytes: room, .. } = self.lanes[lane];
        let there = share(bytes, handover(&self.seat.arena, offset).steps_of(number)).min(limit);
        assert!(bytes <= room);
        if there <= done {
            return done;
        }
        let data = self.seat.arena.range(offset + HEAD + done, there - done);
        // SAFETY: the sender has published these bytes and does not touch them until the load is taken.
        read(unsafe { std::slice::from_raw_parts(data, there - done) })
    }

    /// Takes the load that ends with this number: the sender may fill the lane again.
    pub fn take(&self, lane: usize, number: u64) {
        self.forget(lane, number);
        self.seat.arena.place(self.lanes[lane].from).bell.ring();
    }

    /// Takes a number without looking at it.
    pub fn forget(&self, lane: usize, number: u64) {
        handover(&self.seat.arena, self.lanes[lane].offset).take(number);
    }
}

#[cfg(all(test, not(unisono_loom)))]
mod tests {
    use super::*;
    use crate::transport::local;

    #[test]
    fn a_lane_is_filled_and_emptied_in_turn_and_its_memory_comes_back() {
        let transports = local::create(2).unwrap();
        let (one, other) = (&transports[0].seat, &transports[1].seat);
        let free = one.reserve(4097).unwrap();
        one.give_back(free, 1);
        for _ in 0..3 {
            let mut outbox = Outbox::new(one, &[(1, 1000), (1, 0)]).unwrap();
            let inbox = Inbox::new(other, [(0, outbox.offset(0), 1000)].into_iter());
            let fill = |value: u8, most: usize| {
                move |done: usize, room: &mut [u8]| {
                    let bytes = room.len().min(most);
                    room[..bytes].fill(value);
                    done + bytes
                }
            };
            for load in 1..5 {
                let number = load * STEPS;
                assert!(outbox.is_free(0) && !inbox.is_ready(0, number));
                assert_eq!(outbox.send(0, number, 7, fill(load as u8, 7)), 7);
                assert!(!outbox.is_free(0) && inbox.is_ready(0, number));
                let seen = |bytes: &[u8]| {
                    assert_eq!(bytes, [load as u8; 7]);
                    7
                };
                assert_eq!(inbox.look(0, number, 7, (0, 7), seen), 7);
                inbox.take(0, number);
            }
            let number = 5 * STEPS;
            let mut done = 0;
            while done < 1000 {
                let filled = outbox.send(0, number, 1000, fill(9, 90));
                let mut seen = 0;
                done = inbox.look(0, number, 1000, (done, 1000), |bytes| {
                    assert!(bytes.iter().all(|&byte| byte == 9), "only what is there");
                    seen = bytes.len();
                    done + seen
                });
                assert!(done <= filled && done + 1000usize.div_ceil(STEPS as usize) >= filled);
                assert_eq!(inbox.is_ready(0, number), filled == 1000);
                assert!(!outbox.is_free(0) || filled < 1000);
            }
            drop(outbox);
            let beyond = one.reserve(4097).unwrap();
            inbox.look(0, number, 1000, (0, 1000), |bytes| {
                assert!(bytes.iter().all(|&byte| byte == 9), "still there");
                bytes.len()
            });
            inbox.take(0, number);
            one.give_back(beyond, 1);
        }
        let again = one.reserve(1 << 20).unwrap();
        assert_eq!(again, free, "all of it came back");
    }
}

#[cfg(all(test, unisono_loom))]
mod tests {
    use super::super::flag::Flag;
    use super::*;
    use loom::cell::UnsafeCell;
    use std::time::Duration;

    struct Lane {
        handover: Handover,
        data: UnsafeCell<u64>,
        sender: Flag,
        receiver: Flag,
    }

    fn wait(bell: &Flag, done: impl Fn() -> bool) {
        loop {
            let seen = bell.load();
            if done() {
                return;
            }
            bell.sleep_while(seen, Duration::MAX);
        }
    }

    /// Loom fails if both touch the data at once, or if one sleeps for ever.
    #[test]
    fn nobody_touches_a_lane_that_is_not_theirs() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let counter = || Counter(AtomicU64::new(0));
            let handover = Handover { published: counter(), taken: counter() };
            let (sender, receiver) = (Flag::new(), Flag::new());
            let lane = loom::sync::Arc::new(Lane { handover, data: UnsafeCell::new(0), sender, receiver });
            let other = lane.clone();
            let thread = loom::thread::spawn(move || {
                for number in 1..=2 {
                    wait(&other.receiver, || other.handover.is_published(number));
                    // SAFETY: published and not taken.
                    assert_eq!(other.data.with(|data| unsafe { *data }), number);
                    other.handover.take(number);
                    other.sender.ring();
                }
            });
            for number in 1..=2 {
                wait(&lane.sender, || lane.handover.is_taken(number - 1));
                // SAFETY: everything published was taken.
                lane.data.with_mut(|data| unsafe { *data = number });
                lane.handover.publish(number);
                lane.receiver.ring();
            }
            thread.join().unwrap();
        });
    }
}
