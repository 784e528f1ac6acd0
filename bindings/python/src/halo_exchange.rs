//! A native exchange of halos: takes the caller's arrays where they are and works without the interpreter.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use unisono::halo::{Exchange, ExchangeOptions};
use unisono::{DType, Error, Result};

use crate::array::View;
use crate::call::seconds;
use crate::errors::{guard, raise};
use crate::fork::OwnProcess;
use crate::group::Group;
use crate::halo::HaloPlan;

/// A plan on the ranks of a group, for arrays of one type.
#[pyclass(frozen, module = "unisono._native")]
pub(crate) struct HaloExchange {
    exchange: OwnProcess<Mutex<Exchange>>,
    life: std::sync::Arc<crate::fork::Life>,
    dtype: DType,
    usual: std::time::Duration,
}

impl HaloExchange {
    /// Runs one of the exchange's calls on arrays.
    fn run(
        &self,
        py: Python<'_>,
        (operation, timeout): (&'static str, Option<f64>),
        inputs: Vec<Bound<'_, PyAny>>,
        outputs: Vec<Bound<'_, PyAny>>,
        job: impl FnOnce(&mut Exchange, &[&[u8]], &mut [&mut [u8]]) -> Result<()> + Send,
    ) -> PyResult<()> {
        self.life.check("halo").map_err(|error| raise(py, error))?;
        let limit = seconds(timeout, operation).map_err(|error| raise(py, error))?.unwrap_or(self.usual);
        let views = self.views(py, operation, &inputs, &outputs);
        // What is refused here counts as a call: the others may be making it.
        let (inputs, mut outputs) = match views {
            Ok(views) => views,
            Err(error) => {
                self.skip();
                return Err(error);
            }
        };
        let (done, _views) = py.detach(move || {
            let done = guard(operation, || {
                let mut exchange = self.exchange.lock().unwrap_or_else(PoisonError::into_inner);
                exchange.set_timeout(limit);
                let inputs: Vec<&[u8]> = inputs.iter().map(View::bytes).collect();
                let mut outputs: Vec<&mut [u8]> = outputs.iter_mut().map(View::bytes_mut).collect();
                job(&mut exchange, &inputs, &mut outputs)
            });
            // The caller's arrays are let go when the interpreter is back.
            (done, (inputs, outputs))
        });
        done.map_err(|error| raise(py, error))
    }

    fn skip(&self) {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner).skip_call();
    }

    fn views(
        &self,
        py: Python<'_>,
        operation: &'static str,
        inputs: &[Bound<'_, PyAny>],
        outputs: &[Bound<'_, PyAny>],
    ) -> PyResult<(Vec<View>, Vec<View>)> {
        let typed = |view: PyResult<View>| {
            let view = view?;
            if view.dtype == self.dtype {
                return Ok(view);
            }
            let expected = format!("{}, the type that this exchange was made for", self.dtype);
            let advice = "use one type, the same on every rank";
            Err(raise(py, Error::usage(operation, expected, view.dtype.name(), advice)))
        };
        let inputs = inputs.iter().map(|x| typed(View::input(x, operation))).collect::<PyResult<_>>()?;
        let outputs = outputs.iter().map(|x| typed(View::in_place(x, operation))).collect::<PyResult<_>>()?;
        Ok((inputs, outputs))
    }
}

#[pymethods]
impl HaloExchange {
    #[new]
    fn new(
        py: Python<'_>,
        group: &Group,
        plan: &HaloPlan,
        dtype: &str,
        fields: usize,
        direct: bool,
        timeout: Option<f64>,
    ) -> PyResult<HaloExchange> {
        let life = group.life("halo plan").map_err(|error| raise(py, error))?;
        let dtype = DType::from_name(dtype).ok_or_else(|| {
            let supported = DType::ALL.map(DType::name).join(", ");
            raise(py, Error::usage("halo plan", supported, dtype, "convert the array first"))
        })?;
        let limit = seconds(timeout, "halo plan").map_err(|error| raise(py, error))?;
        let (plan, options) = (plan.plan.clone(), ExchangeOptions { dtype, fields, direct });
        let handle = group.handle();
        let usual = handle.timeout();
        let handle = handle.with_timeout(limit.unwrap_or(usual));
        let made = py.detach(|| guard("halo plan", || Exchange::new(&handle, plan, options)));
        let exchange = OwnProcess::new(Mutex::new(made.map_err(|error| raise(py, error))?));
        Ok(HaloExchange { exchange, life, dtype, usual })
    }

    /// Whether parcels go straight through shared memory.
    #[getter]
    fn is_direct(&self) -> bool {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner).is_direct()
    }

    fn forward(
        &self,
        py: Python<'_>,
        parts: Vec<Bound<'_, PyAny>>,
        padded: Vec<Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        self.run(py, ("halo forward", timeout), parts, padded, |exchange, parts, padded| {
            exchange.forward_fields(parts, padded)
        })
    }

    fn refresh(&self, py: Python<'_>, padded: Vec<Bound<'_, PyAny>>, timeout: Option<f64>) -> PyResult<()> {
        self.run(py, ("halo forward", timeout), Vec::new(), padded, |exchange, _, padded| {
            exchange.refresh_fields(padded)
        })
    }

    fn adjoint(
        &self,
        py: Python<'_>,
        padded: Vec<Bound<'_, PyAny>>,
        parts: Vec<Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        self.run(py, ("halo adjoint", timeout), padded, parts, |exchange, padded, parts| {
            exchange.adjoint_fields(padded, parts)
        })
    }

    fn adjoint_within(
        &self,
        py: Python<'_>,
        padded: Vec<Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        self.run(py, ("halo adjoint", timeout), Vec::new(), padded, |exchange, _, padded| {
            exchange.adjoint_fields_within(padded)
        })
    }

    fn begin(
        &self,
        py: Python<'_>,
        parts: Vec<Bound<'_, PyAny>>,
        padded: Vec<Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        self.run(py, ("halo forward", timeout), parts, padded, |exchange, parts, padded| {
            exchange.begin(parts, padded)
        })
    }

    fn begin_adjoint(
        &self,
        py: Python<'_>,
        padded: Vec<Bound<'_, PyAny>>,
        parts: Vec<Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        self.run(py, ("halo adjoint", timeout), padded, parts, |exchange, padded, parts| {
            exchange.begin_adjoint(padded, parts)
        })
    }

    fn end(&self, py: Python<'_>, outputs: Vec<Bound<'_, PyAny>>, timeout: Option<f64>) -> PyResult<()> {
        self.run(py, ("halo end", timeout), Vec::new(), outputs, |exchange, _, outputs| exchange.end(outputs))
    }
}
