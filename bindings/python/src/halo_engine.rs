//! The engine of a native halo exchange: host memory or a CUDA device.

use std::time::Duration;

use unisono::cuda::Span;
use unisono::halo::{CudaExchange, Exchange};
use unisono::{Error, Result};

use crate::any_array::{AnyArray, mixed};
use crate::array::View;

/// An operation of an exchange.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HaloStep {
    Forward,
    Refresh,
    Adjoint,
    AdjointWithin,
    Begin,
    BeginAdjoint,
    End,
}

pub(crate) enum HaloEngine {
    Host(Box<Exchange>),
    Cuda {
        exchange: Box<CudaExchange>,
        /// The outputs of the exchange in progress. They are ordered with our streams already: borrowing them again would make
        /// `end` wait for everything that the caller computes in the meantime.
        begun: Vec<AnyArray>,
    },
}

impl HaloEngine {
    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        match self {
            HaloEngine::Host(exchange) => exchange.set_timeout(timeout),
            HaloEngine::Cuda { exchange, .. } => exchange.set_timeout(timeout),
        }
    }

    pub(crate) fn skip_call(&self) {
        match self {
            HaloEngine::Host(exchange) => exchange.skip_call(),
            HaloEngine::Cuda { exchange, .. } => exchange.skip_call(),
        }
    }

    pub(crate) fn is_direct(&self) -> bool {
        match self {
            HaloEngine::Host(exchange) => exchange.is_direct(),
            HaloEngine::Cuda { exchange, .. } => exchange.is_direct(),
        }
    }

    /// Whether `end` already has its outputs.
    pub(crate) fn keeps_outputs(&self) -> bool {
        matches!(self, HaloEngine::Cuda { begun, .. } if !begun.is_empty())
    }

    /// Runs an operation. Returns the arrays once they may be released.
    pub(crate) fn run(
        &mut self,
        (step, operation): (HaloStep, &str),
        inputs: Vec<AnyArray>,
        outputs: Vec<AnyArray>,
    ) -> (Result<()>, Vec<AnyArray>) {
        match self {
            HaloEngine::Host(exchange) => {
                let (mut inputs, mut outputs) = (inputs, outputs);
                let done = on_host(exchange, (step, operation), &mut inputs, &mut outputs);
                inputs.append(&mut outputs);
                (done, inputs)
            }
            HaloEngine::Cuda { exchange, begun } => {
                let (mut inputs, mut outputs) = (inputs, outputs);
                if matches!(step, HaloStep::End) {
                    outputs = std::mem::take(begun);
                }
                let done = on_device(exchange, (step, operation), &inputs, &outputs);
                if matches!(step, HaloStep::Begin | HaloStep::BeginAdjoint) && done.is_ok() {
                    *begun = outputs;
                } else {
                    inputs.append(&mut outputs);
                }
                (done, inputs)
            }
        }
    }
}

fn wrong_memory(exchange_is_on: &str, operation: &str) -> Error {
    mixed(operation, format!("others than those {exchange_is_on} that this exchange was made for"))
}

fn views<'a>(list: &'a mut [AnyArray], operation: &str) -> Result<Vec<&'a mut View>> {
    let view = |array: &'a mut AnyArray| match array {
        AnyArray::Host(view) => Ok(view),
        AnyArray::Cuda(_) => Err(wrong_memory("in host memory", operation)),
    };
    list.iter_mut().map(view).collect()
}

fn on_host(
    exchange: &mut Exchange,
    (step, operation): (HaloStep, &str),
    inputs: &mut [AnyArray],
    outputs: &mut [AnyArray],
) -> Result<()> {
    let (inputs, outputs) = match (views(inputs, operation), views(outputs, operation)) {
        (Ok(inputs), Ok(outputs)) => (inputs, outputs),
        (Err(error), _) | (_, Err(error)) => {
            exchange.skip_call();
            return Err(error);
        }
    };
    let inputs: Vec<&[u8]> = inputs.iter().map(|view| view.bytes()).collect();
    let mut outputs: Vec<&mut [u8]> = outputs.into_iter().map(View::bytes_mut).collect();
    match step {
        HaloStep::Forward => exchange.forward_fields(&inputs, &mut outputs),
        HaloStep::Refresh => exchange.refresh_fields(&mut outputs),
        HaloStep::Adjoint => exchange.adjoint_fields(&inputs, &mut outputs),
        HaloStep::AdjointWithin => exchange.adjoint_fields_within(&mut outputs),
        HaloStep::Begin => exchange.begin(&inputs, &mut outputs),
        HaloStep::BeginAdjoint => exchange.begin_adjoint(&inputs, &mut outputs),
        HaloStep::End => exchange.end(&mut outputs),
    }
}

fn on_device(
    exchange: &mut CudaExchange,
    (step, operation): (HaloStep, &str),
    inputs: &[AnyArray],
    outputs: &[AnyArray],
) -> Result<()> {
    let span = |array: &AnyArray| match array {
        AnyArray::Cuda(array) => Ok(array.span),
        AnyArray::Host(_) => Err(wrong_memory("in CUDA memory", operation)),
    };
    let spans = |list: &[AnyArray]| list.iter().map(span).collect::<Result<Vec<Span>>>();
    let (inputs, outputs) = match (spans(inputs), spans(outputs)) {
        (Ok(inputs), Ok(outputs)) => (inputs, outputs),
        (Err(error), _) | (_, Err(error)) => {
            exchange.skip_call();
            return Err(error);
        }
    };
    match step {
        HaloStep::Forward => exchange.forward(&inputs, &outputs),
        HaloStep::Refresh => exchange.refresh(&outputs),
        HaloStep::Adjoint => exchange.adjoint(&inputs, &outputs),
        HaloStep::AdjointWithin => {
            exchange.skip_call();
            Err(wrong_memory("in host memory", operation))
        }
        HaloStep::Begin => exchange.begin(&inputs, &outputs),
        HaloStep::BeginAdjoint => exchange.begin_adjoint(&inputs, &outputs),
        HaloStep::End => exchange.end(&outputs),
    }
}
