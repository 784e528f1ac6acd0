//! The CPUs on which ranks may run. Launchers such as `mpirun` and `srun` bind each rank to some, so that only all ranks of a
//! host together know how many they have.

use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::{Pod, Zeroable};
use rustix::thread::CpuSet;

const WORDS: usize = CpuSet::MAX_CPU / 64;

/// The CPUs of one rank or of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Cpus {
    /// One bit for each CPU.
    mask: [u64; WORDS],
    /// How many CPUs' time the control group grants, beyond which ranks are throttled.
    quota: u64,
}

impl Cpus {
    /// Those of the calling thread.
    pub fn own() -> Cpus {
        let usable = std::thread::available_parallelism().map_or(1, usize::from);
        // Without an affinity mask, on hosts with more CPUs than it has bits, the first CPUs stand for those of all ranks.
        let allowed = rustix::thread::sched_getaffinity(None);
        let is_allowed = |cpu: usize| allowed.as_ref().map_or(cpu < usable, |allowed| allowed.is_set(cpu));
        let mut cpus = Cpus { mask: [0; WORDS], quota: u64::MAX };
        for cpu in (0..CpuSet::MAX_CPU).filter(|&cpu| is_allowed(cpu)) {
            cpus.mask[cpu / 64] |= 1 << (cpu % 64);
        }
        if usable < cpus.count() {
            cpus.quota = usable as u64;
        }
        cpus
    }

    /// Those of two ranks of one host.
    pub fn union(self, other: Cpus) -> Cpus {
        let mask = std::array::from_fn(|word| self.mask[word] | other.mask[word]);
        Cpus { mask, quota: self.quota.min(other.quota) }
    }

    pub fn count(&self) -> usize {
        let set: u32 = self.mask.iter().map(|word| word.count_ones()).sum();
        usize::try_from(self.quota).map_or(set as usize, |quota| quota.min(set as usize))
    }
}

/// The CPUs of the ranks that have joined, in memory that they share.
#[repr(C)]
pub(crate) struct SharedCpus {
    mask: [AtomicU64; WORDS],
    /// Subtracted from the largest number, so that zeroes mean no limit.
    below_limit: AtomicU64,
}

impl SharedCpus {
    /// Adds those of a rank.
    pub fn add(&self, cpus: &Cpus) {
        for (shared, word) in self.mask.iter().zip(cpus.mask) {
            shared.fetch_or(word, Ordering::Relaxed);
        }
        self.below_limit.fetch_max(u64::MAX - cpus.quota, Ordering::Relaxed);
    }

    pub fn count(&self) -> usize {
        let mask = std::array::from_fn(|word| self.mask[word].load(Ordering::Relaxed));
        Cpus { mask, quota: u64::MAX - self.below_limit.load(Ordering::Relaxed) }.count()
    }

    /// As if the ranks had the first `count` CPUs.
    #[cfg(all(test, not(unisono_loom)))]
    pub fn replace(&self, count: usize) {
        for (index, word) in self.mask.iter().enumerate() {
            let bits = count.saturating_sub(index * 64).min(64);
            word.store(u64::MAX.checked_shr(64 - bits as u32).unwrap_or(0), Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(unisono_loom)))]
mod tests {
    use bytemuck::Zeroable;

    use super::*;

    fn first(count: usize) -> Cpus {
        let mut cpus = Cpus { quota: u64::MAX, ..Cpus::zeroed() };
        (0..count).for_each(|cpu| cpus.mask[cpu / 64] |= 1 << (cpu % 64));
        cpus
    }

    #[test]
    fn cpus_of_ranks_are_counted_once() {
        let mut other = Cpus { quota: u64::MAX, ..Cpus::zeroed() };
        other.mask[0] = 1 << 2 | 1 << 63;
        other.mask[3] = 1;
        assert_eq!(first(3).union(other).count(), 5);
        assert_eq!(first(130).count(), 130);
        assert_eq!(Cpus { quota: 2, ..first(130) }.union(first(200)).count(), 2, "a quota limits all");

        let shared = SharedCpus { mask: Default::default(), below_limit: AtomicU64::new(0) };
        assert_eq!(shared.count(), 0);
        shared.add(&first(3));
        shared.add(&other);
        assert_eq!(shared.count(), 5);
        shared.add(&Cpus { quota: 4, ..first(1) });
        shared.add(&Cpus { quota: 7, ..first(1) });
        assert_eq!(shared.count(), 4);
    }

    #[test]
    fn own_cpus_are_those_of_the_scheduler() {
        let usable = std::thread::available_parallelism().unwrap().get();
        assert_eq!(Cpus::own().count(), usable);
    }

    #[test]
    fn a_number_of_cpus_is_a_mask() {
        let shared = SharedCpus { mask: Default::default(), below_limit: AtomicU64::new(0) };
        for count in [0, 1, 63, 64, 65, 128, 1000] {
            shared.replace(count);
            assert_eq!(shared.count(), count);
        }
    }
}
