//! Acknowledgement of sparse gets between hosts: a row counts as seen once the worker's next request has acknowledged the reply.
//! So rows of a reply that was never received, because its caller had given up, are sent again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};

/// A local row and the version of it that was sent to a reader.
pub(crate) type Seen = (u32, u32);

/// Sequence numbers in a request for changed rows: its own, and that of the last request whose reply was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SequenceNumbers {
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
            ([own, acknowledged], []) => Ok(SequenceNumbers {
                own: u64::from_le_bytes(*own),
                acknowledged: u64::from_le_bytes(*acknowledged),
            }),
            _ => Err(Error::internal("get_changed", format!("{} bytes of numbers", bytes.len()))),
        }
    }
}

/// Requester's and server's state, for one table.
#[derive(Default)]
pub(crate) struct Views {
    /// For each other host and buffer, the sequence numbers of this worker's last request.
    asked: Mutex<HashMap<(usize, usize), SequenceNumbers>>,
    /// For each reader on another host, the sequence number of its last request, and the rows sent to it.
    sent: Mutex<HashMap<usize, (u64, Vec<Seen>)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Views {
    /// The sequence numbers for the next request to a host.
    pub fn ask(&self, host: usize, buffer: usize) -> SequenceNumbers {
        let mut asked = lock(&self.asked);
        let numbers = asked.entry((host, buffer)).or_default();
        numbers.own += 1;
        *numbers
    }

    /// The reply to that request was received.
    pub fn acknowledge(&self, host: usize, buffer: usize, numbers: SequenceNumbers) {
        lock(&self.asked).entry((host, buffer)).or_default().acknowledged = numbers.own;
    }

    /// The rows that this reader has seen since: those last sent to it, if it received them.
    pub fn confirm(&self, reader: usize, numbers: SequenceNumbers) -> Option<Vec<Seen>> {
        let sent = lock(&self.sent).remove(&reader);
        sent.filter(|(number, _)| *number == numbers.acknowledged).map(|(_, seen)| seen)
    }

    /// Records the rows sent to this reader in reply to the request with these numbers.
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
        // The second reply was never received; two more requests are in flight at once, and the later reply is lost.
        let (third, fourth) = (worker.ask(1, 0), worker.ask(1, 0));
        assert_eq!((serve(third, 3), serve(fourth, 4)), (None, None));
        worker.acknowledge(1, 0, third);
        assert_eq!(serve(worker.ask(1, 0), 5), None);
        // Other hosts and other buffers have their own sequence numbers.
        assert_eq!(worker.ask(2, 0), SequenceNumbers { own: 1, acknowledged: 0 });
        assert_eq!(worker.ask(1, 1), SequenceNumbers { own: 1, acknowledged: 0 });
        assert!(SequenceNumbers::from_bytes(&[0; 15]).is_err());
    }
}
