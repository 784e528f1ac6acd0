//! The untyped form of an updater, as tables hold it, and the way to it from the typed one.

use std::marker::PhantomData;
use std::sync::Arc;

use super::{UpdateContext, Updater};
use crate::memory::{DType, Element, TableElement};
use crate::tables::AddOptions;
use crate::{Error, Result};

/// An updater whose element type is known only at run time.
pub(crate) trait Rule: Send + Sync {
    fn name(&self) -> &str;
    /// The type of the values and of the delta.
    fn dtype(&self) -> DType;
    /// The type of every plane of state.
    fn state_dtype(&self) -> DType;
    fn shared_planes(&self) -> usize;
    fn worker_planes(&self) -> usize;
    fn defaults(&self) -> AddOptions;
    fn check(&self, options: &AddOptions) -> Result<()>;

    /// Changes `values` by `delta`, which hold equally many elements. `state`: the shared planes, then this worker's planes.
    /// Values and state are aligned for their types; a delta that is not is copied first.
    fn update(&self, values: &mut [u8], state: &mut [&mut [u8]], delta: &[u8], context: &UpdateContext);

    /// The options for one add, with the rule's defaults filled in; refused where the rule cannot work with them.
    fn options(&self, given: &AddOptions) -> Result<AddOptions> {
        let options = given.or(&self.defaults());
        options.check()?;
        self.check(&options)?;
        Ok(options)
    }
}

/// A typed updater as a [`Rule`].
struct Typed<T, U: ?Sized> {
    element: PhantomData<fn() -> T>,
    updater: Arc<U>,
}

/// The untyped form of an updater.
pub(super) fn untyped<T: TableElement, U: Updater<T> + ?Sized>(updater: Arc<U>) -> Arc<dyn Rule> {
    Arc::new(Typed { element: PhantomData::<fn() -> T>, updater })
}

impl<T: TableElement, U: Updater<T> + ?Sized> Rule for Typed<T, U> {
    fn name(&self) -> &str {
        self.updater.name()
    }

    fn dtype(&self) -> DType {
        T::DTYPE
    }

    fn state_dtype(&self) -> DType {
        <T::State as Element>::DTYPE
    }

    fn shared_planes(&self) -> usize {
        self.updater.shared_planes()
    }

    fn worker_planes(&self) -> usize {
        self.updater.worker_planes()
    }

    fn defaults(&self) -> AddOptions {
        self.updater.defaults()
    }

    fn check(&self, options: &AddOptions) -> Result<()> {
        self.updater.check(options)
    }

    fn update(&self, values: &mut [u8], state: &mut [&mut [u8]], delta: &[u8], context: &UpdateContext) {
        let copy: Vec<T>;
        let delta = match bytemuck::try_cast_slice(delta) {
            Ok(delta) => delta,
            Err(_) => {
                copy = delta.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect();
                &copy
            }
        };
        let values: &mut [T] = bytemuck::cast_slice_mut(values);
        // A row may be short: no allocation for the numbers of planes that the built-in rules have.
        match state {
            [] => self.updater.update(values, &mut [], delta, context),
            [one] => self.updater.update(values, &mut [plane(one)], delta, context),
            [one, two] => self.updater.update(values, &mut [plane(one), plane(two)], delta, context),
            more => {
                let mut planes: Vec<_> = more.iter_mut().map(|bytes| plane(bytes)).collect();
                self.updater.update(values, &mut planes, delta, context);
            }
        }
    }
}

fn plane<S: Element>(bytes: &mut [u8]) -> &mut [S] {
    bytemuck::cast_slice_mut(bytes)
}

/// The error for a table whose element type an updater is not made for.
pub(super) fn wrong_type(updater: &str, expected: &str, received: DType, advice: &str) -> Error {
    Error::usage(
        "new table",
        format!("elements of {expected} for the updater `{updater}`"),
        received.name(),
        advice,
    )
}
