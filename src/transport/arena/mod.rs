//! Shared-memory engine of the `local` and `shm` transports: all ranks of a host share one memory block, the arena. Ranks that
//! are threads use process memory, ranks that are processes a shared mapping; nothing else differs.
//!
//! The arena holds a peer slot and a heap for each local rank, a ring from every local rank to every other, a channel for
//! the group of all local ranks, and a shared heap that belongs to the job. Local ranks are numbered from 0.

mod arena_transport;
pub(crate) mod backoff;
mod buffer;
pub(crate) mod channel;
mod exposure;
pub(crate) mod flag;
mod free_list;
mod futex;
mod layout;
mod local_endpoint;
pub(crate) mod lock;
mod lock_guard;
mod peer_slot;
mod posts;
mod process_record;
mod ring;
mod shared_heap;
mod shared_text;
pub(crate) mod spsc;
#[cfg(all(test, not(unisono_loom)))]
mod tests;
mod whole;

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memmap2::MmapRaw;

pub(crate) use arena_transport::ArenaTransport;
pub use buffer::ArenaBuffer;
use exposure::Exposure;
use layout::ArenaLayout;
pub(crate) use layout::heap_bytes;
#[cfg(test)]
pub(crate) use layout::heap_bytes_of;
pub(crate) use local_endpoint::{LocalEndpoint, MAX_LOCAL_RANKS};
pub(crate) use lock_guard::LockGuard;
pub(crate) use peer_slot::PeerSlot;
pub(crate) use process_record::{InFlightGuard, LossCause, PeerStatus};
use ring::Ring;
pub(crate) use shared_heap::Extent;
use shared_heap::SharedHeap;
pub use whole::WholeArena;

use crate::error::{Error, Result};
use crate::transport::cpus::{Cpus, SharedCpus};
use crate::transport::process;

/// "UNISONO" and the layout version: processes built for different layouts reject each other's arena.
const MAGIC: u64 = u64::from_le_bytes(*b"UNISONO\x08");

/// The first bytes of the arena.
#[repr(C)]
struct ArenaHeader {
    magic: AtomicU64,
    local_size: AtomicU64,
    heap_bytes: AtomicU64,
    /// PID namespace of the process that created the arena; zero if unknown.
    pid_namespace: AtomicU64,
    /// The CPUs of all ranks that have attached, and of the process that created the arena.
    cpus: SharedCpus,
    /// [`UNDECIDED`], [`CORE_EACH`] or [`OVERSUBSCRIBED`].
    cores: AtomicU32,
}

/// Not all ranks have attached yet, or not all are known to have.
const UNDECIDED: u32 = 0;
const CORE_EACH: u32 = 1;
const OVERSUBSCRIBED: u32 = 2;

/// Memory shared by all ranks of a host.
pub(crate) struct Arena {
    map: MmapRaw,
    layout: ArenaLayout,
    exposure: Exposure,
}

impl Arena {
    /// Bytes to reserve for an arena of `local_size` ranks.
    pub fn bytes(local_size: usize, heap_bytes: usize) -> usize {
        ArenaLayout::new(local_size, heap_bytes).total()
    }

    /// Rejects more local ranks than an arena can have.
    pub fn check_local_size(local_size: usize) -> Result<()> {
        match local_size <= MAX_LOCAL_RANKS {
            true => Ok(()),
            false => Err(Error::usage(
                "init",
                format!("at most {MAX_LOCAL_RANKS} ranks on one host"),
                local_size.to_string(),
                "start fewer, or spread them over several hosts",
            )),
        }
    }

    /// Formats an arena in fresh memory, which must be zeroed and [`Arena::bytes`] long.
    pub fn format(map: MmapRaw, local_size: usize, heap_bytes: usize) -> Arena {
        let arena =
            Arena { map, layout: ArenaLayout::new(local_size, heap_bytes), exposure: Exposure::default() };
        assert!(arena.layout.total() <= arena.map.len(), "the memory for an arena is too small");
        let header = arena.header();
        header.local_size.store(local_size as u64, Ordering::Relaxed);
        header.heap_bytes.store(arena.layout.heap_bytes as u64, Ordering::Relaxed);
        header.pid_namespace.store(process::pid_namespace(), Ordering::Relaxed);
        header.cpus.add(&Cpus::own());
        header.magic.store(MAGIC, Ordering::Release);
        arena
    }

