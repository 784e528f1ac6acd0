//! Who sits at a seat, whether it is alive, and whether a rank that died may come back as another process.

use super::futex::{AtomicU32, AtomicU64, Ordering, fence};
use crate::error::LEFT_EARLY;
use crate::transport::process::{self, Liveness};

/// The processes of one seat, one after the other. Every field is atomic because others read while the owner writes.
#[repr(C)]
pub(crate) struct Stay {
    /// Twice the number of processes that have sat down here; odd while one sits down.
    sittings: AtomicU32,
    state: AtomicU32,
    pid: AtomicU32,
    /// How often the launcher has started this rank again.
    restarts: AtomicU32,
    /// How many processes may sit down here in all, as far as the launcher knows. Zero without a launcher that restarts.
    allowed: AtomicU32,
    /// Where the process stands among the calls of the world's group.
    stands: AtomicU32,
    /// Not zero after an error that ended this rank's part in the world's group.
    broken: AtomicU32,
    /// Messages that are under way for this rank.
    messages: AtomicU32,
    /// Work that consists of several calls of the world's group and is under way.
    series: AtomicU32,
    /// Not zero once this rank has worked on a table whose rounds need every worker.
    rounds: AtomicU32,
    started: AtomicU64,
    /// Calls of the world's group that are done.
    calls: AtomicU64,
    /// Those of them that the program made itself: all but the calls of a series.
    collectives: AtomicU64,
    /// Bytes of the seat's heap, from its start, that were ever in use.
    heap: AtomicU64,
}

const ABSENT: u32 = 0;
const PRESENT: u32 = 1;
const LEFT: u32 = 2;

/// Before the first call, which is init's own.
const OUTSIDE: u32 = 0;
const INSIDE: u32 = 1;
const BETWEEN: u32 = 2;

/// What can be expected of a seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Its process lives, or has not come yet.
    Here,
    /// Its process is gone; another one may take up where it stopped.
    Returning,
    /// It is gone for good, and how that was noticed.
    Lost(&'static str),
}

