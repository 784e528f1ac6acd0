//! How a call waits: it polls for what it needs, parks until that may have changed, and periodically checks whether to continue.
//!
//! A check runs the caller's interrupt hook, which may need the interpreter of another language. So it runs without holding any
//! lock that a thread inside that interpreter may want: see the lock order in ARCHITECTURE.md, which [`Monitor`] enforces.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Call;
use crate::error::{Lost, Missing, Result};

/// The longest time between two checks of a wait's interrupt hook, deadline and peers.
pub const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// What a waiting thread sleeps on between two polls.
pub(crate) trait Park {
    /// The current state. It is read before a poll, so that a change during the poll ends the next sleep at once.
    fn seen(&self) -> u32 {
        0
    }

    /// Sleeps until the state differs from `seen`, at most until `until`.
    fn park(&mut self, seen: u32, until: Instant) -> Result<Parked>;
}

/// For events without a notification: sleeps for a fixed time between two polls.
impl Park for Duration {
    fn park(&mut self, _seen: u32, _until: Instant) -> Result<Parked> {
        std::thread::sleep(*self);
        Ok(Parked::Slept)
    }
}

/// How a thread has parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parked {
    /// So briefly that reading the clock is not worthwhile.
    Spun,
    Slept,
    /// A signal arrived: its handler may want the wait to end.
    Signalled,
}

/// Waits until `poll` returns a value. `check` is called every [`POLL_INTERVAL`], after a signal and at the deadline. It returns
/// an error to end the wait, and must do so at the deadline.
pub(crate) fn wait<R>(
    deadline: Instant,
    mut parking: impl Park,
    mut poll: impl FnMut() -> Result<Option<R>>,
    mut check: impl FnMut() -> Result<Option<R>>,
) -> Result<R> {
    let mut timer = None;
    loop {
        let seen = parking.seen();
        if let Some(found) = poll()? {
            return Ok(found);
        }
        let timer = timer.get_or_insert_with(CheckTimer::start);
        let due = match parking.park(seen, timer.next.min(deadline))? {
            Parked::Spun => false,
            Parked::Slept => timer.is_due(deadline),
            Parked::Signalled => true,
        };
        if due && let Some(found) = check()? {
            return Ok(found);
        }
    }
}

/// Polls until `look` returns a value, at most until `until`. For short polls, which longer waits consist of, and for cleanup:
/// it makes no checks.
pub(crate) fn poll_until<R>(
    until: Instant,
    parking: impl Park,
    mut look: impl FnMut() -> Result<Option<R>>,
) -> Result<Option<R>> {
    let poll = || match look()? {
        None if Instant::now() >= until => Ok(Some(None)),
        found => Ok(found.map(Some)),
    };
    wait(until, parking, poll, || Ok(None))
}

/// The time limit of a wait that only its check ends: about 30 years.
pub(crate) const NO_LIMIT: Duration = Duration::from_secs(1_000_000_000);

/// The deadline of a wait that only its check ends.
pub(crate) fn no_deadline() -> Instant {
    Instant::now() + NO_LIMIT
}

/// Schedules the checks of a polling loop.
pub(crate) struct CheckTimer {
    next: Instant,
}

impl CheckTimer {
    pub fn start() -> CheckTimer {
        CheckTimer { next: Instant::now() + POLL_INTERVAL }
    }

    /// True once per interval, and from the deadline on. Under loom, where every run of a model must be the same, no time
    /// passes.
    pub fn is_due(&mut self, deadline: Instant) -> bool {
        let now = Instant::now();
        let due = !cfg!(unisono_loom) && (now >= self.next || now >= deadline);
        if due {
            self.next = now + POLL_INTERVAL;
        }
        due
    }
}

/// The peers that a wait depends on, each identified by a number of the implementor's choice.
pub(crate) trait Awaited {
    /// The peers that have not done their part yet.
    fn awaited(&self) -> Vec<usize>;
    /// Why a peer will not do its part, or `None` while it may: only certain knowledge counts.
    fn lost(&self, peer: usize) -> Option<Lost>;
    /// Status of late peers, for the error message.
    fn missing(&self, peers: Vec<usize>) -> Vec<Missing>;
}

impl Call<'_> {
    /// Whether the wait is over. Fails if the caller wants to stop, if an awaited peer is lost, and at the deadline. `poll` is
    /// called a last time before the latter two; returns true if that completed the wait.
    pub fn check(&self, peers: &impl Awaited, mut poll: impl FnMut() -> Result<bool>) -> Result<bool> {
        self.check_interrupt()?;
        // Looked up before the poll: a peer that did its part and then exited is not lost to this wait.
        let lost: Vec<(usize, Lost)> =
            peers.awaited().into_iter().filter_map(|peer| Some((peer, peers.lost(peer)?))).collect();
        let is_late = self.remaining().is_zero();
        if poll()? {
            return Ok(true);
        }
        if lost.is_empty() && !is_late {
            return Ok(false);
        }
        let awaited = peers.awaited();
        let lost: Vec<Lost> =
            lost.into_iter().filter(|(peer, _)| awaited.contains(peer)).map(|(_, lost)| lost).collect();
        if !lost.is_empty() {
            return Err(self.lost(lost));
        }
        if is_late && awaited.is_empty() && poll()? {
            return Ok(true);
        }
        if is_late { Err(self.timeout(peers.missing(awaited))) } else { Ok(false) }
    }

    /// As [`Call::check`], for a wait that involves no other member of the group; `missing` is the rank to name at the deadline,
    /// if there is one.
    pub fn check_alone(&self, missing: impl FnOnce() -> Option<Missing>) -> Result<()> {
        self.check_interrupt()?;
        if self.remaining().is_zero() { Err(self.timeout(missing().into_iter().collect())) } else { Ok(()) }
    }
}