    /// Opens an arena that another process created.
    pub fn open(map: MmapRaw) -> Result<Arena> {
        let foreign =
            |what: &str| Error::unsupported("init", format!("the job's shared memory {what}"), SAME_VERSION);
        if map.len() < size_of::<ArenaHeader>() {
            return Err(foreign("is too small"));
        }
        // SAFETY: the mapping is large enough for the header, page-aligned, and lives as long as this function.
        let header = unsafe { &*map.as_ptr().cast::<ArenaHeader>() };
        if header.magic.load(Ordering::Acquire) != MAGIC {
            return Err(foreign("was made by another version of unisono"));
        }
        let local_size = header.local_size.load(Ordering::Relaxed) as usize;
        let heap_bytes = header.heap_bytes.load(Ordering::Relaxed) as usize;
        // Within these bounds the layout's sizes cannot overflow.
        if !(1..=MAX_LOCAL_RANKS).contains(&local_size) || heap_bytes > map.len() {
            return Err(foreign("has a damaged header"));
        }
        let layout = ArenaLayout::new(local_size, heap_bytes);
        if layout.total() > map.len() {
            return Err(foreign("is truncated"));
        }
        let namespaces = [header.pid_namespace.load(Ordering::Relaxed), process::pid_namespace()];
        if namespaces[0] != namespaces[1] && !namespaces.contains(&0) {
            let what = "this process and the one that made the job's shared memory are in separate PID namespaces (containers), \
                        where ranks cannot see whether the others are alive";
            return Err(Error::unsupported("init", what, ONE_CONTAINER));
        }
        Ok(Arena { map, layout, exposure: Exposure::default() })
    }

    /// Keeps the file behind the mapping, so that its pages can later be detached from what other processes see.
    pub fn backed_by(mut self, file: OwnedFd) -> Arena {
        self.exposure.file = Some(file);
        self
    }

    pub fn local_size(&self) -> usize {
        self.layout.local_size
    }

    /// Adds the CPUs of a rank that attaches.
    fn add_cpus(&self, cpus: &Cpus) {
        self.header().cpus.add(cpus);
    }

    /// Whether the ranks share cores, so that a rank that waits should leave its core to another. Once all have attached, it
    /// is the same on all ranks and never changes, as algorithms depend on it.
    pub fn is_oversubscribed(&self) -> bool {
        match self.header().cores.load(Ordering::Relaxed) {
            UNDECIDED => self.local_size() > self.header().cpus.count(),
            decided => decided == OVERSUBSCRIBED,
        }
    }

    /// Settles whether the ranks share cores, now that all have attached. A rank that is restarted on other cores changes nothing.
    pub fn decide_cores(&self) {
        let cores = if self.is_oversubscribed() { OVERSUBSCRIBED } else { CORE_EACH };
        let _ = self.header().cores.compare_exchange(UNDECIDED, cores, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// As if the host had as many cores as ranks, or fewer.
    #[cfg(all(test, not(unisono_loom)))]
    pub fn set_oversubscribed(&self, oversubscribed: bool) {
        self.header().cpus.replace(self.local_size() - usize::from(oversubscribed));
        self.header().cores.store(UNDECIDED, Ordering::Relaxed);
        self.decide_cores();
    }

    fn header(&self) -> &ArenaHeader {
        // SAFETY: the arena begins with its header; all fields are atomic.
        unsafe { &*self.at(0).cast() }
    }

    pub fn peer_slot(&self, local_rank: usize) -> &PeerSlot {
        assert!(local_rank < self.layout.local_size);
        // SAFETY: the layout puts a peer slot there, zeroes are a valid slot, and all its fields are atomic.
        unsafe { &*self.at(self.layout.peer_slot(local_rank)).cast() }
    }

    fn ring(&self, from: usize, to: usize) -> &Ring {
        assert!(from < self.layout.local_size && to < self.layout.local_size);
        // SAFETY: the layout puts a ring there, zeroes are an empty ring, and `Ring` is `Sync`.
        unsafe { &*self.at(self.layout.ring(from, to)).cast() }
    }

    fn shared_heap(&self) -> &SharedHeap {
        // SAFETY: the layout puts the shared heap's extent list there, zeroes are an empty list, and all its fields are atomic.
        unsafe { &*self.at(self.layout.shared_heap()).cast() }
    }

    /// Zeroes full pages that are not in use.
    fn clear(&self, offset: usize, bytes: usize) {
        let start = self.range(offset, bytes);
        // SAFETY: the range is inside the mapping and not in use.
        let removed = unsafe { rustix::mm::madvise(start.cast(), bytes, rustix::mm::Advice::LinuxRemove) };
        if removed.is_err() {
            // SAFETY: as above.
            unsafe { start.write_bytes(0, bytes) };
        }
    }

    /// A pointer into the arena.
    fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.map.len());
        // SAFETY: the offset is inside the mapping.
        unsafe { self.map.as_mut_ptr().add(offset) }
    }

    /// A pointer to a range of the arena; panics if it exceeds the mapping.
    fn range(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.map.len()), "outside the arena");
        self.at(offset)
    }

    /// The arena offset of this memory, or `None` if it is not in the arena.
    fn offset_of(&self, piece: channel::RawSlice) -> Option<usize> {
        let offset = (piece.pointer as usize).checked_sub(self.map.as_ptr() as usize)?;
        (offset + piece.bytes <= self.map.len()).then_some(offset)
    }
}

const ONE_CONTAINER: &str = "start all ranks of this host in one container, or let an MPI launcher start them and set UNISONO_TRANSPORT=mpi";
const SAME_VERSION: &str = "install the same version of unisono for every rank and for the launcher";
