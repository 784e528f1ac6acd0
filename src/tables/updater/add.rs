//! `add`, the default: w += δ. The sum of the adds of all workers, in any order; integers wrap around.

use super::{UpdateContext, Updater};
use crate::memory::each::update_each;
use crate::memory::{State, TableElement};

pub(super) struct Add;

impl<T: TableElement> Updater<T> for Add {
    fn name(&self) -> &str {
        "add"
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn uses(&self) -> Option<Vec<&'static str>> {
        Some(Vec::new())
    }

    fn update(&self, values: &mut [T], _: &mut [&mut [T::State]], delta: &[T], _: &UpdateContext) {
        update_each(values, [], delta, |value, [], delta| (value.plus(delta), []));
    }
}
