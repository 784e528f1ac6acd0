//! The type-erased form of an updater, as tables store it, and the conversion from the typed form.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::Arc;

use super::{UpdateContext, Updater, UpdaterChoice};
use crate::error::nearest::advice;
use crate::memory::prefetch::prefetch;
use crate::memory::{DType, Element, State, TableElement};
use crate::tables::AddOptions;
use crate::{Error, Result};

/// An updater whose element type is known only at run time.
pub(crate) trait UpdateRule: Send + Sync {
    fn name(&self) -> &str;
    /// The type of the values and of the delta.
    fn dtype(&self) -> DType;
    /// The type of every plane of state.
    fn state_dtype(&self) -> DType;
    fn shared_planes(&self) -> usize;
    fn worker_planes(&self) -> usize;
    fn defaults(&self) -> AddOptions;
    /// The names of the options that it uses; `None` if it may use any.
    fn uses(&self) -> Option<Vec<&'static str>>;
    /// The options with this rule's aliases replaced.
    fn canonical(&self, options: AddOptions) -> AddOptions;
    fn check(&self, options: &AddOptions) -> Result<()>;
    /// Whether applying adds one by one is equivalent to applying their sum.
    fn is_linear(&self) -> bool;

    /// Adds a delta to sums, which have the state type and are aligned for it; an unaligned delta is copied first.
    fn accumulate(&self, sums: &mut [u8], delta: &[u8]);

    /// Adds each row of a delta, of `cols` elements, to the row of sums with its number, in the order of the list. The sums are
    /// zero before, and a number that has not occurred yet is the next one. Alignment is as for [`UpdateRule::accumulate`].
    fn accumulate_numbered(&self, sums: &mut [u8], cols: usize, numbers: &[u32], delta: &[u8]);

    /// Rounds sums to the type of values; both are aligned for their types.
    fn narrow(&self, sums: &[u8], delta: &mut [u8]);

    /// Updates `values` by `delta`, which have the same number of elements. `state`: the shared planes, then this worker's
    /// planes. Values and state are aligned for their types; an unaligned delta is copied first.
    fn update(&self, values: &mut [u8], state: &mut [&mut [u8]], delta: &[u8], context: &UpdateContext);

    /// The options for one add, without aliases and with the rule's defaults filled in; an error if the rule rejects them.
    fn options(&self, given: &AddOptions) -> Result<AddOptions> {
        let options = self.canonical(*given).or(&self.defaults());
        options.validate()?;
        self.check(&options)?;
        Ok(options)
    }

    /// Rejects options that the rule does not use.
    fn check_used(&self, table: &str, given: &AddOptions) -> Result<()> {
        let Some(known) = self.uses() else { return Ok(()) };
        match given.iter().find(|(name, _)| !known.contains(name)) {
            Some((name, value)) => Err(unused(table, self.name(), &known, name, &format!("{name}={value}"))),
            None => Ok(()),
        }
    }

    /// Rejects the name of an option that this rule does not use.
    fn check_name(&self, table: &str, name: &str) -> Result<()> {
        let known = self.uses().unwrap_or_else(|| AddOptions::NAMES.to_vec());
        match known.contains(&AddOptions::canonical(name)) {
            true => Ok(()),
            false => Err(unused(table, self.name(), &known, name, &format!("{name:?}"))),
        }
    }
}

/// How far ahead the rows of sums are prefetched, in rows of the delta.
const PREFETCH_DISTANCE: usize = 8;

/// A typed updater as an [`UpdateRule`].
struct Typed<T, U: ?Sized> {
    element: PhantomData<fn() -> T>,
    updater: Arc<U>,
}

/// Erases the element type of an updater.
pub(super) fn untyped<T: TableElement, U: Updater<T> + ?Sized>(updater: Arc<U>) -> Arc<dyn UpdateRule> {
    Arc::new(Typed { element: PhantomData::<fn() -> T>, updater })
}

impl<T: TableElement, U: Updater<T> + ?Sized> UpdateRule for Typed<T, U> {
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

