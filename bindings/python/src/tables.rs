//! The tables of a world, natively: roles, operations on all tables, and the creation of each kind.

use std::sync::Arc;

use pyo3::prelude::*;
use unisono::tables::{self, KeyType, TableOptions};
use unisono::{DType, Result};

use crate::array::View;
use crate::call::{CallOutcome, seconds};
use crate::call_guard::CallGuard;
use crate::errors::{guard, raise};
use crate::fork::{ProcessLocal, WorldLiveness};
use crate::interrupt;
use crate::key_value::KeyValueTable;
use crate::native_table::{check_shape, check_type};
use crate::nvidia;
use crate::pending::Pending;
use crate::table::Table;
use crate::table_options::TableSpec;

/// The tables of a world.
#[pyclass(frozen, module = "unisono._native")]
pub(crate) struct Tables {
    tables: ProcessLocal<tables::Tables>,
    liveness: Arc<WorldLiveness>,
}

impl Tables {
    pub(crate) fn new(tables: tables::Tables, liveness: Arc<WorldLiveness>) -> Tables {
        Tables { tables: ProcessLocal::new(tables.with_interrupt(interrupt::hook())), liveness }
    }

    /// The handle for a call that must end within `timeout`.
    fn within(
        &self,
        py: Python<'_>,
        operation: &'static str,
        timeout: Option<f64>,
    ) -> PyResult<tables::Tables> {
        let limit = self.liveness.check(operation).and_then(|()| seconds(timeout, operation));
        let limit = limit.map_err(|error| raise(py, error))?;
        Ok(limit.map_or_else(|| self.tables.clone(), |limit| self.tables.with_timeout(limit)))
    }

    fn run(
        &self,
        py: Python<'_>,
        operation: &'static str,
        timeout: Option<f64>,
        job: impl FnOnce(&tables::Tables) -> Result<()> + Send,
    ) -> PyResult<()> {
        let tables = self.within(py, operation, timeout)?;
        py.detach(|| guard(operation, || job(&tables))).map_err(|error| raise(py, error))
    }

    /// Creates a table collectively; only the initial values of worker 0 are used.
    fn make(
        &self,
        py: Python<'_>,
        shape: &[usize],
        values: Option<&Bound<'_, PyAny>>,
        wishes: &TableSpec<'_>,
        timeout: Option<f64>,
        make: impl FnOnce(&tables::Tables, DType, Option<&[u8]>, TableOptions) -> Result<tables::Table> + Send,
    ) -> PyResult<Table> {
        let tables = self.within(py, "table", timeout)?;
        let call_guard = CallGuard::of(self.tables.group());
        if wishes.on_device() {
            nvidia::add_package_folders(py)?;
        }
        let dtype = wishes.dtype().map_err(|error| raise(py, error))?;
        let options = wishes.options()?.map_err(|error| raise(py, error))?;
        let values = values.filter(|_| tables.worker_id() == Some(0));
        let view = values.map(|values| View::input(values, "table")).transpose()?;
        if let Some(view) = &view {
            let table = || wishes.described();
            check_type("table", dtype, table, view.dtype)
                .and_then(|()| check_shape("table", shape, table, &view.shape))
                .map_err(|error| raise(py, error))?;
        }
        call_guard.disarm();
        let job = move || make(&tables, dtype, view.as_ref().map(View::bytes), options);
        let made = py.detach(|| guard("table", job)).map_err(|error| raise(py, error))?;
        // The timeout applied to the creation only.
        let with_default_timeout = timeout.map(|_| made.with_timeout(self.tables.group().timeout()));
        Ok(Table::new(with_default_timeout.unwrap_or(made), self.liveness.clone()))
    }
}

#[pymethods]
impl Tables {
    #[getter]
    fn workers(&self) -> usize {
        self.tables.workers()
    }

    /// The ranks of the workers, in order.
    #[getter]
    fn worker_ranks(&self) -> Vec<usize> {
        (0..self.tables.workers()).filter_map(|id| self.tables.worker_rank(id)).collect()
    }

    #[getter]
    fn servers(&self) -> usize {
        self.tables.servers()
    }

    #[getter]
    fn worker_id(&self) -> Option<usize> {
        self.tables.worker_id()
    }

    #[getter]
    fn server_id(&self) -> Option<usize> {
        self.tables.server_id()
    }

