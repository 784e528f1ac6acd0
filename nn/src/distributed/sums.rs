//! Reductions over the ranks of a group.

use unisono::{Group, ReduceOp};

use super::comm_status::CommStatus;
use crate::layers::Sums;
use crate::number::Number;

/// Reductions over the ranks of a group, in rank order.
#[derive(Clone)]
pub(crate) struct GroupSum {
    pub(crate) group: Group,
    pub(crate) comm: CommStatus,
}

impl<T: Number> Sums<T> for GroupSum {
    fn place(&self) -> (usize, usize) {
        (self.group.rank(), self.group.size())
    }

    fn sum(&self, values: &mut [T]) {
        // Every member has the same number of values, so all skip an empty call.
        if self.group.size() > 1 && !values.is_empty() {
            self.comm.guard(|| self.group.all_reduce(values, ReduceOp::Sum));
        }
    }

    fn add(&self, values: &mut [f64]) {
        Sums::<f64>::sum(self, values);
    }

    fn largest(&self, values: &mut [f64]) {
        if self.group.size() > 1 && !values.is_empty() {
            self.comm.guard(|| self.group.all_reduce(values, ReduceOp::Max));
        }
    }

    fn gather(&self, values: &[T], counts: &[usize]) -> Vec<T> {
        let mut all = vec![T::ZERO; counts.iter().sum()];
        if !all.is_empty() {
            self.comm.guard(|| self.group.all_gather_varied(values, &mut all, counts));
        }
        all
    }

    fn gather_whole(&self, values: &[i64]) -> Vec<i64> {
        let mut all = vec![0; values.len() * self.group.size()];
        self.comm.guard(|| self.group.all_gather(values, &mut all));
        all
    }

    fn exchange(&self, values: &[T], sent: &[usize], received: &[usize]) -> Vec<T> {
        let mut all = vec![T::ZERO; received.iter().sum()];
        self.comm.guard(|| self.group.all_to_all_varied(values, sent, &mut all, received));
        all
    }

    fn sound(&self) -> bool {
        self.comm.check().is_ok()
    }
}
