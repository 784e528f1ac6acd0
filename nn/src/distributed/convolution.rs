//! A spatially partitioned convolution: this rank's part of the outputs, and its share of the filter gradients.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use unisono::Result;
use unisono::halo::Partition;

use super::halos::Halos;
use super::sharding::Sharding;
use super::sums::GroupSum;
use super::topology::Topology;
use crate::layers::{Convolution, Im2col, Layer, LayerInfo, Pass, ReceptiveField};
use crate::number::Number;
use crate::shape::{ConvWindow, Shape};
use crate::weight::Weight;

/// The partition of a shape between the ranks of a spatial group.
struct Patches {
    whole: Shape,
    own: Shape,
    /// The rows and columns of every rank.
    patches: Vec<[Range<usize>; 2]>,
}

impl Patches {
    fn new(topology: &Topology, whole: Shape) -> Patches {
        let ranks = 0..topology.spatial.group.size();
        let patches = ranks.map(|rank| topology.patch_of(whole, rank)).collect();
        Patches { whole, own: Sharding::Patch(whole).local_shape(topology), patches }
    }

    /// Redistributes from this rank's patch of all samples to some complete samples, in `whole`. Received patches are staged
    /// in `parts`.
    fn gather<T: Number>(
        &self,
        spatial: &GroupSum,
        samples: &Partition,
        part: &[T],
        parts: &mut Vec<T>,
        whole: &mut Vec<T>,
    ) -> Result<Range<usize>> {
        let (rank, maps) = (spatial.group.rank(), self.whole.maps);
        let own = samples.range(rank).len();
        let size = |patch: &[Range<usize>; 2]| maps * patch[0].len() * patch[1].len();
        let sent: Vec<usize> = samples.sizes().iter().map(|count| count * self.own.size()).collect();
        let received: Vec<usize> = self.patches.iter().map(|patch| own * size(patch)).collect();
        let length = own * self.whole.size();
        // The buffers never shrink: growing them again for every batch would fill them with zeros.
        [&mut *parts, &mut *whole]
            .into_iter()
            .for_each(|buffers| buffers.resize(buffers.len().max(length), T::ZERO));
        spatial
            .comm
            .collective(|| spatial.group.all_to_all_varied(part, &sent, &mut parts[..length], &received))?;
        let mut rest = &parts[..length];
        for [rows, columns] in self.patches.iter().filter(|patch| size(patch) > 0) {
            for plane in whole[..length].chunks_mut(self.whole.area()) {
                for row in rows.clone() {
                    let (values, others) = rest.split_at(columns.len());
                    plane[row * self.whole.columns..][columns.clone()].copy_from_slice(values);
                    rest = others;
                }
            }
        }
        Ok(0..length)
    }
}

/// Buffers for complete samples, used by the layers of a rank in turn.
#[derive(Debug, Clone)]
pub(crate) struct SampleBuffers<T>(Arc<Mutex<[Vec<T>; 3]>>);

impl<T> Default for SampleBuffers<T> {
    fn default() -> SampleBuffers<T> {
        SampleBuffers(Arc::new(Mutex::new([const { Vec::new() }; 3])))
    }
}

/// Every rank of a spatial group holds all filters, and computes outputs and errors of its own patch.
///
/// The filter gradient of a sample is one sum over all of its positions. For bitwise equal results on any number of ranks,
/// each rank computes this sum for some complete samples.
pub(crate) struct PartitionedConvolution<T> {
    /// The layer over complete images.
    filters: Convolution<T>,
    inputs: Patches,
    outputs: Patches,
    /// The windows over this rank's patch with its halo; none if the rank has no outputs.
    forward: Option<Im2col>,
    /// The windows that contribute to the error of this rank's input patch; none if the rank has no inputs.
    backward: Option<Im2col>,
    input_halos: Halos,
    error_halos: Halos,
    spatial: GroupSum,
    gradients: GroupSum,
    padded: Vec<T>,
    padded_error: Vec<T>,
    buffers: SampleBuffers<T>,
}

