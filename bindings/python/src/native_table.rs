//! Common parts of all native tables: the table, the liveness of its world, and calls with the GIL released.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use unisono::tables::{KeyValueTable, Table, TableStats};
use unisono::{DType, Error, Result};

use crate::any_array::AnyArray;
use crate::array::View;
use crate::call::{Arg, seconds};
use crate::errors::{OrRaise, guard};
use crate::fork::{ProcessLocal, WorldLiveness};
use crate::memory::Memory;

/// The operations that all tables of the library share.
pub(crate) trait TableApi: Sized + Sync {
    fn name(&self) -> &str;
    fn dtype(&self) -> DType;
    fn with_timeout(&self, timeout: Duration) -> Self;
    fn staleness(&self) -> Vec<u64>;
}

macro_rules! table_api {
    ($($table:ident),*) => {$(
        impl TableApi for $table {
            fn name(&self) -> &str {
                $table::name(self)
            }

            fn dtype(&self) -> DType {
                $table::dtype(self)
            }

            fn with_timeout(&self, timeout: Duration) -> $table {
                $table::with_timeout(self, timeout)
            }

            fn staleness(&self) -> Vec<u64> {
                $table::staleness(self)
            }
        }
    )*};
}

table_api!(Table, KeyValueTable);

/// A table that is dropped only in the process that created it.
pub(crate) struct NativeTable<T> {
    pub(crate) table: ProcessLocal<T>,
    liveness: Arc<WorldLiveness>,
}

impl<T: TableApi> NativeTable<T> {
    pub(crate) fn new(table: T, liveness: Arc<WorldLiveness>) -> NativeTable<T> {
        NativeTable { table: ProcessLocal::new(table), liveness }
    }

    /// Fails after shutdown and in a forked child; otherwise the table with the call's `timeout`, if it differs from the
    /// default.
    pub(crate) fn begin(&self, operation: &'static str, timeout: Arg<'_, '_>) -> PyResult<Option<T>> {
        self.liveness.check(operation).or_raise(timeout.py())?;
        Ok(seconds(timeout, operation)?.map(|limit| self.table.with_timeout(limit)))
    }

    /// Runs a call with the GIL released. The job holds the caller's arrays and is dropped after the GIL is reacquired.
    pub(crate) fn run<R: Send>(
        &self,
        py: Python<'_>,
        operation: &'static str,
        adjusted: Option<T>,
        mut job: impl FnMut(&T) -> Result<R> + Send,
    ) -> PyResult<R> {
        let table = adjusted.as_ref().unwrap_or(&self.table);
        let outcome = py.detach(|| guard(operation, || job(table)));
        self.liveness.record(&outcome);
        outcome.or_raise(py)
    }

    /// Runs a call without arrays.
    pub(crate) fn simple(
        &self,
        operation: &'static str,
        timeout: Arg<'_, '_>,
        job: impl FnMut(&T) -> Result<()> + Send,
    ) -> PyResult<()> {
        let adjusted = self.begin(operation, timeout)?;
        self.run(timeout.py(), operation, adjusted, job)
    }

    /// Runs a call without arguments.
    pub(crate) fn query<R: Send>(
        &self,
        py: Python<'_>,
        operation: &'static str,
        job: impl FnMut(&T) -> Result<R> + Send,
    ) -> PyResult<R> {
        self.liveness.check(operation).or_raise(py)?;
        self.run(py, operation, None, job)
    }

    /// The caller's array to read, in host memory; it has this shape, or is flat.
    pub(crate) fn input(&self, x: &Bound<'_, PyAny>, operation: &str, shape: &[usize]) -> PyResult<View> {
        let view = View::input(x, operation)?;
        self.check(operation, view.dtype, shape, &view.shape).or_raise(x.py())?;
        Ok(view)
    }

    /// The caller's array to read, in host or device memory.
    pub(crate) fn input_anywhere(
        &self,
        x: &Bound<'_, PyAny>,
        operation: &str,
        shape: &[usize],
    ) -> PyResult<AnyArray> {
        let array = AnyArray::input(x, operation)?;
        self.check(operation, array.dtype(), shape, array.shape()).or_raise(x.py())?;
        Ok(array)
    }

