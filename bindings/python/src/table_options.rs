//! Options of tables and of adds, converted from Python.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use unisono::tables::{
    AddOptions, Compression, Consistency, Eviction, Init, KeyType, KeyValueTable, Repeats, Table, TableKind,
    TableOptions, Tables, UpdaterChoice,
};
use unisono::{DType, Error, Result};

use crate::array::View;
use crate::call::{flag, number, rejected, text};
use crate::errors::OrRaise;
use crate::native_table::{check_shape, check_type};
use crate::nvidia;

/// The arguments of a new table as the Python classes pass them; their signatures define the defaults.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct TableSpec<'py> {
    /// Rows and columns; an array has one column, a key-value table one row.
    shape: (usize, usize),
    dtype: String,
    name: Option<String>,
    init: InitialValues,
    /// An array of initial values, or None.
    values: Bound<'py, PyAny>,
    updater: String,
    consistency: String,
    repeats: Option<String>,
    reject_nan: Bound<'py, PyAny>,
    compression: String,
    device: Bound<'py, PyAny>,
    /// Of a sparse matrix.
    pipelined: Bound<'py, PyAny>,
    /// Of a key-value table, like the next two.
    keys: Bound<'py, PyAny>,
    max_rows: Option<usize>,
    eviction: Option<String>,
    pub(crate) timeout: Bound<'py, PyAny>,
    add: Bound<'py, PyDict>,
}

/// One integer, which must be stored exactly; or a kind of initial values, two numbers and a seed.
#[derive(FromPyObject)]
enum InitialValues {
    Whole(i64),
    Rule(String, f64, f64, u64),
}

/// The parsed arguments of a new table.
pub(crate) struct TableRequest {
    kind: TableKind,
    shape: (usize, usize),
    dtype: DType,
    values: Option<View>,
    pipelined: bool,
    keys: KeyType,
    options: TableOptions,
    /// Whether the creation has its own timeout.
    pub(crate) is_limited: bool,
}

pub(crate) enum CreatedTable {
    Rows(Table),
    Keys(KeyValueTable),
}

impl TableSpec<'_> {
    /// Parses the arguments; initial values are used only if this rank `is_master`.
    pub(crate) fn parse(&self, py: Python<'_>, kind: TableKind, is_master: bool) -> PyResult<TableRequest> {
        let known = DType::from_name(&self.dtype).filter(|dtype| dtype.has_kernels());
        let dtype = known.ok_or_else(|| {
            let types = "float32, float64, float16, bfloat16, int32 or int64";
            Error::usage("table", types, &self.dtype, "choose one of these")
        });
        let dtype = dtype.or_raise(py)?;
        let keys = text(&self.keys, "table", "the type of the keys", "write \"int\" or \"bytes\"")?;
        let keys = KeyType::from_name(keys).or_raise(py)?;
        let pipelined = flag(&self.pipelined, "table", "pipelined")?;
        let options = self.options(py)?;
        let values = Some(&self.values).filter(|values| is_master && !values.is_none());
        let values = values.map(|values| View::input(values, "table")).transpose()?;
        if let Some(view) = &values {
            let table = || {
                self.name.as_ref().map_or("a table without a name".into(), |name| format!("table {name:?}"))
            };
            let axes = [self.shape.0, self.shape.1];
            let axes = if kind == TableKind::Array { &axes[..1] } else { &axes[..] };
            check_type("table", dtype, table, view.dtype)
                .and_then(|()| check_shape("table", axes, table, &view.shape))
                .or_raise(py)?;
        }
        let is_limited = !self.timeout.is_none();
        Ok(TableRequest { kind, shape: self.shape, dtype, values, pipelined, keys, options, is_limited })
    }

    fn options(&self, py: Python<'_>) -> PyResult<TableOptions> {
        let table = self.name.as_deref().unwrap_or("without a name");
        let updater = UpdaterChoice::named(&self.updater).or_raise(py)?;
        let device = (!self.device.is_none()).then(|| {
            nvidia::add_package_folders(py)?;
            number(&self.device, "table", "the number of a device, from 0 up", "write \"cuda:0\"")
        });
        Ok(TableOptions {
            name: self.name.clone(),
            init: init(&self.init).or_raise(py)?,
            add: add_options(Some(&self.add), |option| updater.check_option(table, option))?,
            updater,
            consistency: Consistency::parse(&self.consistency).or_raise(py)?,
            repeats: self.repeats.as_deref().map(Repeats::parse).transpose().or_raise(py)?,
            reject_nan: flag(&self.reject_nan, "table", "reject_nan")?,
            compression: Compression::parse(&self.compression).or_raise(py)?,
            device: device.transpose()?,
            max_rows: self.max_rows,
            eviction: self.eviction.as_deref().map(Eviction::parse).transpose().or_raise(py)?,
        })
    }
}

impl TableRequest {
    /// Creates the table. Collective.
    pub(crate) fn create(self, tables: &Tables) -> Result<CreatedTable> {
        let TableRequest { kind, shape, dtype, values, pipelined, keys, options, .. } = self;
        let values = values.as_ref().map(View::bytes);
        let made = match kind {
            TableKind::Array => Table::array(tables, shape.0, dtype, values, options),
            TableKind::Matrix => Table::matrix(tables, shape, dtype, values, options),
            TableKind::SparseMatrix => Table::sparse_matrix(tables, shape, dtype, values, pipelined, options),
            _ => {
                let made = KeyValueTable::create(tables, keys, shape.1, dtype, options);
                return made.map(CreatedTable::Keys);
            }
        };
        made.map(CreatedTable::Rows)
    }
}

fn init(given: &InitialValues) -> Result<Init> {
    let (kind, first, second, seed) = match given {
        InitialValues::Whole(value) => return Ok(Init::Whole(*value)),
        InitialValues::Rule(kind, first, second, seed) => (kind.as_str(), *first, *second, *seed),
    };
    match kind {
        "zero" => Ok(Init::Zero),
        "constant" => Ok(Init::Constant(first)),
        "uniform" => Ok(Init::Uniform { low: first, high: second, seed }),
        "normal" => Ok(Init::Normal { mean: first, deviation: second, seed }),
        other => Err(Error::internal("table", format!("first values of kind {other:?}"))),
    }
}

/// Options for the updater. A trailing underscore of a name is removed: `lambda` is a Python keyword. `betas` is a pair, as in
/// PyTorch. `check` rejects names that the updater does not know.
pub(crate) fn add_options(
    given: Option<&Bound<'_, PyDict>>,
    check: impl Fn(&str) -> Result<()>,
) -> PyResult<AddOptions> {
    let mut options = AddOptions::default();
    for (name, value) in given.into_iter().flatten() {
        let name = name.extract::<String>()?;
        let expected =
            |what: &str| rejected(&value, "add options", &format!("{what} as {name}"), "pass floats");
        let numbers = match name.trim_end_matches('_') {
            "betas" => {
                let (first, second) = value.extract::<(f64, f64)>().map_err(|_| expected("two numbers"))?;
                vec![("beta1", first), ("beta2", second)]
            }
            name => vec![(name, value.extract::<f64>().map_err(|_| expected("a number"))?)],
        };
        for (name, number) in numbers {
            if !AddOptions::NAMES.contains(&AddOptions::canonical(name)) {
                check(name).or_raise(value.py())?;
            }
            options.set(name, number).or_raise(value.py())?;
        }
    }
    Ok(options)
}
