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
        Weight { name, shape, values, gradient, rule, spread, state: Vec::new(), steps: 0 }
    }

    /// Follows the gradient once, with the rates of an epoch.
    pub fn update(&mut self, epoch: usize) {
        self.rule.update(&mut self.values, &mut self.gradient, &mut self.state, epoch, self.steps);
        self.steps += 1;
    }
}