    /// The caller's array to fill, in host or device memory.
    pub(crate) fn target_anywhere(
        &self,
        out: &Bound<'_, PyAny>,
        operation: &str,
        shape: &[usize],
    ) -> PyResult<AnyArray> {
        let array = AnyArray::to_fill(out, operation)?;
        self.check(operation, array.dtype(), shape, array.shape()).or_raise(out.py())?;
        Ok(array)
    }

    /// The caller's array to fill, in host memory.
    pub(crate) fn target(&self, out: &Bound<'_, PyAny>, operation: &str, shape: &[usize]) -> PyResult<View> {
        let view = View::in_place(out, operation)?;
        self.check(operation, view.dtype, shape, &view.shape).or_raise(out.py())?;
        Ok(view)
    }

    fn check(&self, operation: &str, dtype: DType, wanted: &[usize], shape: &[usize]) -> Result<()> {
        let table = || format!("table {:?}", self.table.name());
        check_type(operation, self.table.dtype(), table, dtype)?;
        check_shape(operation, wanted, table, shape)
    }

    /// Histogram of the staleness of gets: how many returned values that were 0, 1, 2, … steps old.
    pub(crate) fn staleness(&self, py: Python<'_>) -> PyResult<Memory> {
        self.liveness.check("staleness").or_raise(py)?;
        let counts: Vec<i64> = self.table.staleness().into_iter().map(|count| count as i64).collect();
        Memory::of_numbers(&counts).or_raise(py)
    }
}

/// A table's statistics, in the order of the fields of the Python class.
pub(crate) fn stats(stats: TableStats) -> [u64; 7] {
    let TableStats { rows, value_bytes, state_bytes, gets, adds, rows_read, rows_added, .. } = stats;
    [rows, value_bytes, state_bytes, gets, adds, rows_read, rows_added]
}

/// Integers that identify rows or keys, in host memory.
pub(crate) fn numbers(x: &Bound<'_, PyAny>, operation: &str, what: &str) -> PyResult<View> {
    let view = View::input(x, operation)?;
    check_numbers(operation, what, view.dtype).or_raise(x.py())?;
    Ok(view)
}

/// The same, in host or device memory.
pub(crate) fn numbers_anywhere(x: &Bound<'_, PyAny>, operation: &str, what: &str) -> PyResult<AnyArray> {
    let array = AnyArray::input(x, operation)?;
    check_numbers(operation, what, array.dtype()).or_raise(x.py())?;
    Ok(array)
}

fn check_numbers(operation: &str, what: &str, found: DType) -> Result<()> {
    if found == DType::I64 {
        return Ok(());
    }
    let (expected, advice) = (format!("{what} of type int64"), "convert them with x.astype(\"int64\")");
    Err(Error::usage(operation, expected, found.name(), advice))
}

/// Fails unless an array has the table's type: a conversion would be a hidden copy.
pub(crate) fn check_type(
    operation: &str,
    dtype: DType,
    table: impl FnOnce() -> String,
    found: DType,
) -> Result<()> {
    if found == dtype {
        return Ok(());
    }
    let expected = format!("{dtype}, the table's type, for {}", table());
    let advice = format!("convert it first, for example with x.astype(\"{dtype}\")");
    Err(Error::usage(operation, expected, found.name(), advice))
}

/// Fails unless an array is flat or has the required shape: a transposed array has the same number of elements and would
/// pass unnoticed. Axes of length 1 do not affect the order and are ignored. The table checks the length of a flat array.
pub(crate) fn check_shape(
    operation: &str,
    wanted: &[usize],
    table: impl FnOnce() -> String,
    found: &[usize],
) -> Result<()> {
    let long = |axis: &&usize| **axis != 1;
    let axes_found = found.iter().filter(long);
    if axes_found.clone().count() < 2 || axes_found.eq(wanted.iter().filter(long)) {
        return Ok(());
    }
    let elements = wanted.iter().fold(1, |elements: usize, axis| elements.saturating_mul(*axis));
    let expected =
        format!("an array of shape {}, or a flat one of {elements} elements, for {}", axes(wanted), table());
    let advice = "look whether it is transposed, or belongs to other rows; x.reshape(-1) makes it flat";
    Err(Error::usage(operation, expected, format!("one of shape {}", axes(found)), advice))
}

/// A shape in Python's notation.
fn axes(shape: &[usize]) -> String {
    match shape {
        [one] => format!("({one},)"),
        more => format!("({})", more.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    }
}
