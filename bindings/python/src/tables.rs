//! The tables of a world, natively: roles, operations on all tables, and the creation of each kind.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use unisono::tables::{self, TableKind, TablesCall};
use unisono::{Error, Result};

use crate::call::{Arg, CallOutcome, flag, rejected, seconds};
use crate::call_guard::CallGuard;
use crate::errors::{OrRaise, guard, raise, usage_of};
use crate::fork::{ProcessLocal, WorldLiveness};
use crate::interrupt;
use crate::key_value::KeyValueTable;
use crate::pending::Pending;
use crate::table::Table;
use crate::table_options::{CreatedTable, TableSpec};

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
    fn within(&self, operation: &'static str, timeout: Arg<'_, '_>) -> PyResult<tables::Tables> {
        self.liveness.check(operation).or_raise(timeout.py())?;
        let limit = seconds(timeout, operation)?;
        Ok(limit.map_or_else(|| self.tables.clone(), |limit| self.tables.with_timeout(limit)))
    }

    fn run(
        &self,
        operation: &'static str,
        timeout: Arg<'_, '_>,
        job: impl FnOnce(&tables::Tables) -> Result<()> + Send,
    ) -> PyResult<()> {
        let tables = self.within(operation, timeout)?;
        timeout.py().detach(|| guard(operation, || job(&tables))).or_raise(timeout.py())
    }

    /// Parses the arguments of a collective call. If they are rejected, the other ranks, which make the call, fail with the
    /// same error.
    fn prepare<R>(
        &self,
        py: Python<'_>,
        (operation, call): (&'static str, TablesCall<'_>),
        parse: impl FnOnce() -> PyResult<R>,
    ) -> PyResult<R> {
        self.liveness.check(operation).or_raise(py)?;
        parse().map_err(|raised| {
            // Not an error of this call, but one that ends the program.
            if !raised.is_instance_of::<PyException>(py) {
                return raised;
            }
            let error = usage_of(py, &raised, operation);
            match py.detach(|| guard(operation, || self.tables.reject(call, &error))) {
                Ok(()) => raised,
                Err(interrupted @ Error::Interrupted { .. }) => raise(py, interrupted),
                Err(unreported) => {
                    raised.set_cause(py, Some(raise(py, unreported)));
                    raised
                }
            }
        })
    }

    /// Runs a checkpoint's call.
    fn with_target(
        &self,
        target: Arg<'_, '_>,
        timeout: Arg<'_, '_>,
        (operation, call): (&'static str, TablesCall<'_>),
        job: impl FnOnce(&tables::Tables, &str) -> Result<()> + Send,
    ) -> PyResult<()> {
        let py = target.py();
        let (target, tables) = self.prepare(py, (operation, call), || {
            let path =
                target.extract::<PathBuf>().ok().and_then(|path| path.into_os_string().into_string().ok());
            let path = path.ok_or_else(|| {
                rejected(target, operation, "a path or a URL", "pass text, or a pathlib.Path")
            })?;
            Ok((path, self.within(operation, timeout)?))
        })?;
        py.detach(|| guard(operation, || job(&tables, &target))).or_raise(py)
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

    /// Creates a table of a kind collectively. `arguments` is called for its [`TableSpec`]: if it raises, all ranks fail.
    fn create(&self, kind: &str, name: Arg<'_, '_>, arguments: Arg<'_, '_>) -> PyResult<Py<PyAny>> {
        let py = name.py();
        let kind = match kind {
            "array" => TableKind::Array,
            "matrix" => TableKind::Matrix,
            "sparse_matrix" => TableKind::SparseMatrix,
            _ => TableKind::KeyValue,
        };
        let name: Option<String> = name.extract().unwrap_or_default();
        let call = TablesCall::Create { kind, name: name.as_deref() };
        let (request, tables) = self.prepare(py, ("table", call), || {
            let spec: TableSpec<'_> = arguments.call0()?.extract()?;
            let tables = self.within("table", &spec.timeout)?;
            Ok((spec.parse(py, kind, tables.worker_id() == Some(0))?, tables))
        })?;
        // The given timeout applies to the creation only.
        let timeout = request.is_limited.then(|| self.tables.group().timeout());
        let liveness = self.liveness.clone();
        match py.detach(move || guard("table", || request.create(&tables))).or_raise(py)? {
            CreatedTable::Rows(made) => {
                let made = timeout.map_or_else(|| made.clone(), |timeout| made.with_timeout(timeout));
                Ok(Py::new(py, Table::new(made, liveness))?.into_any())
            }
            CreatedTable::Keys(made) => {
                let made = timeout.map_or_else(|| made.clone(), |timeout| made.with_timeout(timeout));
                Ok(Py::new(py, KeyValueTable::new(made, liveness))?.into_any())
            }
        }
    }

    /// Waits until this rank's adds are applied.
    fn flush(&self, timeout: Arg<'_, '_>) -> PyResult<()> {
        self.run("flush", timeout, tables::Tables::flush)
    }

    /// Declares that this rank makes no more calls on the existing tables.
    fn finish(&self, timeout: Arg<'_, '_>) -> PyResult<()> {
        self.run("finish", timeout, tables::Tables::finish)
    }

    /// Flushes this rank's adds, then waits for all ranks.
    fn barrier(&self, wait: Arg<'_, '_>, timeout: Arg<'_, '_>) -> PyResult<Py<PyAny>> {
        let py = wait.py();
        self.liveness.check("barrier").or_raise(py)?;
        let call_guard = CallGuard::of(self.tables.group());
        let (wait, tables) = (flag(wait, "barrier", "wait")?, self.within("barrier", timeout)?);
        call_guard.disarm();
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
        let outcome = py.detach(|| job(&group));
        self.liveness.record(&outcome);
        outcome.or_raise(py)?.into_python(py)
    }

    /// Saves all tables to a folder or a URL; every rank calls it.
    fn save(&self, target: Arg<'_, '_>, timeout: Arg<'_, '_>) -> PyResult<()> {
        self.with_target(target, timeout, ("save", TablesCall::Save), tables::Tables::save)
    }

    /// Loads all tables from a folder or a URL; every rank calls it.
    fn load(&self, target: Arg<'_, '_>, timeout: Arg<'_, '_>) -> PyResult<()> {
        self.with_target(target, timeout, ("load", TablesCall::Load), tables::Tables::load)
    }

    /// Ends this rank's use of tables: its adds are applied, no rank waits for it, and requests of other hosts are served.
    fn close(&self, timeout: Arg<'_, '_>) -> PyResult<()> {
        let leave_timeout = self.liveness.leave_timeout();
        self.run("shutdown", timeout, |tables| match leave_timeout {
            Some(limit) => tables.with_timeout(limit).close(),
            None => tables.close(),
        })
    }
}
