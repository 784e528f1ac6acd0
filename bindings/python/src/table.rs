//! A native table: checks the caller's arrays, then gets and adds with the GIL released.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use unisono::tables::{self, CudaRows, Rows};
use unisono::{Error, Result};

use crate::any_array::{AnyArray, ResultPlacement};
use crate::call::Arg;
use crate::errors::raise;
use crate::fork::WorldLiveness;
use crate::memory::Memory;
use crate::native_table::{NativeTable, numbers_anywhere, stats};
use crate::pending::{Pending, Running};
use crate::result_array::ResultArray;
use crate::table_options::add_options;

/// An array, a matrix or a sparse matrix that workers share.
#[pyclass(frozen, module = "unisono._native")]
pub(crate) struct Table(NativeTable<tables::Table>);

/// The row ids of a call; none means all rows.
struct Ids(Option<AnyArray>);

impl Ids {
    fn of(rows: Option<&Bound<'_, PyAny>>, operation: &str) -> PyResult<Ids> {
        Ok(Ids(rows.map(|rows| numbers_anywhere(rows, operation, "row ids")).transpose()?))
    }

    /// For a call whose values are in host memory, or that runs in the background.
    fn rows(&self, operation: &str) -> Result<Rows<'_>> {
        match &self.0 {
            None => Ok(Rows::All),
            Some(AnyArray::Host(view)) => Ok(Rows::List(view.numbers())),
            Some(AnyArray::Cuda(_)) => Err(Error::usage(
                operation,
                "row ids in host memory, where values are not in CUDA memory or come in the background",
                "row ids in CUDA memory",
                "move them: rows.cpu()",
            )),
        }
    }

    /// For a call whose values are in CUDA memory.
    fn on_device(&self) -> CudaRows<'_> {
        match &self.0 {
            None => CudaRows::All,
            Some(AnyArray::Host(view)) => CudaRows::List(view.numbers()),
            Some(AnyArray::Cuda(array)) => CudaRows::Device(array.span),
        }
    }

    fn to_vec(&self, operation: &str) -> Result<Option<Vec<i64>>> {
        Ok(match self.rows(operation)? {
            Rows::All => None,
            Rows::List(list) => Some(list.to_vec()),
        })
    }
}

impl Table {
    pub(crate) fn new(table: tables::Table, liveness: Arc<WorldLiveness>) -> Table {
        Table(NativeTable::new(table, liveness))
    }

    /// The shape of these rows: that of the ids, followed by that of a row.
    fn shape(&self, ids: &Ids) -> Vec<usize> {
        let table = &self.0.table;
        let mut shape = ids.0.as_ref().map_or_else(|| vec![table.rows()], |ids| ids.shape().to_vec());
        if table.kind() != tables::TableKind::Array {
            shape.push(table.cols());
        }
        shape
    }

