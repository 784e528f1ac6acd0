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
use super::{Arena, LocalEndpoint};
use crate::error::Result;

/// The numbers of a load; those of another begin at another multiple of it.
pub(crate) const STEPS: u64 = 256;

/// The part of a load of so many bytes that is there after these of its steps.
fn published_bytes(bytes: usize, steps: u64) -> usize {
    (bytes as u128 * u128::from(steps) / u128::from(STEPS)) as usize
}

/// A counter on cache lines of its own.
#[repr(C, align(128))]
struct Counter(AtomicU64);

/// Who may touch a lane: its sender while both counters are equal, its receiver while the first is ahead.
#[repr(C)]
struct SpscCounters {
    published: Counter,
    consumed: Counter,
}

impl SpscCounters {
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

    fn is_consumed(&self, number: u64) -> bool {
        self.consumed.0.load(Ordering::Acquire) >= number
    }

    fn consume(&self, number: u64) {
        self.consumed.0.store(number, Ordering::Release);
    }
}

fn counters(arena: &Arena, offset: usize) -> &SpscCounters {
    assert!(offset.is_multiple_of(align_of::<SpscCounters>()));
    // SAFETY: whoever made the lane put its counters there; they are atomic, and any bits are valid.
    unsafe { &*arena.range(offset, size_of::<SpscCounters>()).cast() }
}

/// Bytes before a lane's data.
const HEAD: usize = size_of::<SpscCounters>();

/// The lanes that a rank fills, in its own heap.
pub(crate) struct Outbox {
    endpoint: Arc<LocalEndpoint>,
    start: usize,
    bytes: usize,
    buffers: Vec<SendBuffer>,
}

struct SendBuffer {
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
    pub fn new(endpoint: &Arc<LocalEndpoint>, buffers: &[(usize, usize)]) -> Result<Outbox> {
        // Ranks' data begins at different places within a page: equal ones are slow to copy between.
        let mut end = endpoint.local_rank * 4096 / endpoint.arena.local_size() / 128 * 128;
        let relative_offsets: Vec<usize> = buffers
            .iter()
            .map(|(_, bytes)| {
                let relative_offset = end;
                end = (relative_offset + HEAD + bytes).next_multiple_of(align_of::<SpscCounters>());
                relative_offset
            })
            .collect();
        let start = endpoint.reserve(end.saturating_add(4096))?;
        let buffer = |(&(to, bytes), relative_offset): (&(usize, usize), &usize)| {
            let offset = start + relative_offset;
            // SAFETY: the memory was just reserved, and nobody else knows of it yet.
            unsafe { endpoint.arena.range(offset, HEAD).write_bytes(0, HEAD) };
            SendBuffer { offset, bytes, to, last: 0, filled: 0 }
        };
        let buffers = buffers.iter().zip(&relative_offsets).map(buffer).collect();
        Ok(Outbox { endpoint: endpoint.clone(), start, bytes: end, buffers })
    }

    /// Where the receiver finds a lane, in bytes from the start of the arena.
    pub fn offset(&self, buffer: usize) -> usize {
        self.buffers[buffer].offset
    }

    /// Whether the receiver has taken what was published last, so that the lane may be filled again.
    pub fn is_free(&self, buffer: usize) -> bool {
        let buffer = &self.buffers[buffer];
        counters(&self.endpoint.arena, buffer.offset).is_consumed(buffer.last)
    }

    /// Lets `fill` write the rest of a load of so many bytes, or the next piece of it, and publishes what is there: `fill`
    /// says how many bytes of the load are. Gives the same. The load ends with `number`; the lane must be free for its
    /// first piece.
    pub fn send(
        &mut self,
        buffer: usize,
        number: u64,
        bytes: usize,
        fill: impl FnOnce(usize, &mut [u8]) -> usize,
    ) -> usize {
        let free = self.is_free(buffer);
        let buffer = &mut self.buffers[buffer];
        assert!((free || buffer.filled > 0) && buffer.filled <= bytes && bytes <= buffer.bytes);
        let data = self.endpoint.arena.range(buffer.offset + HEAD + buffer.filled, bytes - buffer.filled);
        // SAFETY: the receiver has taken the last load, and of this one touches only what has been published.
        let filled = fill(buffer.filled, unsafe { std::slice::from_raw_parts_mut(data, bytes - buffer.filled) });
        assert!(buffer.filled <= filled && filled <= bytes);
        let counters = counters(&self.endpoint.arena, buffer.offset);
        if filled == bytes {
            (buffer.last, buffer.filled) = (number, 0);
            counters.publish(number);
            self.endpoint.arena.peer_slot(buffer.to).doorbell.ring();
        } else {
            buffer.filled = filled;
            let steps = (filled as u128 * u128::from(STEPS) / bytes as u128) as u64;
            counters.publish(number - STEPS + steps);
        }
        filled
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        let waiting = self.buffers.iter().map(|buffer| (buffer.offset, buffer.last));
        let buffers: Vec<_> =
            waiting.filter(|&(offset, last)| !is_consumed(&self.endpoint.arena, offset, last)).collect();
        match buffers.is_empty() {
            true => self.endpoint.release(self.start, self.bytes),
            // Somebody may still be reading: the memory comes back when nobody does.
            false => self.endpoint.defer_free(self.start, self.bytes, buffers),
        }
    }
}

/// Whether the receiver of a lane has taken this number.
pub(super) fn is_consumed(arena: &Arena, buffer: usize, number: u64) -> bool {
    counters(arena, buffer).is_consumed(number)
}

