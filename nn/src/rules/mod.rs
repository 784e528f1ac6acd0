//! Learning rules: how weights are updated from their gradients. The formulas are those of the updaters of tables.

mod schedule;

pub use schedule::Schedule;

use unisono::tables::{AddOptions, UpdateContext, UpdaterChoice};

use crate::number::Number;

/// The update rule of weights: an updater, and its options.
///
/// ```
/// use unisono_nn::Rule;
/// let rule = Rule::sgd(0.1);
/// let (mut weights, mut state) = (vec![1.0_f64], Vec::new());
/// rule.update(&mut weights, &mut [2.0], &mut state, 0, 0);
/// assert_eq!(weights, [0.8]);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// The name of the updater: one of [`Rule::UPDATERS`].
    pub updater: &'static str,
    /// The learning rate.
    pub lr: Schedule,
    /// The momentum, for the updaters `momentum` and `nesterov`.
    pub momentum: Schedule,
    /// Weight decay. `adamw` and `lion` subtract this times the learning rate of the weight; for other updaters, this times the
    /// weight is added to its gradient. Biases do not decay.
    pub weight_decay: f64,
    /// The updater's other options; those that are absent have its defaults.
    pub options: AddOptions,
}

/// The number of weights that are updated at a time: few enough to stay in the cache between two passes.
const BLOCK: usize = 8192;

impl Rule {
    /// The updaters, and the names of their state in checkpoints.
    pub const UPDATERS: &[(&str, &[&str])] = &[
        ("sgd", &[]),
        ("momentum", &["momentum_buffer"]),
        ("nesterov", &["momentum_buffer"]),
        ("adagrad", &["sum_of_squares"]),
        ("rmsprop", &["average_square"]),
        ("adadelta", &["average_square", "average_step"]),
        ("adam", &["average", "average_square"]),
        ("adamw", &["average", "average_square"]),
        ("adamax", &["average", "largest"]),
        ("lion", &["average"]),
    ];

    /// Gradient descent: w −= lr·g.
    pub fn sgd(lr: f64) -> Rule {
        Rule {
            updater: "sgd",
            lr: Schedule::Constant(lr),
            momentum: Schedule::Constant(0.0),
            weight_decay: 0.0,
            options: AddOptions::default(),
        }
    }

    /// The names of the optimiser state per weight.
    pub fn memory(&self) -> &'static [&'static str] {
        let known = Rule::UPDATERS.iter().find(|(name, _)| *name == self.updater);
        known.map_or(&[], |(_, memory)| *memory)
    }

    /// Performs one update. `state` has one vector for each name of [`Rule::memory`], or is empty before the first update;
    /// `steps` is the number of previous updates of these weights.
    ///
    /// # Panics
    /// If there is no such updater.
    pub fn update<T: Number>(
        &self,
        weights: &mut [T],
        gradient: &mut [T],
        state: &mut Vec<Vec<T>>,
        epoch: usize,
        steps: u64,
    ) {
        state.resize_with(self.memory().len(), || vec![T::ZERO; weights.len()]);
        let updater = UpdaterChoice::named(self.updater).expect("a rule names an updater");
        // These updaters take steps; the others take gradients.
        let takes_steps = matches!(self.updater, "sgd" | "momentum" | "nesterov");
        let is_decoupled = matches!(self.updater, "adamw" | "lion");
        let (lr, momentum) = (self.lr.at(epoch), self.momentum.at(epoch));
        let options = AddOptions {
            lr: (!takes_steps).then_some(lr),
            momentum: (self.updater != "sgd" && takes_steps).then_some(momentum),
            weight_decay: is_decoupled.then_some(self.weight_decay),
            // Without an epsilon, a weight without any gradient would become 0 / 0.
            eps: self.options.eps.map(|eps| eps.max(f64::from(f32::MIN_POSITIVE))),
            ..self.options
        };
        let context = UpdateContext { worker: 0, step: steps + 1, options: &options };
        let decay = (!is_decoupled && self.weight_decay != 0.0).then(|| T::of(self.weight_decay));
        let rate = takes_steps.then(|| T::of(lr));
        for start in (0..weights.len()).step_by(BLOCK) {
            let part = start..weights.len().min(start + BLOCK);
            let (weights, gradient) = (&mut weights[part.clone()], &mut gradient[part.clone()]);
            if let Some(decay) = decay {
                gradient
                    .iter_mut()
                    .zip(&*weights)
                    .for_each(|(gradient, weight)| *gradient += decay * *weight);
            }
            if let Some(rate) = rate {
                gradient.iter_mut().for_each(|gradient| *gradient = rate * *gradient);
            }
            let mut planes: Vec<&mut [T]> = state.iter_mut().map(|plane| &mut plane[part.clone()]).collect();
            updater
                .step(weights, &mut planes, gradient, &context)
                .expect("the state was made for this updater");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_updater_has_the_state_that_its_memory_names() {
        for &(updater, memory) in Rule::UPDATERS {
            let rule = Rule { updater, ..Rule::sgd(0.5) };
            let (mut weights, mut state) = (vec![1.0_f32; BLOCK + 3], Vec::new());
            let mut gradient = vec![2.0; BLOCK + 3];
            rule.update(&mut weights, &mut gradient, &mut state, 0, 0);
            assert_eq!(state.len(), memory.len(), "{updater}");
            assert!(weights.iter().all(|weight| *weight == weights[0] && *weight < 1.0), "{updater}");
        }
    }

    #[test]
    fn decay_pulls_weights_to_zero() {
        for (updater, expected) in [("sgd", 1.9), ("momentum", 1.9), ("adamw", 1.9), ("lion", 1.9)] {
            let rule = Rule { updater, weight_decay: 0.1, ..Rule::sgd(0.5) };
            let mut weights = vec![2.0_f32];
            rule.update(&mut weights, &mut [0.0], &mut Vec::new(), 0, 0);
            assert_eq!(weights, [expected], "{updater}");
        }
    }

    #[test]
    fn weights_without_a_gradient_stay_as_they_are_without_an_epsilon() {
        for updater in ["adagrad", "rmsprop", "adam", "adamax"] {
            let options = AddOptions { eps: Some(0.0), ..AddOptions::default() };
            let rule = Rule { updater, options, ..Rule::sgd(0.5) };
            let mut weights = vec![2.0_f32];
            rule.update(&mut weights, &mut [0.0], &mut Vec::new(), 0, 0);
            assert_eq!(weights, [2.0], "{updater}");
        }
    }
}