impl<T: Number> PartitionedConvolution<T> {
    /// Partitions a layer over complete images.
    pub(crate) fn new(
        filters: Convolution<T>,
        topology: &Topology,
        buffers: SampleBuffers<T>,
    ) -> PartitionedConvolution<T> {
        let (form, output) = (filters.columns(), filters.output());
        let window = form.window;
        let input_halos = Halos::new(topology, form.input, window, None);
        let error_halos = Halos::of_errors(topology, form.input, output, window);
        let (inputs, outputs) = (Patches::new(topology, form.input), Patches::new(topology, output));
        let bare = ConvWindow { padding: [0, 0], ..window };
        let [rows, columns] = topology.patch(form.input);
        // The distance by which the windows of this patch begin before it.
        let before = |start: usize, axis: usize| {
            (start + window.padding[axis]) as i64 - error_halos.first[axis] * window.stride[axis] as i64
        };
        let backward = match filters.backprop_is_convolution() {
            _ if inputs.own.size() == 0 => None,
            true => Some(Im2col::new(error_halos.padded, ConvWindow { stride: [1, 1], ..bare })),
            false => {
                let padding = [before(rows.start, 0) as usize, before(columns.start, 1) as usize];
                let places = [error_halos.padded.rows, error_halos.padded.columns];
                Some(Im2col::with_outputs(inputs.own, ConvWindow { padding, ..window }, places))
            }
        };
        PartitionedConvolution {
            forward: (outputs.own.size() > 0).then(|| Im2col::new(input_halos.padded, bare)),
            backward,
            filters,
            inputs,
            outputs,
            input_halos,
            error_halos,
            spatial: topology.spatial.clone(),
            gradients: topology.world.clone(),
            padded: Vec::new(),
            padded_error: Vec::new(),
            buffers,
        }
    }

    fn learn(&mut self, pass: &Pass<'_, T>, inputs: &[T], error: &[T]) -> Result<()> {
        let pass = Pass { gradients: &self.gradients, ..*pass };
        if pass.exact {
            let samples = Partition::balanced(pass.batch, self.spatial.group.size());
            let mut buffers = self.buffers.0.lock().unwrap_or_else(PoisonError::into_inner);
            let [parts, whole, whole_error] = &mut *buffers;
            let seen = self.inputs.gather(&self.spatial, &samples, inputs, parts, whole)?;
            let found = self.outputs.gather(&self.spatial, &samples, error, parts, whole_error)?;
            let first = pass.first + samples.range(self.spatial.group.rank()).start;
            let (form, inputs, error) = (self.filters.columns(), &whole[seen], &whole_error[found]);
            let sums = self.filters.gradients(pass.threads, form, first, inputs, error);
            drop(buffers);
            let total = pass.total(sums)?;
            self.filters.store_gradients(&total);
            return Ok(());
        }
        match self.forward {
            Some(form) => {
                let seen = if self.input_halos.is_trivial { inputs } else { &self.padded };
                let sums = self.filters.gradients(pass.threads, form, pass.first, seen, error);
                self.filters.store_gradients(&sums.total());
            }
            None => {
                let weights = self.filters.weights().into_iter();
                weights.for_each(|weight| weight.gradient.fill(T::ZERO));
            }
        }
        Ok(())
    }
}

impl<T: Number> Layer<T> for PartitionedConvolution<T> {
    fn info(&self) -> LayerInfo<'_> {
        let receptive_field = ReceptiveField::Window(self.filters.columns().window);
        LayerInfo {
            name: self.filters.name(),
            input: self.inputs.own,
            output: self.outputs.own,
            receptive_field,
        }
    }

    fn fprop(&mut self, pass: &Pass<'_, T>, inputs: &[T], outputs: &mut [T]) -> Result<()> {
        if !self.input_halos.is_trivial {
            self.input_halos.forward(pass.batch, inputs, &mut self.padded)?;
        }
        if let Some(form) = self.forward {
            let seen = if self.input_halos.is_trivial { inputs } else { &self.padded };
            self.filters.convolve(pass.threads, form, seen, outputs);
        }
        Ok(())
    }

    fn bprop(
        &mut self,
        pass: &Pass<'_, T>,
        inputs: &[T],
        _outputs: &[T],
        error: &[T],
        input_error: Option<&mut [T]>,
    ) -> Result<()> {
        self.learn(pass, inputs, error)?;
        let Some(input_error) = input_error else { return Ok(()) };
        let found = match self.error_halos.is_trivial {
            true => error,
            false => {
                self.error_halos.forward(pass.batch, error, &mut self.padded_error)?;
                &self.padded_error
            }
        };
        let Some(form) = self.backward else { return Ok(()) };
        match self.filters.backprop_is_convolution() {
            true => self.filters.input_error_by_convolution(pass.threads, form, found, input_error),
            false => self.filters.input_error_by_scatter(pass.threads, form, found, input_error),
        }
        Ok(())
    }

    fn weights(&mut self) -> Vec<&mut Weight<T>> {
        self.filters.weights()
    }
}
