//! What a sparse get has brought from other hosts: a row counts as seen when the worker has said, with its next request, that
//! the answer came. So an answer that nobody took, because its caller had given up, is not missing later.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};

/// A row of this host and the version of it that a reader was shown.
pub(super) type Seen = (u32, u32);

/// What a request for changed rows carries: its own number, and that of the last one whose answer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct SequenceNumbers {
    own: u64,
    acknowledged: u64,
}

impl SequenceNumbers {
    pub fn to_bytes(self) -> Vec<u8> {
        [self.own.to_le_bytes(), self.acknowledged.to_le_bytes()].concat()
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<SequenceNumbers> {
        let (words, rest) = bytes.as_chunks::<8>();
        match (words, rest) {
            ([own, acknowledged], []) => {
                Ok(SequenceNumbers { own: u64::from_le_bytes(*own), acknowledged: u64::from_le_bytes(*acknowledged) })
            }
            _ => Err(Error::internal("get_changed", format!("{} bytes of numbers", bytes.len()))),
        }
    }
}

/// Both sides of it, for one table.
#[derive(Default)]
pub(super) struct Views {
    /// For each other host and buffer, the numbers of this worker's last request.
    asked: Mutex<HashMap<(usize, usize), SequenceNumbers>>,
    /// For each reader of another host, the number of its last request, and what it was shown.
    sent: Mutex<HashMap<usize, (u64, Vec<Seen>)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Views {
    /// The numbers for the next request to a host.
    pub fn ask(&self, host: usize, buffer: usize) -> SequenceNumbers {
        let mut asked = lock(&self.asked);
        let numbers = asked.entry((host, buffer)).or_default();
        numbers.own += 1;
        *numbers
    }

    /// The answer to that request came.
    pub fn acknowledge(&self, host: usize, buffer: usize, numbers: SequenceNumbers) {
        lock(&self.asked).entry((host, buffer)).or_default().acknowledged = numbers.own;
    }

    /// What this reader has seen since: what it was shown last, if that came.
    pub fn confirm(&self, reader: usize, numbers: SequenceNumbers) -> Option<Vec<Seen>> {
        let sent = lock(&self.sent).remove(&reader);
        sent.filter(|(number, _)| *number == numbers.acknowledged).map(|(_, seen)| seen)
    }

    /// What this reader is shown by the request with these numbers.
    pub fn record_sent(&self, reader: usize, numbers: SequenceNumbers, seen: Vec<Seen>) {
        lock(&self.sent).insert(reader, (numbers.own, seen));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_came_counts_as_seen() {
        let (worker, server) = (Views::default(), Views::default());
        let serve = |numbers: SequenceNumbers, row: u32| {
            let numbers = SequenceNumbers::from_bytes(&numbers.to_bytes()).unwrap();
            let confirmed = server.confirm(7, numbers);
            server.record_sent(7, numbers, vec![(row, 1)]);
            confirmed
        };
        let first = worker.ask(1, 0);
        assert_eq!(serve(first, 1), None);
        worker.acknowledge(1, 0, first);
        let second = worker.ask(1, 0);
        assert_eq!(serve(second, 2), Some(vec![(1, 1)]));
        // The second answer never came; two more are under way at once, and the later one is lost.
        let (third, fourth) = (worker.ask(1, 0), worker.ask(1, 0));
        assert_eq!((serve(third, 3), serve(fourth, 4)), (None, None));
        worker.acknowledge(1, 0, third);
        assert_eq!(serve(worker.ask(1, 0), 5), None);
        // Another host and another buffer have numbers of their own.
        assert_eq!(worker.ask(2, 0), SequenceNumbers { own: 1, acknowledged: 0 });
        assert_eq!(worker.ask(1, 1), SequenceNumbers { own: 1, acknowledged: 0 });
        assert!(SequenceNumbers::from_bytes(&[0; 15]).is_err());
    }
}
