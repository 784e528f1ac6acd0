//! `adagrad`, smaller steps where gradients were large: G += g², w −= η/(1 + (t−1)·d)·g/(√(G₀+G)+ε).
//!
//! All workers share G, which starts at zero; t counts the adds of all workers to this row (or this stripe of an array). δ is the
//! gradient g itself; the learning rate η, its decay d and the initial accumulator G₀ are options, with the names, defaults and
//! meaning of `torch.optim.Adagrad`. Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and stochastic
//! optimization", 2011.

use super::setting::{Setting, setting, settings};
use super::{UpdateContext, Updater, planes};
use crate::memory::each::update_each;
use crate::memory::{Real, TableElement};

pub(super) struct Adagrad;

const LEARNING_RATE: Setting = setting!(lr = 0.01, Positive);
const EPSILON: Setting = setting!(eps = 1e-10, Positive);
const LR_DECAY: Setting = setting!(lr_decay = 0.0, NotNegative);
const INITIAL: Setting = setting!(initial_accumulator_value = 0.0, NotNegative);

impl<T: TableElement<State: Real>> Updater<T> for Adagrad {
    fn name(&self) -> &str {
        "adagrad"
    }

    fn shared_planes(&self) -> usize {
        1
    }

    settings!(&[LEARNING_RATE, EPSILON, LR_DECAY, INITIAL]);

    fn update(&self, values: &mut [T], state: &mut [&mut [T::State]], delta: &[T], context: &UpdateContext) {
        let decay = 1.0 + (context.step.max(1) - 1) as f64 * LR_DECAY.as_f64(context);
        let rate = T::State::from_f64(LEARNING_RATE.as_f64(context) / decay);
        let (epsilon, initial): (T::State, T::State) = (EPSILON.of(context), INITIAL.of(context));
        update_each(values, planes(state), delta, |value, [sum], gradient| {
            let sum = sum + gradient * gradient;
            (value - rate * gradient / ((initial + sum).square_root() + epsilon), [sum])
        });
    }
}
