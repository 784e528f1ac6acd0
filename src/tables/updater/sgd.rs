//! `sgd`, stochastic gradient descent: w −= δ, where the worker has multiplied the gradient by its learning rate.

use super::{UpdateContext, Updater};
use crate::memory::each::update_each;
use crate::memory::{State, TableElement};

pub(super) struct Sgd;

impl<T: TableElement> Updater<T> for Sgd {
    fn name(&self) -> &str {
        "sgd"
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn uses(&self) -> Option<Vec<&'static str>> {
        Some(Vec::new())
    }

    fn update(&self, values: &mut [T], _: &mut [&mut [T::State]], delta: &[T], _: &UpdateContext) {
        update_each(values, [], delta, |value, [], delta| (value.minus(delta), []));
    }
}