/// The lanes that a rank empties, in the heaps of their senders.
pub(crate) struct Inbox {
    endpoint: Arc<LocalEndpoint>,
    buffers: Vec<ReceiveBuffer>,
}

struct ReceiveBuffer {
    offset: usize,
    bytes: usize,
    /// The seat of the sender.
    from: usize,
}

impl Inbox {
    /// The lanes from these seats, at these offsets, with room for so many bytes each.
    pub fn new(endpoint: &Arc<LocalEndpoint>, buffers: impl Iterator<Item = (usize, usize, usize)>) -> Inbox {
        let buffer = |(from, offset, bytes)| {
            // Ends the program here rather than at the first use, should a sender tell nonsense.
            endpoint.arena.range(offset, HEAD + bytes);
            ReceiveBuffer { offset, bytes, from }
        };
        Inbox { endpoint: endpoint.clone(), buffers: buffers.map(buffer).collect() }
    }

    /// Whether the sender has published all of the load that ends with this number.
    pub fn is_ready(&self, buffer: usize, number: u64) -> bool {
        counters(&self.endpoint.arena, self.buffers[buffer].offset).is_published(number)
    }

    /// Lets `read` see what is there of a load of so many bytes that ends with this number, from the byte `done` on and not
    /// beyond `limit`; gives what `read` does.
    pub fn read_available(
        &self,
        buffer: usize,
        number: u64,
        bytes: usize,
        (done, limit): (usize, usize),
        read: impl FnOnce(&[u8]) -> usize,
    ) -> usize {
        let ReceiveBuffer { offset, bytes: room, .. } = self.buffers[buffer];
        let available = published_bytes(bytes, counters(&self.endpoint.arena, offset).steps_of(number)).min(limit);
        assert!(bytes <= room);
        if available <= done {
            return done;
        }
        let data = self.endpoint.arena.range(offset + HEAD + done, available - done);
        // SAFETY: the sender has published these bytes and does not touch them until the load is taken.
        read(unsafe { std::slice::from_raw_parts(data, available - done) })
    }

    /// Takes the load that ends with this number: the sender may fill the lane again.
    pub fn consume(&self, buffer: usize, number: u64) {
        self.discard(buffer, number);
        self.endpoint.arena.peer_slot(self.buffers[buffer].from).doorbell.ring();
    }

    /// Takes a number without looking at it.
    pub fn discard(&self, buffer: usize, number: u64) {
        counters(&self.endpoint.arena, self.buffers[buffer].offset).consume(number);
    }
}

#[cfg(all(test, not(unisono_loom)))]
mod tests {
    use super::*;
    use crate::transport::local;

    #[test]
    fn a_buffer_is_filled_and_drained_in_turn_and_its_memory_is_reused() {
        let transports = local::create(2).unwrap();
        let (one, other) = (&transports[0].endpoint, &transports[1].endpoint);
        let free = one.reserve(4097).unwrap();
        one.release(free, 1);
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
            for message in 1..5 {
                let number = message * STEPS;
                assert!(outbox.is_free(0) && !inbox.is_ready(0, number));
                assert_eq!(outbox.send(0, number, 7, fill(message as u8, 7)), 7);
                assert!(!outbox.is_free(0) && inbox.is_ready(0, number));
                let seen = |bytes: &[u8]| {
                    assert_eq!(bytes, [message as u8; 7]);
                    7
                };
                assert_eq!(inbox.read_available(0, number, 7, (0, 7), seen), 7);
                inbox.consume(0, number);
            }
            let number = 5 * STEPS;
            let mut done = 0;
            while done < 1000 {
                let filled = outbox.send(0, number, 1000, fill(9, 90));
                let mut seen = 0;
                done = inbox.read_available(0, number, 1000, (done, 1000), |bytes| {
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
            inbox.read_available(0, number, 1000, (0, 1000), |bytes| {
                assert!(bytes.iter().all(|&byte| byte == 9), "still there");
                bytes.len()
            });
            inbox.consume(0, number);
            one.release(beyond, 1);
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

    struct TestBuffer {
        counters: SpscCounters,
        data: UnsafeCell<u64>,
        sender: Flag,
        receiver: Flag,
    }

    fn wait(doorbell: &Flag, done: impl Fn() -> bool) {
        loop {
            let seen = doorbell.load();
            if done() {
                return;
            }
            doorbell.sleep_while(seen, Duration::MAX);
        }
    }

    /// Loom fails if both touch the data at once, or if one sleeps for ever.
    #[test]
    fn sender_and_receiver_never_touch_the_data_at_once() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let counter = || Counter(AtomicU64::new(0));
            let counters = SpscCounters { published: counter(), consumed: counter() };
            let (sender, receiver) = (Flag::new(), Flag::new());
            let buffer = loom::sync::Arc::new(TestBuffer { counters, data: UnsafeCell::new(0), sender, receiver });
            let other = buffer.clone();
            let thread = loom::thread::spawn(move || {
                for number in 1..=2 {
                    wait(&other.receiver, || other.counters.is_published(number));
                    // SAFETY: published and not taken.
                    assert_eq!(other.data.with(|data| unsafe { *data }), number);
                    other.counters.consume(number);
                    other.sender.ring();
                }
            });
            for number in 1..=2 {
                wait(&buffer.sender, || buffer.counters.is_consumed(number - 1));
                // SAFETY: everything published was taken.
                buffer.data.with_mut(|data| unsafe { *data = number });
                buffer.counters.publish(number);
                buffer.receiver.ring();
            }
            thread.join().unwrap();
        });
    }
}
