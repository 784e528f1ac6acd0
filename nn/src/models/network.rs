//! A network: a sequence of layers with a cost.

use std::sync::Arc;

use unisono::Result;

use crate::cost::Cost;
use crate::exact;
use crate::layers::{Layer, Pass};
use crate::number::Number;
use crate::shape::Shape;
use crate::timeline::{Activity, Timeline};

/// Layers that are trained together. The outputs of every layer are kept for backpropagation.
///
/// ```
/// use unisono_nn::{ActivationLayer, Activation, Cost, Network, Pass, Shape};
/// let layer = ActivationLayer::new("relu", Shape::flat(2), Activation::Rectified);
/// let mut network: Network<f32> = Network::new(vec![Box::new(layer)], Cost::SumOfSquares);
/// assert_eq!(network.fprop(&Pass::alone(1, false, 0), &[-1.0, 2.0])?, [0.0, 2.0]);
/// # Ok::<(), unisono::Error>(())
/// ```
pub struct Network<T> {
    layers: Vec<Box<dyn Layer<T>>>,
    cost: Cost,
    outputs: Vec<Vec<T>>,
    errors: [Vec<T>; 2],
    joined: bool,
    timeline: Option<Arc<Timeline>>,
}

/// Calls `work` with a layer, and records it on the timeline, if any.
fn record_layer<T: Number, R>(
    timeline: Option<&Timeline>,
    activity: Activity,
    layer: &mut dyn Layer<T>,
    work: impl FnOnce(&mut dyn Layer<T>) -> R,
) -> R {
    match timeline {
        Some(timeline) => {
            let name = layer.name().to_string();
            timeline.span(activity, &name, || work(layer))
        }
        None => work(layer),
    }
}

impl<T: Number> Network<T> {
    /// A network of these layers.
    ///
    /// # Panics
    /// If there are none, or if a layer does not fit the output of the previous one.
    pub fn new(layers: Vec<Box<dyn Layer<T>>>, cost: Cost) -> Network<T> {
        assert!(!layers.is_empty(), "a network has layers");
        for pair in layers.windows(2) {
            assert_eq!(pair[0].output().size(), pair[1].input().size(), "{}", pair[1].name());
        }
        let joined = layers.last().and_then(|layer| layer.activation()).is_some_and(|last| cost.joins(last));
        let outputs = layers.iter().map(|_| Vec::new()).collect();
        Network { layers, cost, outputs, errors: [Vec::new(), Vec::new()], joined, timeline: None }
    }

    /// The shape of an input.
    pub fn input(&self) -> Shape {
        self.layers[0].input()
    }

    /// The shape of an output.
    pub fn output(&self) -> Shape {
        self.layers[self.layers.len() - 1].output()
    }

    /// The cost.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// The layers, from input to output.
    pub fn layers(&mut self) -> &mut [Box<dyn Layer<T>>] {
        &mut self.layers
    }

    /// Records the work of each layer on a timeline from now on.
    pub fn record(&mut self, timeline: Arc<Timeline>) {
        self.timeline = Some(timeline);
    }

    /// Passes a batch through all layers.
    pub fn fprop(&mut self, pass: &Pass<'_, T>, inputs: &[T]) -> Result<&[T]> {
        let count = self.layers.len();
        self.fprop_through(pass, inputs, count)?;
        Ok(&self.outputs[count - 1])
    }

