//! How a table is to be made and what an add brings along, as Python says it.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use unisono::tables::{AddOptions, Compression, Consistency, Init, TableOptions, UpdaterChoice};
use unisono::{DType, Error, Result};

/// What the Python classes pass on; their signatures have the defaults.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Wishes<'py> {
    dtype: String,
    name: Option<String>,
    init: First,
    updater: String,
    consistency: String,
    reject_nan: bool,
    compression: String,
    add: Bound<'py, PyDict>,
}

/// A kind of first values, two numbers and a seed.
type First = (String, f64, f64, u64);

impl Wishes<'_> {
    /// The type of the elements.
    pub(crate) fn dtype(&self) -> Result<DType> {
        DType::from_name(&self.dtype).ok_or_else(|| {
            let types = "float32, float64, float16, bfloat16, int32 or int64";
            Error::usage("table", types, &self.dtype, "choose one of these")
        })
    }

    pub(crate) fn options(&self) -> PyResult<Result<TableOptions>> {
        let add = add_options(Some(&self.add))?;
        Ok(add.and_then(|add| {
            Ok(TableOptions {
                name: self.name.clone(),
                init: init(&self.init)?,
                updater: UpdaterChoice::named(&self.updater)?,
                consistency: Consistency::parse(&self.consistency)?,
                add,
                reject_nan: self.reject_nan,
                compression: Compression::parse(&self.compression)?,
            })
        }))
    }
}

fn init((kind, first, second, seed): &First) -> Result<Init> {
    let (first, second, seed) = (*first, *second, *seed);
    match kind.as_str() {
        "zero" => Ok(Init::Zero),
        "constant" => Ok(Init::Constant(first)),
        "uniform" => Ok(Init::Uniform { low: first, high: second, seed }),
        "normal" => Ok(Init::Normal { mean: first, deviation: second, seed }),
        other => Err(Error::internal("table", format!("first values of kind {other:?}"))),
    }
}

/// Options for the updater; a value that is no number is a TypeError. An underscore at a name's end is left out: `lambda`
/// is a word of Python's own.
pub(crate) fn add_options(given: Option<&Bound<'_, PyDict>>) -> PyResult<Result<AddOptions>> {
    let mut options = AddOptions::default();
    for (name, value) in given.into_iter().flatten() {
        let name = name.extract::<String>()?;
        if let Err(error) = options.set(name.trim_end_matches('_'), value.extract::<f64>()?) {
            return Ok(Err(error));
        }
    }
    Ok(Ok(options))
}
