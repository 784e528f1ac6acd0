//! Turns: calls on one group happen one at a time, in the order in which they were made, also those in the background.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::transport::arena::Seat;
use crate::transport::wait::Monitor;

/// Hands out numbers and calls them up in order.
#[derive(Default)]
pub(crate) struct CallOrder {
    state: Monitor<OrderState>,
    /// Where the turns are written down, for a process that takes them up when this one is gone.
    seat: Option<Arc<Seat>>,
    /// Collectives that earlier processes of this rank had completed, until this process has declared its position.
    completed_before: AtomicU64,
}

#[derive(Default)]
struct OrderState {
    taken: u64,
    finished: u64,
    /// Numbers whose calls were refused before their turn came.
    skipped: BTreeSet<u64>,
    /// Numbers that were taken inside a series: a process that is started again does not repeat these calls.
    in_series: BTreeSet<u64>,
}

impl OrderState {
    /// This number is done, and with it those behind it that were skipped.
    fn finish(&mut self, number: u64) {
        self.finished = number;
        while self.skipped.remove(&(self.finished + 1)) {
            self.finished += 1;
        }
    }
}

/// The right to make call `number` when its turn comes. Dropping it lets the next one go.
pub(crate) struct CallPermit<'a> {
    call_order: &'a CallOrder,
    pub number: u64,
}

impl CallOrder {
    /// Turns that go on where those written down at this seat have stopped.
    pub fn restored_from(seat: Arc<Seat>) -> CallOrder {
        let stay = &seat.place().stay;
        let (calls, completed_before) = (stay.calls(), AtomicU64::new(stay.collectives()));
        let state = OrderState { taken: calls, finished: calls, ..OrderState::default() };
        CallOrder { state: Monitor::new(state), seat: Some(seat), completed_before }
    }

    /// How many collectives earlier processes of this rank had completed; zero once this process has declared that it goes
    /// on after them.
    pub fn completed_before(&self) -> u64 {
        self.completed_before.load(Ordering::Acquire)
    }

    /// From now on, calls go on after those of earlier processes.
    pub fn resume(&self) {
        self.completed_before.store(0, Ordering::Release);
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
    pub fn wait(&self, number: u64, deadline: Instant, stop: impl Fn() -> bool) -> Option<CallPermit<'_>> {
        let is_next = |state: &mut OrderState| (state.finished + 1 == number).then_some(());
        let keep_waiting = || if Instant::now() >= deadline || stop() { Err(()) } else { Ok(()) };
        self.state.wait(deadline, is_next, keep_waiting).ok()?;
        if let Some(seat) = &self.seat {
            seat.place().stay.enter();
        }
        Some(CallPermit { call_order: self, number })
    }
}

impl Drop for CallPermit<'_> {
    fn drop(&mut self) {
        self.call_order.state.update(|state| {
            state.finish(self.number);
            let in_series = state.in_series.remove(&self.number);
            if let Some(seat) = &self.call_order.seat {
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
        let call_order = CallOrder::default();
        let order = Mutex::new(Vec::new());
        let numbers: Vec<u64> = (0..8).map(|_| call_order.take()).collect();
        std::thread::scope(|scope| {
            for &number in numbers.iter().rev() {
                let (call_order, order) = (&call_order, &order);
                scope.spawn(move || {
                    let deadline = Instant::now() + Duration::from_secs(20);
                    let permit = call_order.wait(number, deadline, || false).expect("the turn comes");
                    order.lock().unwrap().push(permit.number);
                });
            }
        });
        assert_eq!(order.into_inner().unwrap(), numbers);
    }

    #[test]
    fn a_skipped_number_is_passed_over() {
        let call_order = CallOrder::default();
        let soon = Instant::now() + Duration::from_secs(5);
        call_order.skip();
        let second = call_order.take();
        call_order.skip();
        let fourth = call_order.take();
        assert_eq!((second, fourth), (2, 4));
        drop(call_order.wait(second, soon, || false).expect("the first was skipped"));
        assert!(call_order.wait(fourth, soon, || false).is_some(), "the third was skipped");
    }

    #[test]
    fn a_turn_that_does_not_come_ends_by_its_deadline() {
        let call_order = CallOrder::default();
        let first = call_order.take();
        let second = call_order.take();
        let soon = Instant::now() + Duration::from_millis(20);
        assert!(call_order.wait(second, soon, || false).is_none());
        assert!(call_order.wait(first, soon, || false).is_some());
    }
}