/// A value that threads of this process change and wait for. Its lock is held only for the duration of a read or an update, never
/// while a thread waits or a check runs. So any thread may use it at any time, even one that holds an interpreter's lock.
#[derive(Default)]
pub(crate) struct Monitor<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Default)]
struct State<T> {
    value: T,
    waiters: usize,
}

impl<T> Monitor<T> {
    pub fn new(value: T) -> Monitor<T> {
        Monitor { state: Mutex::new(State { value, waiters: 0 }), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the value, or changes it in a way that no thread waits for.
    pub fn with<R>(&self, look: impl FnOnce(&mut T) -> R) -> R {
        look(&mut self.lock().value)
    }

    /// Changes the value and wakes the threads that wait for it.
    pub fn update<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut state = self.lock();
        let result = change(&mut state.value);
        let has_waiters = state.waiters > 0;
        drop(state);
        // Waking no thread would still cost a system call.
        if has_waiters {
            self.changed.notify_all();
        }
        result
    }

    /// Waits until `ready` returns a value, at most for `limit`.
    pub fn wait_timeout<R>(&self, limit: Duration, mut ready: impl FnMut(&mut T) -> Option<R>) -> Option<R> {
        let mut state = self.lock();
        if let Some(found) = ready(&mut state.value) {
            return Some(found);
        }
        let until = Instant::now().checked_add(limit);
        loop {
            let left = until.map_or(limit, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return None;
            }
            state.waiters += 1;
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            state.waiters -= 1;
            if let Some(found) = ready(&mut state.value) {
                return Some(found);
            }
        }
    }

    /// Waits until `ready` returns a value. `check` is called, without the lock, every [`POLL_INTERVAL`] and at the deadline; its
    /// error ends the wait, and it must fail at the deadline.
    pub fn wait<R, E>(
        &self,
        deadline: Instant,
        mut ready: impl FnMut(&mut T) -> Option<R>,
        mut check: impl FnMut() -> Result<(), E>,
    ) -> Result<R, E> {
        // Usually the value is ready at once, and the clock need not be read.
        if let Some(found) = self.with(&mut ready) {
            return Ok(found);
        }
        loop {
            let limit = deadline.saturating_duration_since(Instant::now()).min(POLL_INTERVAL);
            if let Some(found) = self.wait_timeout(limit, &mut ready) {
                return Ok(found);
            }
            check()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Fails if a thread would sleep although the count has changed since the poll read it.
    struct Changes<'a>(&'a Cell<u32>);

    impl Park for Changes<'_> {
        fn seen(&self) -> u32 {
            self.0.get()
        }

        fn park(&mut self, seen: u32, _until: Instant) -> Result<Parked> {
            assert_ne!(seen, self.0.get(), "the wake-up is lost");
            Ok(Parked::Slept)
        }
    }

    #[test]
    fn a_change_during_a_poll_ends_the_next_sleep() {
        let changes = Cell::new(0);
        let poll = || Ok((changes.replace(changes.get() + 1) == 3).then_some(()));
        wait(no_deadline(), Changes(&changes), poll, || Ok(None)).unwrap();
    }

    /// Another thread uses the monitor during a check, and the check waits for that thread, like an interrupt hook that needs the
    /// interpreter's lock while a thread that holds that lock makes a call.
    #[test]
    fn a_check_runs_without_the_lock() {
        let monitor = Monitor::new(0);
        let (asked, used) = (AtomicBool::new(false), AtomicBool::new(false));
        let until = Instant::now() + Duration::from_secs(60);
        let await_flag = |flag: &AtomicBool| {
            while !flag.load(Ordering::Acquire) {
                assert!(Instant::now() < until, "the lock is held during the check");
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                await_flag(&asked);
                monitor.with(|value| *value += 1);
                used.store(true, Ordering::Release);
            });
            let check = || {
                asked.store(true, Ordering::Release);
                await_flag(&used);
                Err::<(), _>("stop")
            };
            assert_eq!(monitor.wait(until, |_| None::<()>, check), Err("stop"));
            other.join().unwrap();
        });
        assert_eq!(monitor.wait(until, |value| (*value == 1).then_some(7), || Err("late")), Ok(7));
    }

    #[test]
    fn a_change_ends_a_wait_and_a_limit_does() {
        let monitor = Monitor::new(false);
        assert_eq!(monitor.wait_timeout(Duration::from_millis(5), |set| set.then_some(())), None);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| monitor.wait_timeout(Duration::MAX, |set| set.then_some(7)));
            monitor.update(|set| *set = true);
            assert_eq!(waiting.join().unwrap(), Some(7));
        });
    }
}
