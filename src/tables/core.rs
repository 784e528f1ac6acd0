//! A table on this rank's host: its memory, its clock, and what a worker may do with them now.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::clock::{Clock, Verdict};
use super::description::Description;
use super::placement::Placement;
use super::queue::Queue;
use super::replica::Replica;
use super::staleness::Staleness;
use super::storage::Storage;
use super::tables::Inner;
use super::updater::UpdateContext;
use super::{AddOptions, Compression, Consistency, Rows};
use crate::error::Result;
use crate::transport::Call;
use crate::transport::arena::patience::NAP;
use crate::world::Group;

/// What all handles of a table share.
pub(crate) struct Core {
    pub(super) inner: Arc<Inner>,
    /// Its number among the tables of the world.
    pub(super) number: u32,
    pub(super) description: Description,
    pub(super) placement: Placement,
    pub(super) storage: Storage,
    pub(super) clock: Clock,
    /// This worker's own copy, where workers have copies.
    pub(super) replica: Option<Replica>,
    pub(super) queue: Queue,
    pub(super) staleness: Staleness,
    /// Options of adds that bring none.
    pub(super) add: AddOptions,
    pub(super) reject_nan: bool,
    pub(super) compression: Compression,
    pub(super) calls: AtomicU64,
}

impl Core {
    /// A call on this table, for waits and errors.
    pub(super) fn call<'a>(&'a self, group: &'a Group, operation: &'static str) -> Call<'a> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        group.call_on(operation, number, &self.description.name)
    }

    /// Waits until all that this rank queued is done.
    pub(super) fn flush(&self, group: &Group) -> Result<()> {
        self.queue.drain(&self.call(group, "flush"))
    }

    /// This rank makes no more calls on the table.
    pub(super) fn finish(&self, group: &Group) -> Result<()> {
        match self.inner.worker {
            Some(worker) => self.finish_here(&self.call(group, "finish"), worker),
            None => Ok(()),
        }
    }

    pub(super) fn finish_here(&self, call: &Call, worker: usize) -> Result<()> {
        let guard = self.clock.has_rounds().then(|| self.storage.hold(call, &self.clock.round().lock));
        let _guard = guard.transpose()?;
        self.clock.finish(worker);
        Ok(())
    }

    /// Waits until nobody keeps this worker waiting any more.
    fn wait(&self, call: &Call, blockers: impl Fn() -> Vec<usize>) -> Result<()> {
        if blockers().is_empty() {
            return Ok(());
        }
        let progress = self.clock.progress();
        loop {
            let seen = progress.load();
            let workers = blockers();
            if workers.is_empty() {
                return Ok(());
            }
            progress.sleep_while(seen, NAP.min(call.remaining()));
            if progress.load() == seen || call.remaining().is_zero() {
                self.check(call, &workers)?;
            }
        }
    }

    /// Fails if there is no sense in waiting for these workers any longer.
    fn check(&self, call: &Call, workers: &[usize]) -> Result<()> {
        call.check_interrupt()?;
        let seat = &self.inner.seat;
        let rank = |worker: usize| self.inner.roles.workers[worker];
        let dead: Vec<usize> =
            workers.iter().copied().filter(|&worker| seat.dead(rank(worker)).is_some()).collect();
        match self.description.consistency {
            // A bound on staleness does not hold back those who are alive.
            Consistency::Ssp { .. } => dead.iter().for_each(|&worker| self.clock.bury(worker)),
            _ if !dead.is_empty() => {
                return Err(call.lost(dead.iter().filter_map(|&worker| seat.dead(rank(worker))).collect()));
            }
            _ => {}
        }
        if call.remaining().is_zero() {
            return Err(call.timeout(seat.all_missing(workers.iter().map(|&worker| rank(worker)))));
        }
        Ok(())
    }

    /// Whether a get of this worker would be answered now.
    pub(super) fn may_get(&self, worker: usize) -> bool {
        self.clock.get_waits_for(worker).is_empty()
    }

    /// Whether an add of this worker would be applied or dropped now.
    pub(super) fn may_add(&self, worker: usize) -> bool {
        self.clock.add_waits_for(worker).is_empty()
    }

    /// Waits for this worker's turn to get, copies out what this host holds, and ticks the clock.
    pub(super) fn get_here(
        &self,
        call: &Call,
        worker: usize,
        read: impl FnOnce() -> Result<()>,
    ) -> Result<u64> {
        self.wait(call, || self.clock.get_waits_for(worker))?;
        read()?;
        Ok(self.clock.got(worker))
    }

    /// Waits for this worker's turn to add, changes what this host holds, and ticks the clock.
    pub(super) fn add_here(
        &self,
        call: &Call,
        worker: usize,
        write: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        if !self.clock.has_rounds() {
            self.wait(call, || self.clock.add_waits_for(worker))?;
            write()?;
            self.clock.added(worker, true);
            return Ok(());
        }
        let round = &self.clock.round().lock;
        let verdict = loop {
            self.wait(call, || self.clock.add_waits_for(worker))?;
            let guard = self.storage.hold(call, round)?;
            let verdict = self.clock.enter(worker);
            drop(guard);
            if verdict != Verdict::Wait {
                break verdict;
            }
        };
        if verdict == Verdict::Apply {
            write()?;
        }
        let _guard = self.storage.hold(call, round)?;
        self.clock.added(worker, verdict == Verdict::Apply);
        Ok(())
    }

    /// Copies those of these rows that this host holds to their places in `out`, which has room for all of them.
    pub(super) fn read(&self, call: &Call, worker: usize, rows: Rows, out: &mut [u8]) -> Result<()> {
        let bytes = self.description.row_bytes();
        match rows {
            Rows::All => self.placement.on_host(self.host()).try_for_each(|segment| {
                let part = &mut out[segment.first * bytes..segment.end * bytes];
                self.storage.get(call, worker, segment.local, part)
            }),
            Rows::List(&[row]) => match self.placement.locate(row as usize) {
                (host, local) if host == self.host() => self.storage.get(call, worker, local, out),
                _ => Ok(()),
            },
            Rows::List(list) => self.storage.get_list(call, self.placement.picks(list, self.host()), out),
        }
    }

    /// Applies those rows of a delta that this host holds.
    pub(super) fn write(
        &self,
        call: &Call,
        worker: usize,
        rows: Rows,
        delta: &[u8],
        options: &AddOptions,
    ) -> Result<()> {
        let bytes = self.description.row_bytes();
        let options = options.or(&self.add);
        let context = UpdateContext { worker, step: 0, options: &options };
        let empty = |row: &[u8]| row.iter().all(|&byte| byte == 0);
        match rows {
            Rows::All => self.placement.on_host(self.host()).try_for_each(|segment| {
                let part = &delta[segment.first * bytes..segment.end * bytes];
                let skip = |row: usize| empty(&part[row * bytes..][..bytes]);
                self.storage.add(call, segment.local, part, &context, &skip)
            }),
            Rows::List(list) => {
                self.storage.add_list(call, self.placement.picks(list, self.host()), delta, &context)
            }
        }
    }

    pub(super) fn host(&self) -> usize {
        self.inner.hosts[self.inner.rank]
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if let Some(worker) = self.inner.worker {
            self.clock.finish(worker);
        }
        if self.storage.header().detach() {
            // Nobody is left who could be told of an error; the memory ends with the job.
            let _ = self.inner.seat.free_common(&self.storage.extent);
        }
    }
}
