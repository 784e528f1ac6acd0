//! Memory of messages outside any exchange, reused from one message to the next because writing to fresh pages is slow.

use std::time::{Duration, Instant};

/// Shorter buffers are not kept: the allocator reuses them well enough.
const SMALLEST: usize = 128 << 10;
/// The most memory that is kept.
const MAX_BYTES: usize = 128 << 20;
/// Memory that was not used for this long is freed.
const KEPT: Duration = Duration::from_secs(1);

/// Buffers without a message.
pub(super) struct BufferPool {
    free: Vec<Vec<u8>>,
    bytes: usize,
    last_use: Instant,
}

impl BufferPool {
    pub fn new() -> BufferPool {
        BufferPool { free: Vec::new(), bytes: 0, last_use: Instant::now() }
    }

    /// A buffer of this length with any content; the one used last, which is most likely still in a cache.
    pub fn take(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let fits = |buffer: &Vec<u8>| (bytes..=2 * bytes).contains(&buffer.capacity());
        let mut buffer = self.free.remove(self.free.iter().rposition(fits)?);
        self.bytes -= buffer.capacity();
        self.last_use = Instant::now();
        buffer.resize(bytes, 0);
        Some(buffer)
    }

    /// Keeps a buffer, unless it is too small or there are enough.
    pub fn put(&mut self, buffer: Vec<u8>) {
        if buffer.capacity() >= SMALLEST && self.bytes + buffer.capacity() <= MAX_BYTES {
            self.bytes += buffer.capacity();
            self.last_use = Instant::now();
            self.free.push(buffer);
        }
    }

    /// Frees everything if it was not used for a while.
    pub fn trim(&mut self) {
        if !self.free.is_empty() && self.last_use.elapsed() > KEPT {
            *self = BufferPool::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_reused_for_messages_of_their_size_and_freed_when_idle() {
        let mut pool = BufferPool::new();
        assert_eq!(pool.take(SMALLEST), None);
        pool.put(vec![1; SMALLEST - 1]);
        assert_eq!(pool.bytes, 0, "too small");
        pool.put(vec![1; SMALLEST]);
        pool.put(vec![2; 2 * SMALLEST]);
        assert_eq!(pool.take(SMALLEST / 3), None, "too much memory for such a message");
        assert_eq!(pool.take(2 * SMALLEST + 1), None);
        assert_eq!(pool.take(SMALLEST), Some(vec![2; SMALLEST]), "the last one that fits");
        assert_eq!(pool.take(SMALLEST - 5).map(|buffer| buffer.len()), Some(SMALLEST - 5));
        assert_eq!(pool.bytes, 0);
        (0..3).for_each(|_| pool.put(Vec::with_capacity(MAX_BYTES / 2)));
        assert_eq!(pool.free.len(), 2, "no more than that much memory is kept");
        pool.trim();
        assert_eq!(pool.free.len(), 2);
        pool.last_use = Instant::now() - 2 * KEPT;
        pool.trim();
        assert_eq!((pool.free.len(), pool.bytes), (0, 0));
    }
}
