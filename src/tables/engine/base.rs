//! State and calls shared by tables of every kind: description, clock, background queue, memory and its release.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::call::GetPart;
use super::header::TableHeader;
use super::queue::CallQueue;
use super::rounds::accumulates;
use super::stats::CallCounts;
use super::tables_state::TablesState;
use crate::error::{Error, Lost, Missing, Result};
use crate::tables::consistency::clock::{AddDecision, Clock};
use crate::tables::consistency::staleness::Staleness;
use crate::tables::remote::compress::Packers;
use crate::tables::remote::{self, RemoteRequest};
use crate::tables::spec::description::Description;
use crate::tables::spec::repeats::Repeats;
use crate::tables::spec::verbs;
use crate::tables::{AddOptions, Compression, Consistency, TableOptions};
use crate::transport::arena::lock::Lock;
use crate::transport::arena::{Extent, LockGuard};
use crate::transport::{Call, Verb, wait};
use crate::world::Group;

/// The shared-heap key of all memory that a table allocates after its first extent.
pub(crate) fn heap_key(inner: &TablesState, description: &Description) -> u64 {
    inner.key(&format!("pieces of {description}"))
}

/// Whether a call must still wait for its worker's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    Wait,
    /// The clock has allowed the call, and what it allows stays allowed until the worker acts.
    Granted,
}

/// Why a worker on a table with BSP rounds cannot be restarted.
const NEEDS_EVERY_WORKER: &str =
    "it worked on a table with consistency bsp, whose rounds cannot continue without the worker that failed";

/// The part of a table that does not depend on its kind.
pub(crate) struct Base {
    pub(crate) inner: Arc<TablesState>,
    /// The table's number in the world.
    pub(crate) number: u32,
    pub(crate) description: Description,
    /// The table's first extent, which begins with its header.
    pub(crate) extent: Extent,
    /// The shared-heap key of all memory allocated later.
    pub(crate) heap_key: u64,
    pub(crate) clock: Clock,
    pub(crate) queue: CallQueue,
    pub(crate) staleness: Staleness,
    /// Default options of adds.
    pub(crate) add: AddOptions,
    /// Whether an add sums the deltas of a row or key that it repeats, before anything is sent or applied.
    pub(crate) sums_repeats: bool,
    pub(crate) reject_nan: bool,
    pub(crate) compression: Compression,
    /// Whether this host takes part in every call of its workers: it has servers. Under BSP, it must also hold some of the table,
    /// because hosts that hold none are not notified of calls.
    pub(crate) participates: bool,
    /// Compression of this worker's adds.
    packers: Mutex<Packers>,
    pub(crate) calls: AtomicU64,
    pub(crate) counts: CallCounts,
    /// Whether creation has finished on all ranks; the collectives of creation itself are not reported to clocks.
    pub(crate) complete: AtomicBool,
    /// Whether other hosts may have fast-forwarded this worker since the last [`Base::sync_steps`].
    pub(crate) maybe_fast_forwarded: AtomicBool,
}

impl Base {
    /// The common part of a table whose memory has been allocated; its clock is at offset `clock`.
    pub(crate) fn new(
        inner: &Arc<TablesState>,
        is_new: bool,
        description: Description,
        extent: Extent,
        clock: usize,
        options: &TableOptions,
        is_linear: bool,
    ) -> Base {
        let accumulates = accumulates(description.consistency, is_linear);
        let repeats = options.repeats.unwrap_or(Repeats::default_for(is_linear));
        let clock = Clock::new(
            extent.clone(),
            clock,
            inner.roles.workers.len(),
            description.consistency,
            accumulates,
        );
        if let (false, Some(worker)) = (is_new, inner.worker) {
            let takeovers = Some(&TableHeader::of(&extent).recovered);
            let acquire = |lock| inner.endpoint.acquire_uninterruptible(lock, &description.name, takeovers);
            let rounds = clock.needs_round_lock().then(|| acquire(&clock.round().lock));
            clock.revive(worker);
            drop(rounds);
        }
        let needs_all = matches!(description.consistency, Consistency::Bsp { backup: 0, .. });
        if needs_all && inner.worker.is_some() && inner.roles.workers.len() > 1 {
            inner.endpoint.own_slot().process.forbid_restart(NEEDS_EVERY_WORKER);
        }
        inner.created.fetch_add(1, Ordering::Relaxed);
        let counts = CallCounts::new(&clock, inner.worker);
        Base {
            inner: inner.clone(),
            number: TableHeader::of(&extent).number(),
            heap_key: heap_key(inner, &description),
            description,
            extent,
            clock,
            queue: CallQueue::default(),
            staleness: Staleness::default(),
            add: options.add,
            // Rounds sum all of their adds at once: a half type is rounded only then.
            sums_repeats: repeats == Repeats::Sum && !accumulates,
            reject_nan: options.reject_nan,
            compression: options.compression,
            participates: inner.host_server(inner.host()).is_some(),
            packers: Mutex::default(),
            calls: AtomicU64::new(0),
            counts,
            complete: AtomicBool::new(!is_new),
            maybe_fast_forwarded: AtomicBool::new(false),
        }
    }