    fn uses(&self) -> Option<Vec<&'static str>> {
        self.updater.uses()
    }

    fn canonical(&self, options: AddOptions) -> AddOptions {
        self.updater.canonical(options)
    }

    fn check(&self, options: &AddOptions) -> Result<()> {
        self.updater.check(options)
    }

    fn is_linear(&self) -> bool {
        self.updater.is_linear()
    }

    fn accumulate(&self, sums: &mut [u8], delta: &[u8]) {
        let sums: &mut [T::State] = bytemuck::cast_slice_mut(sums);
        let delta = aligned::<T>(delta);
        sums.iter_mut().zip(&*delta).for_each(|(sum, delta)| *sum = sum.plus(delta.widen()));
    }

    fn accumulate_numbered(&self, sums: &mut [u8], cols: usize, numbers: &[u32], delta: &[u8]) {
        let sums: &mut [T::State] = bytemuck::cast_slice_mut(sums);
        let delta = aligned::<T>(delta);
        let (mut wide, mut next) = (vec![T::State::default(); cols], 0);
        let (start, bytes) = (sums.as_ptr(), cols * size_of::<T::State>());
        for (position, (&number, row)) in numbers.iter().zip(delta.chunks_exact(cols)).enumerate() {
            if let Some(&later) = numbers.get(position + PREFETCH_DISTANCE) {
                prefetch(start.wrapping_add(later as usize * cols).cast(), bytes);
            }
            let sum = &mut sums[number as usize * cols..][..cols];
            if number == next {
                next += 1;
                T::widen_all(row, sum);
                continue;
            }
            T::widen_all(row, &mut wide);
            sum.iter_mut().zip(&wide).for_each(|(sum, delta)| *sum = sum.plus(*delta));
        }
    }

    fn narrow(&self, sums: &[u8], delta: &mut [u8]) {
        T::narrow_all(bytemuck::cast_slice(sums), bytemuck::cast_slice_mut(delta));
    }

    fn update(&self, values: &mut [u8], state: &mut [&mut [u8]], delta: &[u8], context: &UpdateContext) {
        let copy;
        let delta: &[T] = match bytemuck::try_cast_slice(delta) {
            Ok(delta) => delta,
            Err(_) => {
                copy = copied(delta);
                &copy
            }
        };
        let values: &mut [T] = bytemuck::cast_slice_mut(values);
        // A row may be short: avoid an allocation for the numbers of planes that built-in rules have.
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

/// Elements from bytes that need not be aligned.
fn aligned<T: Element>(bytes: &[u8]) -> Cow<'_, [T]> {
    match bytemuck::try_cast_slice(bytes) {
        Ok(elements) => Cow::Borrowed(elements),
        Err(_) => Cow::Owned(copied(bytes)),
    }
}

#[cold]
fn copied<T: Element>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}

fn plane<S: Element>(bytes: &mut [u8]) -> &mut [S] {
    bytemuck::cast_slice_mut(bytes)
}

/// The error for an option that an updater does not use.
fn unused(table: &str, updater: &str, known: &[&'static str], name: &str, received: &str) -> Error {
    let expected = match known.is_empty() {
        true => format!("no options for the updater `{updater}` of table {table:?}"),
        false => format!("options of the updater `{updater}` of table {table:?}: {}", known.join(", ")),
    };
    let others = UpdaterChoice::using_option(AddOptions::canonical(name));
    let advice = match others.is_empty() {
        // Suggest this updater's options first, then those of others.
        true => {
            let anywhere = advice(name, AddOptions::every_name(), "leave it out");
            advice(name, known.iter().copied(), &anywhere)
        }
        false => format!("leave it out, or choose an updater that uses it: {}", others.join(", ")),
    };
    Error::usage("add options", expected, received, advice)
}

/// The error for an element type that an updater does not support.
pub(super) fn wrong_type(updater: &str, expected: &str, received: DType, advice: &str) -> Error {
    Error::usage(
        "new table",
        format!("elements of {expected} for the updater `{updater}`"),
        received.name(),
        advice,
    )
}
