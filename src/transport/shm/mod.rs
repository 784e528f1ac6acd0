//! Ranks as processes of one host: an arena in an anonymous file that all of them map. When the last process that holds
//! it ends, however it ends, the memory is gone.

mod rendezvous;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::MemfdFlags;

pub(crate) use rendezvous::Host;

use super::Interrupt;
use super::arena::Arena;
use crate::error::{Error, Result};

/// Makes the job's memory: called by the launcher, or by the first rank of a host under other launchers.
pub(crate) fn create(seats: usize) -> Result<(Arc<Arena>, OwnedFd)> {
    Arena::check_seats(seats)?;
    let heap = heap_bytes(std::env::var("UNISONO_HEAP").ok())?;
    let advice = "check the limits of shared memory and address space (ulimit -v) with `unisono doctor`";
    let refused = |error: std::io::Error| Error::io("init", "the job's shared memory", error, advice);
    let file =
        rustix::fs::memfd_create("unisono", MemfdFlags::CLOEXEC).map_err(|error| refused(error.into()))?;
    rustix::fs::ftruncate(&file, Arena::bytes(seats, heap) as u64).map_err(|error| refused(error.into()))?;
    let map = map(&file).map_err(refused)?;
    Ok((Arc::new(Arena::format(map, seats, heap)), file))
}

/// How much each rank may use: as much as the machine has, since address space is free and pages are taken when touched.
/// Where it is not free, as under valgrind, `UNISONO_HEAP` says how many megabytes instead.
fn heap_bytes(wish: Option<String>) -> Result<usize> {
    let Some(text) = wish.filter(|text| !text.is_empty()) else {
        let memory = rustix::system::sysinfo();
        return Ok(memory.totalram as usize * (memory.mem_unit as usize).max(1));
    };
    let bytes = text.parse::<usize>().ok().and_then(|number| number.checked_mul(1 << 20));
    bytes.filter(|&bytes| (1..=isize::MAX as usize >> 16).contains(&bytes)).ok_or_else(|| {
        let expected = "a number of megabytes in UNISONO_HEAP";
        Error::usage("init", expected, format!("{text:?}"), "write for example 1024, or unset it")
    })
}

/// Opens the job's memory by its name, waiting for its maker until `deadline` or until `interrupt` says stop.
pub(crate) fn join(name: &str, deadline: Instant, interrupt: Option<&Interrupt>) -> Result<Arc<Arena>> {
    let file = rendezvous::fetch(name, deadline, interrupt)?;
    let advice = "check the limits of address space (ulimit -v)";
    let map =
        map(&file).map_err(|error| Error::io("init", "mapping the job's shared memory", error, advice))?;
    Arena::open(map).map(Arc::new)
}

fn map(file: &OwnedFd) -> std::io::Result<MmapRaw> {
    let file = File::from(file.try_clone()?);
    MmapOptions::new().len(file.metadata()?.len() as usize).map_raw(&file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_for_less_memory_is_heard() {
        let default = heap_bytes(None).unwrap();
        assert_eq!(heap_bytes(Some(String::new())).unwrap(), default);
        assert_eq!(heap_bytes(Some("256".into())).unwrap(), 256 << 20);
        for wrong in ["0", "-1", "much", "1.5", "99999999999999999999", "18446744073709551615"] {
            let error = heap_bytes(Some(wrong.into())).unwrap_err().to_string();
            assert!(error.contains("UNISONO_HEAP") && error.contains(wrong), "{error}");
        }
    }
}
