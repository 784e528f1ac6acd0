//! Ranks as threads of one process: an arena in ordinary memory. For tests, notebooks, and Rust users.

use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw};

use super::arena::{Arena, ArenaTransport, Seat};
use crate::error::{Error, Result};

/// Address space for each rank's `empty` buffers; memory is used only where it is touched.
const HEAP: usize = 4 << 30;

/// The transports of `size` ranks that live in this process.
pub(crate) fn create(size: usize) -> Result<Vec<ArenaTransport>> {
    Arena::check_seats(size)?;
    let map = MmapOptions::new()
        .len(Arena::bytes(size, HEAP))
        .no_reserve_swap()
        .map_anon()
        .map_err(|error| Error::io("init", "memory for a world of threads", error, "free some memory"))?;
    let arena = Arc::new(Arena::format(MmapRaw::from(map), size, HEAP));
    let name = if size == 1 { "alone" } else { "local" };
    (0..size)
        .map(|seat| {
            Ok(ArenaTransport::new(name, size, Seat::take(arena.clone(), seat, (0..size).collect())?))
        })
        .collect()
}
