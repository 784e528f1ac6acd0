//! A spatially partitioned layer: this rank's part of the outputs, from its part of the inputs and their halo.

use unisono::Result;

use super::halos::Halos;
use super::sums::GroupSum;
use crate::exact::ExactSums;
use crate::layers::{Activation, Filtering, Halo, Layer, LayerInfo, Pass, ReceptiveField};
use crate::number::Number;
use crate::shape::Shape;
use crate::weight::Weight;

/// A layer that computes on a part. Its sums run over all ranks that hold other parts.
pub(crate) struct PartitionedLayer<T> {
    inner: Box<dyn Layer<T>>,
    input: Shape,
    output: Shape,
    halos: Option<Halos>,
    sums: GroupSum,
    gradients: GroupSum,
    padded: Vec<T>,
    padded_error: Vec<T>,
}

impl<T: Number> PartitionedLayer<T> {
    /// Wraps the layer of this rank's part, whose input includes the halo.
    pub(crate) fn new(
        inner: Box<dyn Layer<T>>,
        (input, output): (Shape, Shape),
        halos: Option<Halos>,
        (sums, gradients): (GroupSum, GroupSum),
    ) -> PartitionedLayer<T> {
        let halos = halos.filter(|halos| !halos.is_trivial);
        PartitionedLayer {
            inner,
            input,
            output,
            halos,
            sums,
            gradients,
            padded: Vec::new(),
            padded_error: Vec::new(),
        }
    }
}

impl<T: Number> Layer<T> for PartitionedLayer<T> {
    fn info(&self) -> LayerInfo<'_> {
        LayerInfo {
            name: self.inner.name(),
            input: self.input,
            output: self.output,
            receptive_field: self.inner.receptive_field(),
        }
    }

    fn fprop(&mut self, pass: &Pass<'_, T>, inputs: &[T], outputs: &mut [T]) -> Result<()> {
        let pass = Pass { sums: &self.sums, ..*pass };
        let seen = match &self.halos {
            Some(halos) => {
                halos.forward(pass.batch, inputs, &mut self.padded)?;
                &self.padded[..]
            }
            None => inputs,
        };
        self.inner.fprop(&pass, seen, outputs)
    }

    fn bprop(
        &mut self,
        pass: &Pass<'_, T>,
        inputs: &[T],
        outputs: &[T],
        error: &[T],
        input_error: Option<&mut [T]>,
    ) -> Result<()> {
        let pass = Pass { sums: &self.sums, gradients: &self.gradients, ..*pass };
        let Some(halos) = &self.halos else {
            return self.inner.bprop(&pass, inputs, outputs, error, input_error);
        };
        if pass.exact {
            let pass = Pass { halo: Some(halos), ..pass };
            return self.inner.bprop(&pass, &self.padded, outputs, error, input_error);
        }
        let wanted = input_error.is_some();
        self.padded_error.resize(self.padded.len(), T::ZERO);
        let padded_error = wanted.then_some(&mut self.padded_error[..]);
        self.inner.bprop(&pass, &self.padded, outputs, error, padded_error)?;
        match input_error {
            Some(input_error) => halos.adjoint(pass.batch, &self.padded_error, input_error),
            None => Ok(()),
        }
    }

    fn weights(&mut self) -> Vec<&mut Weight<T>> {
        self.inner.weights()
    }

    fn memory(&mut self) -> Vec<(&'static str, &mut Vec<T>)> {
        self.inner.memory()
    }

    fn activation(&self) -> Option<Activation> {
        self.inner.activation()
    }

    fn filtering(&mut self) -> Option<Filtering<'_, T>> {
        let halo = self.halos.as_ref().map(|halos| halos as &dyn Halo<T>);
        Some(Filtering { halo, sums: Some(&self.sums), ..self.inner.filtering()? })
    }

    fn after_update(&mut self) {
        self.inner.after_update();
    }
}

/// How input errors cross the borders between parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorExchange {
    /// Input errors do not cross borders.
    Nothing,
    /// Each input has one error at most, which is copied.
    Copied,
    /// The errors of overlapping windows are summed.
    Summed,
}

/// A layer on a rank that owns none of its outputs: it still receives input errors from other ranks.
pub(crate) struct IdleLayer<T> {
    pub(crate) name: String,
    pub(crate) input: Shape,
    pub(crate) output: Shape,
    pub(crate) receptive_field: ReceptiveField,
    pub(crate) weights: Vec<Weight<T>>,
    /// How input errors cross the borders between parts.
    pub(crate) error_exchange: ErrorExchange,
    /// Whether the layer stands in for local filters.
    pub(crate) filters: bool,
}

impl<T: Number> Layer<T> for IdleLayer<T> {
    fn info(&self) -> LayerInfo<'_> {
        LayerInfo {
            name: &self.name,
            input: self.input,
            output: self.output,
            receptive_field: self.receptive_field,
        }
    }

    fn fprop(&mut self, _: &Pass<'_, T>, _: &[T], _: &mut [T]) -> Result<()> {
        Ok(())
    }

    fn bprop(
        &mut self,
        pass: &Pass<'_, T>,
        _: &[T],
        _: &[T],
        _: &[T],
        input_error: Option<&mut [T]>,
    ) -> Result<()> {
        self.weights.iter_mut().for_each(|weight| weight.gradient.fill(T::ZERO));
        let Some(input_error) = input_error else { return Ok(()) };
        // Other ranks contribute errors to this one; this rank has none to contribute.
        match (self.error_exchange, pass.halo) {
            (ErrorExchange::Summed, _) if pass.exact => {
                pass.round_input_error(ExactSums::new(pass, 0, [0.0, 1.0])?, input_error)
            }
            (ErrorExchange::Copied, Some(halo)) => halo.adjoint(pass.batch, &[], input_error),
            _ => {
                input_error.fill(T::ZERO);
                Ok(())
            }
        }
    }

    fn weights(&mut self) -> Vec<&mut Weight<T>> {
        self.weights.iter_mut().collect()
    }

    fn filtering(&mut self) -> Option<Filtering<'_, T>> {
        self.filters.then_some(Filtering { filter: None, halo: None, sums: None })
    }
}