/// Held while something is under way that nobody else can take up: a rank that dies meanwhile cannot come back.
pub(crate) struct Underway<'a>(&'a AtomicU32);

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl Stay {
    /// This process sits down. Whoever sat here before must be gone.
    pub fn begin(&self) {
        let pid = process::own();
        // Odd while the notes of two processes are mixed; it stays so if this process is killed here.
        let sitting = self.sittings.load(Ordering::Relaxed) | 1;
        self.sittings.store(sitting, Ordering::Relaxed);
        fence(Ordering::Release);
        self.pid.store(pid, Ordering::Relaxed);
        self.started.store(process::start_time(pid).unwrap_or(0), Ordering::Relaxed);
        self.state.store(PRESENT, Ordering::Release);
        self.sittings.store(sitting.wrapping_add(1), Ordering::Release);
    }

    /// The process leaves in good order.
    pub fn end(&self) {
        self.state.store(LEFT, Ordering::Release);
    }

    /// Its process has ended well, whether or not it said so.
    pub fn ended_well(&self) {
        let _ = self.state.compare_exchange(PRESENT, LEFT, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Says that no process will sit down here any more.
    pub fn nobody_comes(&self) {
        self.allowed.store(0, Ordering::Release);
        let _ = self.state.compare_exchange(ABSENT, LEFT, Ordering::AcqRel, Ordering::Relaxed);
    }

    pub fn is_taken(&self) -> bool {
        self.state.load(Ordering::Acquire) != ABSENT
    }

    pub fn pid(&self) -> Option<u32> {
        self.is_taken().then(|| self.pid.load(Ordering::Relaxed))
    }

    /// How many processes have sat down here.
    pub fn incarnation(&self) -> u32 {
        self.sittings.load(Ordering::Acquire) / 2
    }

    /// Whether the process that sat here last has certainly ended; one that has only left may still run.
    pub fn process_ended(&self) -> bool {
        let (pid, started) = (self.pid.load(Ordering::Relaxed), self.started.load(Ordering::Relaxed));
        process::liveness(pid, started) == Liveness::Dead
    }

    /// How the process that sat here last was lost, and whether another one may follow it.
    fn look(&self) -> (Option<&'static str>, bool) {
        loop {
            let sitting = self.sittings.load(Ordering::Acquire);
            let (state, pid) = (self.state.load(Ordering::Acquire), self.pid.load(Ordering::Relaxed));
            let how = match state {
                LEFT if pid == 0 => Some("its process ended before it called init"),
                LEFT => Some(LEFT_EARLY),
                // While the notes are written they belong to the process that writes them, to the one before it, which
                // has ended, or to both, and then no process has this id and this start time.
                PRESENT if self.process_ended() => Some("its process ended"),
                _ => None,
            };
            let follows = sitting / 2 < self.allowed.load(Ordering::Acquire) && self.obstacle().is_none();
            // Notes of two processes say nothing.
            fence(Ordering::Acquire);
            if self.sittings.load(Ordering::Relaxed) == sitting {
                return (how, follows);
            }
        }
    }

    /// How the process was lost, or `None` while it lives or has not come yet.
    pub fn lost(&self) -> Option<&'static str> {
        self.look().0
    }

    pub fn fate(&self) -> Fate {
        match self.look() {
            (None, _) => Fate::Here,
            (Some(_), true) => Fate::Returning,
            (Some(how), false) => Fate::Lost(how),
        }
    }

    /// Why nobody could take up where a process that is gone has stopped.
    pub fn obstacle(&self) -> Option<&'static str> {
        match self.stands.load(Ordering::Relaxed) {
            INSIDE => Some("its process ended inside a collective call"),
            _ if self.broken.load(Ordering::Relaxed) != 0 => {
                Some("before it ended, an error had already stopped its calls with the other ranks")
            }
            _ if self.messages.load(Ordering::Relaxed) != 0 => Some("its process ended inside a message"),
            _ if self.series.load(Ordering::Relaxed) != 0 => {
                Some("its process ended while it made, saved or loaded a table with the others")
            }
            _ if self.rounds.load(Ordering::Relaxed) != 0 => Some(
                "it worked on a table with consistency bsp, whose rounds cannot continue without the worker that failed",
            ),
            _ => None,
        }
    }

    /// The launcher says how many more times it would start this rank again.
    pub fn allow(&self, more: u32) {
        self.allowed.store((1 + self.restarts()).saturating_add(more), Ordering::Release);
    }

    /// The launcher is about to start this rank again.
    pub fn restart(&self) {
        self.restarts.fetch_add(1, Ordering::AcqRel);
    }

    pub fn restarts(&self) -> u32 {
        self.restarts.load(Ordering::Acquire)
    }

    /// A call of the world's group begins.
    #[inline]
    pub fn enter(&self) {
        self.stands.store(INSIDE, Ordering::Relaxed);
    }

    /// That call has ended; so many are done.
    #[inline]
    pub fn leave(&self, calls: u64) {
        self.count(calls);
        self.stands.store(BETWEEN, Ordering::Release);
    }

    /// So many calls of the world's group are done.
    pub fn count(&self, calls: u64) {
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
        self.stands.load(Ordering::Acquire) != OUTSIDE
    }

    /// This rank takes no part in the world's group any more.
    pub fn break_off(&self) {
        self.broken.store(1, Ordering::Release);
    }

    /// This rank works on a table whose rounds need every worker: nobody can make up for those that it misses.
    pub fn work_in_rounds(&self) {
        self.rounds.store(1, Ordering::Release);
    }

    /// A message begins; it ends when the result is dropped.
    pub fn message(&self) -> Underway<'_> {
        self.messages.fetch_add(1, Ordering::Relaxed);
        Underway(&self.messages)
    }

    /// Several calls of the world's group begin that make sense only together, until the result is dropped.
    pub fn series(&self) -> Underway<'_> {
        self.series.fetch_add(1, Ordering::Relaxed);
        Underway(&self.series)
    }

    /// The same without a guard: [`Stay::end_series`] ends it.
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
    pub fn use_heap(&self, bytes: usize) {
        self.heap.fetch_max(bytes as u64, Ordering::Relaxed);
    }

    pub fn heap_used(&self) -> usize {
        self.heap.load(Ordering::Relaxed) as usize
    }
}

#[cfg(test)]
impl Stay {
    fn new() -> Stay {
        let (zero, long) = (|| AtomicU32::new(0), || AtomicU64::new(0));
        Stay {
            sittings: zero(),
            state: zero(),
            pid: zero(),
            restarts: zero(),
            allowed: zero(),
            stands: zero(),
            broken: zero(),
            messages: zero(),
            series: zero(),
            rounds: zero(),
            started: long(),
            calls: long(),
            collectives: long(),
            heap: long(),
        }
    }

