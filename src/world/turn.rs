//! Turns: calls on one group happen one at a time, in the order in which they were made, also those in the background.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::transport::arena::Seat;
use crate::transport::wait::Monitor;

/// Hands out numbers and calls them up in order.
#[derive(Default)]
pub(crate) struct Turns {
    state: Monitor<State>,
    /// Where the turns are written down, for a process that takes them up when this one is gone.
    seat: Option<Arc<Seat>>,
    /// Collectives that earlier processes of this rank had completed, until this process has declared its position.
    repeated: AtomicU64,
}

#[derive(Default)]
struct State {
    taken: u64,
    finished: u64,
    /// Numbers whose calls were refused before their turn came.
    skipped: BTreeSet<u64>,
    /// Numbers that were taken inside a series: a process that is started again does not repeat these calls.
    in_series: BTreeSet<u64>,
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
        let stay = &seat.place().stay;
        let (calls, repeated) = (stay.calls(), AtomicU64::new(stay.collectives()));
        let state = State { taken: calls, finished: calls, ..State::default() };
        Turns { state: Monitor::new(state), seat: Some(seat), repeated }
    }

    /// How many collectives earlier processes of this rank had completed; zero once this process has declared that it goes
    /// on after them.
    pub fn repeated(&self) -> u64 {
        self.repeated.load(Ordering::Acquire)
    }

    /// From now on, calls go on after those of earlier processes.
    pub fn resume(&self) {
        self.repeated.store(0, Ordering::Release);
    }

    /// Takes the next number. Numbers begin at 1.
    pub fn take(&self) -> u64 {
        self.state.with(|state| {
            state.taken += 1;
            if self.seat.as_ref().is_some_and(|seat| seat.place().stay.in_series()) {
                state.in_series.insert(state.taken);
            }
            state.taken
        })
    }

    /// Takes a number for a call that will not be made.
    pub fn skip(&self) {
        self.state.with(|state| {
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
        });
    }

    /// Waits until all earlier numbers are done; `None` when the deadline passes first or `stop` says so, which is asked now and
    /// then. Whoever gives a turn up breaks its group.
    pub fn wait(&self, number: u64, deadline: Instant, stop: impl Fn() -> bool) -> Option<Turn<'_>> {
        let is_next = |state: &mut State| (state.finished + 1 == number).then_some(());
        let go_on = || if Instant::now() >= deadline || stop() { Err(()) } else { Ok(()) };
        self.state.wait(deadline, is_next, go_on).ok()?;
        if let Some(seat) = &self.seat {
            seat.place().stay.enter();
        }
        Some(Turn { turns: self, number })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.state.update(|state| {
            state.finish(self.number);
            let in_series = state.in_series.remove(&self.number);
            if let Some(seat) = &self.turns.seat {
                if !in_series {
                    seat.place().stay.count_collective();
                }
                seat.place().stay.leave(state.finished);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::time::Duration;

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
