//! Where everything is in the arena: computed from the number of seats, so that all ranks agree without asking.

use super::peer_slot::PeerSlot;
use super::channel;
use super::shared_heap::SharedHeap;
use super::ring::Ring;
use crate::error::{Error, Result};

/// Every offset is in bytes from the start of the arena.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArenaLayout {
    /// How many ranks share the arena.
    pub local_size: usize,
    /// Bytes of each seat's heap.
    pub heap_bytes: usize,
    rings: usize,
    channel: usize,
    shared_heap: usize,
    heaps: usize,
}

/// The job's own memory is so many times as large as one seat's heap. Address space costs nothing.
const SHARED_HEAP_FACTOR: usize = 2;

/// Alignment of every section: a page, so that sections never share one.
const PAGE: usize = 4096;

/// Where the seats' places begin; the page before holds the header.
const PEER_SLOTS: usize = PAGE;

/// Bytes of each seat's heap: where address space is scarce, `UNISONO_HEAP` says how many megabytes.
pub(crate) fn heap_bytes(default: impl FnOnce() -> usize) -> Result<usize> {
    let setting = std::env::var_os("UNISONO_HEAP").map(|value| value.to_string_lossy().into_owned());
    heap_bytes_of(setting, default)
}

pub(crate) fn heap_bytes_of(setting: Option<String>, default: impl FnOnce() -> usize) -> Result<usize> {
    let Some(text) = setting.filter(|text| !text.is_empty()) else { return Ok(default()) };
    let bytes = text.parse::<usize>().ok().and_then(|number| number.checked_mul(1 << 20));
    bytes.filter(|&bytes| (1..=isize::MAX as usize >> 16).contains(&bytes)).ok_or_else(|| {
        let expected = "a number of megabytes in UNISONO_HEAP";
        Error::usage("init", expected, format!("{text:?}"), "write for example 1024, or unset it")
    })
}

impl ArenaLayout {
    pub fn new(local_size: usize, heap_bytes: usize) -> ArenaLayout {
        let heap_bytes = heap_bytes.next_multiple_of(PAGE);
        let rings = (PEER_SLOTS + local_size * size_of::<PeerSlot>()).next_multiple_of(PAGE);
        let channel = (rings + local_size * local_size * size_of::<Ring>()).next_multiple_of(PAGE);
        let shared_heap = (channel + channel::bytes(local_size)).next_multiple_of(PAGE);
        let heaps = (shared_heap + size_of::<SharedHeap>()).next_multiple_of(PAGE);
        ArenaLayout { local_size, heap_bytes, rings, channel, shared_heap, heaps }
    }

    pub fn peer_slot(&self, local_rank: usize) -> usize {
        PEER_SLOTS + local_rank * size_of::<PeerSlot>()
    }

    /// The ring that carries bytes from one seat to another.
    pub fn ring(&self, from: usize, to: usize) -> usize {
        self.rings + (from * self.local_size + to) * size_of::<Ring>()
    }

    /// The channel of the group of all seats.
    pub fn channel(&self) -> usize {
        self.channel
    }

    /// The book of the job's own memory.
    pub fn shared_heap(&self) -> usize {
        self.shared_heap
    }

    /// Where the job's own memory begins and ends.
    pub fn shared_heap_range(&self) -> (usize, usize) {
        (self.heap(self.local_size), self.total())
    }

    pub fn heap(&self, local_rank: usize) -> usize {
        self.heaps + local_rank * self.heap_bytes
    }

    /// Bytes of the whole arena.
    pub fn total(&self) -> usize {
        self.heap(self.local_size + SHARED_HEAP_FACTOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_size_can_be_set() {
        let of = |setting: Option<&str>| heap_bytes_of(setting.map(str::to_owned), || 7);
        assert_eq!((of(None).unwrap(), of(Some("")).unwrap(), of(Some("256")).unwrap()), (7, 7, 256 << 20));
        for wrong in ["0", "-1", "much", "1.5", "99999999999999999999", "18446744073709551615"] {
            let error = of(Some(wrong)).unwrap_err().to_string();
            assert!(error.contains("UNISONO_HEAP") && error.contains(wrong), "{error}");
        }
    }
}
