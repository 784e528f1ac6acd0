//! A native table: looks at the caller's arrays, then gets and adds without the interpreter.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use unisono::tables::{self, CudaRows, Rows};
use unisono::{Error, Result};

use crate::errors::raise;
use crate::fork::Life;
use crate::handle::{Handle, numbers_anywhere};
use crate::memory::Memory;
use crate::pending::{Pending, Running};
use crate::placed::{Place, Placed};
use crate::product::Product;
use crate::table_options::add_options;

/// An array, a matrix or a sparse matrix that workers share.
#[pyclass(frozen, module = "unisono._native")]
pub(crate) struct Table(Handle<tables::Table>);

/// The ids of the rows that a call is about; none of them means all rows.
struct Ids(Option<Placed>);

impl Ids {
    fn of(rows: Option<&Bound<'_, PyAny>>, operation: &str) -> PyResult<Ids> {
        Ok(Ids(rows.map(|rows| numbers_anywhere(rows, operation, "row ids")).transpose()?))
    }

    /// For a call whose values are in the processor's memory, or that runs in the background.
    fn rows(&self, operation: &str) -> Result<Rows<'_>> {
        match &self.0 {
            None => Ok(Rows::All),
            Some(Placed::Host(view)) => Ok(Rows::List(view.numbers())),
            Some(Placed::Cuda(_)) => Err(Error::usage(
                operation,
                "row ids in the processor's memory, where values are not in CUDA memory or come in the background",
                "row ids in CUDA memory",
                "move them: rows.cpu()",
            )),
        }
    }

    /// For a call whose values are in CUDA memory.
    fn on_device(&self) -> CudaRows<'_> {
        match &self.0 {
            None => CudaRows::All,
            Some(Placed::Host(view)) => CudaRows::List(view.numbers()),
            Some(Placed::Cuda(array)) => CudaRows::Device(array.span),
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
    pub(crate) fn new(table: tables::Table, life: Arc<Life>) -> Table {
        Table(Handle::new(table, life))
    }

    /// The shape of these rows: that of the ids, then that of a row.
    fn shape(&self, ids: &Ids) -> Vec<usize> {
        let table = &self.0.table;
        let mut shape = ids.0.as_ref().map_or_else(|| vec![table.rows()], |ids| ids.shape().to_vec());
        if table.kind() != tables::TableKind::Array {
            shape.push(table.cols());
        }
        shape
    }

    /// New memory for these rows.
    /// It is on the device that holds the ids or the table, else in the processor's memory.
    fn room(&self, py: Python<'_>, ids: &Ids) -> PyResult<Product> {
        let table = &self.0.table;
        let place = match (&ids.0, table.device()) {
            (Some(ids), _) if ids.is_cuda() => ids.place(),
            (_, Some(device)) => Place::on(py, device)?,
            _ => Place::Host,
        };
        Product::new(&place, table.dtype(), self.shape(ids), "get").map_err(|error| raise(py, error))
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

    /// The device that holds its rows, where one does.
    #[getter]
    fn device(&self) -> Option<u32> {
        self.0.table.device()
    }

    /// Fills `out`, or new memory if there is none.
    #[pyo3(signature = (rows, out, timeout))]
    fn get(
        &self,
        py: Python<'_>,
        rows: Option<&Bound<'_, PyAny>>,
        out: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let changed = self.0.begin(py, "get", timeout)?;
        let ids = Ids::of(rows, "get")?;
        let Some(out) = out else {
            let mut product = Some(self.room(py, &ids)?);
            let filled = self.0.run(py, "get", changed, move |table| {
                match &mut product {
                    Some(Product::Host(memory)) => table.get(ids.rows("get")?, memory.bytes_mut())?,
                    Some(Product::Cuda { memory, .. }) => table.cuda().get(ids.on_device(), memory.span)?,
                    None => {}
                }
                product.take().ok_or_else(|| Error::internal("get", "a result that was handed out before"))
            });
            return filled?.into_python(py);
        };
        let mut target = self.0.target_anywhere(out, "get", &self.shape(&ids))?;
        self.0.run(py, "get", changed, move |table| match &mut target {
            Placed::Host(view) => table.get(ids.rows("get")?, view.bytes_mut()),
            Placed::Cuda(array) => table.cuda().get(ids.on_device(), array.span),
        })?;
        Ok(py.None())
    }

    /// The same in the background; also the array that is filled, where it is new and on a device.
    #[pyo3(signature = (rows, out, timeout))]
    fn get_async(
        &self,
        py: Python<'_>,
        rows: Option<&Bound<'_, PyAny>>,
        out: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<(Pending, Option<Py<PyAny>>)> {
        let changed = self.0.begin(py, "get", timeout)?;
        let table = changed.as_ref().unwrap_or(&self.0.table);
        let ids = Ids::of(rows, "get")?;
        let list = ids.to_vec("get").map_err(|error| raise(py, error))?;
        let (running, made) =
            match out.map(|out| self.0.target_anywhere(out, "get", &self.shape(&ids))).transpose()? {
                Some(Placed::Host(view)) => (Running::Message(table.start_get(list, view)), None),
                Some(Placed::Cuda(array)) => (Running::DeviceGet(table.cuda().start_get(list, array)), None),
                None => match self.room(py, &ids)? {
                    Product::Host(memory) => (Running::Get(table.start_get(list, memory)), None),
                    Product::Cuda { array, memory } => {
                        (Running::DeviceGet(table.cuda().start_get(list, memory)), Some(array))
                    }
                },
            };
        Ok((Pending::new("get", running), made))
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
        let values = self.0.input_anywhere(delta, "add", &self.shape(&ids))?;
        let options = add_options(options, |option| self.0.table.check_option(option))?
            .map_err(|error| raise(py, error))?;
        self.0.run(py, "add", changed, move |table| match (&values, wait) {
            (Placed::Host(view), true) => table.add(ids.rows("add")?, view.bytes(), &options),
            (Placed::Host(view), false) => table.add_soon(ids.rows("add")?, view.bytes(), &options),
            (Placed::Cuda(array), true) => table.cuda().add(ids.on_device(), array.span, &options),
            (Placed::Cuda(array), false) => table.cuda().add_soon(ids.on_device(), array.span, &options),
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
        let mut view = self.0.target(out, "get_changed", &self.shape(&ids))?;
        let rows = self.0.run(py, "get_changed", changed, move |table| {
            table.get_changed(buffer, ids.rows("get_changed")?, view.bytes_mut())
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
