//! SPSC buffers: memory that one rank packs and another unpacks, directly from and to their arrays. Protocol: README.md.

use std::sync::Arc;

use super::futex::{AtomicU64, Ordering};
use super::{Arena, LocalEndpoint};
use crate::error::Result;

/// Sequence numbers per message; each message starts at another multiple of it.
pub(crate) const STEPS: u64 = 256;

/// How many of a message's bytes are available after `steps` steps.
fn published_bytes(bytes: usize, steps: u64) -> usize {
    (bytes as u128 * u128::from(steps) / u128::from(STEPS)) as usize
}

/// A counter on its own cache lines.
#[repr(C, align(128))]
struct Counter(AtomicU64);

/// Ownership of a buffer: the sender's while both counters are equal, the receiver's while `published` is ahead.
#[repr(C)]
struct SpscCounters {
    published: Counter,
    consumed: Counter,
}

impl SpscCounters {
    fn is_published(&self, number: u64) -> bool {
        self.published.0.load(Ordering::Acquire) == number
    }

    /// Published steps of the message that ends with this number.
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
    // SAFETY: the buffer's creator put its counters there; they are atomic, and any bits are valid.
    unsafe { &*arena.range(offset, size_of::<SpscCounters>()).cast() }
}

/// Bytes before a buffer's data.
const HEAD: usize = size_of::<SpscCounters>();

/// The buffers that a rank fills, in its own heap.
pub(crate) struct Outbox {
    endpoint: Arc<LocalEndpoint>,
    start: usize,
    bytes: usize,
    buffers: Vec<SendBuffer>,
}

struct SendBuffer {
    offset: usize,
    bytes: usize,
    /// Local rank of the receiver.
    to: usize,
    /// The last complete message's sequence number.
    last: u64,
    /// Bytes filled so far of the current message.
    filled: usize,
}

impl Outbox {
    /// Creates buffers, each given by the receiver's local rank and its capacity in bytes.
    pub fn new(endpoint: &Arc<LocalEndpoint>, buffers: &[(usize, usize)]) -> Result<Outbox> {
        // Data of different ranks starts at different offsets within a page: copies between equal offsets are slow (4K aliasing).
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
            // SAFETY: the memory was just reserved, and no other rank knows of it yet.
            unsafe { endpoint.arena.range(offset, HEAD).write_bytes(0, HEAD) };
            SendBuffer { offset, bytes, to, last: 0, filled: 0 }
        };
        let buffers = buffers.iter().zip(&relative_offsets).map(buffer).collect();
        Ok(Outbox { endpoint: endpoint.clone(), start, bytes: end, buffers })
    }

    /// Offset at which the receiver finds a buffer, in bytes from the start of the arena.
    pub fn offset(&self, buffer: usize) -> usize {
        self.buffers[buffer].offset
    }

    /// Whether the receiver has consumed the last complete message, so that the buffer may be filled again.
    pub fn is_free(&self, buffer: usize) -> bool {
        let buffer = &self.buffers[buffer];
        counters(&self.endpoint.arena, buffer.offset).is_consumed(buffer.last)
    }

    /// Lets `fill` write the rest of a message of `bytes` bytes, or its next piece, and publishes what is filled. `fill` returns
    /// the number of bytes filled so far, as does this function. The message ends with `number`; the buffer must be free for its
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
        // SAFETY: the receiver has consumed the previous message, and touches only the published bytes of this one.
        let filled =
            fill(buffer.filled, unsafe { std::slice::from_raw_parts_mut(data, bytes - buffer.filled) });
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
            // The receiver may still be reading: the memory is freed once it has consumed everything.
            false => self.endpoint.defer_free(self.start, self.bytes, buffers),
        }
    }
}

/// Whether the receiver of a buffer has consumed this number.
pub(super) fn is_consumed(arena: &Arena, buffer: usize, number: u64) -> bool {
    counters(arena, buffer).is_consumed(number)
}

/// The buffers that a rank drains, in the heaps of their senders.
pub(crate) struct Inbox {
    endpoint: Arc<LocalEndpoint>,
    buffers: Vec<ReceiveBuffer>,
}

struct ReceiveBuffer {
    offset: usize,
    bytes: usize,
    /// Local rank of the sender.
    from: usize,
}

impl Inbox {
    /// Opens buffers, each given by the sender's local rank, its arena offset and its capacity in bytes.
    pub fn new(endpoint: &Arc<LocalEndpoint>, buffers: impl Iterator<Item = (usize, usize, usize)>) -> Inbox {
        let buffer = |(from, offset, bytes)| {
            // Panic here rather than at first use if a sender reported an invalid offset.
            endpoint.arena.range(offset, HEAD + bytes);
            ReceiveBuffer { offset, bytes, from }
        };
        Inbox { endpoint: endpoint.clone(), buffers: buffers.map(buffer).collect() }
    }

    /// Whether the sender has published all of the message that ends with this number.
    pub fn is_ready(&self, buffer: usize, number: u64) -> bool {
        counters(&self.endpoint.arena, self.buffers[buffer].offset).is_published(number)
    }

    /// Passes the available bytes of a message of `bytes` bytes that ends with this number to `read`, from byte `done` up to
    /// `limit`; returns the result of `read`, or `done` if no new bytes are available.
    pub fn read_available(
        &self,
        buffer: usize,
        number: u64,
        bytes: usize,
        (done, limit): (usize, usize),
        read: impl FnOnce(&[u8]) -> usize,
    ) -> usize {
        let ReceiveBuffer { offset, bytes: room, .. } = self.buffers[buffer];
        let available =
            published_bytes(bytes, counters(&self.endpoint.arena, offset).steps_of(number)).min(limit);
        assert!(bytes <= room);
        if available <= done {
            return done;
        }
        let data = self.endpoint.arena.range(offset + HEAD + done, available - done);
        // SAFETY: the sender has published these bytes and does not touch them until the message is consumed.
        read(unsafe { std::slice::from_raw_parts(data, available - done) })
    }

    /// Consumes the message that ends with this number and notifies the sender, which may then fill the buffer again.
    pub fn consume(&self, buffer: usize, number: u64) {
        self.discard(buffer, number);
        self.endpoint.arena.peer_slot(self.buffers[buffer].from).doorbell.ring();
    }

    /// Consumes a message without reading it and without notifying the sender.
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

    /// Loom fails if both threads access the data at once, or if one sleeps forever.
    #[test]
    fn sender_and_receiver_never_touch_the_data_at_once() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let counter = || Counter(AtomicU64::new(0));
            let counters = SpscCounters { published: counter(), consumed: counter() };
            let (sender, receiver) = (Flag::new(), Flag::new());
            let buffer =
                loom::sync::Arc::new(TestBuffer { counters, data: UnsafeCell::new(0), sender, receiver });
            let other = buffer.clone();
            let thread = loom::thread::spawn(move || {
                for number in 1..=2 {
                    wait(&other.receiver, || other.counters.is_published(number));
                    // SAFETY: published and not consumed.
                    assert_eq!(other.data.with(|data| unsafe { *data }), number);
                    other.counters.consume(number);
                    other.sender.ring();
                }
            });
            for number in 1..=2 {
                wait(&buffer.sender, || buffer.counters.is_consumed(number - 1));
                // SAFETY: every published message has been consumed.
                buffer.data.with_mut(|data| unsafe { *data = number });
                buffer.counters.publish(number);
                buffer.receiver.ring();
            }
            thread.join().unwrap();
        });
    }
}
