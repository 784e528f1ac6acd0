//! Where everything is in the arena: computed from the number of seats, so that all ranks agree without asking.

use super::board::Place;
use super::channel;
use super::commons::Commons;
use super::ring::Ring;
use crate::error::{Error, Result};

/// Every offset is in bytes from the start of the arena.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// How many ranks share the arena.
    pub seats: usize,
    /// Bytes of each seat's heap.
    pub heap_bytes: usize,
    rings: usize,
    channel: usize,
    commons: usize,
    heaps: usize,
}

/// The job's own memory is so many times as large as one seat's heap. Address space costs nothing.
const COMMONS: usize = 2;

/// Alignment of every section: a page, so that sections never share one.
const PAGE: usize = 4096;

/// Where the seats' places begin; the page before holds the header.
const PLACES: usize = PAGE;

/// Bytes of each seat's heap: where address space is scarce, `UNISONO_HEAP` says how many megabytes.
pub(crate) fn heap_bytes(default: impl FnOnce() -> usize) -> Result<usize> {
    let wish = std::env::var_os("UNISONO_HEAP").map(|value| value.to_string_lossy().into_owned());
    heap_bytes_of(wish, default)
}

pub(crate) fn heap_bytes_of(wish: Option<String>, default: impl FnOnce() -> usize) -> Result<usize> {
    let Some(text) = wish.filter(|text| !text.is_empty()) else { return Ok(default()) };
    let bytes = text.parse::<usize>().ok().and_then(|number| number.checked_mul(1 << 20));
    bytes.filter(|&bytes| (1..=isize::MAX as usize >> 16).contains(&bytes)).ok_or_else(|| {
        let expected = "a number of megabytes in UNISONO_HEAP";
        Error::usage("init", expected, format!("{text:?}"), "write for example 1024, or unset it")
    })
}

impl Layout {
    pub fn new(seats: usize, heap_bytes: usize) -> Layout {
        let heap_bytes = heap_bytes.next_multiple_of(PAGE);
        let rings = (PLACES + seats * size_of::<Place>()).next_multiple_of(PAGE);
        let channel = (rings + seats * seats * size_of::<Ring>()).next_multiple_of(PAGE);
        let commons = (channel + channel::bytes(seats)).next_multiple_of(PAGE);
        let heaps = (commons + size_of::<Commons>()).next_multiple_of(PAGE);
        Layout { seats, heap_bytes, rings, channel, commons, heaps }
    }

    pub fn place(&self, seat: usize) -> usize {
        PLACES + seat * size_of::<Place>()
    }

    /// The ring that carries bytes from one seat to another.
    pub fn ring(&self, from: usize, to: usize) -> usize {
        self.rings + (from * self.seats + to) * size_of::<Ring>()
    }

    /// The channel of the group of all seats.
    pub fn channel(&self) -> usize {
        self.channel
    }

    /// The book of the job's own memory.
    pub fn commons(&self) -> usize {
        self.commons
    }

    /// Where the job's own memory begins and ends.
    pub fn commons_memory(&self) -> (usize, usize) {
        (self.heap(self.seats), self.total())
    }

    pub fn heap(&self, seat: usize) -> usize {
        self.heaps + seat * self.heap_bytes
    }

    /// Bytes of the whole arena.
    pub fn total(&self) -> usize {
        self.heap(self.seats + COMMONS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_for_less_memory_is_heard() {
        let of = |wish: Option<&str>| heap_bytes_of(wish.map(str::to_owned), || 7);
        assert_eq!((of(None).unwrap(), of(Some("")).unwrap(), of(Some("256")).unwrap()), (7, 7, 256 << 20));
        for wrong in ["0", "-1", "much", "1.5", "99999999999999999999", "18446744073709551615"] {
            let error = of(Some(wrong)).unwrap_err().to_string();
            assert!(error.contains("UNISONO_HEAP") && error.contains(wrong), "{error}");
        }
    }
}