    #[pyo3(signature = (size, values, wishes, timeout))]
    fn array(
        &self,
        py: Python<'_>,
        size: usize,
        values: Option<&Bound<'_, PyAny>>,
        wishes: TableSpec<'_>,
        timeout: Option<f64>,
    ) -> PyResult<Table> {
        self.make(py, &[size], values, &wishes, timeout, |tables, dtype, values, options| {
            tables::Table::array(tables, size, dtype, values, options)
        })
    }

    #[pyo3(signature = (shape, values, wishes, timeout))]
    fn matrix(
        &self,
        py: Python<'_>,
        shape: (usize, usize),
        values: Option<&Bound<'_, PyAny>>,
        wishes: TableSpec<'_>,
        timeout: Option<f64>,
    ) -> PyResult<Table> {
        self.make(py, &[shape.0, shape.1], values, &wishes, timeout, |tables, dtype, values, options| {
            tables::Table::matrix(tables, shape, dtype, values, options)
        })
    }

    #[pyo3(signature = (shape, pipelined, values, wishes, timeout))]
    fn sparse_matrix(
        &self,
        py: Python<'_>,
        shape: (usize, usize),
        pipelined: bool,
        values: Option<&Bound<'_, PyAny>>,
        wishes: TableSpec<'_>,
        timeout: Option<f64>,
    ) -> PyResult<Table> {
        self.make(py, &[shape.0, shape.1], values, &wishes, timeout, |tables, dtype, values, options| {
            tables::Table::sparse_matrix(tables, shape, dtype, values, pipelined, options)
        })
    }

    #[pyo3(signature = (dim, keys, wishes, timeout))]
    fn key_value(
        &self,
        py: Python<'_>,
        dim: usize,
        keys: &str,
        wishes: TableSpec<'_>,
        timeout: Option<f64>,
    ) -> PyResult<KeyValueTable> {
        let tables = self.within(py, "table", timeout)?;
        let call_guard = CallGuard::of(self.tables.group());
        let dtype = wishes.dtype().map_err(|error| raise(py, error))?;
        let options = wishes.options()?.map_err(|error| raise(py, error))?;
        let keys = KeyType::from_name(keys).map_err(|error| raise(py, error))?;
        call_guard.disarm();
        let job = move || tables::KeyValueTable::create(&tables, keys, dim, dtype, options);
        let made = py.detach(|| guard("table", job)).map_err(|error| raise(py, error))?;
        let with_default_timeout = timeout.map(|_| made.with_timeout(self.tables.group().timeout()));
        Ok(KeyValueTable::new(with_default_timeout.unwrap_or(made), self.liveness.clone()))
    }

    /// Waits until this rank's adds are applied.
    #[pyo3(signature = (timeout))]
    fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        self.run(py, "flush", timeout, tables::Tables::flush)
    }

    /// Declares that this rank makes no more calls on the existing tables.
    #[pyo3(signature = (timeout))]
    fn finish(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        self.run(py, "finish", timeout, tables::Tables::finish)
    }

    /// Flushes this rank's adds, then waits for all ranks.
    #[pyo3(signature = (wait, timeout))]
    fn barrier(&self, py: Python<'_>, wait: bool, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let tables = self.within(py, "barrier", timeout)?;
        let group = tables.group().clone();
        let job = move |group: &unisono::Group| {
            // If the flush fails, ranks that wait in the barrier notice that this one has failed.
            let call_guard = CallGuard::of(group);
            guard("barrier", || tables.flush())?;
            call_guard.disarm();
            guard("barrier", || group.barrier()).map(|()| CallOutcome::Nothing)
        };
        if !wait {
            let started = group.start(job);
            return Ok(Py::new(py, Pending::new("barrier", Box::new(started)))?.into_any());
        }
        py.detach(|| job(&group)).map_err(|error| raise(py, error))?.into_python(py)
    }

    /// Saves all tables to a folder or a URL; every rank calls it.
    #[pyo3(signature = (target, timeout))]
    fn save(&self, py: Python<'_>, target: &str, timeout: Option<f64>) -> PyResult<()> {
        self.run(py, "save", timeout, |tables| tables.save(target))
    }

    /// Loads all tables from a folder or a URL; every rank calls it.
    #[pyo3(signature = (target, timeout))]
    fn load(&self, py: Python<'_>, target: &str, timeout: Option<f64>) -> PyResult<()> {
        self.run(py, "load", timeout, |tables| tables.load(target))
    }

    /// Ends this rank's use of tables: its adds are applied, no rank waits for it, and requests of other hosts are served.
    #[pyo3(signature = (timeout))]
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        self.run(py, "shutdown", timeout, tables::Tables::close)
    }
}