    /// The notes of a process that was killed.
    fn of_the_dead() -> Stay {
        let stay = Stay::new();
        stay.sittings.store(2, Ordering::Relaxed);
        stay.state.store(PRESENT, Ordering::Relaxed);
        // No process has this id.
        stay.pid.store(i32::MAX as u32, Ordering::Relaxed);
        stay.started.store(1, Ordering::Relaxed);
        stay
    }
}

#[cfg(all(test, unisono_loom))]
mod tests {
    use super::*;
    use loom::sync::Arc;

    /// Lets a process sit down while another one looks, in every order.
    fn look_while_it_begins(stay: impl Fn() -> Stay + Send + Sync + 'static, expected: &'static [Fate]) {
        loom::model(move || {
            let stay = Arc::new(stay());
            let joining = stay.clone();
            let thread = loom::thread::spawn(move || joining.begin());
            let fate = stay.fate();
            assert!(expected.contains(&fate), "{fate:?}");
            thread.join().unwrap();
            assert_eq!(stay.fate(), Fate::Here);
        });
    }

    #[test]
    fn a_process_that_joins_is_never_lost() {
        look_while_it_begins(Stay::new, &[Fate::Here]);
    }

    #[test]
    fn a_process_that_was_started_again_is_never_lost() {
        let restarting = || {
            let stay = Stay::of_the_dead();
            stay.restart();
            stay.allow(0);
            stay
        };
        look_while_it_begins(restarting, &[Fate::Returning, Fate::Here]);
    }
}

#[cfg(all(test, not(unisono_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_was_killed_is_lost_also_while_it_joined() {
        let stay = Stay::of_the_dead();
        for sittings in [1, 2, 3] {
            stay.sittings.store(sittings, Ordering::Relaxed);
            assert_eq!(stay.lost(), Some("its process ended"));
        }
    }

    #[test]
    fn each_process_that_sits_down_is_counted() {
        let stay = Stay::new();
        assert_eq!((stay.incarnation(), stay.lost()), (0, None));
        stay.begin();
        assert_eq!((stay.incarnation(), stay.lost()), (1, None));
        stay.end();
        assert!(stay.lost().is_some());
        stay.begin();
        assert_eq!((stay.incarnation(), stay.lost()), (2, None));
    }

    #[test]
    fn only_as_many_may_return_as_the_launcher_says() {
        let stay = Stay::new();
        stay.begin();
        stay.end();
        assert!(matches!(stay.fate(), Fate::Lost(_)));
        stay.allow(1);
        assert_eq!(stay.fate(), Fate::Returning);
        // The last restart is under way until its process has come.
        stay.restart();
        stay.allow(0);
        assert_eq!(stay.fate(), Fate::Returning);
        stay.begin();
        assert_eq!(stay.fate(), Fate::Here);
        stay.end();
        assert!(matches!(stay.fate(), Fate::Lost(_)));
        stay.allow(5);
        assert_eq!(stay.fate(), Fate::Returning);
        stay.nobody_comes();
        assert!(matches!(stay.fate(), Fate::Lost(_)));
    }

    #[test]
    fn who_ended_well_has_left() {
        let stay = Stay::new();
        stay.begin();
        stay.ended_well();
        assert_eq!(stay.lost(), Some(LEFT_EARLY));
    }

    #[test]
    fn what_was_half_done_cannot_be_taken_up() {
        let stay = Stay::new();
        stay.begin();
        stay.end();
        stay.allow(3);
        let message = stay.message();
        assert!(matches!(stay.fate(), Fate::Lost(_)));
        drop(message);
        let series = stay.series();
        stay.enter();
        stay.leave(6);
        assert!(matches!(stay.fate(), Fate::Lost(_)), "between two calls of a series");
        drop(series);
        stay.enter();
        assert!(matches!(stay.fate(), Fate::Lost(_)));
        stay.leave(7);
        assert_eq!((stay.fate(), stay.calls()), (Fate::Returning, 7));
        stay.work_in_rounds();
        assert!(matches!(stay.fate(), Fate::Lost(_)));
        assert!(stay.obstacle().unwrap().contains("consistency bsp"));
        stay.break_off();
        assert!(matches!(stay.fate(), Fate::Lost(_)));
    }
}
