//! A native table: looks at the caller's arrays, then gets and adds without the interpreter.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use unisono::tables::{self, Rows};
use unisono::{DType, Error, Result};

use crate::array::View;
use crate::call::seconds;
use crate::errors::{guard, raise};
use crate::fork::{Life, OwnProcess};
use crate::memory::Memory;
use crate::pending::{Pending, Running};
use crate::table_options::add_options;

/// An array, a matrix or a sparse matrix that workers share.
#[pyclass(frozen, module = "unisono._native")]
pub(crate) struct Table {
    table: OwnProcess<tables::Table>,
    life: Arc<Life>,
}

/// The ids of the rows that a call is about; none of them means all rows.
struct Ids(Option<View>);

impl Ids {
    fn of(rows: Option<&Bound<'_, PyAny>>, operation: &str) -> PyResult<Ids> {
        let Some(rows) = rows else { return Ok(Ids(None)) };
        let view = View::input(rows, operation)?;
        match view.dtype {
            DType::I64 => Ok(Ids(Some(view))),
            other => {
                let advice = "convert them with rows.astype(\"int64\")";
                let error = Error::usage(operation, "row ids of type int64", other.name(), advice);
                Err(raise(rows.py(), error))
            }
        }
    }

    fn rows(&self) -> Rows<'_> {
        self.0.as_ref().map_or(Rows::All, |view| Rows::List(view.numbers()))
    }

    fn to_vec(&self) -> Option<Vec<i64>> {
        self.0.as_ref().map(|view| view.numbers().to_vec())
    }
}

/// Fails unless an array has the table's type: a conversion would be a hidden copy.
pub(crate) fn check_type(operation: &str, dtype: DType, view: &View) -> Result<()> {
    if view.dtype == dtype {
        return Ok(());
    }
    let expected = format!("{dtype}, the table's type");
    let advice = format!("convert it first, for example with x.astype(\"{dtype}\")");
    Err(Error::usage(operation, expected, view.dtype.name(), advice))
}

impl Table {
    pub(crate) fn new(table: tables::Table, life: Arc<Life>) -> Table {
        Table { table: OwnProcess::new(table), life }
    }

    /// Fails after shutdown and in a forked child; else the handle for a call that must end within `timeout`, where it is
    /// not the usual one.
    fn begin(
        &self,
        py: Python<'_>,
        operation: &'static str,
        timeout: Option<f64>,
    ) -> PyResult<Option<tables::Table>> {
        let limit = self.life.check(operation).and_then(|()| seconds(timeout, operation));
        let limit = limit.map_err(|error| raise(py, error))?;
        Ok(limit.map(|limit| self.table.with_timeout(limit)))
    }

    /// Runs a call without the interpreter. The job keeps the caller's arrays and is dropped when it is back.
    fn run<R: Send>(
        &self,
        py: Python<'_>,
        operation: &'static str,
        changed: Option<tables::Table>,
        mut job: impl FnMut(&tables::Table) -> Result<R> + Send,
    ) -> PyResult<R> {
        let table = changed.as_ref().unwrap_or(&self.table);
        py.detach(|| guard(operation, || job(table))).map_err(|error| raise(py, error))
    }

    /// The caller's array to fill.
    fn target(&self, out: &Bound<'_, PyAny>, operation: &str) -> PyResult<View> {
        let view = View::in_place(out, operation)?;
        check_type(operation, self.table.dtype(), &view).map_err(|error| raise(out.py(), error))?;
        Ok(view)
    }

    /// New memory for these rows: the shape of the ids, then that of a row.
    fn room(&self, py: Python<'_>, ids: &Ids) -> PyResult<Memory> {
        let mut shape = ids.0.as_ref().map_or_else(|| vec![self.table.rows()], |view| view.shape.clone());
        if self.table.kind() != tables::TableKind::Array {
            shape.push(self.table.cols());
        }
        Memory::on_heap(self.table.dtype(), shape).map_err(|error| raise(py, error))
    }
}

#[pymethods]
impl Table {
    #[getter]
    fn name(&self) -> &str {
        self.table.name()
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        self.table.dtype().name()
    }