    pub(crate) fn header(&self) -> &TableHeader {
        TableHeader::of(&self.extent)
    }

    /// The compression of this worker's adds.
    pub(crate) fn packers(&self) -> MutexGuard<'_, Packers> {
        self.packers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Discards the compression residuals: the table's content is replaced.
    pub(crate) fn clear_residuals(&self) {
        *self.packers() = Packers::default();
    }

    /// Acquires one of the table's locks for a call.
    pub(crate) fn acquire<'a>(&self, call: &Call, lock: &'a Lock) -> Result<LockGuard<'a>> {
        self.inner.endpoint.acquire(call, lock, &self.header().recovered)
    }

    /// Acquires one of the table's locks where no call is left to fail.
    fn acquire_uninterruptible<'a>(&self, lock: &'a Lock) -> LockGuard<'a> {
        let (name, takeovers) = (&self.description.name, &self.header().recovered);
        self.inner.endpoint.acquire_uninterruptible(lock, name, Some(takeovers))
    }

    /// Rejects calls after the world was closed or after `close()`.
    pub(crate) fn check_open(&self, group: &Group, operation: &str) -> Result<()> {
        group.check_open(operation)?;
        if self.inner.is_closed() {
            let (expected, received) =
                ("a call before close()", "one after it, when other hosts may be gone");
            let error = Error::usage(operation, expected, received, "close tables when all work is done");
            return Err(error.at_rank(self.inner.rank));
        }
        Ok(())
    }

    /// The caller's worker id.
    pub(crate) fn worker(&self, group: &Group, operation: &str) -> Result<usize> {
        self.check_open(group, operation)?;
        self.inner.worker.ok_or_else(|| {
            Error::usage(operation, "a call by a worker", "a rank that is none", "only workers get and add")
                .at_rank(self.inner.rank)
        })
    }

    /// Context of a call on this table, for waits and errors.
    pub(crate) fn call<'a>(&'a self, group: &'a Group, operation: &'static str) -> Call<'a> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        group.call_on(operation, number, &self.description.name)
    }

    /// Context of a call that follows this rank's queued calls: waits for them, and reports their errors.
    pub(crate) fn ordered_call<'a>(&'a self, group: &'a Group, operation: &'static str) -> Result<Call<'a>> {
        let call = self.call(group, operation);
        self.queue.drain(&call, || self.missing(&self.blockers()))?;
        Ok(call)
    }

    /// Waits until this rank's queued calls have completed.
    pub(crate) fn flush(&self, group: &Group) -> Result<()> {
        self.ordered_call(group, "flush").map(drop)
    }

    /// Waits until this rank's queued calls and its outstanding remote requests have completed.
    pub(crate) fn flush_all_hosts(&self, group: &Group) -> Result<()> {
        self.flush(group)?;
        match self.inner.remote() {
            Some(remote) => remote.flush(&self.call(group, "flush")),
            None => Ok(()),
        }
    }

    /// Declares that this rank makes no more calls on the table.
    pub(crate) fn finish(&self, group: &Group) -> Result<()> {
        let Some(worker) = self.inner.worker else { return Ok(()) };
        let call = self.call(group, "finish");
        self.finish_local(&call, worker)?;
        self.notify_remote(&call, worker, remote::RequestVerb::Finish)
    }

    /// The same, after all adds of this rank have been applied.
    pub(crate) fn flush_and_finish(&self, group: &Group) -> Result<()> {
        // Even if an add failed, no other worker should wait for this one.
        let flushed = self.flush_all_hosts(group);
        let finished = self.finish(group);
        flushed.and(finished).and(self.flush_all_hosts(group))
    }

    pub(crate) fn finish_local(&self, call: &Call, worker: usize) -> Result<()> {
        let guard = self.clock.needs_round_lock().then(|| self.acquire(call, &self.clock.round().lock));
        let _guard = guard.transpose()?;
        self.clock.finish(worker);
        Ok(())
    }

    /// Waits until no other worker blocks this one.
    pub(crate) fn wait(&self, call: &Call, verb: Verb, blockers: impl Fn() -> Vec<usize>) -> Result<()> {
        // The usual case; it needs neither a list nor a closure.
        if blockers().is_empty() {
            return Ok(());
        }
        self.wait_for(call, verb, blockers, || Ok(Some(())))
    }

    /// Waits until no other worker blocks this one and `ready`, which is polled from then on, returns a value.
    fn wait_for<R>(
        &self,
        call: &Call,
        verb: Verb,
        blockers: impl Fn() -> Vec<usize>,
        mut ready: impl FnMut() -> Result<Option<R>>,
    ) -> Result<R> {
        let workers = RefCell::new(Vec::new());
        let mut poll = || {
            workers.replace(blockers());
            if workers.borrow().is_empty() { ready() } else { Ok(None) }
        };
        if let Some(found) = poll()? {
            return Ok(found);
        }
        let _waiting = self.inner.endpoint.set_waiting(verb, call.number);
        let check = || self.check(call, &workers.borrow()).map(|()| None);
        wait::wait(call.deadline(), self.clock.progress(), poll, check)
    }

    /// How a worker was lost, if it was.
    fn lost(&self, worker: usize) -> Option<Lost> {
        let rank = self.inner.roles.workers[worker];
        match self.is_local(worker) {
            true => self.inner.endpoint.lost(rank),
            false => self.inner.transport().lost(rank),
        }
    }

    fn is_local(&self, worker: usize) -> bool {
        self.inner.hosts[self.inner.roles.workers[worker]] == self.host()
    }

    /// Fails if waiting for these workers any longer is pointless: interrupt, dead worker, or deadline.
    pub(crate) fn check(&self, call: &Call, workers: &[usize]) -> Result<()> {
        call.check_interrupt()?;
        // A worker that finished before its process ended is not missed, even though this call was still waiting for it.
        let dead = workers.iter().filter_map(|&worker| Some((worker, self.lost(worker)?)));
        let dead = dead.filter(|(worker, _)| self.clock.is_active(*worker));
        let (dead, lost): (Vec<usize>, Vec<Lost>) = dead.unzip();
        match self.description.consistency {
            // Under SSP, dead workers do not block live ones.
            Consistency::Ssp { .. } => dead.iter().for_each(|&worker| self.clock.mark_dead(worker)),
            Consistency::Bsp { backup, .. } if backup > 0 => {
                let _guard = self.acquire(call, &self.clock.round().lock)?;
                // Other ranks may have marked some of them dead before this rank acquired the lock.
                let newly_dead = dead.iter().filter(|&&worker| self.clock.is_active(worker)).count();
                if newly_dead > 0 && self.clock.dead_workers() + newly_dead > backup {
                    return Err(call.lost(lost));
                }
                dead.iter().for_each(|&worker| self.clock.mark_dead(worker));
                // The rank that applied the last add may have died before it closed the round.
                self.clock.close_round_and_notify();
            }
            _ if !dead.is_empty() => return Err(call.lost(lost)),
            _ => {}
        }
        if call.remaining().is_zero() {
            return Err(call.timeout(self.missing(workers)));
        }
        Ok(())
    }

    /// The workers that block this one's next get or add.
    fn blockers(&self) -> Vec<usize> {
        let Some(worker) = self.inner.worker else { return Vec::new() };
        let mut blockers = self.clock.add_waits_for(worker);
        blockers.extend(self.clock.get_waits_for(worker));
        blockers.sort_unstable();
        blockers.dedup();
        blockers
    }

    /// What these workers are doing, for an error.
    fn missing(&self, workers: &[usize]) -> Vec<Missing> {
        let (local, remote): (Vec<usize>, Vec<usize>) =
            workers.iter().partition(|&&worker| self.is_local(worker));
        let rank = |&worker: &usize| self.inner.roles.workers[worker];
        let mut missing = self.inner.endpoint.all_missing(local.iter().map(rank));
        let remote: Vec<usize> = remote.iter().map(rank).collect();
        missing.extend(self.inner.transport().missing(&remote));
        self.hint(&mut missing);
        missing
    }

    /// Whether an add of this worker would be applied without waiting for queued calls or other workers.
    pub(crate) fn may_add_now(&self, worker: usize) -> bool {
        self.queue.is_empty()
            && !self.clock.has_backup_workers()
            && self.clock.add_waits_for(worker).is_empty()
    }

    /// Whether the adds of a round are summed before they are applied.
    pub(crate) fn accumulates(&self) -> bool {
        self.clock.accumulates
    }

    /// Counts a get under BSP once the worker has all the replies: on this host if it participates, and on the hosts of these parts.
    pub(crate) fn count_get(&self, call: &Call, worker: usize, parts: &[GetPart]) -> Result<()> {
        if !self.involves_all_hosts() {
            return Ok(());
        }
        if let Some(remote) = self.inner.remote() {
            parts.iter().try_for_each(|part| {
                let request = RemoteRequest::new(self.number, worker as u32, remote::RequestVerb::GetDone);
                remote.post_now(call, (self.server_of(part.host)?, request))
            })?;
        }
        if self.participates {
            self.clock.record_get(worker);
        }
        Ok(())
    }

    /// Waits until this worker may add; there are no backup workers.
    pub(crate) fn take_add_turn(&self, call: &Call, worker: usize, turn: Turn) -> Result<()> {
        self.clock.reactivate(worker);
        match turn {
            Turn::Wait => {
                self.wait(call, verbs::ADD, || self.clock.add_waits_for(worker)).map_err(not_applied)
            }
            Turn::Granted => Ok(()),
        }
    }

    /// Updates this host's share in this worker's turn, and advances the clock.
    pub(crate) fn add_local(
        &self,
        call: &Call,
        worker: usize,
        turn: Turn,
        write: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        if !self.clock.has_backup_workers() {
            self.take_add_turn(call, worker, turn)?;
            write().map_err(applied_in_part)?;
            self.clock.record_add(worker);
            return Ok(());
        }
        self.clock.reactivate(worker);
        let (decision, guard) = self.enter_round(call, worker).map_err(not_applied)?;
        drop(guard);
        let mut admitted = AdmittedAdd { base: self, worker, armed: decision == AddDecision::Apply };
        if decision == AddDecision::Apply {
            write().map_err(applied_in_part)?;
        }
        let _guard = self.acquire(call, &self.clock.round().lock).map_err(applied_in_part)?;
        admitted.armed = false;
        self.clock.record_add(worker);
        Ok(())
    }

    /// Waits until the clock decides on this worker's next add, whose turn it is unless there are backup workers; returns with the
    /// round's lock held.
    pub(crate) fn enter_round(&self, call: &Call, worker: usize) -> Result<(AddDecision, LockGuard<'_>)> {
        if !self.clock.has_backup_workers() {
            return Ok((AddDecision::Apply, self.acquire(call, &self.clock.round().lock)?));
        }
        let decide = || {
            let guard = self.acquire(call, &self.clock.round().lock)?;
            let decision = self.clock.admit_add(worker);
            Ok((decision != AddDecision::Wait).then_some((decision, guard)))
        };
        self.wait_for(call, verbs::ADD, || self.clock.add_waits_for(worker), decide)
    }

    pub(crate) fn host(&self) -> usize {
        self.inner.hosts[self.inner.rank]
    }
}

