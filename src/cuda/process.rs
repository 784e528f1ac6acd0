//! An identifier of this process, for other processes that open its memory.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// A number that no other process has, never zero. A forked child is another process.
pub(crate) fn process_number() -> u64 {
    static KNOWN: Mutex<(u32, u64)> = Mutex::new((0, 0));
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let id = std::process::id();
    if known.0 != id {
        // Process ids are reused, and containers of a host have the same ones: the time and a random seed tell such
        // processes apart.
        *known = (id, RandomState::new().hash_one((id, SystemTime::now())) | 1);
    }
    known.1
}

#[cfg(test)]
mod tests {
    use super::process_number;

    #[test]
    fn a_process_has_one_number_on_all_threads() {
        let own = process_number();
        assert_ne!(own, 0);
        assert_eq!(std::thread::spawn(process_number).join().unwrap(), own);
    }
}