    #[getter]
    fn updater(&self) -> &str {
        self.table.updater()
    }

    #[getter]
    fn consistency(&self) -> String {
        self.table.consistency().to_string()
    }

    /// Fills `out`, or new memory if there is none.
    #[pyo3(signature = (rows, out, timeout))]
    fn get(
        &self,
        py: Python<'_>,
        rows: Option<&Bound<'_, PyAny>>,
        out: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Memory>> {
        let changed = self.begin(py, "get", timeout)?;
        let ids = Ids::of(rows, "get")?;
        let Some(out) = out else {
            let mut memory = self.room(py, &ids)?;
            let filled = self.run(py, "get", changed, move |table| {
                table.get(ids.rows(), memory.bytes_mut()).map(|()| memory.clone())
            });
            return filled.map(Some);
        };
        let mut view = self.target(out, "get")?;
        self.run(py, "get", changed, move |table| table.get(ids.rows(), view.bytes_mut()))?;
        Ok(None)
    }

    /// The same in the background.
    #[pyo3(signature = (rows, out, timeout))]
    fn get_async(
        &self,
        py: Python<'_>,
        rows: Option<&Bound<'_, PyAny>>,
        out: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<Pending> {
        let changed = self.begin(py, "get", timeout)?;
        let table = changed.as_ref().unwrap_or(&self.table);
        let ids = Ids::of(rows, "get")?;
        let running = match out {
            Some(out) => Running::Message(table.start_get(ids.to_vec(), self.target(out, "get")?)),
            None => Running::Get(table.start_get(ids.to_vec(), self.room(py, &ids)?)),
        };
        Ok(Pending::new("get", running))
    }

    /// Adds; without `wait` it may be applied later, and the array may be used again at once.
    #[pyo3(signature = (delta, rows, options, wait, timeout))]
    fn add(
        &self,
        delta: &Bound<'_, PyAny>,
        rows: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
        wait: bool,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let py = delta.py();
        let changed = self.begin(py, "add", timeout)?;
        let ids = Ids::of(rows, "add")?;
        let view = View::input(delta, "add")?;
        check_type("add", self.table.dtype(), &view).map_err(|error| raise(py, error))?;
        let options = add_options(options)?.map_err(|error| raise(py, error))?;
        self.run(py, "add", changed, move |table| match wait {
            true => table.add(ids.rows(), view.bytes(), &options),
            false => table.add_soon(ids.rows(), view.bytes(), &options),
        })
    }

    /// Fills those rows of `out` that changed since the last call for the same buffer; returns their ids.
    #[pyo3(signature = (out, rows, buffer, timeout))]
    fn get_changed(
        &self,
        out: &Bound<'_, PyAny>,
        rows: Option<&Bound<'_, PyAny>>,
        buffer: usize,
        timeout: Option<f64>,
    ) -> PyResult<Memory> {
        let py = out.py();
        let changed = self.begin(py, "get_changed", timeout)?;
        let ids = Ids::of(rows, "get_changed")?;
        let mut view = self.target(out, "get_changed")?;
        let rows = self.run(py, "get_changed", changed, move |table| {
            table.get_changed(buffer, ids.rows(), view.bytes_mut())
        })?;
        Memory::of_numbers(&rows).map_err(|error| raise(py, error))
    }

    #[pyo3(signature = (timeout))]
    fn tick(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let changed = self.begin(py, "tick", timeout)?;
        self.run(py, "tick", changed, tables::Table::tick)
    }

    #[pyo3(signature = (timeout))]
    fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let changed = self.begin(py, "flush", timeout)?;
        self.run(py, "flush", changed, tables::Table::flush)
    }

    /// How many gets returned values that were 0, 1, 2, … steps old.
    fn staleness(&self, py: Python<'_>) -> PyResult<Memory> {
        self.life.check("staleness").map_err(|error| raise(py, error))?;
        let counts: Vec<i64> = self.table.staleness().into_iter().map(|count| count as i64).collect();
        Memory::of_numbers(&counts).map_err(|error| raise(py, error))
    }
}
