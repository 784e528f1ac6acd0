//! Ranks as processes of one host: the arena is an anonymous file that all of them map. The kernel frees the memory when the
//! last process that holds it exits, for whatever reason.

mod rendezvous;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Instant;

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::MemfdFlags;

pub(crate) use rendezvous::FdServer;

use super::Interrupt;
use super::arena::{Arena, heap_bytes};
use crate::error::{Error, Result};

/// Creates the job's memory: called by the launcher, or by the first rank of a host under other launchers.
pub(crate) fn create(local_size: usize) -> Result<(Arc<Arena>, OwnedFd)> {
    Arena::check_local_size(local_size)?;
    let heap = heap_bytes(machine_memory)?;
    let advice = "check the limits of shared memory and address space (ulimit -v) with `unisono doctor`, or set UNISONO_HEAP to fewer megabytes for each rank";
    let failed = |error: std::io::Error| Error::io("init", "the job's shared memory", error, advice);
    let file =
        rustix::fs::memfd_create("unisono", MemfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    rustix::fs::ftruncate(&file, Arena::bytes(local_size, heap) as u64)
        .map_err(|error| failed(error.into()))?;
    let map = map(&file).map_err(failed)?;
    let arena = Arena::format(map, local_size, heap).backed_by(file.try_clone().map_err(failed)?);
    Ok((Arc::new(arena), file))
}

/// Default heap size per rank: the machine's memory, since address space is free and pages are allocated on first touch.
fn machine_memory() -> usize {
    let memory = rustix::system::sysinfo();
    memory.totalram as usize * (memory.mem_unit as usize).max(1)
}

/// Opens the job's memory by its name; waits for its creator until `deadline` or until `interrupt` requests a stop.
pub(crate) fn join(name: &str, deadline: Instant, interrupt: Option<&Interrupt>) -> Result<Arc<Arena>> {
    open(rendezvous::fetch(name, deadline, interrupt)?)
}

/// Maps the job's memory.
pub(crate) fn open(file: OwnedFd) -> Result<Arc<Arena>> {
    let advice =
        "raise the limit of address space (ulimit -v), or set UNISONO_HEAP to fewer megabytes for each rank";
    let map =
        map(&file).map_err(|error| Error::io("init", "mapping the job's shared memory", error, advice))?;
    Ok(Arc::new(Arena::open(map)?.backed_by(file)))
}

/// Serves memory that holds `token` under a name, so that other processes can find out whether they can share memory with this
/// process.
pub(crate) fn serve_probe(name: &str, token: &[u8]) -> Result<FdServer> {
    let failed = |error: std::io::Error| Error::io("init", "memory to share", error, "see `unisono doctor`");
    let file = rustix::fs::memfd_create("unisono-probe", MemfdFlags::CLOEXEC)
        .map_err(|error| failed(error.into()))?;
    let mut file = File::from(file);
    std::io::Write::write_all(&mut file, token).map_err(failed)?;
    FdServer::start(name, file.into())
}

/// Tries to map the memory that another process serves. The error states why that failed.
pub(crate) fn probe(name: &str, token: &[u8], deadline: Instant) -> std::io::Result<()> {
    let file = rendezvous::fetch_probe(name, deadline)?;
    map(&file)?;
    let mut found = vec![0; token.len()];
    File::from(file).read_exact_at(&mut found, 0)?;
    if found == token { Ok(()) } else { Err(std::io::Error::other("another process answered")) }
}

fn map(file: &OwnedFd) -> std::io::Result<MmapRaw> {
    let file = File::from(file.try_clone()?);
    MmapOptions::new().len(file.metadata()?.len() as usize).map_raw(&file)
}
