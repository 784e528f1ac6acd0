//! Times several things in turn, so that what disturbs the machine disturbs all of them alike.

use std::time::Instant;

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

    /// Times `calls` calls, all ranks starting together; the result is checked.
    fn time(&mut self, group: &Group, calls: usize) -> Result<f64> {
        if let Case::Verb(work) = self {
            work.prepare();
        }
        group.barrier()?;
        let start = Instant::now();
        for _ in 0..calls {
            match self {
                Case::Verb(work) => work.call()?,
                Case::Limit(kernel, y, x) => kernel.run(std::hint::black_box(y), std::hint::black_box(x)),
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        match self {
            Case::Verb(work) if !work.is_right(calls) => {
                Err(Error::internal("bench", format!("wrong result at rank {}", group.rank())))
            }
            _ => Ok(seconds / calls as f64),
        }
    }

    fn most_calls(&self) -> usize {
        match self {
            Case::Verb(work) => work.most_calls(),
            Case::Limit(..) => 1000,
        }
    }
}

/// What came out for one case: seconds a call, of the slowest rank in each repetition.
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
        let start = Instant::now();
        once = cases.iter_mut().map(|case| case.time(group, 1)).collect::<Result<Vec<f64>>>()?;
        round = [start.elapsed().as_secs_f64()];
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

    let mut times = Vec::with_capacity(repetitions * cases.len());
    for _ in 0..repetitions {
        for (case, &calls) in cases.iter_mut().zip(&calls) {
            times.push(case.time(group, calls)?);
        }
    }
    group.all_reduce(&mut times, ReduceOp::Max)?;
    let of_case = |case: usize| {
        let mut own: Vec<f64> = times.iter().skip(case).step_by(cases.len()).copied().collect();
        own.sort_by(f64::total_cmp);
        Times { minimum: own[0], median: own[own.len() / 2], repetitions }
    };
    Ok((0..cases.len()).map(of_case).collect())
}
