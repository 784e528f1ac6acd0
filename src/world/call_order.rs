//! Call ordering: calls on one group run one at a time, in the order in which they were made, including background
//! calls.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::transport::arena::LocalEndpoint;
use crate::transport::wait::Monitor;

/// Assigns call numbers and admits the calls in that order.
#[derive(Default)]
pub(crate) struct CallOrder {
    state: Monitor<OrderState>,
    /// The endpoint whose process record stores the count of finished calls, for a process that resumes when this one
    /// has died.
    endpoint: Option<Arc<LocalEndpoint>>,
    /// Collectives completed by earlier processes of this rank; zero once this process has declared its position.
    completed_before: AtomicU64,
}

#[derive(Default)]
struct OrderState {
    taken: u64,
    finished: u64,
    /// Numbers of calls that were rejected before they were admitted.
    skipped: BTreeSet<u64>,
    /// Numbers assigned within a series: a restarted process does not repeat these calls.
    in_series: BTreeSet<u64>,
}

impl OrderState {
    /// Marks this number as finished, and with it the skipped numbers that directly follow.
    fn finish(&mut self, number: u64) {
        self.finished = number;
        while self.skipped.remove(&(self.finished + 1)) {
            self.finished += 1;
        }
    }
}

/// Permission to make call `number`. Dropping it admits the next call.
pub(crate) struct CallPermit<'a> {
    call_order: &'a CallOrder,
    pub number: u64,
}

impl CallOrder {
    /// Continues the call order stored in this endpoint's process record.
    pub fn restored_from(endpoint: Arc<LocalEndpoint>) -> CallOrder {
        let process = &endpoint.own_slot().process;
        let (calls, completed_before) = (process.calls(), AtomicU64::new(process.collectives()));
        let state = OrderState { taken: calls, finished: calls, ..OrderState::default() };
        CallOrder { state: Monitor::new(state), endpoint: Some(endpoint), completed_before }
    }

    /// The number of collectives completed by earlier processes of this rank; zero once this process has declared that
    /// it continues after them.
    pub fn completed_before(&self) -> u64 {
        self.completed_before.load(Ordering::Acquire)
    }

    /// Declares that this process's calls continue after those of earlier processes.
    pub fn resume(&self) {
        self.completed_before.store(0, Ordering::Release);
    }

    /// Assigns the next number, from 1.
    pub fn take(&self) -> u64 {
        self.state.with(|state| self.assign(state))
    }

    /// Assigns the next number and, unless an earlier call is unfinished, admits the call at once; otherwise returns the
    /// number, to [`CallOrder::wait`] with.
    #[inline]
    pub fn begin(&self) -> Result<CallPermit<'_>, u64> {
        let (number, is_next) = self.state.with(|state| {
            let number = self.assign(state);
            (number, state.finished + 1 == number)
        });
        if is_next { Ok(self.admit(number)) } else { Err(number) }
    }

    #[inline]
    fn assign(&self, state: &mut OrderState) -> u64 {
        state.taken += 1;
        if self.endpoint.as_ref().is_some_and(|endpoint| endpoint.own_slot().process.in_series()) {
            state.in_series.insert(state.taken);
        }
        state.taken
    }

    #[inline]
    fn admit(&self, number: u64) -> CallPermit<'_> {
        if let Some(endpoint) = &self.endpoint {
            endpoint.own_slot().process.enter();
        }
        CallPermit { call_order: self, number }
    }

    /// Assigns a number to a call that will not be made.
    pub fn skip(&self) {
        self.state.with(|state| {
            state.taken += 1;
            let number = state.taken;
            match state.finished + 1 == number {
                true => {
                    state.finish(number);
                    if let Some(endpoint) = &self.endpoint {
                        endpoint.own_slot().process.set_calls(state.finished);
                    }
                }
                false => drop(state.skipped.insert(number)),
            }
        });
    }

    /// Waits until all earlier calls have finished; `None` if the deadline passes first or `stop`, which is polled,
    /// returns true. A caller that abandons its number breaks the group.
    pub fn wait(&self, number: u64, deadline: Instant, stop: impl Fn() -> bool) -> Option<CallPermit<'_>> {
        let is_next = |state: &mut OrderState| (state.finished + 1 == number).then_some(());
        let keep_waiting = || if Instant::now() >= deadline || stop() { Err(()) } else { Ok(()) };
        self.state.wait(deadline, is_next, keep_waiting).ok()?;
        Some(self.admit(number))
    }
}

impl Drop for CallPermit<'_> {
    fn drop(&mut self) {
        self.call_order.state.update(|state| {
            state.finish(self.number);
            let in_series = !state.in_series.is_empty() && state.in_series.remove(&self.number);
            if let Some(endpoint) = &self.call_order.endpoint {
                if !in_series {
                    endpoint.own_slot().process.count_collective();
                }
                endpoint.own_slot().process.leave(state.finished);
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
    fn a_call_begins_at_once_unless_an_earlier_one_is_unfinished() {
        let call_order = CallOrder::default();
        let Ok(first) = call_order.begin() else { panic!("no other call is unfinished") };
        assert_eq!((first.number, call_order.begin().err()), (1, Some(2)));
        drop(first);
        let soon = Instant::now() + Duration::from_secs(5);
        drop(call_order.wait(2, soon, || false).expect("the first has finished"));
        assert_eq!(call_order.begin().ok().map(|permit| permit.number), Some(3));
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
