//! What a layer learns: its values, their gradient, and what its learning rule remembers.

use crate::number::Number;
use crate::rules::Rule;

/// How ranks that hold parts of a layer hold this weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// Every rank has all of it, and its gradient is the sum over the ranks.
    Everywhere,
    /// Every rank has all of it, and knows its whole gradient.
    Whole,
    /// Each element has one owner, which knows its gradient alone.
    Split,
}

/// Which elements of a whole weight a rank has: some indices of one of its axes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The indices that are here.
    pub kept: Vec<usize>,
    /// How many the whole has.
    pub length: usize,
    /// How many numbers each index stands for; those of all indices before it repeat.
    pub inner: usize,
}

impl Cut {
    /// Calls `each` for every run of numbers: where it begins here and in the whole.
    fn runs(&self, whole: usize, mut each: impl FnMut(usize, usize)) {
        let mut own = 0;
        for before in 0..whole / (self.length * self.inner).max(1) {
            for index in &self.kept {
                each(own, (before * self.length + index) * self.inner);
                own += self.inner;
            }
        }
    }

    /// The numbers of a whole that are here.
    pub fn take<T: Copy>(&self, whole: &[T]) -> Vec<T> {
        let mut own = Vec::new();
        self.runs(whole.len(), |_, at| own.extend_from_slice(&whole[at..at + self.inner]));
        own
    }

    /// Puts the numbers that are here into their places in a whole.
    pub fn put<T: Copy>(&self, own: &[T], whole: &mut [T]) {
        self.runs(whole.len(), |from, to| {
            whole[to..to + self.inner].copy_from_slice(&own[from..from + self.inner]);
        });
    }
}

/// Some numbers that a layer learns.
///
/// ```
/// use unisono_nn::{Method, Rule, Schedule, Spread, Weight};
/// let rule = Rule { method: Method::GradientDescent, rate: Schedule::Constant(1.0), decay: 0.0 };
/// let mut weight = Weight::new("weights", vec![2], vec![1.0_f32, 2.0], rule, Spread::Everywhere);
/// weight.gradient.copy_from_slice(&[0.5, 0.5]);
/// weight.update(0);
/// assert_eq!(weight.values, [0.5, 1.5]);
/// ```
#[derive(Debug, Clone)]
pub struct Weight<T> {
    /// What it is called in its layer: `weights`, `bias`.
    pub name: &'static str,
    /// The shape that checkpoints give it.
    pub shape: Vec<usize>,
    /// The numbers.
    pub values: Vec<T>,
    /// The gradient of the cost for each of them; backpropagation replaces it.
    pub gradient: Vec<T>,
    /// How it learns.
    pub rule: Rule,
    /// How ranks share it.
    pub spread: Spread,
    /// Which part of it is here, where not all of it is; the shape is that of the whole.
    pub cut: Option<Cut>,
    /// What the rule remembers; empty before the first update.
    pub state: Vec<Vec<T>>,
    /// How many updates it has seen.
    pub steps: u64,
}

impl<T: Number> Weight<T> {
    /// A weight that has not learned yet.
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

    /// Keeps a part of a weight that has not learned yet.
    #[must_use]
    pub fn part(mut self, cut: Cut) -> Weight<T> {
        self.values = cut.take(&self.values);
        self.gradient = vec![T::ZERO; self.values.len()];
        self.cut = Some(cut);
        self
    }

    /// How many numbers the whole has.
    pub fn size(&self) -> usize {
        self.shape.iter().product()
    }

    /// Follows the gradient once, with the rates of an epoch.
    pub fn update(&mut self, epoch: usize) {
        self.rule.update(&mut self.values, &mut self.gradient, &mut self.state, epoch, self.steps);
        self.steps += 1;
    }
}
