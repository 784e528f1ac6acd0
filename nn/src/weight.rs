//! A learned weight: its values, their gradient, and the state of its learning rule.

use crate::number::Number;
use crate::rules::Rule;

/// How a weight is distributed over the ranks that hold parts of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// Replicated; the gradient is the sum over the ranks.
    Everywhere,
    /// Replicated; every rank computes the full gradient.
    Whole,
    /// Partitioned: each element has one owner, which alone computes its gradient.
    Split,
}

/// The elements of a full weight that a rank holds: some indices along one of its axes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The indices that this rank holds.
    pub kept: Vec<usize>,
    /// The length of the axis in the full weight.
    pub length: usize,
    /// The number of elements per index; the pattern repeats for all axes before this one.
    pub inner: usize,
}

impl Cut {
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

/// A learned weight of a layer.
///
/// ```
/// use unisono_nn::{Rule, Spread, Weight};
/// let mut weight = Weight::new("weights", vec![2], vec![1.0_f32, 2.0], Rule::sgd(1.0), Spread::Everywhere);
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
    /// The gradient of the cost with respect to each value; overwritten by backpropagation.
    pub gradient: Vec<T>,
    /// The learning rule.
    pub rule: Rule,
    /// How the weight is distributed over the ranks.
    pub spread: Spread,
    /// The part that this rank holds, if not all; `shape` is the global shape.
    pub cut: Option<Cut>,
    /// The optimiser state; empty before the first update.
    pub state: Vec<Vec<T>>,
    /// The number of updates so far.
    pub steps: u64,
}

impl<T: Number> Weight<T> {
    /// A weight without any updates.
    pub fn new(
        name: &'static str,
        shape: Vec<usize>,
        values: Vec<T>,
        rule: Rule,
        spread: Spread,
    ) -> Weight<T> {
        debug_assert_eq!(shape.iter().product::<usize>(), values.len());
        let gradient = vec![T::ZERO; values.len()];
        Weight { name, shape, values, gradient, rule, spread, cut: None, state: Vec::new(), steps: 0 }
    }

    /// Keeps a part of a weight that has not been updated yet.
    #[must_use]
    pub fn part(mut self, cut: Cut) -> Weight<T> {
        self.values = cut.take(&self.values);
        self.gradient = vec![T::ZERO; self.values.len()];
        self.cut = Some(cut);
        self
    }

    /// The number of elements of the full weight.
    pub fn size(&self) -> usize {
        self.shape.iter().product()
    }

    /// Updates the values once, with the rates of an epoch.
    pub fn update(&mut self, epoch: usize) {
        self.rule.update(&mut self.values, &mut self.gradient, &mut self.state, epoch, self.steps);
        self.steps += 1;
    }
}
