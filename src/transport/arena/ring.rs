//! Lock-free SPSC ring buffer that carries a byte stream from one local rank to another.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Capacity of a ring in bytes; large messages stream through it while it stays in the cache.
pub(crate) const CAPACITY: usize = 128 * 1024;

/// The counters only grow; `written - read` is the number of bytes in the ring. Neither side trusts the other's counter, because
/// the other process may be corrupted: every position computed from it stays inside the ring.
#[repr(C, align(128))]
pub(crate) struct Ring {
    written: Counter,
    read: Counter,
    data: UnsafeCell<[u8; CAPACITY]>,
}

#[repr(C, align(128))]
struct Counter(AtomicU64);

// SAFETY: the writer touches only the free part and the reader only the filled part; the counters hand bytes over with
// release and acquire.
unsafe impl Sync for Ring {}

impl Ring {
    /// Writes as many of `bytes` as fit and returns how many. Only the single writer may call this.
    pub fn write(&self, bytes: &[u8]) -> usize {
        let written = self.written.0.load(Ordering::Relaxed);
        let waiting = written.wrapping_sub(self.read.0.load(Ordering::Acquire));
        let free = (CAPACITY as u64).saturating_sub(waiting) as usize;
        let count = bytes.len().min(free);
        let (first, second) = split(written, count);
        let data = self.data.get().cast::<u8>();
        // SAFETY: both pieces are inside `data` and in its free part, which only the writer touches.
        unsafe {
            bytes.as_ptr().copy_to_nonoverlapping(data.add(first.0), first.1);
            bytes.as_ptr().add(first.1).copy_to_nonoverlapping(data, second);
        }
        self.written.0.store(written.wrapping_add(count as u64), Ordering::Release);
        count
    }

    /// Reads up to `room` bytes from the ring to `target` and returns how many. Only the single reader may call this.
    ///
    /// # Safety
    /// `target` is valid for writing `room` bytes.
    pub unsafe fn read(&self, target: *mut u8, room: usize) -> usize {
        let read = self.read.0.load(Ordering::Relaxed);
        let count = room.min(self.waiting().unwrap_or(0));
        let (first, second) = split(read, count);
        let data = self.data.get().cast::<u8>();
        // SAFETY: both pieces are inside `data` and in its filled part, which only the reader touches; the caller
        // vouches for the target.
        unsafe {
            target.copy_from_nonoverlapping(data.add(first.0), first.1);
            target.add(first.1).copy_from_nonoverlapping(data, second);
        }
        self.read.0.store(read.wrapping_add(count as u64), Ordering::Release);
        count
    }

    /// Number of bytes available to the reader; `None` if the counters are inconsistent.
    pub fn waiting(&self) -> Option<usize> {
        let waiting =
            self.written.0.load(Ordering::Acquire).wrapping_sub(self.read.0.load(Ordering::Relaxed));
        (waiting <= CAPACITY as u64).then_some(waiting as usize)
    }

    /// Simulates a corrupted process that changes the counters.
    #[cfg(test)]
    pub fn forge(&self, written: u64, read: u64) {
        self.written.0.fetch_add(written, Ordering::Relaxed);
        self.read.0.fetch_add(read, Ordering::Relaxed);
    }
}

/// Location of `count` bytes from position `at`: offset and length of the first piece, length of the second, at offset 0.
fn split(at: u64, count: usize) -> ((usize, usize), usize) {
    let start = at as usize % CAPACITY;
    let first = count.min(CAPACITY - start);
    ((start, first), count - first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_arrives_whole_and_in_order() {
        // SAFETY: a ring of zeroes is an empty ring.
        let ring: Box<Ring> = unsafe { Box::new_zeroed().assume_init() };
        let bytes: Vec<u8> = (0..CAPACITY * 5 + 77).map(|i| (i * 7 / 3) as u8).collect();
        let mut received = vec![0; bytes.len()];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut sent = 0;
                while sent < bytes.len() {
                    sent += ring.write(&bytes[sent..bytes.len().min(sent + 1000 + sent % 90_000)]);
                }
            });
            let mut got = 0;
            while got < received.len() {
                let room = &mut received[got..];
                // SAFETY: the target is the rest of `received`.
                got += unsafe { ring.read(room.as_mut_ptr(), room.len().min(70_001)) };
            }
        });
        assert!(received == bytes);
        assert_eq!(ring.waiting(), Some(0));
    }
}
