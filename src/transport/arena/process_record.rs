//! Who sits at a seat, whether it is alive, and whether a rank that died may come back as another process.

use super::futex::{AtomicU32, AtomicU64, Ordering, fence};
use crate::error::LEFT_EARLY;
use crate::transport::process::{self, Liveness};

/// The processes of one seat, one after the other. Every field is atomic because others read while the owner writes.
#[repr(C)]
pub(crate) struct ProcessRecord {
    /// Twice the number of processes that have sat down here; odd while one sits down.
    seq: AtomicU32,
    state: AtomicU32,
    pid: AtomicU32,
    /// How often the launcher has started this rank again.
    restarts: AtomicU32,
    /// How many processes may sit down here in all, as far as the launcher knows. Zero without a launcher that restarts.
    max_incarnations: AtomicU32,
    /// Where the process stands among the calls of the world's group.
    call_state: AtomicU32,
    /// Not zero after an error that ended this rank's part in the world's group.
    group_failed: AtomicU32,
    /// Messages that are under way for this rank.
    messages: AtomicU32,
    /// Work that consists of several calls of the world's group and is under way.
    series: AtomicU32,
    /// Not zero once this rank has worked on a table whose rounds need every worker.
    uses_bsp_rounds: AtomicU32,
    start_time: AtomicU64,
    /// Calls of the world's group that are done.
    calls: AtomicU64,
    /// Those of them that the program made itself: all but the calls of a series.
    collectives: AtomicU64,
    /// Bytes of the seat's heap, from its start, that were ever in use.
    heap_high_water: AtomicU64,
}

const ABSENT: u32 = 0;
const PRESENT: u32 = 1;
const LEFT: u32 = 2;

/// Before the first call, which is init's own.
const BEFORE_INIT: u32 = 0;
const IN_CALL: u32 = 1;
const BETWEEN_CALLS: u32 = 2;

/// What can be expected of a seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerStatus {
    /// Its process lives, or has not come yet.
    Alive,
    /// Its process is gone; another one may take up where it stopped.
    Restarting,
    /// It is gone for good, and how that was noticed.
    Dead(&'static str),
}