/// Marks the error of an add that stopped waiting before it changed anything.
pub(crate) fn not_applied(error: Error) -> Error {
    error.during("add (not applied anywhere: it may be repeated)")
}

/// Marks the error of an add that failed after it may have changed something.
pub(crate) fn applied_in_part(error: Error) -> Error {
    error.during("add (perhaps applied in part)")
}

/// An admitted add in the open round. Withdrawn on drop if the add failed, so that other workers can complete the round.
struct AdmittedAdd<'a> {
    base: &'a Base,
    worker: usize,
    armed: bool,
}

impl Drop for AdmittedAdd<'_> {
    fn drop(&mut self) {
        if self.armed {
            let clock = &self.base.clock;
            let guard = self.base.acquire_uninterruptible(&clock.round().lock);
            clock.withdraw(self.worker);
            drop(guard);
        }
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        // A forked child inherits the handles, but neither the worker nor its reference to the memory.
        if !self.inner.is_owner_process() {
            return;
        }
        if let Some(worker) = self.inner.worker {
            let needs_lock = self.clock.needs_round_lock();
            let rounds = needs_lock.then(|| self.acquire_uninterruptible(&self.clock.round().lock));
            self.clock.finish(worker);
            drop(rounds);
        }
        let endpoint = &self.inner.endpoint;
        if self.header().detach(endpoint.local_rank) {
            for piece in endpoint.find_shared(self.heap_key).iter().chain([&self.extent]) {
                endpoint.free_shared(piece);
            }
        }
    }
}
