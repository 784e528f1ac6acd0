//! Times several cases in turn, so that disturbances of the machine affect all of them alike.

use std::ops::RangeInclusive;

use rustix::time::{ClockId, clock_gettime};
use unisono::{Error, Group, ReduceOp, Result};

/// A repetition of a short case consists of several calls, to last about this long (seconds).
const REPETITION: f64 = 200e-6;
/// Bounds on the number of repetitions, regardless of the time.
const FEWEST: f64 = 9.0;
const MOST: f64 = 500.0;

/// Numbered cases to time in turn. All ranks have the same cases.
pub(crate) trait Cases {
    fn count(&self) -> usize;

    /// Prepares the calls of a case; not timed.
    fn prepare(&mut self, case: usize) -> Result<()>;

    /// One call.
    fn call(&mut self, case: usize) -> Result<()>;

    /// Whether the state is correct after `calls` calls. All ranks have completed theirs, and none has begun the next case.
    fn is_correct(&mut self, case: usize, calls: usize) -> bool;

    /// Allowed number of consecutive calls in a repetition.
    fn calls(&self, _case: usize) -> RangeInclusive<usize> {
        1..=1000
    }

    /// Whether each call of a rank waits for the other ranks.
    fn synchronizes(&self, _case: usize) -> bool {
        false
    }
}

/// Start and end time of `calls` calls of a case, with all ranks starting together; the result is checked.
fn time(group: &Group, cases: &mut dyn Cases, case: usize, calls: usize) -> Result<(f64, f64)> {
    cases.prepare(case)?;
    group.barrier()?;
    let start = now();
    for _ in 0..calls {
        cases.call(case)?;
    }
    let end = now();
    // A rank must not check or prepare while others are still measuring: that would disturb them.
    group.barrier()?;
    match cases.is_correct(case, calls) {
        true => Ok((start, end)),
        false => Err(Error::internal("bench", format!("wrong result at rank {}", group.rank()))),
    }
}

/// Seconds on a clock that all processes of this host share.
fn now() -> f64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Result of one case, in seconds per call.
pub(crate) struct Times {
    pub(crate) minimum: f64,
    pub(crate) median: f64,
    pub(crate) repetitions: usize,
}

/// Times the cases in turn for about `seconds`. Every rank gets the same result.
pub(crate) fn measure(group: &Group, cases: &mut dyn Cases, seconds: f64) -> Result<Vec<Times>> {
    // Two warm-up rounds; the second determines the number of calls and repetitions.
    let mut once = Vec::new();
    let mut round = [0.0];
    for _ in 0..2 {
        let start = now();
        once.clear();
        for case in 0..cases.count() {
            let (start, end) = time(group, cases, case, 1)?;
            once.push(end - start);
        }
        round = [now() - start];
    }
    group.all_reduce(&mut once, ReduceOp::Max)?;
    group.all_reduce(&mut round, ReduceOp::Max)?;
    let calls: Vec<usize> = once
        .iter()
        .enumerate()
        .map(|(case, once)| {
            let allowed = cases.calls(case);
            ((REPETITION / once) as usize).clamp(*allowed.start(), *allowed.end())
        })
        .collect();
    let longer: f64 = once.iter().zip(&calls).map(|(once, calls)| once * (calls - 1) as f64).sum();
    let repetitions = (seconds / (round[0] + longer)).clamp(FEWEST, MOST) as usize;

    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for _ in 0..repetitions {
        for (case, &calls) in calls.iter().enumerate() {
            let (start, end) = time(group, cases, case, calls)?;
            starts.push(start);
            ends.push(end);
        }
    }
    let mut slowest: Vec<f64> = starts.iter().zip(&ends).map(|(start, end)| end - start).collect();
    group.all_reduce(&mut slowest, ReduceOp::Max)?;
    group.all_reduce(&mut starts, ReduceOp::Min)?;
    group.all_reduce(&mut ends, ReduceOp::Max)?;
    let of_case = |case: usize| {
        let mut times: Vec<f64> = (case..slowest.len())
            .step_by(calls.len())
            .map(|i| match cases.synchronizes(case) {
                true => slowest[i],
                // Without synchronization, a rank may end before another begins if there are more ranks than cores.
                false => ends[i] - starts[i],
            })
            .map(|time| time / calls[case] as f64)
            .collect();
        times.sort_by(f64::total_cmp);
        Times { minimum: times[0], median: times[times.len() / 2], repetitions }
    };
    Ok((0..calls.len()).map(of_case).collect())
}
