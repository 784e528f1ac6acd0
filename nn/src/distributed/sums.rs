//! Reductions over the ranks of a group.

use unisono::{Group, ReduceOp, Result};

use super::comm_timer::CommTimer;
use crate::layers::Sums;
use crate::number::Number;

/// Reductions over the ranks of a group, in rank order.
#[derive(Clone)]
pub(crate) struct GroupSum {
    pub(crate) group: Group,
    pub(crate) comm: CommTimer,
}

impl GroupSum {
    fn all_reduce<T: Number>(&self, values: &mut [T], operation: ReduceOp) -> Result<()> {
        // Every member has the same number of values, so all skip an empty call.
        if self.group.size() == 1 || values.is_empty() {
            return Ok(());
        }
        self.comm.collective(|| self.group.all_reduce(values, operation))
    }
}

impl<T: Number> Sums<T> for GroupSum {
    fn rank_and_size(&self) -> (usize, usize) {
        (self.group.rank(), self.group.size())
    }

    fn sum(&self, values: &mut [T]) -> Result<()> {
        self.all_reduce(values, ReduceOp::Sum)
    }

    fn sum_f64(&self, values: &mut [f64]) -> Result<()> {
        self.all_reduce(values, ReduceOp::Sum)
    }

    fn largest(&self, values: &mut [f64]) -> Result<()> {
        self.all_reduce(values, ReduceOp::Max)
    }

    fn gather(&self, values: &[T], all: &mut [T], counts: &[usize]) -> Result<()> {
        // All members have the same counts, so all skip an empty call.
        if all.is_empty() {
            return Ok(());
        }
        self.comm.collective(|| self.group.all_gather_varied(values, all, counts))
    }

    fn gather_whole(&self, values: &[i64]) -> Result<Vec<i64>> {
        let mut all = vec![0; values.len() * self.group.size()];
        self.comm.collective(|| self.group.all_gather(values, &mut all))?;
        Ok(all)
    }

    fn exchange(&self, values: &[T], sent: &[usize], received: &[usize]) -> Result<Vec<T>> {
        let mut all = vec![T::ZERO; received.iter().sum()];
        self.comm.collective(|| self.group.all_to_all_varied(values, sent, &mut all, received))?;
        Ok(all)
    }
}
