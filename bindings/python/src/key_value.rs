//! A native key-value table: converts Python keys, then gets and adds with the GIL released.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyList};
use unisono::tables::{self, Keys, OwnedKeys};

use crate::array::View;
use crate::call::Arg;
use crate::errors::raise;
use crate::fork::WorldLiveness;
use crate::memory::Memory;
use crate::native_table::{NativeTable, numbers, stats};
use crate::pending::{Pending, Running};
use crate::table_options::add_options;

/// A map from keys to values that workers share.
#[pyclass(frozen, module = "unisono._native")]
pub(crate) struct KeyValueTable(NativeTable<tables::KeyValueTable>);

/// Keys as Python passes them: an array of integers, or a list of bytes objects.
enum CallerKeys {
    Int(View),
    Bytes(Vec<PyBackedBytes>),
}

impl CallerKeys {
    fn of(keys: &Bound<'_, PyAny>, operation: &str) -> PyResult<CallerKeys> {
        match keys.cast::<PyList>() {
            Ok(list) => {
                let keys = list.iter().map(|key| Ok(key.extract::<PyBackedBytes>()?));
                keys.collect::<PyResult<_>>().map(CallerKeys::Bytes)
            }
            Err(_) => numbers(keys, operation, "keys").map(CallerKeys::Int),
        }
    }

    /// Calls `body` with these keys in the library's form.
    fn with<R>(&self, body: impl FnOnce(Keys) -> R) -> R {
        match self {
            CallerKeys::Int(view) => body(Keys::Int(view.numbers())),
            CallerKeys::Bytes(keys) => {
                body(Keys::Bytes(&keys.iter().map(|key| &key[..]).collect::<Vec<_>>()))
            }
        }
    }

    fn to_owned(&self) -> OwnedKeys {
        match self {
            CallerKeys::Int(view) => OwnedKeys::Int(view.numbers().to_vec()),
            CallerKeys::Bytes(keys) => OwnedKeys::Bytes(keys.iter().map(|key| key.to_vec()).collect()),
        }
    }

    /// The shape of the keys; a list has one axis.
    fn shape(&self) -> Vec<usize> {
        match self {
            CallerKeys::Int(view) => view.shape.clone(),
            CallerKeys::Bytes(keys) => vec![keys.len()],
        }
    }
}

impl KeyValueTable {
    pub(crate) fn new(table: tables::KeyValueTable, liveness: Arc<WorldLiveness>) -> KeyValueTable {
        KeyValueTable(NativeTable::new(table, liveness))
    }

    /// The shape of the values of these keys: that of the keys, followed by the values per key.
    fn shape(&self, keys: &CallerKeys) -> Vec<usize> {
        let mut shape = keys.shape();
        shape.push(self.0.table.dim());
        shape
    }

    /// Allocates memory for the values of these keys.
    fn allocate(&self, py: Python<'_>, keys: &CallerKeys) -> PyResult<Memory> {
        Memory::on_heap(self.0.table.dtype(), self.shape(keys)).map_err(|error| raise(py, error))
    }
}

/// Keys as integers in memory, or as a list of bytes objects.
fn python_keys(py: Python<'_>, keys: OwnedKeys) -> PyResult<Py<PyAny>> {
    Ok(match keys {
        OwnedKeys::Int(keys) => {
            let memory = Memory::of_numbers(&keys).map_err(|error| raise(py, error))?;
            Py::new(py, memory)?.into_any()
        }
        OwnedKeys::Bytes(keys) => {
            PyList::new(py, keys.iter().map(|key| PyBytes::new(py, key)))?.into_any().unbind()
        }
    })
}

#[pymethods]
impl KeyValueTable {
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

    /// Fills `out`, or new memory without `out`.
    #[pyo3(signature = (keys, out, timeout))]
    fn get(
        &self,
        keys: &Bound<'_, PyAny>,
        out: Option<&Bound<'_, PyAny>>,
        timeout: Arg<'_, '_>,
    ) -> PyResult<Option<Memory>> {
        let py = keys.py();
        let adjusted = self.0.begin("get", timeout)?;
        let keys = CallerKeys::of(keys, "get")?;
        let Some(out) = out else {
            let mut memory = self.allocate(py, &keys)?;
            let filled = self.0.run(py, "get", adjusted, move |table| {
                keys.with(|keys| table.get(keys, memory.bytes_mut())).map(|()| memory.clone())
            });
            return filled.map(Some);
        };
        let mut view = self.0.target(out, "get", &self.shape(&keys))?;
        self.0.run(py, "get", adjusted, move |table| keys.with(|keys| table.get(keys, view.bytes_mut())))?;
        Ok(None)
    }

