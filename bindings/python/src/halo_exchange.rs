//! A native halo exchange: borrows the caller's arrays in their memory and runs with the GIL released.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use unisono::halo::{CudaExchange, Exchange, ExchangeOptions};
use unisono::{DType, Error};

use crate::any_array::AnyArray;
use crate::call::{Arg, seconds};
use crate::errors::{OrRaise, guard, raise};
use crate::fork::ProcessLocal;
use crate::group::Group;
use crate::halo::HaloPlan;
use crate::halo_engine::{HaloEngine, HaloStep};

/// The arrays of a call, as Python passes them.
type Arrays<'py> = Vec<Bound<'py, PyAny>>;

/// A plan on the ranks of a group, for arrays of one element type in one memory space.
#[pyclass(frozen, module = "unisono._native")]
pub(crate) struct HaloExchange {
    engine: ProcessLocal<Mutex<HaloEngine>>,
    liveness: std::sync::Arc<crate::fork::WorldLiveness>,
    dtype: DType,
    default_timeout: std::time::Duration,
}

impl HaloExchange {
    /// Held while an exchange waits for other ranks, and the interrupt hook of that wait may need the GIL: take this lock only
    /// with the GIL released.
    fn lock(&self) -> MutexGuard<'_, HaloEngine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one operation of the exchange on arrays.
    fn run(
        &self,
        (step, operation): (HaloStep, &'static str),
        timeout: Arg<'_, '_>,
        inputs: &[Bound<'_, PyAny>],
        outputs: &[Bound<'_, PyAny>],
    ) -> PyResult<()> {
        let py = timeout.py();
        self.liveness.check("halo").or_raise(py)?;
        let outputs = match step {
            HaloStep::End if py.detach(|| self.lock().keeps_outputs()) => &[],
            _ => outputs,
        };
        // Rejected arguments still count as a call: the other ranks may be making it.
        let parse = || {
            let limit = seconds(timeout, operation)?.unwrap_or(self.default_timeout);
            let (inputs, outputs) = self.convert(operation, inputs, outputs)?;
            Ok::<_, PyErr>((limit, inputs, outputs))
        };
        let (limit, inputs, outputs) = parse().inspect_err(|_| py.detach(|| self.lock().skip_call()))?;
        // The caller's arrays are released after the GIL is reacquired.
        let (done, _arrays) = py.detach(move || {
            let mut engine = self.lock();
            engine.set_timeout(limit);
            let mut arrays = Vec::new();
            let done = guard(operation, || {
                let (done, used) = engine.run((step, operation), inputs, outputs);
                arrays = used;
                done
            });
            (done, arrays)
        });
        done.or_raise(py)
    }

    fn convert(
        &self,
        operation: &'static str,
        inputs: &[Bound<'_, PyAny>],
        outputs: &[Bound<'_, PyAny>],
    ) -> PyResult<(Vec<AnyArray>, Vec<AnyArray>)> {
        let typed = |array: AnyArray, py| {
            if array.dtype() == self.dtype {
                return Ok(array);
            }
            let expected = format!("{}, the type that this exchange was made for", self.dtype);
            let advice = "use one type, the same on every rank";
            Err(raise(py, Error::usage(operation, expected, array.dtype().name(), advice)))
        };
        let inputs = inputs.iter().map(|x| typed(AnyArray::input(x, operation)?, x.py()));
        let outputs = outputs.iter().map(|x| typed(AnyArray::in_place(x, operation)?, x.py()));
        Ok((inputs.collect::<PyResult<_>>()?, outputs.collect::<PyResult<_>>()?))
    }
}

#[pymethods]
impl HaloExchange {
    /// `way`: whether to reserve buffers in shared memory, and for CUDA memory the device.
    #[new]
    fn new(
        py: Python<'_>,
        group: &Group,
        plan: &HaloPlan,
        dtype: &str,
        fields: usize,
        way: (bool, Option<u32>),
        timeout: Arg<'_, '_>,
    ) -> PyResult<HaloExchange> {
        let (dtype, limit) = group.prepare(py, "halo plan", |operation| {
            let known = DType::from_name(dtype).filter(|dtype| dtype.has_kernels());
            let dtype = known.ok_or_else(|| {
                let supported = DType::KERNELS.map(DType::name).join(", ");
                raise(py, Error::usage(operation, supported, dtype, "convert the array first"))
            })?;
            Ok((dtype, seconds(timeout, operation)?))
        })?;
        let (direct, device) = way;
        let (plan, options) = (plan.plan.clone(), ExchangeOptions { dtype, fields, direct });
        let handle = group.handle();
        let default_timeout = handle.timeout();
        let handle = handle.with_timeout(limit.unwrap_or(default_timeout));
        let make = || match device {
            None => Exchange::new(&handle, plan, options).map(Box::new).map(HaloEngine::Host),
            Some(device) => CudaExchange::new(&handle, plan, options, device)
                .map(|exchange| HaloEngine::Cuda { exchange: Box::new(exchange), begun: Vec::new() }),
        };
        let made = py.detach(|| guard("halo plan", make)).or_raise(py)?;
        let engine = ProcessLocal::new(Mutex::new(made));
        Ok(HaloExchange { engine, liveness: group.liveness().clone(), dtype, default_timeout })
    }

    /// Whether messages go directly through shared memory, or through device memory.
    #[getter]
    fn is_direct(&self, py: Python<'_>) -> bool {
        py.detach(|| self.lock().is_direct())
    }

    fn forward(&self, parts: Arrays, padded: Arrays, timeout: Arg<'_, '_>) -> PyResult<()> {
        self.run((HaloStep::Forward, "halo forward"), timeout, &parts, &padded)
    }

    fn refresh(&self, padded: Arrays, timeout: Arg<'_, '_>) -> PyResult<()> {
        self.run((HaloStep::Refresh, "halo forward"), timeout, &[], &padded)
    }

    fn adjoint(&self, padded: Arrays, parts: Arrays, timeout: Arg<'_, '_>) -> PyResult<()> {
        self.run((HaloStep::Adjoint, "halo adjoint"), timeout, &padded, &parts)
    }

    fn adjoint_within(&self, padded: Arrays, timeout: Arg<'_, '_>) -> PyResult<()> {
        self.run((HaloStep::AdjointWithin, "halo adjoint"), timeout, &[], &padded)
    }

    fn begin(&self, parts: Arrays, padded: Arrays, timeout: Arg<'_, '_>) -> PyResult<()> {
        self.run((HaloStep::Begin, "halo forward"), timeout, &parts, &padded)
    }

    fn begin_adjoint(&self, padded: Arrays, parts: Arrays, timeout: Arg<'_, '_>) -> PyResult<()> {
        self.run((HaloStep::BeginAdjoint, "halo adjoint"), timeout, &padded, &parts)
    }

    fn end(&self, outputs: Arrays, timeout: Arg<'_, '_>) -> PyResult<()> {
        self.run((HaloStep::End, "halo end"), timeout, &[], &outputs)
    }
}
