//! Learning rules: how weights are updated from their gradients. One rule, one file.

mod adadelta;
mod adagrad;
mod adam;
mod descent;
mod schedule;

pub use schedule::Schedule;

use crate::number::Number;

/// The update rule of weights: a method, the schedule of its learning rate, and the weight decay.
///
/// ```
/// use unisono_nn::{Method, Rule, Schedule};
/// let rule = Rule { method: Method::GradientDescent, rate: Schedule::Constant(0.1), decay: 0.0 };
/// let (mut weights, mut state) = (vec![1.0_f64], Vec::new());
/// rule.update(&mut weights, &mut [2.0], &mut state, 0, 0);
/// assert_eq!(weights, [0.8]);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// The update method.
    pub method: Method,
    /// The learning rate.
    pub rate: Schedule,
    /// The weight decay: this times the weight is added to its gradient. Biases do not decay.
    pub decay: f64,
}

/// The update for a gradient g.
#[derive(Debug, Clone, PartialEq)]
pub enum Method {
    /// w ← w − rate·g.
    GradientDescent,
    /// v ← m·v − rate·g; w ← w + v.
    Momentum(Schedule),
    /// v as with momentum; w ← w + m·v − rate·g, evaluating the gradient as if the step had already been made.
    Nesterov(Schedule),
    /// Zeiler 2012: steps scaled by the size of recent steps.
    AdaDelta {
        /// The decay of the running averages.
        rho: f64,
        /// Keeps divisions finite.
        epsilon: f64,
    },
    /// Duchi and others 2011: the rate of each weight decreases with its accumulated gradients.
    AdaGrad {
        /// Keeps divisions finite.
        epsilon: f64,
    },
    /// Kingma and Ba 2014: running averages of the gradient and its square.
    Adam {
        /// The decay of the average gradient.
        beta1: f64,
        /// The decay of the average square.
        beta2: f64,
        /// Keeps divisions finite.
        epsilon: f64,
    },
}

impl Method {
    /// The names of the optimiser state per weight.
    pub fn memory(&self) -> &'static [&'static str] {
        match self {
            Method::GradientDescent => &[],
            Method::Momentum(_) | Method::Nesterov(_) => &["velocity"],
            Method::AdaDelta { .. } => &["average_square", "average_step"],
            Method::AdaGrad { .. } => &["sum_of_squares"],
            Method::Adam { .. } => &["average", "average_square"],
        }
    }
}

impl Rule {
    /// Performs one update. `state` has one vector for each name of [`Method::memory`], or is empty before the first update;
    /// `steps` is the number of previous updates of these weights.
    pub fn update<T: Number>(
        &self,
        weights: &mut [T],
        gradient: &mut [T],
        state: &mut Vec<Vec<T>>,
        epoch: usize,
        steps: u64,
    ) {
        state.resize_with(self.method.memory().len(), || vec![T::ZERO; weights.len()]);
        if self.decay != 0.0 {
            let decay = T::of(self.decay);
            gradient.iter_mut().zip(&*weights).for_each(|(gradient, weight)| *gradient += decay * *weight);
        }
        let rate = self.rate.at(epoch);
        match (&self.method, &mut state[..]) {
            (Method::GradientDescent, _) => descent::plain(weights, gradient, rate),
            (Method::Momentum(coefficient), [velocity]) => {
                descent::momentum(weights, gradient, velocity, rate, coefficient.at(epoch));
            }
            (Method::Nesterov(coefficient), [velocity]) => {
                descent::nesterov(weights, gradient, velocity, rate, coefficient.at(epoch));
            }
            (Method::AdaDelta { rho, epsilon }, [squares, steps]) => {
                adadelta::update(weights, gradient, (squares, steps), rate, *rho, *epsilon);
            }
            (Method::AdaGrad { epsilon }, [squares]) => {
                adagrad::update(weights, gradient, squares, rate, *epsilon);
            }
            (Method::Adam { beta1, beta2, epsilon }, [averages, squares]) => {
                let rate = rate * adam::correction(*beta1, *beta2, steps + 1);
                adam::update(weights, gradient, (averages, squares), rate, (*beta1, *beta2, *epsilon));
            }
            (_, _) => unreachable!("the state was made for this method"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two updates of a weight of 1 with gradients 2 and −1.
    fn two_updates(method: Method, rate: f64) -> [f64; 2] {
        let rule = Rule { method, rate: Schedule::Constant(rate), decay: 0.0 };
        let (mut weights, mut state) = (vec![1.0_f64], Vec::new());
        let mut seen = [0.0; 2];
        for (step, gradient) in [2.0, -1.0].into_iter().enumerate() {
            rule.update(&mut weights, &mut [gradient], &mut state, 0, step as u64);
            seen[step] = weights[0];
        }
        seen
    }

    fn close(found: [f64; 2], expected: [f64; 2]) {
        for (found, expected) in found.into_iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{found} is not {expected}");
        }
    }

    #[test]
    fn rules_equal_their_formulas() {
        close(two_updates(Method::GradientDescent, 0.1), [0.8, 0.9]);
        // v: −0.2, then −0.1 + 0.1 = 0.
        close(two_updates(Method::Momentum(Schedule::Constant(0.5)), 0.1), [0.8, 0.8]);
        // Steps: 0.5·(−0.2) − 0.2 = −0.3, then 0.5·0 + 0.1.
        close(two_updates(Method::Nesterov(Schedule::Constant(0.5)), 0.1), [0.7, 0.8]);
        let second = 1.0 - 0.1 + 0.1 / 5.0_f64.sqrt();
        close(two_updates(Method::AdaGrad { epsilon: 0.0 }, 0.1), [0.9, second]);
        let epsilon = 1e-6_f64;
        let one = -((epsilon / (0.1 * 4.0 + epsilon)).sqrt() * 2.0);
        let step_square = 0.1 * one * one;
        let two = ((step_square + epsilon) / (0.9 * 0.4 + 0.1 + epsilon)).sqrt();
        close(two_updates(Method::AdaDelta { rho: 0.9, epsilon }, 1.0), [1.0 + one, 1.0 + one + two]);
        let adam = Method::Adam { beta1: 0.9, beta2: 0.99, epsilon: 0.0 };
        // The first step of Adam has the size of the rate, regardless of the gradient.
        let average = (0.9 * 0.2 - 0.1) / (1.0 - 0.81);
        let square = (0.99 * 0.04 + 0.01) / (1.0 - 0.9801_f64);
        close(two_updates(adam, 0.1), [0.9, 0.9 - 0.1 * average / square.sqrt()]);
    }

    #[test]
    fn decay_pulls_weights_to_zero() {
        let rule = Rule { method: Method::GradientDescent, rate: Schedule::Constant(0.5), decay: 0.1 };
        let mut weights = vec![2.0_f32];
        rule.update(&mut weights, &mut [0.0], &mut Vec::new(), 0, 0);
        assert_eq!(weights, [1.9]);
    }
}
