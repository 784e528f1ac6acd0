//! Liveness and restart state of each local rank's process, in memory shared by the ranks of a host. Protocol: README.md.

use std::borrow::Cow;

use super::futex::{AtomicU32, AtomicU64, Ordering, fence};
use super::shared_text::SharedText;
use crate::error::Lost;
use crate::transport::LEFT_EARLY;
use crate::transport::process::{self, Liveness};

/// One local rank's process record. The owner writes it; every peer may read it at any time, hence the atomics.
#[repr(C)]
pub(crate) struct ProcessRecord {
    /// Sequence lock over `pid`, `start_time` and `state`: odd while the owner rewrites them; `seq / 2` is the incarnation.
    seq: AtomicU32,
    state: AtomicU32,
    pid: AtomicU32,
    /// Number of restarts by the launcher.
    restarts: AtomicU32,
    /// Total incarnations that the launcher allows; zero without a launcher that restarts ranks.
    max_incarnations: AtomicU32,
    /// Whether the process is before init, inside a call of the world's group, or between two of its calls.
    call_state: AtomicU32,
    /// Nonzero after an error that ended this rank's participation in the world's group.
    group_failed: AtomicU32,
    /// Messages in flight to or from this rank.
    messages: AtomicU32,
    /// Nesting depth of series in progress: several calls of the world's group that only make sense together.
    series: AtomicU32,
    start_time: AtomicU64,
    /// Completed calls of the world's group.
    calls: AtomicU64,
    /// Completed calls that the program itself made, that is, all but those of a series.
    collectives: AtomicU64,
    /// High-water mark of the rank's heap, in bytes from its start.
    heap_high_water: AtomicU64,
    /// Why no other process can continue this rank's work, as the layer that does the work states it.
    obstacle: SharedText<48>,
}

const ABSENT: u32 = 0;
const PRESENT: u32 = 1;
const LEFT: u32 = 2;

/// Until the first call, which init itself makes, has started.
const BEFORE_INIT: u32 = 0;
const IN_CALL: u32 = 1;
const BETWEEN_CALLS: u32 = 2;

/// Whether a peer is alive or may be restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerStatus {
    /// The process is alive or has not joined yet.
    Alive,
    /// The process has exited or left; a new incarnation may continue in its place.
    Restarting,
    /// The process has exited or left, and no new incarnation can replace it.
    Unrecoverable(LossCause),
}

/// How a process was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LossCause {
    EndedBeforeInit,
    /// It left the world in an orderly way.
    Left,
    Ended,
}

impl LossCause {
    pub const fn text(self) -> &'static str {
        match self {
            LossCause::EndedBeforeInit => "its process ended before it called init",
            LossCause::Left => LEFT_EARLY,
            LossCause::Ended => "its process ended",
        }
    }

    /// The loss of this rank, for an error.
    pub fn lost(self, rank: usize, pid: Option<u32>) -> Lost {
        Lost { left: self == LossCause::Left, ..Lost::new(rank, pid, self.text()) }
    }
}