    /// Passes a batch through the first `count` layers, and returns their outputs.
    pub(crate) fn fprop_through<'a>(
        &'a mut self,
        pass: &Pass<'_, T>,
        inputs: &'a [T],
        count: usize,
    ) -> Result<&'a [T]>
    where
        T: 'a,
    {
        for index in 0..count {
            let (below, above) = self.outputs.split_at_mut(index);
            let layer = &mut self.layers[index];
            above[0].resize(pass.batch * layer.output().size(), T::ZERO);
            let seen = if index == 0 { inputs } else { &below[index - 1] };
            let work = |layer: &mut dyn Layer<T>| layer.fprop(pass, seen, &mut above[0]);
            record_layer(self.timeline.as_deref(), Activity::Fprop, &mut **layer, work)?;
        }
        Ok(if count == 0 { inputs } else { &self.outputs[count - 1] })
    }

    /// The outputs of a layer in the last pass.
    pub fn outputs_of(&self, layer: usize) -> &[T] {
        &self.outputs[layer]
    }

    /// The cost of the last pass, summed over the samples of all ranks.
    pub fn value(&self, pass: &Pass<'_, T>, targets: &[T]) -> Result<f64> {
        let (outputs, width) = (&self.outputs[self.layers.len() - 1], self.output().size());
        let samples = outputs.chunks(width).zip(targets.chunks(width));
        let costs = samples.map(|(outputs, targets)| self.cost.sample(outputs, targets));
        exact::sum(pass, pass.gradients, costs)
    }

    /// From the last pass, computes the gradients of all weights in layers from `lowest` on. `count` is the size of the
    /// global batch.
    pub fn bprop(
        &mut self,
        pass: &Pass<'_, T>,
        inputs: &[T],
        targets: &[T],
        count: usize,
        lowest: usize,
    ) -> Result<()> {
        self.bprop_observed(pass, inputs, targets, count, lowest, &mut |_, _| {})
    }

    /// [`Network::bprop`] with an observer that gets the output error of each layer.
    pub(crate) fn bprop_observed(
        &mut self,
        pass: &Pass<'_, T>,
        inputs: &[T],
        targets: &[T],
        count: usize,
        lowest: usize,
        watch: &mut dyn FnMut(usize, &[T]),
    ) -> Result<()> {
        let mut above = self.layers.len();
        let [error, next] = &mut self.errors;
        let outputs = &self.outputs[above - 1];
        // Both buffers fit every layer: growing them layer by layer would fill them with zeros each time.
        let most = self.outputs.iter().map(Vec::len).max().unwrap_or(0);
        [&mut *error, &mut *next].into_iter().for_each(|buffer| buffer.resize(most, T::ZERO));
        let mut length = outputs.len();
        let width = self.layers[above - 1].output().size();
        self.cost.error(outputs, targets, self.joined, count, width, &mut error[..length]);
        above -= usize::from(self.joined);
        // No error is needed below the lowest layer with weights.
        let learns = |layer: &mut Box<dyn Layer<T>>| !layer.weights().is_empty();
        let lowest_learning =
            self.layers[lowest..].iter_mut().position(learns).map_or(above, |at| lowest + at);
        for index in (lowest_learning..above).rev() {
            let inputs = if index == 0 { inputs } else { &self.outputs[index - 1] };
            let wanted = (index > lowest_learning).then(|| &mut next[..inputs.len()]);
            let (layer, outputs, above) = (&mut self.layers[index], &self.outputs[index], &error[..length]);
            watch(index, above);
            let work = |layer: &mut dyn Layer<T>| layer.bprop(pass, inputs, outputs, above, wanted);
            record_layer(self.timeline.as_deref(), Activity::Bprop, &mut **layer, work)?;
            length = inputs.len();
            std::mem::swap(error, next);
        }
        Ok(())
    }

    /// Updates the weights of all layers from `lowest` on.
    pub fn update(&mut self, epoch: usize, lowest: usize) {
        for layer in &mut self.layers[lowest..] {
            let timeline = self.timeline.as_deref().filter(|_| !layer.weights().is_empty());
            record_layer(timeline, Activity::Update, &mut **layer, |layer| layer.update(epoch));
        }
    }

    /// The index of the last layer with weights.
    pub fn last_that_learns(&mut self) -> usize {
        self.layers.iter_mut().rposition(|layer| !layer.weights().is_empty()).unwrap_or(0)
    }
}
