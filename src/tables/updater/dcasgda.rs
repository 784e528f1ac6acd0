//! `dcasgda`, the adaptive form of `dcasgd`: g = δ/η, S = m·S + (1−m)·g², w −= η·(g + λ/√(S+ε)·g²·(w − b)), b = w.
//!
//! The compensation is divided by the recent magnitude of this worker's gradients, so that one λ suits all weights. Each worker
//! has its own S, which starts at zero, and its own b, encoded as in `dcasgd`. Zheng and others, "Asynchronous stochastic
//! gradient descent with delay compensation", 2017 (arXiv 1609.08326). δ is a step of learning rate η.

use super::dcasgd::{from_backup, to_backup};
use super::setting::{Setting, setting, settings};
use super::{UpdateContext, Updater, planes};
use crate::memory::each::update_each;
use crate::memory::{Real, TableElement};

pub(super) struct Dcasgda;

const LEARNING_RATE: Setting = setting!(lr = 0.01, Positive);
const LAMBDA: Setting = setting!(lambda = 0.1, NotNegative);
const MOMENTUM: Setting = setting!(momentum = 0.95, BelowOne);
const EPSILON: Setting = setting!(eps = 1e-7, Positive);

impl<T: TableElement<State: Real>> Updater<T> for Dcasgda {
    fn name(&self) -> &str {
        "dcasgda"
    }

    fn worker_planes(&self) -> usize {
        2
    }

    settings!(&[LEARNING_RATE, LAMBDA, MOMENTUM, EPSILON]);

    fn update(&self, values: &mut [T], state: &mut [&mut [T::State]], delta: &[T], context: &UpdateContext) {
        let learning_rate: T::State = LEARNING_RATE.of(context);
        let (lambda, epsilon): (T::State, T::State) = (LAMBDA.of(context), EPSILON.of(context));
        let momentum: T::State = MOMENTUM.of(context);
        let fresh: T::State = MOMENTUM.one_minus(context);
        update_each(values, planes(state), delta, |value, [backup, square], delta| {
            let gradient = delta / learning_rate;
            let square = momentum * square + fresh * (gradient * gradient);
            let strength = lambda / (square + epsilon).square_root();
            let missed = value - from_backup(backup, value);
            let value = T::narrow(value - (delta + strength * (delta * gradient) * missed)).widen();
            (value, [to_backup(value), square])
        });
    }
}