/// Held while an operation is in flight that no other process can continue: a rank that dies meanwhile cannot be restarted.
pub(crate) struct InFlightGuard<'a>(&'a AtomicU32);

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl ProcessRecord {
    /// Registers the calling process as the record's owner. The previous owner must have exited.
    pub fn register(&self) {
        let pid = process::own_pid();
        // Odd while the fields of two processes are mixed; it stays odd if this process is killed here.
        let seq = self.seq.load(Ordering::Relaxed) | 1;
        self.seq.store(seq, Ordering::Relaxed);
        fence(Ordering::Release);
        self.pid.store(pid, Ordering::Relaxed);
        self.start_time.store(process::start_time(pid).unwrap_or(0), Ordering::Relaxed);
        self.state.store(PRESENT, Ordering::Release);
        self.seq.store(seq.wrapping_add(1), Ordering::Release);
    }

    /// Records that the process has left in an orderly way.
    pub fn mark_left(&self) {
        self.state.store(LEFT, Ordering::Release);
    }

    /// Records that the process has exited successfully, even if it did not deregister itself.
    pub fn mark_exited_cleanly(&self) {
        let _ = self.state.compare_exchange(PRESENT, LEFT, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Rules out any further incarnation.
    pub fn forbid_incarnations(&self) {
        self.max_incarnations.store(0, Ordering::Release);
        let _ = self.state.compare_exchange(ABSENT, LEFT, Ordering::AcqRel, Ordering::Relaxed);
    }

    pub fn is_registered(&self) -> bool {
        self.state.load(Ordering::Acquire) != ABSENT
    }

    pub fn pid(&self) -> Option<u32> {
        self.is_registered().then(|| self.pid.load(Ordering::Relaxed))
    }

    /// Number of processes that have registered here.
    pub fn incarnation(&self) -> u32 {
        self.seq.load(Ordering::Acquire) / 2
    }

    /// Whether the last owner's process has certainly ended; a process that has only left may still run.
    pub fn process_ended(&self) -> bool {
        let (pid, start_time) = (self.pid.load(Ordering::Relaxed), self.start_time.load(Ordering::Relaxed));
        process::liveness(pid, start_time) == Liveness::Exited
    }

    /// A consistent snapshot: how the last owner was lost, and whether a new incarnation may replace it.
    fn snapshot(&self) -> (Option<LossCause>, bool) {
        loop {
            let seq = self.seq.load(Ordering::Acquire);
            let (state, pid) = (self.state.load(Ordering::Acquire), self.pid.load(Ordering::Relaxed));
            let how = match state {
                LEFT if pid == 0 => Some(LossCause::EndedBeforeInit),
                LEFT => Some(LossCause::Left),
                // During registration the fields belong to the registering process, to its predecessor, which has
                // ended, or to a mix of both, and then no process matches both the PID and the start time.
                PRESENT if self.process_ended() => Some(LossCause::Ended),
                _ => None,
            };
            let may_restart =
                seq / 2 < self.max_incarnations.load(Ordering::Acquire) && self.restart_obstacle().is_none();
            // Retry if the fields may belong to two processes.
            fence(Ordering::Acquire);
            if self.seq.load(Ordering::Relaxed) == seq {
                return (how, may_restart);
            }
        }
    }

    /// How the process was lost, or `None` while it is alive or has not joined yet.
    pub fn lost(&self) -> Option<LossCause> {
        self.snapshot().0
    }

    pub fn status(&self) -> PeerStatus {
        match self.snapshot() {
            (None, _) => PeerStatus::Alive,
            (Some(_), true) => PeerStatus::Restarting,
            (Some(how), false) => PeerStatus::Unrecoverable(how),
        }
    }

    /// Why a new incarnation could not continue where the process stopped.
    pub fn restart_obstacle(&self) -> Option<Cow<'static, str>> {
        let known = match self.call_state.load(Ordering::Relaxed) {
            IN_CALL => "its process ended inside a collective call",
            _ if self.group_failed.load(Ordering::Relaxed) != 0 => {
                "before it ended, an error had already stopped its calls with the other ranks"
            }
            _ if self.messages.load(Ordering::Relaxed) != 0 => "its process ended inside a message",
            _ if self.series.load(Ordering::Relaxed) != 0 => {
                "its process ended while it made, saved or loaded a table with the others"
            }
            _ => return self.obstacle.get().map(Cow::Owned),
        };
        Some(Cow::Borrowed(known))
    }

    /// Called by the launcher: `more` is the number of further restarts that it allows.
    pub fn allow_restarts(&self, more: u32) {
        self.max_incarnations.store((1 + self.restarts()).saturating_add(more), Ordering::Release);
    }

    /// Called by the launcher before it restarts this rank.
    pub fn count_restart(&self) {
        self.restarts.fetch_add(1, Ordering::AcqRel);
    }

    pub fn restarts(&self) -> u32 {
        self.restarts.load(Ordering::Acquire)
    }

    /// Marks the start of a call of the world's group.
    #[inline]
    pub fn enter(&self) {
        self.call_state.store(IN_CALL, Ordering::Relaxed);
    }

    /// Marks the end of that call, after which `calls` calls are complete.
    #[inline]
    pub fn leave(&self, calls: u64) {
        self.set_calls(calls);
        self.call_state.store(BETWEEN_CALLS, Ordering::Release);
    }

    /// Sets the number of completed calls of the world's group.
    pub fn set_calls(&self, calls: u64) {
        self.calls.store(calls, Ordering::Relaxed);
    }

    /// Counts one more completed call of the world's group that the program itself made.
    pub fn count_collective(&self) {
        self.collectives.store(self.collectives() + 1, Ordering::Relaxed);
    }

    /// Completed calls of the world's group that the program itself made, over all incarnations of this rank.
    pub fn collectives(&self) -> u64 {
        self.collectives.load(Ordering::Relaxed)
    }

    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Whether any incarnation of this rank has completed init.
    pub fn has_joined(&self) -> bool {
        self.call_state.load(Ordering::Acquire) != BEFORE_INIT
    }

    /// Records that this rank no longer takes part in the world's group.
    pub fn mark_group_failed(&self) {
        self.group_failed.store(1, Ordering::Release);
    }

    /// Records why, from now on, no other process can continue this rank's work.
    pub fn forbid_restart(&self, why: &str) {
        self.obstacle.set(why);
    }

    /// Marks a message as in flight until the guard is dropped.
    pub fn message_guard(&self) -> InFlightGuard<'_> {
        self.messages.fetch_add(1, Ordering::Relaxed);
        InFlightGuard(&self.messages)
    }

    /// Marks a series of calls of the world's group, which only make sense together, until the guard is dropped.
    pub fn series_guard(&self) -> InFlightGuard<'_> {
        self.series.fetch_add(1, Ordering::Relaxed);
        InFlightGuard(&self.series)
    }

    /// As [`ProcessRecord::series_guard`] without a guard: [`ProcessRecord::end_series`] ends the series.
    pub fn begin_series(&self) {
        self.series.fetch_add(1, Ordering::Relaxed);
    }

    pub fn end_series(&self) {
        self.series.fetch_sub(1, Ordering::Release);
    }

    /// Whether a series is in progress.
    pub fn in_series(&self) -> bool {
        self.series.load(Ordering::Relaxed) != 0
    }

    /// Raises the heap's high-water mark to `bytes`.
    pub fn raise_heap_high_water(&self, bytes: usize) {
        self.heap_high_water.fetch_max(bytes as u64, Ordering::Relaxed);
    }

    pub fn heap_high_water(&self) -> usize {
        self.heap_high_water.load(Ordering::Relaxed) as usize
    }
}

