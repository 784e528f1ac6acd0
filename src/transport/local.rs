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
    let attach = |local_rank| {
        let endpoint = LocalEndpoint::attach(arena.clone(), local_rank, (0..size).collect())?;
        Ok(ArenaTransport::new(name, size, endpoint))
    };
    let transports = (0..size).map(attach).collect::<Result<Vec<ArenaTransport>>>()?;
    arena.decide_cores();
    Ok(transports)
}

#[cfg(all(test, not(unisono_loom)))]
mod tests {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::*;

    /// Attaches a rank on a thread that is bound to a core, as a launcher binds ranks.
    fn attach_on(core: usize, local_rank: usize, arena: Option<Arc<Arena>>) -> LocalEndpoint {
        let attach = move || {
            let mut own = CpuSet::new();
            own.set(core);
            sched_setaffinity(None, &own).unwrap();
            let make = || {
                let map = MmapOptions::new().len(Arena::bytes(2, 1 << 16)).map_anon().unwrap();
                Arc::new(Arena::format(map.into(), 2, 1 << 16))
            };
            LocalEndpoint::attach(arena.unwrap_or_else(make), local_rank, vec![0, 1]).unwrap()
        };
        std::thread::spawn(attach).join().unwrap()
    }

    #[test]
    fn ranks_that_are_bound_to_different_cores_do_not_share_them() {
        let allowed = sched_getaffinity(None).unwrap();
        let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect();
        for other in [cores[0], cores[cores.len() - 1]] {
            let first = attach_on(cores[0], 0, None);
            let second = attach_on(other, 1, Some(first.arena.clone()));
            assert_eq!(first.arena.is_oversubscribed(), other == cores[0]);
            assert_eq!(second.arena.is_oversubscribed(), other == cores[0]);
        }
    }
}