/// Held while something is under way that nobody else can take up: a rank that dies meanwhile cannot come back.
pub(crate) struct InFlightGuard<'a>(&'a AtomicU32);

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl ProcessRecord {
    /// This process sits down. Whoever sat here before must be gone.
    pub fn register(&self) {
        let pid = process::own_pid();
        // Odd while the notes of two processes are mixed; it stays so if this process is killed here.
        let seq = self.seq.load(Ordering::Relaxed) | 1;
        self.seq.store(seq, Ordering::Relaxed);
        fence(Ordering::Release);
        self.pid.store(pid, Ordering::Relaxed);
        self.start_time.store(process::start_time(pid).unwrap_or(0), Ordering::Relaxed);
        self.state.store(PRESENT, Ordering::Release);
        self.seq.store(seq.wrapping_add(1), Ordering::Release);
    }

    /// The process leaves in good order.
    pub fn mark_left(&self) {
        self.state.store(LEFT, Ordering::Release);
    }

    /// Its process has ended well, whether or not it said so.
    pub fn mark_exited_cleanly(&self) {
        let _ = self.state.compare_exchange(PRESENT, LEFT, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Says that no process will sit down here any more.
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

    /// How many processes have sat down here.
    pub fn incarnation(&self) -> u32 {
        self.seq.load(Ordering::Acquire) / 2
    }

    /// Whether the process that sat here last has certainly ended; one that has only left may still run.
    pub fn process_ended(&self) -> bool {
        let (pid, start_time) = (self.pid.load(Ordering::Relaxed), self.start_time.load(Ordering::Relaxed));
        process::liveness(pid, start_time) == Liveness::Dead
    }

    /// How the process that sat here last was lost, and whether another one may follow it.
    fn snapshot(&self) -> (Option<&'static str>, bool) {
        loop {
            let seq = self.seq.load(Ordering::Acquire);
            let (state, pid) = (self.state.load(Ordering::Acquire), self.pid.load(Ordering::Relaxed));
            let how = match state {
                LEFT if pid == 0 => Some("its process ended before it called init"),
                LEFT => Some(LEFT_EARLY),
                // While the notes are written they belong to the process that writes them, to the one before it, which
                // has ended, or to both, and then no process has this id and this start time.
                PRESENT if self.process_ended() => Some("its process ended"),
                _ => None,
            };
            let may_restart = seq / 2 < self.max_incarnations.load(Ordering::Acquire) && self.restart_obstacle().is_none();
            // Notes of two processes say nothing.
            fence(Ordering::Acquire);
            if self.seq.load(Ordering::Relaxed) == seq {
                return (how, may_restart);
            }
        }
    }

    /// How the process was lost, or `None` while it lives or has not come yet.
    pub fn lost(&self) -> Option<&'static str> {
        self.snapshot().0
    }

    pub fn status(&self) -> PeerStatus {
        match self.snapshot() {
            (None, _) => PeerStatus::Alive,
            (Some(_), true) => PeerStatus::Restarting,
            (Some(how), false) => PeerStatus::Dead(how),
        }
    }

    /// Why nobody could take up where a process that is gone has stopped.
    pub fn restart_obstacle(&self) -> Option<&'static str> {
        match self.call_state.load(Ordering::Relaxed) {
            IN_CALL => Some("its process ended inside a collective call"),
            _ if self.group_failed.load(Ordering::Relaxed) != 0 => {
                Some("before it ended, an error had already stopped its calls with the other ranks")
            }
            _ if self.messages.load(Ordering::Relaxed) != 0 => Some("its process ended inside a message"),
            _ if self.series.load(Ordering::Relaxed) != 0 => {
                Some("its process ended while it made, saved or loaded a table with the others")
            }
            _ if self.uses_bsp_rounds.load(Ordering::Relaxed) != 0 => Some(
                "it worked on a table with consistency bsp, whose rounds cannot continue without the worker that failed",
            ),
            _ => None,
        }
    }

    /// The launcher says how many more times it would start this rank again.
    pub fn allow_restarts(&self, more: u32) {
        self.max_incarnations.store((1 + self.restarts()).saturating_add(more), Ordering::Release);
    }

    /// The launcher is about to start this rank again.
    pub fn count_restart(&self) {
        self.restarts.fetch_add(1, Ordering::AcqRel);
    }

    pub fn restarts(&self) -> u32 {
        self.restarts.load(Ordering::Acquire)
    }

    /// A call of the world's group begins.
    #[inline]
    pub fn enter(&self) {
        self.call_state.store(IN_CALL, Ordering::Relaxed);
    }

    /// That call has ended; so many are done.
    #[inline]
    pub fn leave(&self, calls: u64) {
        self.set_calls(calls);
        self.call_state.store(BETWEEN_CALLS, Ordering::Release);
    }

    /// So many calls of the world's group are done.
    pub fn set_calls(&self, calls: u64) {
        self.calls.store(calls, Ordering::Relaxed);
    }

    /// The program itself has completed one more call of the world's group.
    pub fn count_collective(&self) {
        self.collectives.store(self.collectives() + 1, Ordering::Relaxed);
    }

    /// How many calls of the world's group the programs of this rank's processes have completed.
    pub fn collectives(&self) -> u64 {
        self.collectives.load(Ordering::Relaxed)
    }

    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Whether this rank has been through init, as this process or as one before it.
    pub fn has_joined(&self) -> bool {
        self.call_state.load(Ordering::Acquire) != BEFORE_INIT
    }

    /// This rank takes no part in the world's group any more.
    pub fn mark_group_failed(&self) {
        self.group_failed.store(1, Ordering::Release);
    }

    /// This rank works on a table whose rounds need every worker: nobody can make up for those that it misses.
    pub fn mark_uses_bsp_rounds(&self) {
        self.uses_bsp_rounds.store(1, Ordering::Release);
    }

    /// A message begins; it ends when the result is dropped.
    pub fn message_guard(&self) -> InFlightGuard<'_> {
        self.messages.fetch_add(1, Ordering::Relaxed);
        InFlightGuard(&self.messages)
    }

    /// Several calls of the world's group begin that make sense only together, until the result is dropped.
    pub fn series_guard(&self) -> InFlightGuard<'_> {
        self.series.fetch_add(1, Ordering::Relaxed);
        InFlightGuard(&self.series)
    }

    /// The same without a guard: [`ProcessRecord::end_series`] ends it.
    pub fn begin_series(&self) {
        self.series.fetch_add(1, Ordering::Relaxed);
    }

    pub fn end_series(&self) {
        self.series.fetch_sub(1, Ordering::Release);
    }

    /// Whether such a series is under way.
    pub fn in_series(&self) -> bool {
        self.series.load(Ordering::Relaxed) != 0
    }

    /// The heap is in use up to there.
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
            uses_bsp_rounds: zero(),
            start_time: long(),
            calls: long(),
            collectives: long(),
            heap_high_water: long(),
        }
    }

    /// The notes of a process that was killed.
    fn of_killed_process() -> ProcessRecord {
        let record = ProcessRecord::new();
        record.seq.store(2, Ordering::Relaxed);
        record.state.store(PRESENT, Ordering::Relaxed);
        // No process has this id.
        record.pid.store(i32::MAX as u32, Ordering::Relaxed);
        record.start_time.store(1, Ordering::Relaxed);
        record
    }
}

