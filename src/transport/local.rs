//! Ranks as threads of one process: an arena in anonymous memory. For tests, notebooks, and Rust users.

use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw};

use super::arena::{Arena, ArenaTransport, LocalEndpoint, heap_bytes};
use crate::error::{Error, Result};

/// Default address space for each rank's `empty` buffers, overridden by `UNISONO_HEAP`; physical memory is used only where
/// it is touched.
const DEFAULT_HEAP_BYTES: usize = 4 << 30;

/// Creates the transports of `size` ranks in this process.
pub(crate) fn create(size: usize) -> Result<Vec<ArenaTransport>> {
    Arena::check_local_size(size)?;
    let heap = heap_bytes(|| DEFAULT_HEAP_BYTES)?;
    let bytes = Arena::bytes(size, heap);
    let map = MmapOptions::new().len(bytes).no_reserve_swap().map_anon().map_err(|error| {
        let what = format!("reserving {} MB of address space for this process's ranks", bytes >> 20);
        let advice = "raise the limit of address space (ulimit -v), or set UNISONO_HEAP to fewer megabytes for each rank";
        Error::io("init", what, error, advice)
    })?;
    let arena = Arc::new(Arena::format(MmapRaw::from(map), size, heap));
    let name = if size == 1 { "alone" } else { "local" };
    (0..size)
        .map(|local_rank| {
            Ok(ArenaTransport::new(
                name,
                size,
                LocalEndpoint::attach(arena.clone(), local_rank, (0..size).collect())?,
            ))
        })
        .collect()
}
