//! Sizes of a table, and what a worker has done with it.

use std::sync::atomic::{AtomicU64, Ordering};

use super::base::Base;
use crate::tables::consistency::clock::Clock;

/// Sizes of a table, and the calls of this process since it opened the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableStats {
    /// Number of rows, of elements of an array, or of keys, on all hosts.
    pub rows: u64,
    /// Bytes of the values of all rows.
    pub value_bytes: u64,
    /// Bytes of the updater's state of all rows, including that of each worker.
    pub state_bytes: u64,
    /// Gets of this process. A get that failed before all hosts had replied may count.
    pub gets: u64,
    /// Adds of this process; one in the background counts when it is applied.
    pub adds: u64,
    /// Rows or keys that these gets returned; a row that a get lists twice counts twice.
    pub rows_read: u64,
    /// Rows or keys that these adds listed, before repeats were summed.
    pub rows_added: u64,
}

/// Counts of one process's calls that the clock does not have.
#[derive(Debug)]
pub(crate) struct CallCounts {
    /// The clock's gets and adds of this worker when this process opened the table: those of an earlier process, if the worker
    /// was restarted.
    earlier: (u64, u64),
    /// Gets and adds that passed no clock of this host, because it has no server or the worker has its own copy.
    gets: AtomicU64,
    adds: AtomicU64,
    rows_read: AtomicU64,
    rows_added: AtomicU64,
}

/// Counters of one process: nothing is published by them.
fn count(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}

impl CallCounts {
    /// Counts the calls that this process will make as `worker`.
    pub fn new(clock: &Clock, worker: Option<usize>) -> CallCounts {
        let zero = || AtomicU64::new(0);
        CallCounts {
            earlier: worker.map_or((0, 0), |worker| (clock.gets(worker), clock.adds(worker))),
            gets: zero(),
            adds: zero(),
            rows_read: zero(),
            rows_added: zero(),
        }
    }

    pub fn unclocked_get(&self) {
        count(&self.gets, 1);
    }

    pub fn unclocked_add(&self) {
        count(&self.adds, 1);
    }

    /// A get of a matrix or of keys. Those of an array always return all of its elements and are not counted again.
    pub fn read(&self, rows: usize) {
        count(&self.rows_read, rows);
    }

    pub fn added(&self, rows: usize) {
        count(&self.rows_added, rows);
    }
}

impl Base {
    /// The statistics of a table with this many rows, which has `planes` arrays of state.
    pub(crate) fn stats(&self, rows: usize, planes: usize, state_row_bytes: usize) -> TableStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let clocked =
            |calls: fn(&Clock, usize) -> u64| self.inner.worker.map_or(0, |id| calls(&self.clock, id));
        let (earlier_gets, earlier_adds) = self.counts.earlier;
        let gets = load(&self.counts.gets) + clocked(Clock::gets).saturating_sub(earlier_gets);
        let adds = load(&self.counts.adds) + clocked(Clock::adds).saturating_sub(earlier_adds);
        TableStats {
            rows: rows as u64,
            value_bytes: (rows * self.description.row_bytes()) as u64,
            state_bytes: (rows * planes * state_row_bytes) as u64,
            gets,
            adds,
            rows_read: load(&self.counts.rows_read),
            rows_added: load(&self.counts.rows_added),
        }
    }
}
