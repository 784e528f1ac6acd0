//! A learned weight: its values, their gradient, and the state of its learning rule.

use std::ops::Range;

use unisono::halo::Partition;

use crate::number::Number;
use crate::rules::Rule;

/// How a weight is distributed over the ranks that hold parts of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightSharding {
    /// Replicated; the gradient is the sum over the ranks.
    Replicated,
    /// Replicated; every rank computes the full gradient.
    ReplicatedFullGradient,
    /// Partitioned: each element has one owner, which alone computes its gradient.
    Sharded,
}

/// The elements of a full weight that a rank holds: some indices along one of its axes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeightShard {
    /// The indices that this rank holds.
    pub kept: Vec<usize>,
    /// The length of the axis in the full weight.
    pub length: usize,
    /// The number of elements per index; the pattern repeats for all axes before this one.
    pub inner: usize,
}

impl WeightShard {
    /// Calls `each` for every run of elements, with its offset in the part and in the full weight.
    fn runs(&self, whole: usize, mut each: impl FnMut(usize, usize)) {
        let mut own = 0;
        for before in 0..whole / (self.length * self.inner).max(1) {
            for index in &self.kept {
                each(own, (before * self.length + index) * self.inner);
                own += self.inner;
            }
        }
    }

    /// Extracts this part from a full weight.
    pub fn take<T: Copy>(&self, whole: &[T]) -> Vec<T> {
        let mut own = Vec::new();
        self.runs(whole.len(), |_, at| own.extend_from_slice(&whole[at..at + self.inner]));
        own
    }

    /// Copies this part into a full weight.
    pub fn put<T: Copy>(&self, own: &[T], whole: &mut [T]) {
        self.runs(whole.len(), |from, to| {
            whole[to..to + self.inner].copy_from_slice(&own[from..from + self.inner]);
        });
    }
}

/// The division of an update between the ranks that hold the same weight: each updates some rows, and sends them to the
/// others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UpdateShards {
    rows: Partition,
    rank: usize,
}

impl UpdateShards {
    /// Weights of at most this many elements are updated by every rank: a call that gathers them would take longer.
    pub(crate) const SMALL: usize = 1 << 15;

    /// The share of a rank in the rows of a weight, as evenly divided as possible.
    pub(crate) fn new(rows: usize, rank: usize, ranks: usize) -> UpdateShards {
        UpdateShards { rows: Partition::balanced(rows, ranks), rank }
    }

    /// The elements that this rank updates, of a weight of this length.
    pub(crate) fn own(&self, length: usize) -> Range<usize> {
        let (rows, width) = (self.rows.range(self.rank), self.row_length(length));
        rows.start * width..rows.end * width
    }

    /// The number of elements that each rank updates.
    pub(crate) fn counts(&self, length: usize) -> Vec<usize> {
        let width = self.row_length(length);
        self.rows.sizes().iter().map(|rows| rows * width).collect()
    }

    fn row_length(&self, length: usize) -> usize {
        length / self.rows.sizes().iter().sum::<usize>().max(1)
    }
}

/// A learned weight of a layer.
///
/// ```
/// use unisono_nn::{Rule, WeightSharding, Weight};
/// let mut weight = Weight::new("weights", vec![2], vec![1.0_f32, 2.0], Rule::sgd(1.0), WeightSharding::Replicated);
/// weight.gradient.copy_from_slice(&[0.5, 0.5]);
/// weight.update(0);
/// assert_eq!(weight.values, [0.5, 1.5]);
/// ```
#[derive(Debug, Clone)]
pub struct Weight<T> {
    /// The name within the layer: `weights`, `bias`.
    pub name: &'static str,
    /// The shape in checkpoints.
    pub shape: Vec<usize>,
    /// The values.
    pub values: Vec<T>,
    /// The gradient of the cost with respect to each value that this rank updates; overwritten by backpropagation.
    pub gradient: Vec<T>,
    /// The learning rule.
    pub rule: Rule,
    /// How the weight is distributed over the ranks.
    pub sharding: WeightSharding,
    /// The part that this rank holds, if not all; `shape` is the global shape.
    pub shard: Option<WeightShard>,
    /// The optimiser state of the values that this rank updates; empty before the first update.
    pub state: Vec<Vec<T>>,
    /// The number of updates so far.
    pub steps: u64,
    /// This rank's share of the update; `None` if it updates all values.
    pub(crate) update_shards: Option<UpdateShards>,
}

impl<T: Number> Weight<T> {
    /// A weight without any updates.
    pub fn new(
        name: &'static str,
        shape: Vec<usize>,
        values: Vec<T>,
        rule: Rule,
        sharding: WeightSharding,
    ) -> Weight<T> {
        debug_assert_eq!(shape.iter().product::<usize>(), values.len());
        let gradient = vec![T::ZERO; values.len()];
        Weight {
            name,
            shape,
            values,
            gradient,
            rule,
            sharding,
            shard: None,
            state: Vec::new(),
            steps: 0,
            update_shards: None,
        }
    }

    /// Keeps a part of a weight that has not been updated yet.
    #[must_use]
    pub fn part(mut self, shard: WeightShard) -> Weight<T> {
        self.values = shard.take(&self.values);
        self.gradient = vec![T::ZERO; self.values.len()];
        self.shard = Some(shard);
        self
    }

    /// Divides the update of a weight that has not been updated yet: this rank gets the gradient and the state of its own
    /// rows.
    #[must_use]
    pub(crate) fn sharded(mut self, shards: UpdateShards) -> Weight<T> {
        self.gradient = vec![T::ZERO; shards.own(self.values.len()).len()];
        self.update_shards = Some(shards);
        self
    }

    /// The range of the values that this rank updates.
    pub(crate) fn updated(&self) -> Range<usize> {
        let length = self.values.len();
        self.update_shards.as_ref().map_or(0..length, |shards| shards.own(length))
    }

    /// The number of elements of the full weight.
    pub fn size(&self) -> usize {
        self.shape.iter().product()
    }

    /// Updates the values of this rank once, with the rates of an epoch.
    pub fn update(&mut self, epoch: usize) {
        let own = self.updated();
        let values = &mut self.values[own];
        self.rule.update(values, &mut self.gradient, &mut self.state, epoch, self.steps);
        self.steps += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_update_every_row_once() {
        let weight = || {
            let values = (0..15).map(f64::from).collect();
            let rule = Rule { updater: "momentum", ..Rule::sgd(0.5) };
            Weight::new("weights", vec![5, 3], values, rule, WeightSharding::ReplicatedFullGradient)
        };
        let gradient: Vec<f64> = (0..15).map(|at| f64::from(at * at)).collect();
        let mut full = weight();
        full.gradient.copy_from_slice(&gradient);
        full.update(0);
        for ranks in [1, 2, 5, 7] {
            let (mut values, mut state) = (Vec::new(), Vec::new());
            for rank in 0..ranks {
                let mut part = weight().sharded(UpdateShards::new(5, rank, ranks));
                let own = part.updated();
                part.gradient.copy_from_slice(&gradient[own.clone()]);
                part.update(0);
                let counts = part.update_shards.as_ref().map(|shards| shards.counts(15)).unwrap_or_default();
                assert_eq!((own.start, own.len()), (counts[..rank].iter().sum(), counts[rank]));
                values.extend_from_slice(&part.values[own]);
                state.extend_from_slice(&part.state[0]);
            }
            assert_eq!((&values, &state), (&full.values, &full.state[0]), "{ranks} ranks");
        }
    }
}
