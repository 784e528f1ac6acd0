//! `rmsprop`, steps divided by the recent magnitude of gradients: S = α·S + (1−α)·g², w −= η·g/(√S+ε).
//!
//! All workers share one S, which starts at zero. δ is the gradient g itself; the learning rate η is an option. The rule and
//! its defaults are those of `torch.optim.RMSprop`; `rho` is another name of α.
//! Tieleman and Hinton, "Lecture 6.5: rmsprop", Neural networks for machine learning, 2012.

use super::setting::{Setting, setting, settings};
use super::{UpdateContext, Updater, planes};
use crate::memory::each::update_each;
use crate::memory::{Real, TableElement};

pub(super) struct Rmsprop;

const LEARNING_RATE: Setting = setting!(lr = 0.01, Positive);
const ALPHA: Setting = setting!(alpha = 0.99, BelowOne, or rho);
const EPSILON: Setting = setting!(eps = 1e-8, Positive);

impl<T: TableElement<State: Real>> Updater<T> for Rmsprop {
    fn name(&self) -> &str {
        "rmsprop"
    }

    fn shared_planes(&self) -> usize {
        1
    }

    settings!(&[LEARNING_RATE, ALPHA, EPSILON]);

    fn update(&self, values: &mut [T], state: &mut [&mut [T::State]], delta: &[T], context: &UpdateContext) {
        let learning_rate: T::State = LEARNING_RATE.of(context);
        let (alpha, epsilon): (T::State, T::State) = (ALPHA.of(context), EPSILON.of(context));
        let fresh: T::State = ALPHA.one_minus(context);
        update_each(values, planes(state), delta, |value, [square], gradient| {
            let square = alpha * square + fresh * (gradient * gradient);
            (value - learning_rate * gradient / (square.square_root() + epsilon), [square])
        });
    }
}