#[cfg(test)]
impl ProcessRecord {
    fn new() -> ProcessRecord {
        let (zero, long) = (|| AtomicU32::new(0), || AtomicU64::new(0));
        ProcessRecord {
            seq: zero(),
            state: zero(),
            pid: zero(),
            restarts: zero(),
            max_incarnations: zero(),
            call_state: zero(),
            group_failed: zero(),
            messages: zero(),
            series: zero(),
            start_time: long(),
            calls: long(),
            collectives: long(),
            heap_high_water: long(),
            obstacle: SharedText::new(),
        }
    }

    /// The record of a process that was killed.
    fn of_killed_process() -> ProcessRecord {
        let record = ProcessRecord::new();
        record.seq.store(2, Ordering::Relaxed);
        record.state.store(PRESENT, Ordering::Relaxed);
        // No process has this PID.
        record.pid.store(i32::MAX as u32, Ordering::Relaxed);
        record.start_time.store(1, Ordering::Relaxed);
        record
    }
}

#[cfg(all(test, unisono_loom))]
mod tests {
    use super::*;
    use loom::sync::Arc;

    /// Lets a process register while a peer reads its status, in every interleaving.
    fn check_status_during_registration(
        record: impl Fn() -> ProcessRecord + Send + Sync + 'static,
        expected: &'static [PeerStatus],
    ) {
        loom::model(move || {
            let record = Arc::new(record());
            let joining = record.clone();
            let thread = loom::thread::spawn(move || joining.register());
            let status = record.status();
            assert!(expected.contains(&status), "{status:?}");
            thread.join().unwrap();
            assert_eq!(record.status(), PeerStatus::Alive);
        });
    }

