//! `momentum`, gradient descent that retains a fraction of its earlier steps: v = m·v + δ, w −= v.
//!
//! All workers share one v, which starts at zero. δ is a step: the worker has multiplied the gradient by its learning
//! rate. `torch.optim.SGD` has the same rule for `momentum=m`, without dampening. Polyak, "Some methods of speeding up the
//! convergence of iteration methods", 1964.

use super::setting::{Setting, setting, settings};
use super::{UpdateContext, Updater, planes};
use crate::memory::each::update_each;
use crate::memory::{Real, TableElement};

pub(super) struct Momentum;

const MOMENTUM: Setting = setting!(momentum = 0.9, BelowOne);

impl<T: TableElement<State: Real>> Updater<T> for Momentum {
    fn name(&self) -> &str {
        "momentum"
    }

    fn shared_planes(&self) -> usize {
        1
    }

    settings!(&[MOMENTUM]);

    fn update(&self, values: &mut [T], state: &mut [&mut [T::State]], delta: &[T], context: &UpdateContext) {
        let momentum: T::State = MOMENTUM.of(context);
        update_each(values, planes(state), delta, |value, [velocity], delta| {
            let velocity = momentum * velocity + delta;
            (value - velocity, [velocity])
        });
    }
}
