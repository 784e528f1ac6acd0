//! `multiverso_adagrad`, Multiverso's variant of adagrad: g = δ/η, G += g², w −= ρ/√(G+ε)·g.
//!
//! Each worker has its own G, which starts at zero. δ is a step of learning rate η: the worker has multiplied its gradient g by
//! it. ρ is the length of a step, and ε is inside the root. `adagrad` is the form used by other libraries.

use super::setting::{Setting, setting, settings};
use super::{UpdateContext, Updater, planes};
use crate::memory::each::update_each;
use crate::memory::{Real, TableElement};

pub(super) struct MultiversoAdagrad;

const LEARNING_RATE: Setting = setting!(lr = 0.01, Positive);
const RHO: Setting = setting!(rho = 0.1, Positive);
const EPSILON: Setting = setting!(eps = 1e-6, Positive);

impl<T: TableElement<State: Real>> Updater<T> for MultiversoAdagrad {
    fn name(&self) -> &str {
        "multiverso_adagrad"
    }

    fn worker_planes(&self) -> usize {
        1
    }

    settings!(&[LEARNING_RATE, RHO, EPSILON]);

    fn update(&self, values: &mut [T], state: &mut [&mut [T::State]], delta: &[T], context: &UpdateContext) {
        let learning_rate: T::State = LEARNING_RATE.of(context);
        let (rho, epsilon): (T::State, T::State) = (RHO.of(context), EPSILON.of(context));
        update_each(values, planes(state), delta, |value, [history], delta| {
            let gradient = delta / learning_rate;
            let history = history + gradient * gradient;
            (value - rho * gradient / (history + epsilon).square_root(), [history])
        });
    }
}
