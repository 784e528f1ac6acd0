//! A fully connected layer partitioned by its inputs, and a layer that all-gathers the parts of a sample.

use std::ops::Range;

use unisono::{Group, Result};

use super::comm_timer::CommTimer;
use super::sharding::slice;
use super::sums::GroupSum;
use crate::layers::{FullyConnected, Layer, LayerInfo, Pass, ReceptiveField};
use crate::number::Number;
use crate::shape::Shape;
use crate::weight::Weight;

/// Each rank holds the weights of some inputs; all ranks get all outputs.
pub(crate) struct InputParallelLayer<T> {
    inner: FullyConnected<T>,
    spatial: GroupSum,
    /// If the inputs are replicated: their number, and the range of this rank.
    slice: Option<(usize, Range<usize>)>,
    inputs: Vec<T>,
    error: Vec<T>,
}

impl<T: Number> InputParallelLayer<T> {
    /// Wraps the layer of this rank's inputs; with a slice, selects them from the replicated inputs.
    pub(crate) fn new(
        inner: FullyConnected<T>,
        spatial: GroupSum,
        slice: Option<(usize, Range<usize>)>,
    ) -> InputParallelLayer<T> {
        InputParallelLayer { inner, spatial, slice, inputs: Vec::new(), error: Vec::new() }
    }
}

impl<T: Number> Layer<T> for InputParallelLayer<T> {
    fn info(&self) -> LayerInfo<'_> {
        let input = self.slice.as_ref().map_or(self.inner.input(), |(size, _)| Shape::flat(*size));
        LayerInfo {
            name: self.inner.name(),
            input,
            output: self.inner.output(),
            receptive_field: ReceptiveField::All,
        }
    }

    fn fprop(&mut self, pass: &Pass<'_, T>, inputs: &[T], outputs: &mut [T]) -> Result<()> {
        let pass = Pass { sums: &self.spatial, ..*pass };
        let Some((size, range)) = &self.slice else { return self.inner.fprop(&pass, inputs, outputs) };
        self.inputs.clear();
        inputs.chunks(*size).for_each(|sample| self.inputs.extend_from_slice(&sample[range.clone()]));
        self.inner.fprop(&pass, &self.inputs, outputs)
    }

    fn bprop(
        &mut self,
        pass: &Pass<'_, T>,
        inputs: &[T],
        outputs: &[T],
        error: &[T],
        input_error: Option<&mut [T]>,
    ) -> Result<()> {
        let pass = Pass { sums: &self.spatial, ..*pass };
        let Some((size, _)) = &self.slice else {
            return self.inner.bprop(&pass, inputs, outputs, error, input_error);
        };
        self.error.resize(self.inputs.len(), T::ZERO);
        let wanted = input_error.is_some();
        self.inner.bprop(&pass, &self.inputs, outputs, error, wanted.then_some(&mut self.error[..]))?;
        let Some(input_error) = input_error else { return Ok(()) };
        let ranks = self.spatial.group.size();
        let places = |rank: usize| slice(*size, ranks, rank).collect();
        gather(&self.spatial.group, &self.spatial.comm, pass.batch, &self.error, input_error, places)
    }

    fn weights(&mut self) -> Vec<&mut Weight<T>> {
        self.inner.weights()
    }
}

/// Gathers the parts of all ranks; `places` returns the indices of a rank's part within a sample.
fn gather<T: Number>(
    group: &Group,
    comm: &CommTimer,
    batch: usize,
    part: &[T],
    whole: &mut [T],
    places: impl Fn(usize) -> Vec<usize>,
) -> Result<()> {
    if batch == 0 {
        return Ok(());
    }
    let places: Vec<Vec<usize>> = (0..group.size()).map(places).collect();
    let counts: Vec<usize> = places.iter().map(|places| batch * places.len()).collect();
    let mut parts = vec![T::ZERO; whole.len()];
    comm.collective(|| group.all_gather_varied(part, &mut parts, &counts))?;
    let size = whole.len() / batch;
    let mut rest = &parts[..];
    for places in &places {
        for sample in whole.chunks_mut(size) {
            let (own, others) = rest.split_at(places.len());
            places.iter().zip(own).for_each(|(place, value)| sample[*place] = *value);
            rest = others;
        }
    }
    Ok(())
}

/// All-gathers samples of which each rank holds a part.
pub(crate) struct AllGatherLayer {
    pub(crate) name: String,
    pub(crate) input: Shape,
    pub(crate) output: Shape,
    pub(crate) spatial: GroupSum,
    /// The indices of each rank's part within a sample.
    pub(crate) places: Vec<Vec<usize>>,
}

impl<T: Number> Layer<T> for AllGatherLayer {
    fn info(&self) -> LayerInfo<'_> {
        LayerInfo {
            name: &self.name,
            input: self.input,
            output: self.output,
            receptive_field: ReceptiveField::All,
        }
    }

    fn fprop(&mut self, pass: &Pass<'_, T>, inputs: &[T], outputs: &mut [T]) -> Result<()> {
        let places = |rank: usize| self.places[rank].clone();
        gather(&self.spatial.group, &self.spatial.comm, pass.batch, inputs, outputs, places)
    }

    fn bprop(
        &mut self,
        _: &Pass<'_, T>,
        _: &[T],
        _: &[T],
        error: &[T],
        input_error: Option<&mut [T]>,
    ) -> Result<()> {
        let Some(input_error) = input_error else { return Ok(()) };
        let own = &self.places[self.spatial.group.rank()];
        let samples = input_error.chunks_mut(own.len().max(1)).zip(error.chunks(self.output.size()));
        for (part, whole) in samples {
            part.iter_mut().zip(own).for_each(|(part, place)| *part = whole[*place]);
        }
        Ok(())
    }
}
