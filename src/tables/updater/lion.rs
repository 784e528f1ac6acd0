//! `lion`, steps of constant length in the direction of a running mean: u = sgn(β₁·m + (1−β₁)·g), w −= η·(u + λ·w),
//! m = β₂·m + (1−β₂)·g.
//!
//! All workers share one m, which starts at zero. δ is the gradient g itself; the learning rate η is an option. The weight decay
//! λ, `weight_decay`, is decoupled from the gradient; it is off by default. sgn(0) is 0: a weight that has received no gradient changes by the
//! decay alone. Chen and others, "Symbolic discovery of optimization algorithms", 2023 (arXiv 2302.06675), algorithm 2.

use super::setting::{Setting, setting, settings};
use super::{UpdateContext, Updater, planes};
use crate::memory::each::update_each;
use crate::memory::{Real, TableElement};

pub(super) struct Lion;

const LEARNING_RATE: Setting = setting!(lr = 0.0001, Positive);
const WEIGHT_DECAY: Setting = setting!(weight_decay = 0.0, NotNegative, or lambda);
const BETA1: Setting = setting!(beta1 = 0.9, BelowOne);
const BETA2: Setting = setting!(beta2 = 0.99, BelowOne);

impl<T: TableElement<State: Real>> Updater<T> for Lion {
    fn name(&self) -> &str {
        "lion"
    }

    fn shared_planes(&self) -> usize {
        1
    }

    settings!(&[LEARNING_RATE, WEIGHT_DECAY, BETA1, BETA2]);

    fn update(&self, values: &mut [T], state: &mut [&mut [T::State]], delta: &[T], context: &UpdateContext) {
        let (learning_rate, decay): (T::State, T::State) =
            (LEARNING_RATE.of(context), WEIGHT_DECAY.of(context));
        let (beta1, beta2): (T::State, T::State) = (BETA1.of(context), BETA2.of(context));
        let (fresh1, fresh2): (T::State, T::State) = (BETA1.one_minus(context), BETA2.one_minus(context));
        update_each(values, planes(state), delta, |value, [mean], gradient| {
            let direction = sign(beta1 * mean + fresh1 * gradient);
            (value - learning_rate * (direction + decay * value), [beta2 * mean + fresh2 * gradient])
        });
    }
}

/// 1, −1, or the number itself if it has no sign: a zero stays zero, and a NaN propagates.
#[inline(always)]
fn sign<R: Real>(number: R) -> R {
    if number.absolute() > R::ZERO { R::ONE.with_sign_of(number) } else { number }
}
