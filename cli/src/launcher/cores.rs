//! Binds each rank to cores of its own (`unisono run --bind`).

use std::fs;
use std::io;
use std::ops::Range;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores that the ranks of a job are bound to.
pub(crate) struct CoreBinding {
    /// All cores that this process may use; those that share a core or a NUMA node are adjacent.
    cores: Vec<usize>,
    ranks: usize,
}

impl CoreBinding {
    /// Divides the cores that this process may use between `ranks` ranks.
    pub(crate) fn new(ranks: usize) -> io::Result<CoreBinding> {
        let allowed = sched_getaffinity(None)?;
        let mut cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect();
        cores.sort_by_key(|&core| (place(core), core));
        Ok(CoreBinding { cores, ranks })
    }

    /// The cores of a rank: its share, or one core, if ranks outnumber cores.
    pub(crate) fn cores(&self, rank: usize) -> &[usize] {
        &self.cores[share(self.cores.len(), self.ranks, rank)]
    }

    /// Runs `start` on a thread whose child processes are bound to the rank's cores: they inherit its affinity.
    pub(crate) fn apply<T>(&self, rank: usize, start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let before = sched_getaffinity(None)?;
        let mut own = CpuSet::new();
        self.cores(rank).iter().for_each(|&core| own.set(core));
        sched_setaffinity(None, &own)?;
        let started = start();
        sched_setaffinity(None, &before)?;
        started
    }
}

/// The positions of a rank's cores among `cores`.
fn share(cores: usize, ranks: usize, rank: usize) -> Range<usize> {
    let at = |rank: usize| rank * cores / ranks;
    let first = at(rank).min(cores - 1);
    first..at(rank + 1).max(first + 1)
}

/// Where a logical CPU is: its NUMA node, its package and its core; zeroes where the system does not tell.
fn place(cpu: usize) -> [usize; 3] {
    let folder = format!("/sys/devices/system/cpu/cpu{cpu}");
    let number =
        |name: &str| fs::read_to_string(format!("{folder}/topology/{name}")).ok()?.trim().parse().ok();
    [
        numa_node(&folder).unwrap_or(0),
        number("physical_package_id").unwrap_or(0),
        number("core_id").unwrap_or(0),
    ]
}

/// The NUMA node of a CPU, whose folder has a link to it, such as `node0`.
fn numa_node(folder: &str) -> Option<usize> {
    let names = fs::read_dir(folder).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.into_iter().find_map(|name| name.strip_prefix("node")?.parse().ok())
}

/// The number of NUMA nodes whose cores this process may use.
pub(crate) fn numa_nodes() -> usize {
    let allowed = sched_getaffinity(None).unwrap_or_default();
    let mut nodes: Vec<usize> =
        (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).map(|core| place(core)[0]).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes.len().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_divided_evenly_and_in_order() {
        let shares = |cores, ranks| (0..ranks).map(|rank| share(cores, ranks, rank)).collect::<Vec<_>>();
        assert_eq!(shares(4, 4), [0..1, 1..2, 2..3, 3..4]);
        assert_eq!(shares(8, 2), [0..4, 4..8]);
        assert_eq!(shares(5, 2), [0..2, 2..5]);
        assert_eq!(shares(2, 4), [0..1, 0..1, 1..2, 1..2]);
        assert_eq!(shares(2, 3), [0..1, 0..1, 1..2]);
        assert_eq!(shares(1, 3), [0..1, 0..1, 0..1]);
    }

    #[test]
    fn the_launcher_keeps_its_own_cores() {
        let before = sched_getaffinity(None).unwrap();
        let binding = CoreBinding::new(2).unwrap();
        let bound = binding.apply(1, || Ok(sched_getaffinity(None)?)).unwrap();
        assert_eq!(bound.count() as usize, binding.cores(1).len());
        assert!(binding.cores(1).iter().all(|&core| bound.is_set(core)));
        assert_eq!(sched_getaffinity(None).unwrap(), before);
        binding.apply(0, || Err::<(), _>(io::ErrorKind::NotFound.into())).unwrap_err();
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
