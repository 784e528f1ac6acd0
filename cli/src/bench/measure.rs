//! Times several things in turn, so that what disturbs the machine disturbs all of them alike.

use std::ops::RangeInclusive;

use rustix::time::{ClockId, clock_gettime};
use unisono::{Error, Group, ReduceOp, Result};

/// A repetition of something short is made of several calls, to last about this long.
const REPETITION: f64 = 200e-6;
/// How many repetitions, whatever the time.
const FEWEST: f64 = 9.0;
const MOST: f64 = 500.0;

/// Things to time in turn, by number. All ranks have the same ones.
pub(crate) trait Cases {
    fn count(&self) -> usize;

    /// Makes everything ready for calls of a case; untimed.
    fn prepare(&mut self, case: usize) -> Result<()>;

    /// One call.
    fn call(&mut self, case: usize) -> Result<()>;

    /// Is everything as it must be after so many calls? All ranks have made theirs, and none has begun the next case.
    fn is_correct(&mut self, case: usize, calls: usize) -> bool;

    /// How many calls in a row a repetition may have.
    fn calls(&self, _case: usize) -> RangeInclusive<usize> {
        1..=1000
    }

    /// Whether a call lasts for each rank until the others have come.
    fn synchronizes(&self, _case: usize) -> bool {
        false
    }
}

/// When `calls` calls of a case began and ended, all ranks starting together; the result is checked.
fn time(group: &Group, cases: &mut dyn Cases, case: usize, calls: usize) -> Result<(f64, f64)> {
    cases.prepare(case)?;
    group.barrier()?;
    let start = now();
    for _ in 0..calls {
        cases.call(case)?;
    }
    let end = now();
    // Nobody checks or prepares while others are still busy: that would disturb them.
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

/// What came out for one case: seconds a call.
pub(crate) struct Times {
    pub(crate) minimum: f64,
    pub(crate) median: f64,
    pub(crate) repetitions: usize,
}

/// Times the cases in turn for about so many seconds. Every rank gets the same answer.
pub(crate) fn measure(group: &Group, cases: &mut dyn Cases, seconds: f64) -> Result<Vec<Times>> {
    // Two rounds to warm up; the second tells how many calls and repetitions there can be.
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
                // Who does not wait may end before another begins, with more ranks than cores.
                false => ends[i] - starts[i],
            })
            .map(|time| time / calls[case] as f64)
            .collect();
        times.sort_by(f64::total_cmp);
        Times { minimum: times[0], median: times[times.len() / 2], repetitions }
    };
    Ok((0..calls.len()).map(of_case).collect())
}
