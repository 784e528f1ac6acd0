//! `adamax`, adam with the largest recent gradient in place of the mean square: m = β₁·m + (1−β₁)·g, u = max(β₂·u, |g|+ε),
//! w −= η/(1−β₁ᵗ)·m/u.
//!
//! All workers share m and u, which start at zero; t counts the adds of all workers to this row (or this stripe of an array). δ
//! is the gradient g itself; the learning rate η is an option. The rule and its defaults are those of `torch.optim.Adamax`.
//! Kingma and Ba, "Adam: a method for stochastic optimization", 2015, algorithm 2.

use super::adam::{BETA1, BETA2, EPSILON, bias_correction};
use super::setting::{Setting, setting, settings};
use super::{UpdateContext, Updater, planes};
use crate::memory::each::update_each;
use crate::memory::{Real, TableElement};

pub(super) struct Adamax;

const LEARNING_RATE: Setting = setting!(lr = 0.002, Positive);

impl<T: TableElement<State: Real>> Updater<T> for Adamax {
    fn name(&self) -> &str {
        "adamax"
    }

    fn shared_planes(&self) -> usize {
        2
    }

    settings!(&[LEARNING_RATE, BETA1, BETA2, EPSILON]);

    fn update(&self, values: &mut [T], state: &mut [&mut [T::State]], delta: &[T], context: &UpdateContext) {
        let (beta1, beta2): (T::State, T::State) = (BETA1.of(context), BETA2.of(context));
        let (fresh, epsilon): (T::State, T::State) = (BETA1.one_minus(context), EPSILON.of(context));
        let seen = bias_correction(BETA1.as_f64(context), context.step);
        let rate = T::State::from_f64(LEARNING_RATE.as_f64(context) / seen);
        update_each(values, planes(state), delta, |value, [mean, largest], gradient| {
            let mean = beta1 * mean + fresh * gradient;
            let (faded, recent) = (beta2 * largest, gradient.absolute() + epsilon);
            // A NaN propagates.
            let largest = if faded > recent { faded } else { recent };
            (value - rate * mean / largest, [mean, largest])
        });
    }
}
