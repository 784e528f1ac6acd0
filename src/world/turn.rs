//! Turns: calls on one group happen one at a time, in the order in which they were made, also those in the background.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::transport::arena::Seat;

/// Hands out numbers and calls them up in order.
#[derive(Default)]
pub(crate) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
    /// Where the turns are written down, for a process that takes them up when this one is gone.
    seat: Option<Arc<Seat>>,
}

#[derive(Default)]
struct State {
    taken: u64,
    finished: u64,
    waiting: usize,
    /// Numbers whose calls were refused before their turn came.
    skipped: BTreeSet<u64>,
}

impl State {
    /// This number is done, and with it those behind it that were skipped.
    fn finish(&mut self, number: u64) {
        self.finished = number;
        while self.skipped.remove(&(self.finished + 1)) {
            self.finished += 1;
        }
    }
}

/// The right to make call `number` when its turn comes. Dropping it lets the next one go.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    pub number: u64,
}

impl Turns {
    /// Turns that go on where those written down at this seat have stopped.
    pub fn at(seat: Arc<Seat>) -> Turns {
        let calls = seat.place().stay.calls();
        let state = State { taken: calls, finished: calls, ..State::default() };
        Turns { state: Mutex::new(state), changed: Condvar::new(), seat: Some(seat) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next number. Numbers begin at 1.
    pub fn take(&self) -> u64 {
        let mut state = self.lock();
        state.taken += 1;
        state.taken
    }

    /// Takes a number for a call that will not be made.
    pub fn skip(&self) {
        let mut state = self.lock();
        state.taken += 1;
        let number = state.taken;
        match state.finished + 1 == number {
            true => {
                state.finish(number);
                if let Some(seat) = &self.seat {
                    seat.place().stay.count(state.finished);
                }
            }
            false => drop(state.skipped.insert(number)),
        }
    }

    /// Waits until all earlier numbers are done; `None` when the deadline passes first or `stop` says so (asked about
    /// every 50 ms). Whoever gives a turn up breaks its group.
    pub fn wait(&self, number: u64, deadline: Instant, stop: impl Fn() -> bool) -> Option<Turn<'_>> {
        let mut state = self.lock();
        while state.finished + 1 != number {
            let left = deadline.saturating_duration_since(Instant::now()).min(Duration::from_millis(50));
            state.waiting += 1;
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            state.waiting -= 1;
            if state.finished + 1 != number && (Instant::now() >= deadline || stop()) {
                return None;
            }
        }
        if let Some(seat) = &self.seat {
            seat.place().stay.enter();
        }
        Some(Turn { turns: self, number })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.lock();
        state.finish(self.number);
        if let Some(seat) = &self.turns.seat {
            seat.place().stay.leave(state.finished);
        }
        // Waking nobody would still cost a system call.
        if state.waiting > 0 {
            drop(state);
            self.turns.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_happen_in_the_order_of_their_numbers() {
        let turns = Turns::default();
        let order = Mutex::new(Vec::new());
        let numbers: Vec<u64> = (0..8).map(|_| turns.take()).collect();
        std::thread::scope(|scope| {
            for &number in numbers.iter().rev() {
                let (turns, order) = (&turns, &order);
                scope.spawn(move || {
                    let deadline = Instant::now() + Duration::from_secs(20);
                    let turn = turns.wait(number, deadline, || false).expect("the turn comes");
                    order.lock().unwrap().push(turn.number);
                });
            }
        });
        assert_eq!(order.into_inner().unwrap(), numbers);
    }

    #[test]
    fn a_skipped_number_is_passed_over() {
        let turns = Turns::default();
        let soon = Instant::now() + Duration::from_secs(5);
        turns.skip();
        let second = turns.take();
        turns.skip();
        let fourth = turns.take();
        assert_eq!((second, fourth), (2, 4));
        drop(turns.wait(second, soon, || false).expect("the first was skipped"));
        assert!(turns.wait(fourth, soon, || false).is_some(), "the third was skipped");
    }

    #[test]
    fn a_turn_that_does_not_come_ends_by_its_deadline() {
        let turns = Turns::default();
        let first = turns.take();
        let second = turns.take();
        let soon = Instant::now() + Duration::from_millis(20);
        assert!(turns.wait(second, soon, || false).is_none());
        assert!(turns.wait(first, soon, || false).is_some());
    }
}