    /// The same in the background.
    #[pyo3(signature = (keys, out, timeout))]
    fn get_async(
        &self,
        keys: &Bound<'_, PyAny>,
        out: Option<&Bound<'_, PyAny>>,
        timeout: Arg<'_, '_>,
    ) -> PyResult<Pending> {
        let py = keys.py();
        let adjusted = self.0.begin("get", timeout)?;
        let table = adjusted.as_ref().unwrap_or(&self.0.table);
        let keys = CallerKeys::of(keys, "get")?;
        let running: Box<dyn Running> = match out {
            Some(out) => {
                let target = self.0.target(out, "get", &self.shape(&keys))?;
                Box::new(table.start_get(keys.to_owned(), target))
            }
            None => Box::new(table.start_get(keys.to_owned(), self.allocate(py, &keys)?)),
        };
        Ok(Pending::new("get", running))
    }

    /// Adds; without `wait` the add may be applied later, and keys and array may be reused at once.
    #[pyo3(signature = (keys, delta, options, wait, timeout))]
    fn add(
        &self,
        keys: &Bound<'_, PyAny>,
        delta: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
        wait: bool,
        timeout: Arg<'_, '_>,
    ) -> PyResult<()> {
        let py = keys.py();
        let adjusted = self.0.begin("add", timeout)?;
        let keys = CallerKeys::of(keys, "add")?;
        let view = self.0.input(delta, "add", &self.shape(&keys))?;
        let options = add_options(options, |option| self.0.table.check_option(option))?;
        self.0.run(py, "add", adjusted, move |table| {
            keys.with(|keys| match wait {
                true => table.add(keys, view.bytes(), &options),
                false => table.add_soon(keys, view.bytes(), &options),
            })
        })
    }

    /// Removes keys; without `wait` they may be removed later, and the array may be reused at once.
    fn delete(&self, keys: &Bound<'_, PyAny>, wait: bool, timeout: Arg<'_, '_>) -> PyResult<()> {
        let adjusted = self.0.begin("delete", timeout)?;
        let given = CallerKeys::of(keys, "delete")?;
        self.0.run(keys.py(), "delete", adjusted, move |table| {
            given.with(|keys| if wait { table.delete(keys) } else { table.delete_soon(keys) })
        })
    }

    /// The keys that were evicted since the last report, and the number of those that are not listed.
    fn evicted(&self, py: Python<'_>, timeout: Arg<'_, '_>) -> PyResult<(Py<PyAny>, u64)> {
        let adjusted = self.0.begin("evicted", timeout)?;
        let evicted = self.0.run(py, "evicted", adjusted, tables::KeyValueTable::evicted)?;
        Ok((python_keys(py, evicted.keys)?, evicted.missed))
    }

    /// The maximum number of rows, if there is one.
    #[getter]
    fn max_rows(&self) -> Option<usize> {
        self.0.table.max_rows()
    }

    /// Whether each of these keys is present: a worker has added to it.
    fn contains(&self, keys: &Bound<'_, PyAny>, timeout: Arg<'_, '_>) -> PyResult<Vec<bool>> {
        let adjusted = self.0.begin("contains", timeout)?;
        let given = CallerKeys::of(keys, "contains")?;
        self.0.run(keys.py(), "contains", adjusted, move |table| given.with(|keys| table.contains(keys)))
    }

    /// Number of keys.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.0.query(py, "len", tables::KeyValueTable::len)
    }

    /// All keys, as integers in memory or as a list of bytes objects, and their values.
    fn items(&self, py: Python<'_>, timeout: Arg<'_, '_>) -> PyResult<(Py<PyAny>, Memory)> {
        let adjusted = self.0.begin("items", timeout)?;
        let items = self.0.run(py, "items", adjusted, tables::KeyValueTable::items)?;
        let shape = vec![items.keys.len(), self.0.table.dim()];
        let mut values = Memory::on_heap(self.0.table.dtype(), shape).map_err(|error| raise(py, error))?;
        values.bytes_mut().copy_from_slice(&items.values);
        Ok((python_keys(py, items.keys)?, values))
    }

    fn tick(&self, timeout: Arg<'_, '_>) -> PyResult<()> {
        self.0.simple("tick", timeout, tables::KeyValueTable::tick)
    }

    /// Number of steps that this worker has made.
    #[getter]
    fn clock(&self, py: Python<'_>) -> PyResult<u64> {
        self.0.query(py, "clock", tables::KeyValueTable::clock)
    }

    fn flush(&self, timeout: Arg<'_, '_>) -> PyResult<()> {
        self.0.simple("flush", timeout, tables::KeyValueTable::flush)
    }

    fn finish(&self, timeout: Arg<'_, '_>) -> PyResult<()> {
        self.0.simple("finish", timeout, tables::KeyValueTable::finish)
    }

    fn staleness(&self, py: Python<'_>) -> PyResult<Memory> {
        self.0.staleness(py)
    }

    fn stats(&self, py: Python<'_>) -> PyResult<[u64; 7]> {
        self.0.query(py, "stats", tables::KeyValueTable::stats).map(stats)
    }
}
