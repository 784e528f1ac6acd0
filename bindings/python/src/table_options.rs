//! Options of tables and of adds, converted from Python.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use unisono::tables::{AddOptions, Compression, Consistency, Init, TableOptions, UpdaterChoice};
use unisono::{DType, Error, Result};

/// The options of a new table as the Python classes pass them; their signatures define the defaults.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct TableSpec<'py> {
    dtype: String,
    name: Option<String>,
    init: InitialValues,
    updater: String,
    consistency: String,
    reject_nan: bool,
    compression: String,
    device: Option<u32>,
    add: Bound<'py, PyDict>,
}

/// One integer, which must be stored exactly; or a kind of initial values, two numbers and a seed.
#[derive(FromPyObject)]
enum InitialValues {
    Whole(i64),
    Rule(String, f64, f64, u64),
}

impl TableSpec<'_> {
    /// The element type.
    pub(crate) fn dtype(&self) -> Result<DType> {
        DType::from_name(&self.dtype).ok_or_else(|| {
            let types = "float32, float64, float16, bfloat16, int32 or int64";
            Error::usage("table", types, &self.dtype, "choose one of these")
        })
    }

    /// The table's name for error messages.
    pub(crate) fn described(&self) -> String {
        self.name.as_ref().map_or("a table without a name".into(), |name| format!("table {name:?}"))
    }

    /// Whether the table is to be stored on a device.
    pub(crate) fn on_device(&self) -> bool {
        self.device.is_some()
    }

    pub(crate) fn options(&self) -> PyResult<Result<TableOptions>> {
        let table = self.name.as_deref().unwrap_or("without a name");
        let updater = UpdaterChoice::named(&self.updater);
        let check = |option: &str| updater.clone()?.check_option(table, option);
        let add = add_options(Some(&self.add), check)?;
        Ok(updater.clone().and_then(|updater| {
            let add = add?;
            Ok(TableOptions {
                name: self.name.clone(),
                init: init(&self.init)?,
                updater,
                consistency: Consistency::parse(&self.consistency)?,
                add,
                reject_nan: self.reject_nan,
                compression: Compression::parse(&self.compression)?,
                device: self.device,
            })
        }))
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

/// Options for the updater; a value that is not a number is a TypeError. A trailing underscore of a name is removed:
/// `lambda` is a Python keyword. `check` rejects names that the updater does not know.
pub(crate) fn add_options(
    given: Option<&Bound<'_, PyDict>>,
    check: impl Fn(&str) -> Result<()>,
) -> PyResult<Result<AddOptions>> {
    let mut options = AddOptions::default();
    for (name, value) in given.into_iter().flatten() {
        let name = name.extract::<String>()?;
        let (name, value) = (name.trim_end_matches('_'), value.extract::<f64>()?);
        let known = if AddOptions::NAMES.contains(&name) { Ok(()) } else { check(name) };
        if let Err(error) = known.and_then(|()| options.set(name, value)) {
            return Ok(Err(error));
        }
    }
    Ok(Ok(options))
}
