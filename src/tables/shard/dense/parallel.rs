//! The work of a server on a long request, divided among threads: one thread copies slower than a network delivers.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Builder};

use crate::error::Result;

/// Bytes for each thread, at least: starting a thread costs as much as copying some hundred KiB.
const LEAST_BYTES: usize = 1 << 20;
/// More threads would not be faster: a few saturate the memory.
const MOST_THREADS: usize = 4;

/// Number of threads for work on this many bytes, on a host with this many ranks: the cores are theirs, too.
pub(super) fn thread_count(bytes: usize, ranks: usize) -> usize {
    if bytes < 2 * LEAST_BYTES {
        return 1;
    }
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    (bytes / LEAST_BYTES).min(cores / ranks.max(1)).clamp(1, MOST_THREADS)
}

/// Does the work for each part, on as many threads as there are parts. A thread that fails begins no other part; the others do.
pub(super) fn for_each<P: Send>(parts: Vec<P>, work: impl Fn(P) -> Result<()> + Sync) -> Result<()> {
    let others = parts.len().saturating_sub(1);
    let rest = Mutex::new(parts.into_iter());
    let next = || rest.lock().unwrap_or_else(PoisonError::into_inner).next();
    let run_parts = || std::iter::from_fn(next).try_for_each(&work);
    thread::scope(|scope| {
        // If the system starts no more threads, those that run do the work of all.
        let start = |_| Builder::new().name("unisono-tables".into()).spawn_scoped(scope, run_parts).ok();
        let others: Vec<_> = (0..others).map_while(start).collect();
        let own = run_parts();
        others.into_iter().fold(own, |made, other| {
            let other = other.join().unwrap_or_else(|panic| resume_unwind(panic));
            made.and(other)
        })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::error::Error;

    #[test]
    fn every_part_is_worked_on_once_and_an_error_is_returned() {
        for count in 0..5 {
            let seen = Mutex::new(Vec::new());
            let note = |part: usize| {
                seen.lock().unwrap().push(part);
                Ok(())
            };
            for_each((0..count).collect(), note).unwrap();
            let mut seen = seen.into_inner().unwrap();
            seen.sort_unstable();
            assert_eq!(seen, (0..count).collect::<Vec<_>>());
            let fail = |part: usize| if part == 2 { Err(Error::internal("add", "part 2")) } else { Ok(()) };
            assert_eq!(for_each((0..count).collect(), fail).is_err(), count > 2);
        }
    }

    #[test]
    fn short_work_and_busy_hosts_have_one_thread() {
        assert_eq!(thread_count(LEAST_BYTES, 1), 1);
        assert_eq!(thread_count(usize::MAX, usize::MAX), 1);
        assert!((1..=MOST_THREADS).contains(&thread_count(usize::MAX, 0)));
    }
}