    #[test]
    fn a_process_that_joins_is_never_lost() {
        check_status_during_registration(ProcessRecord::new, &[PeerStatus::Alive]);
    }

    #[test]
    fn a_process_that_was_started_again_is_never_lost() {
        let restarting = || {
            let record = ProcessRecord::of_killed_process();
            record.count_restart();
            record.allow_restarts(0);
            record
        };
        check_status_during_registration(restarting, &[PeerStatus::Restarting, PeerStatus::Alive]);
    }
}

#[cfg(all(test, not(unisono_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_was_killed_is_lost_also_while_it_joined() {
        let record = ProcessRecord::of_killed_process();
        for seq in [1, 2, 3] {
            record.seq.store(seq, Ordering::Relaxed);
            assert_eq!(record.lost(), Some(LossCause::Ended));
        }
    }

    #[test]
    fn each_incarnation_is_counted() {
        let record = ProcessRecord::new();
        assert_eq!((record.incarnation(), record.lost()), (0, None));
        record.register();
        assert_eq!((record.incarnation(), record.lost()), (1, None));
        record.mark_left();
        assert!(record.lost().is_some());
        record.register();
        assert_eq!((record.incarnation(), record.lost()), (2, None));
    }

    #[test]
    fn restarts_are_limited_by_the_launcher() {
        let record = ProcessRecord::new();
        record.register();
        record.mark_left();
        assert!(matches!(record.status(), PeerStatus::Unrecoverable(_)));
        record.allow_restarts(1);
        assert_eq!(record.status(), PeerStatus::Restarting);
        // The last restart is pending until its process has registered.
        record.count_restart();
        record.allow_restarts(0);
        assert_eq!(record.status(), PeerStatus::Restarting);
        record.register();
        assert_eq!(record.status(), PeerStatus::Alive);
        record.mark_left();
        assert!(matches!(record.status(), PeerStatus::Unrecoverable(_)));
        record.allow_restarts(5);
        assert_eq!(record.status(), PeerStatus::Restarting);
        record.forbid_incarnations();
        assert!(matches!(record.status(), PeerStatus::Unrecoverable(_)));
    }

    #[test]
    fn a_clean_exit_counts_as_leaving() {
        let record = ProcessRecord::new();
        record.register();
        record.mark_exited_cleanly();
        assert_eq!(record.lost(), Some(LossCause::Left));
    }

    #[test]
    fn work_in_flight_prevents_a_restart() {
        let record = ProcessRecord::new();
        record.register();
        record.mark_left();
        record.allow_restarts(3);
        let message = record.message_guard();
        assert!(matches!(record.status(), PeerStatus::Unrecoverable(_)));
        drop(message);
        let series = record.series_guard();
        record.enter();
        record.leave(6);
        assert!(matches!(record.status(), PeerStatus::Unrecoverable(_)), "between two calls of a series");
        drop(series);
        record.enter();
        assert!(matches!(record.status(), PeerStatus::Unrecoverable(_)));
        record.leave(7);
        assert_eq!((record.status(), record.calls()), (PeerStatus::Restarting, 7));
        record.forbid_restart("its rounds need it");
        assert!(matches!(record.status(), PeerStatus::Unrecoverable(_)));
        assert_eq!(record.restart_obstacle().unwrap(), "its rounds need it");
        record.mark_group_failed();
        assert!(matches!(record.status(), PeerStatus::Unrecoverable(_)));
    }
}
