//! Offsets of all sections of the arena, computed from the number of local ranks, so that all ranks agree without communication.

use super::channel;
use super::peer_slot::PeerSlot;
use super::ring::Ring;
use super::shared_heap::SharedHeap;
use crate::error::{Error, Result};

/// Section offsets, in bytes from the start of the arena.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArenaLayout {
    /// Number of ranks that share the arena.
    pub local_size: usize,
    /// Bytes of each local rank's heap.
    pub heap_bytes: usize,
    rings: usize,
    channel: usize,
    shared_heap: usize,
    heaps: usize,
}

/// Size of the shared heap, in multiples of one rank's heap. Unused address space costs nothing.
const SHARED_HEAP_FACTOR: usize = 2;

/// Alignment of every section: a page, so that no page belongs to two sections.
const PAGE: usize = 4096;

/// Offset of the peer slots; the page before them holds the header.
const PEER_SLOTS: usize = PAGE;

/// Bytes of each local rank's heap. `UNISONO_HEAP`, in megabytes, overrides the default where address space is scarce.
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

    /// Offset of the ring that carries bytes from one local rank to another.
    pub fn ring(&self, from: usize, to: usize) -> usize {
        self.rings + (from * self.local_size + to) * size_of::<Ring>()
    }

    /// Offset of the host-wide channel.
    pub fn channel(&self) -> usize {
        self.channel
    }

    /// Offset of the shared heap's extent list.
    pub fn shared_heap(&self) -> usize {
        self.shared_heap
    }

    /// Start and end offset of the shared heap's memory.
    pub fn shared_heap_range(&self) -> (usize, usize) {
        (self.heap(self.local_size), self.total())
    }

    pub fn heap(&self, local_rank: usize) -> usize {
        self.heaps + local_rank * self.heap_bytes
    }

    /// Bytes of the complete arena.
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
