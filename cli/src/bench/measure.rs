//! Times several things in turn, so that what disturbs the machine disturbs all of them alike.

use rustix::time::{ClockId, clock_gettime};
use unisono::{Error, Group, ReduceOp, Result};

use super::verb::Work;
use crate::bandwidth::Kernel;

/// A repetition of something short is made of several calls, to last about this long.
const REPETITION: f64 = 200e-6;
/// How many repetitions, whatever the time.
const FEWEST: f64 = 9.0;
const MOST: f64 = 500.0;

/// Something to time.
pub(crate) enum Case {
    Verb(Work),
    /// What memory can do: a kernel on private buffers of the same total size.
    Limit(Kernel, Vec<f32>, Vec<f32>),
}

impl Case {
    pub(crate) fn limit(kernel: Kernel, bytes: usize) -> Case {
        let elements = (bytes / 2 / size_of::<f32>()).max(1);
        Case::Limit(kernel, vec![0.0; elements], vec![1.0; elements])
    }

    /// When `calls` calls began and ended, all ranks starting together; the result is checked.
    fn time(&mut self, group: &Group, calls: usize) -> Result<(f64, f64)> {
        if let Case::Verb(work) = self {
            work.prepare();
        }
        group.barrier()?;
        let start = now();
        for _ in 0..calls {
            match self {
                Case::Verb(work) => work.call()?,
                Case::Limit(kernel, y, x) => kernel.run(std::hint::black_box(y), std::hint::black_box(x)),
            }
        }
        let end = now();
        match self {
            Case::Verb(work) if !work.is_right(calls) => {
                Err(Error::internal("bench", format!("wrong result at rank {}", group.rank())))
            }
            _ => Ok((start, end)),
        }
    }

    fn most_calls(&self) -> usize {
        match self {
            Case::Verb(work) => work.most_calls(),
            Case::Limit(..) => 1000,
        }
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
pub(crate) fn measure(group: &Group, cases: &mut [Case], seconds: f64) -> Result<Vec<Times>> {
    // Two rounds to warm up; the second tells how many calls and repetitions there can be.
    let mut once = Vec::new();
    let mut round = [0.0];
    for _ in 0..2 {
        let start = now();
        once.clear();
        for case in cases.iter_mut() {
            let (start, end) = case.time(group, 1)?;
            once.push(end - start);
        }
        round = [now() - start];
    }
    group.all_reduce(&mut once, ReduceOp::Max)?;
    group.all_reduce(&mut round, ReduceOp::Max)?;
    let calls: Vec<usize> = cases
        .iter()
        .zip(&once)
        .map(|(case, once)| ((REPETITION / once) as usize).clamp(1, case.most_calls().max(1)))
        .collect();
    let longer: f64 = once.iter().zip(&calls).map(|(once, calls)| once * (calls - 1) as f64).sum();
    let repetitions = (seconds / (round[0] + longer)).clamp(FEWEST, MOST) as usize;

    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for _ in 0..repetitions {
        for (case, &calls) in cases.iter_mut().zip(&calls) {
            let (start, end) = case.time(group, calls)?;
            starts.push(start);
            ends.push(end);
        }
    }
    let mut slowest: Vec<f64> = starts.iter().zip(&ends).map(|(start, end)| end - start).collect();
    group.all_reduce(&mut slowest, ReduceOp::Max)?;
    group.all_reduce(&mut starts, ReduceOp::Min)?;
    group.all_reduce(&mut ends, ReduceOp::Max)?;
    let of_case = |(number, case): (usize, &Case)| {
        let mut times: Vec<f64> = (number..slowest.len())
            .step_by(cases.len())
            .map(|i| match case {
                // A collective lasts for each rank until the others have come.
                Case::Verb(_) => slowest[i],
                // A kernel does not wait: with more ranks than cores, one may end before another begins.
                Case::Limit(..) => ends[i] - starts[i],
            })
            .map(|time| time / calls[number] as f64)
            .collect();
        times.sort_by(f64::total_cmp);
        Times { minimum: times[0], median: times[times.len() / 2], repetitions }
    };
    Ok(cases.iter().enumerate().map(of_case).collect())
}
