//! What carries out a native exchange of halos: the processor, or a CUDA device.

use std::time::Duration;

use unisono::cuda::Span;
use unisono::halo::{CudaExchange, Exchange};
use unisono::{Error, Result};

use crate::array::View;
use crate::placed::{Placed, mixed};

/// A call of an exchange.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    Forward,
    Refresh,
    Adjoint,
    AdjointWithin,
    Begin,
    BeginAdjoint,
    End,
}

pub(crate) enum Engine {
    Host(Box<Exchange>),
    Cuda {
        exchange: Box<CudaExchange>,
        /// The outputs of what has begun. They are in order with our streams already: asking for them again would let the
        /// end wait for all that the caller computes meanwhile.
        begun: Vec<Placed>,
    },
}

impl Engine {
    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        match self {
            Engine::Host(exchange) => exchange.set_timeout(timeout),
            Engine::Cuda { exchange, .. } => exchange.set_timeout(timeout),
        }
    }

    pub(crate) fn skip_call(&self) {
        match self {
            Engine::Host(exchange) => exchange.skip_call(),
            Engine::Cuda { exchange, .. } => exchange.skip_call(),
        }
    }

    pub(crate) fn is_direct(&self) -> bool {
        match self {
            Engine::Host(exchange) => exchange.is_direct(),
            Engine::Cuda { exchange, .. } => exchange.is_direct(),
        }
    }

    /// Whether `end` knows its outputs.
    pub(crate) fn keeps_outputs(&self) -> bool {
        matches!(self, Engine::Cuda { begun, .. } if !begun.is_empty())
    }

    /// Makes a call. The arrays come back when they may be let go.
    pub(crate) fn run(
        &mut self,
        (step, operation): (Step, &str),
        inputs: Vec<Placed>,
        outputs: Vec<Placed>,
    ) -> (Result<()>, Vec<Placed>) {
        match self {
            Engine::Host(exchange) => {
                let (mut inputs, mut outputs) = (inputs, outputs);
                let done = on_host(exchange, (step, operation), &mut inputs, &mut outputs);
                inputs.append(&mut outputs);
                (done, inputs)
            }
            Engine::Cuda { exchange, begun } => {
                let (mut inputs, mut outputs) = (inputs, outputs);
                if matches!(step, Step::End) {
                    outputs = std::mem::take(begun);
                }
                let done = on_device(exchange, (step, operation), &inputs, &outputs);
                if matches!(step, Step::Begin | Step::BeginAdjoint) && done.is_ok() {
                    *begun = outputs;
                } else {
                    inputs.append(&mut outputs);
                }
                (done, inputs)
            }
        }
    }
}

fn elsewhere(exchange_is_on: &str, operation: &str) -> Error {
    mixed(operation, format!("others than those {exchange_is_on} that this exchange was made for"))
}

fn views<'a>(list: &'a mut [Placed], operation: &str) -> Result<Vec<&'a mut View>> {
    let view = |placed: &'a mut Placed| match placed {
        Placed::Host(view) => Ok(view),
        Placed::Cuda(_) => Err(elsewhere("in the processor's memory", operation)),
    };
    list.iter_mut().map(view).collect()
}

fn on_host(
    exchange: &mut Exchange,
    (step, operation): (Step, &str),
    inputs: &mut [Placed],
    outputs: &mut [Placed],
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
        Step::Forward => exchange.forward_fields(&inputs, &mut outputs),
        Step::Refresh => exchange.refresh_fields(&mut outputs),
        Step::Adjoint => exchange.adjoint_fields(&inputs, &mut outputs),
        Step::AdjointWithin => exchange.adjoint_fields_within(&mut outputs),
        Step::Begin => exchange.begin(&inputs, &mut outputs),
        Step::BeginAdjoint => exchange.begin_adjoint(&inputs, &mut outputs),
        Step::End => exchange.end(&mut outputs),
    }
}

fn on_device(
    exchange: &mut CudaExchange,
    (step, operation): (Step, &str),
    inputs: &[Placed],
    outputs: &[Placed],
) -> Result<()> {
    let span = |placed: &Placed| match placed {
        Placed::Cuda(array) => Ok(array.span),
        Placed::Host(_) => Err(elsewhere("in CUDA memory", operation)),
    };
    let spans = |list: &[Placed]| list.iter().map(span).collect::<Result<Vec<Span>>>();
    let (inputs, outputs) = match (spans(inputs), spans(outputs)) {
        (Ok(inputs), Ok(outputs)) => (inputs, outputs),
        (Err(error), _) | (_, Err(error)) => {
            exchange.skip_call();
            return Err(error);
        }
    };
    match step {
        Step::Forward => exchange.forward(&inputs, &outputs),
        Step::Refresh => exchange.refresh(&outputs),
        Step::Adjoint => exchange.adjoint(&inputs, &outputs),
        Step::AdjointWithin => {
            exchange.skip_call();
            Err(elsewhere("in the processor's memory", operation))
        }
        Step::Begin => exchange.begin(&inputs, &outputs),
        Step::BeginAdjoint => exchange.begin_adjoint(&inputs, &outputs),
        Step::End => exchange.end(&outputs),
    }
}