#[cfg(all(test, unisono_loom))]
mod tests {
    use super::*;
    use loom::sync::Arc;

    /// Lets a process sit down while another one looks, in every order.
    fn check_status_during_registration(record: impl Fn() -> ProcessRecord + Send + Sync + 'static, expected: &'static [PeerStatus]) {
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
            assert_eq!(record.lost(), Some("its process ended"));
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
        assert!(matches!(record.status(), PeerStatus::Dead(_)));
        record.allow_restarts(1);
        assert_eq!(record.status(), PeerStatus::Restarting);
        // The last restart is under way until its process has come.
        record.count_restart();
        record.allow_restarts(0);
        assert_eq!(record.status(), PeerStatus::Restarting);
        record.register();
        assert_eq!(record.status(), PeerStatus::Alive);
        record.mark_left();
        assert!(matches!(record.status(), PeerStatus::Dead(_)));
        record.allow_restarts(5);
        assert_eq!(record.status(), PeerStatus::Restarting);
        record.forbid_incarnations();
        assert!(matches!(record.status(), PeerStatus::Dead(_)));
    }

    #[test]
    fn a_clean_exit_counts_as_leaving() {
        let record = ProcessRecord::new();
        record.register();
        record.mark_exited_cleanly();
        assert_eq!(record.lost(), Some(LEFT_EARLY));
    }

    #[test]
    fn work_in_flight_prevents_a_restart() {
        let record = ProcessRecord::new();
        record.register();
        record.mark_left();
        record.allow_restarts(3);
        let message = record.message_guard();
        assert!(matches!(record.status(), PeerStatus::Dead(_)));
        drop(message);
        let series = record.series_guard();
        record.enter();
        record.leave(6);
        assert!(matches!(record.status(), PeerStatus::Dead(_)), "between two calls of a series");
        drop(series);
        record.enter();
        assert!(matches!(record.status(), PeerStatus::Dead(_)));
        record.leave(7);
        assert_eq!((record.status(), record.calls()), (PeerStatus::Restarting, 7));
        record.mark_uses_bsp_rounds();
        assert!(matches!(record.status(), PeerStatus::Dead(_)));
        assert!(record.restart_obstacle().unwrap().contains("consistency bsp"));
        record.mark_group_failed();
        assert!(matches!(record.status(), PeerStatus::Dead(_)));
    }
}
