//! A native table: looks at the caller's arrays, then gets and adds without the interpreter.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use unisono::tables::{self, Rows};

use crate::array::View;
use crate::errors::raise;
use crate::fork::Life;
use crate::handle::{Handle, numbers};
use crate::memory::Memory;
use crate::pending::{Pending, Running};
use crate::table_options::add_options;

/// An array, a matrix or a sparse matrix that workers share.
#[pyclass(frozen, module = "unisono._native")]
pub(crate) struct Table(Handle<tables::Table>);

/// The ids of the rows that a call is about; none of them means all rows.
struct Ids(Option<View>);

impl Ids {
    fn of(rows: Option<&Bound<'_, PyAny>>, operation: &str) -> PyResult<Ids> {
        Ok(Ids(rows.map(|rows| numbers(rows, operation, "row ids")).transpose()?))
    }

    fn rows(&self) -> Rows<'_> {
        self.0.as_ref().map_or(Rows::All, |view| Rows::List(view.numbers()))
    }

    fn to_vec(&self) -> Option<Vec<i64>> {
        self.0.as_ref().map(|view| view.numbers().to_vec())
    }
}

impl Table {
    pub(crate) fn new(table: tables::Table, life: Arc<Life>) -> Table {
        Table(Handle::new(table, life))
    }

    /// New memory for these rows: the shape of the ids, then that of a row.
    fn room(&self, py: Python<'_>, ids: &Ids) -> PyResult<Memory> {
        let mut shape = ids.0.as_ref().map_or_else(|| vec![self.0.table.rows()], |view| view.shape.clone());
        if self.0.table.kind() != tables::TableKind::Array {
            shape.push(self.0.table.cols());
        }
        Memory::on_heap(self.0.table.dtype(), shape).map_err(|error| raise(py, error))
    }
}

#[pymethods]
impl Table {
    #[getter]
    fn name(&self) -> &str {
        self.0.table.name()
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        self.0.table.dtype().name()
    }

    #[getter]
    fn updater(&self) -> &str {
        self.0.table.updater()
    }

    #[getter]
    fn consistency(&self) -> String {
        self.0.table.consistency().to_string()
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
        let changed = self.0.begin(py, "get", timeout)?;
        let ids = Ids::of(rows, "get")?;
        let Some(out) = out else {
            let mut memory = self.room(py, &ids)?;
            let filled = self.0.run(py, "get", changed, move |table| {
                table.get(ids.rows(), memory.bytes_mut()).map(|()| memory.clone())
            });
            return filled.map(Some);
        };
        let mut view = self.0.target(out, "get")?;
        self.0.run(py, "get", changed, move |table| table.get(ids.rows(), view.bytes_mut()))?;
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
        let changed = self.0.begin(py, "get", timeout)?;
        let table = changed.as_ref().unwrap_or(&self.0.table);
        let ids = Ids::of(rows, "get")?;
        let running = match out {
            Some(out) => Running::Message(table.start_get(ids.to_vec(), self.0.target(out, "get")?)),
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
        let changed = self.0.begin(py, "add", timeout)?;
        let ids = Ids::of(rows, "add")?;
        let view = self.0.input(delta, "add")?;
        let options = add_options(options, |option| self.0.table.check_option(option))?
            .map_err(|error| raise(py, error))?;
        self.0.run(py, "add", changed, move |table| match wait {
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
        let changed = self.0.begin(py, "get_changed", timeout)?;
        let ids = Ids::of(rows, "get_changed")?;
        let mut view = self.0.target(out, "get_changed")?;
        let rows = self.0.run(py, "get_changed", changed, move |table| {
            table.get_changed(buffer, ids.rows(), view.bytes_mut())
        })?;
        Memory::of_numbers(&rows).map_err(|error| raise(py, error))
    }

    #[pyo3(signature = (timeout))]
    fn tick(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        self.0.simple(py, "tick", timeout, tables::Table::tick)
    }

    /// How many steps this worker has made.
    #[getter]
    fn clock(&self, py: Python<'_>) -> PyResult<u64> {
        let changed = self.0.begin(py, "clock", None)?;
        self.0.run(py, "clock", changed, tables::Table::clock)
    }

    #[pyo3(signature = (timeout))]
    fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        self.0.simple(py, "flush", timeout, tables::Table::flush)
    }

    #[pyo3(signature = (timeout))]
    fn finish(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        self.0.simple(py, "finish", timeout, tables::Table::finish)
    }

    fn staleness(&self, py: Python<'_>) -> PyResult<Memory> {
        self.0.staleness(py)
    }
}
