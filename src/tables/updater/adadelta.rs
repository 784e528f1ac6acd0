//! `adadelta`, steps in the units of the values: S = ρ·S + (1−ρ)·g², u = √(D+ε)/√(S+ε)·g, D = ρ·D + (1−ρ)·u², w −= η·u.
//!
//! All workers share S and D, which start at zero. δ is the gradient g itself; the learning rate η is an option. The rule and its
//! defaults are those of `torch.optim.Adadelta`. Zeiler, "ADADELTA: an adaptive learning rate method", 2012.

use super::setting::{Setting, setting, settings};
use super::{UpdateContext, Updater, planes};
use crate::memory::each::update_each;
use crate::memory::{Real, TableElement};

pub(super) struct Adadelta;

const LEARNING_RATE: Setting = setting!(lr = 1.0, Positive);
const RHO: Setting = setting!(rho = 0.9, BelowOne);
const EPSILON: Setting = setting!(eps = 1e-6, Positive);

impl<T: TableElement<State: Real>> Updater<T> for Adadelta {
    fn name(&self) -> &str {
        "adadelta"
    }

    fn shared_planes(&self) -> usize {
        2
    }

    settings!(&[LEARNING_RATE, RHO, EPSILON]);

    fn update(&self, values: &mut [T], state: &mut [&mut [T::State]], delta: &[T], context: &UpdateContext) {
        let learning_rate: T::State = LEARNING_RATE.of(context);
        let (rho, epsilon): (T::State, T::State) = (RHO.of(context), EPSILON.of(context));
        let fresh: T::State = RHO.one_minus(context);
        update_each(values, planes(state), delta, |value, [square, moved], gradient| {
            let square = rho * square + fresh * (gradient * gradient);
            let step = (moved + epsilon).square_root() / (square + epsilon).square_root() * gradient;
            (value - learning_rate * step, [square, rho * moved + fresh * (step * step)])
        });
    }
}
