//! `nesterov`, momentum with lookahead: v = m·v + δ, w −= m·v + δ.
//!
//! All workers share one v, which starts at zero. δ is a step: the worker has multiplied the gradient by its learning
//! rate. The form is that of Sutskever, Martens, Dahl and Hinton ("On the importance of initialization and momentum in
//! deep learning", 2013), written for the point at which the gradient is computed.

use super::setting::{Setting, setting, settings};
use super::{UpdateContext, Updater, planes};
use crate::memory::each::update_each;
use crate::memory::{Real, TableElement};

pub(super) struct Nesterov;

const MOMENTUM: Setting = setting!(momentum = 0.9, BelowOne);

impl<T: TableElement<State: Real>> Updater<T> for Nesterov {
    fn name(&self) -> &str {
        "nesterov"
    }

    fn shared_planes(&self) -> usize {
        1
    }

    settings!(&[MOMENTUM]);

    fn update(&self, values: &mut [T], state: &mut [&mut [T::State]], delta: &[T], context: &UpdateContext) {
        let momentum: T::State = MOMENTUM.of(context);
        update_each(values, planes(state), delta, |value, [velocity], delta| {
            let velocity = momentum * velocity + delta;
            (value - (momentum * velocity + delta), [velocity])
        });
    }
}
