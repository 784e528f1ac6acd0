//! `multiverso_momentum`, a running mean of steps: v = m·v + (1−m)·δ, w −= v.
//!
//! All workers share one v, which starts at zero. δ is a step: the worker has multiplied the gradient by its learning
//! rate. The factor 1−m keeps the length of a step independent of m; `momentum` is the form without it.

use super::setting::{Setting, setting, settings};
use super::{UpdateContext, Updater, planes};
use crate::memory::each::update_each;
use crate::memory::{Real, TableElement};

pub(super) struct MultiversoMomentum;

const MOMENTUM: Setting = setting!(momentum = 0.9, BelowOne);

impl<T: TableElement<State: Real>> Updater<T> for MultiversoMomentum {
    fn name(&self) -> &str {
        "multiverso_momentum"
    }

    fn shared_planes(&self) -> usize {
        1
    }

    settings!(&[MOMENTUM]);

    fn update(&self, values: &mut [T], state: &mut [&mut [T::State]], delta: &[T], context: &UpdateContext) {
        let momentum: T::State = MOMENTUM.of(context);
        let fresh: T::State = MOMENTUM.one_minus(context);
        update_each(values, planes(state), delta, |value, [velocity], delta| {
            let velocity = momentum * velocity + fresh * delta;
            (value - velocity, [velocity])
        });
    }
}
