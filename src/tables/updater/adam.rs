//! `adam`, a combination of momentum and rmsprop with bias correction:
//! m = β₁·m + (1−β₁)·g, v = β₂·v + (1−β₂)·g², w −= η·(m/(1−β₁ᵗ)) / (√(v/(1−β₂ᵗ))+ε).
//!
//! All workers share m and v, which start at zero; t counts the adds of all workers to this row (or this stripe of an array). δ
//! is the gradient g itself; the learning rate η is an option. Kingma and Ba, "Adam: a method for stochastic optimization", 2015.

use super::setting::{Setting, setting, settings};
use super::{UpdateContext, Updater, planes};
use crate::memory::each::update_each;
use crate::memory::{Real, TableElement};

pub(super) struct Adam;

pub(super) const LEARNING_RATE: Setting = setting!(lr = 0.001, Positive);
pub(super) const BETA1: Setting = setting!(beta1 = 0.9, BelowOne);
pub(super) const BETA2: Setting = setting!(beta2 = 0.999, BelowOne);
pub(super) const EPSILON: Setting = setting!(eps = 1e-8, Positive);

impl<T: TableElement<State: Real>> Updater<T> for Adam {
    fn name(&self) -> &str {
        "adam"
    }

    fn shared_planes(&self) -> usize {
        2
    }

    settings!(&[LEARNING_RATE, BETA1, BETA2, EPSILON]);

    fn update(&self, values: &mut [T], state: &mut [&mut [T::State]], delta: &[T], context: &UpdateContext) {
        update(values, state, delta, context, |value| value);
    }
}

/// A step of adam, after `shrink` has applied the weight decay.
pub(super) fn update<T: TableElement<State: Real>>(
    values: &mut [T],
    state: &mut [&mut [T::State]],
    delta: &[T],
    context: &UpdateContext,
    shrink: impl Fn(T::State) -> T::State,
) {
    let (beta1, beta2): (T::State, T::State) = (BETA1.of(context), BETA2.of(context));
    let (fresh1, fresh2): (T::State, T::State) = (BETA1.one_minus(context), BETA2.one_minus(context));
    let epsilon: T::State = EPSILON.of(context);
    let seen1 = bias_correction(BETA1.as_f64(context), context.step);
    let seen2 = bias_correction(BETA2.as_f64(context), context.step);
    let rate = T::State::from_f64(LEARNING_RATE.as_f64(context) / seen1);
    let root = T::State::from_f64(seen2.sqrt());
    update_each(values, planes(state), delta, |value, [mean, square], gradient| {
        let mean = beta1 * mean + fresh1 * gradient;
        let square = beta2 * square + fresh2 * (gradient * gradient);
        (shrink(value) - rate * mean / (square.square_root() / root + epsilon), [mean, square])
    });
}

/// Bias correction 1 − βᵗ: the share of a running mean that comes from gradients rather than from its initial zero. Computed
/// without cancellation for β near 1.
pub(super) fn bias_correction(beta: f64, step: u64) -> f64 {
    -(beta.ln() * step.max(1) as f64).exp_m1()
}