    /// Allocates memory for these rows: on the device that holds the ids or the table, otherwise in host memory.
    fn allocate(&self, py: Python<'_>, ids: &Ids) -> PyResult<ResultArray> {
        let table = &self.0.table;
        let placement = match (&ids.0, table.device()) {
            (Some(ids), _) if ids.is_cuda() => ids.placement(),
            (_, Some(device)) => ResultPlacement::on(py, device)?,
            _ => ResultPlacement::Host,
        };
        ResultArray::new(&placement, table.dtype(), self.shape(ids), "get").map_err(|error| raise(py, error))
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

    /// The device that holds the rows, if any.
    #[getter]
    fn device(&self) -> Option<u32> {
        self.0.table.device()
    }

    /// Fills `out`, or new memory without `out`.
    #[pyo3(signature = (rows, out, timeout))]
    fn get(
        &self,
        py: Python<'_>,
        rows: Option<&Bound<'_, PyAny>>,
        out: Option<&Bound<'_, PyAny>>,
        timeout: Arg<'_, '_>,
    ) -> PyResult<Py<PyAny>> {
        let adjusted = self.0.begin("get", timeout)?;
        let ids = Ids::of(rows, "get")?;
        let Some(out) = out else {
            let mut result = Some(self.allocate(py, &ids)?);
            let filled = self.0.run(py, "get", adjusted, move |table| {
                match &mut result {
                    Some(ResultArray::Host(memory)) => table.get(ids.rows("get")?, memory.bytes_mut())?,
                    Some(ResultArray::Cuda { memory, .. }) => {
                        table.cuda().get(ids.on_device(), memory.span)?
                    }
                    None => {}
                }
                result.take().ok_or_else(|| Error::internal("get", "a result that was handed out before"))
            });
            return filled?.into_python(py);
        };
        let mut target = self.0.target_anywhere(out, "get", &self.shape(&ids))?;
        self.0.run(py, "get", adjusted, move |table| match &mut target {
            AnyArray::Host(view) => table.get(ids.rows("get")?, view.bytes_mut()),
            AnyArray::Cuda(array) => table.cuda().get(ids.on_device(), array.span),
        })?;
        Ok(py.None())
    }

    /// The same in the background; also returns the array to be filled, if it is new and on a device.
    #[pyo3(signature = (rows, out, timeout))]
    fn get_async(
        &self,
        py: Python<'_>,
        rows: Option<&Bound<'_, PyAny>>,
        out: Option<&Bound<'_, PyAny>>,
        timeout: Arg<'_, '_>,
    ) -> PyResult<(Pending, Option<Py<PyAny>>)> {
        let adjusted = self.0.begin("get", timeout)?;
        let table = adjusted.as_ref().unwrap_or(&self.0.table);
        let ids = Ids::of(rows, "get")?;
        let list = ids.to_vec("get").map_err(|error| raise(py, error))?;
        let (running, made): (Box<dyn Running>, _) =
            match out.map(|out| self.0.target_anywhere(out, "get", &self.shape(&ids))).transpose()? {
                Some(AnyArray::Host(view)) => (Box::new(table.start_get(list, view)), None),
                Some(AnyArray::Cuda(array)) => (Box::new(table.cuda().start_get(list, array)), None),
                None => match self.allocate(py, &ids)? {
                    ResultArray::Host(memory) => (Box::new(table.start_get(list, memory)), None),
                    ResultArray::Cuda { array, memory } => {
                        (Box::new(table.cuda().start_get(list, memory)), Some(array))
                    }
                },
            };
        Ok((Pending::new("get", running), made))
    }

    /// Adds; without `wait` the add may be applied later, and the array may be reused at once.
    #[pyo3(signature = (delta, rows, options, wait, timeout))]
    fn add(
        &self,
        delta: &Bound<'_, PyAny>,
        rows: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
        wait: bool,
        timeout: Arg<'_, '_>,
    ) -> PyResult<()> {
        let py = delta.py();
        let adjusted = self.0.begin("add", timeout)?;
        let ids = Ids::of(rows, "add")?;
        let values = self.0.input_anywhere(delta, "add", &self.shape(&ids))?;
        let options = add_options(options, |option| self.0.table.check_option(option))?;
        self.0.run(py, "add", adjusted, move |table| match (&values, wait) {
            (AnyArray::Host(view), true) => table.add(ids.rows("add")?, view.bytes(), &options),
            (AnyArray::Host(view), false) => table.add_soon(ids.rows("add")?, view.bytes(), &options),
            (AnyArray::Cuda(array), true) => table.cuda().add(ids.on_device(), array.span, &options),
            (AnyArray::Cuda(array), false) => table.cuda().add_soon(ids.on_device(), array.span, &options),
        })
    }

    /// Fills the rows of `out` that changed since the last call with the same buffer; returns their ids.
    #[pyo3(signature = (out, rows, buffer, timeout))]
    fn get_changed(
        &self,
        out: &Bound<'_, PyAny>,
        rows: Option<&Bound<'_, PyAny>>,
        buffer: usize,
        timeout: Arg<'_, '_>,
    ) -> PyResult<Memory> {
        let py = out.py();
        let adjusted = self.0.begin("get_changed", timeout)?;
        let ids = Ids::of(rows, "get_changed")?;
        let mut view = self.0.target(out, "get_changed", &self.shape(&ids))?;
        let rows = self.0.run(py, "get_changed", adjusted, move |table| {
            table.get_changed(buffer, ids.rows("get_changed")?, view.bytes_mut())
        })?;
        Memory::of_numbers(&rows).map_err(|error| raise(py, error))
    }

    fn tick(&self, timeout: Arg<'_, '_>) -> PyResult<()> {
        self.0.simple("tick", timeout, tables::Table::tick)
    }

    /// Number of steps that this worker has made.
    #[getter]
    fn clock(&self, py: Python<'_>) -> PyResult<u64> {
        self.0.query(py, "clock", tables::Table::clock)
    }

    fn flush(&self, timeout: Arg<'_, '_>) -> PyResult<()> {
        self.0.simple("flush", timeout, tables::Table::flush)
    }

    fn finish(&self, timeout: Arg<'_, '_>) -> PyResult<()> {
        self.0.simple("finish", timeout, tables::Table::finish)
    }

    fn staleness(&self, py: Python<'_>) -> PyResult<Memory> {
        self.0.staleness(py)
    }

    fn stats(&self, py: Python<'_>) -> PyResult<[u64; 7]> {
        self.0.query(py, "stats", tables::Table::stats).map(stats)
    }
}
