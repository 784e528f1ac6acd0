//! Builds a model from an experiment: layers of the right shapes with their initial weights.

use unisono::{Error, Result};

use super::memory_limit::check_layer_memory;
use super::spec::{Experiment, LayerKind, LayerSpec, ModelKind};
use crate::cost::Cost;
use crate::data::DataSet;
use crate::layers::{
    Activation, ActivationLayer, BatchNorm, Convolution, CrossMapResponse, Dropout, FullyConnected, Layer,
    LocalContrast, LocalFilter, Pool, Pooling,
};
use crate::models::{Network, Pretraining};
use crate::number::Number;
use crate::random::RandomStream;
use crate::rules::Rule;
use crate::shape::{ConvWindow, Shape};
use crate::weight::{Weight, WeightSharding};

impl LayerSpec {
    /// The output shape for an input shape, or an error if they do not fit.
    pub fn output(&self, input: Shape) -> Result<Shape> {
        let what = format!("layer `{}`", self.name);
        let wrong = |expected: &str, received: &[usize; 2], advice: String| {
            self.location.error(&what, expected, format!("{received:?}"), advice)
        };
        let fits = |window: &ConvWindow| {
            let outputs = window.outputs(input).ok_or_else(|| {
                let [rows, columns] = window.kernel;
                let expected = format!("a window that fits its input of {input}");
                let received = format!("a kernel of {rows}×{columns} with a padding of {:?}", window.padding);
                self.location.error(
                    &what,
                    expected,
                    received,
                    "make the kernel smaller, or pool less below it",
                )
            })?;
            if window.padding[0] >= window.kernel[0] || window.padding[1] >= window.kernel[1] {
                let advice =
                    format!("write, for example, `padding: {:?}`", window.kernel.map(|side| side / 2));
                return Err(wrong("a padding smaller than the kernel", &window.padding, advice));
            }
            Ok(outputs)
        };
        Ok(match &self.kind {
            LayerKind::FullyConnected { outputs } => Shape::flat(*outputs),
            LayerKind::Convolution { maps, window } | LayerKind::Local { maps, window, .. } => {
                let [rows, columns] = fits(window)?;
                Shape::new(*maps, rows, columns)
            }
            LayerKind::Pooling { window, .. } => {
                let [rows, columns] = fits(window)?;
                Shape::new(input.maps, rows, columns)
            }
            LayerKind::Contrast { kernel } => {
                if kernel.iter().any(|side| side % 2 == 0) {
                    let advice = format!("write, for example, `kernel: {:?}`", kernel.map(|side| side | 1));
                    return Err(wrong("a kernel with odd sides", kernel, advice));
                }
                // A window of this size covers the full input from every position.
                let most = [input.rows, input.columns].map(|side| (2 * side).saturating_sub(1));
                if kernel[0] > most[0] || kernel[1] > most[1] {
                    let expected = format!("a kernel of at most {most:?} for its input of {input}");
                    return Err(wrong(&expected, kernel, format!("write, for example, `kernel: {most:?}`")));
                }
                input
            }
            LayerKind::Custom(own) => own.output(self, input)?,
            _ => input,
        })
    }

    /// The shape of the weights for an input shape, outputs first; `None` if the layer has no weights.
    pub fn weight_shape(&self, input: Shape, output: Shape) -> Option<Vec<usize>> {
        match &self.kind {
            LayerKind::FullyConnected { outputs } => Some(vec![*outputs, input.size()]),
            LayerKind::Convolution { maps, window } => {
                Some(vec![*maps, input.maps, window.kernel[0], window.kernel[1]])
            }
            LayerKind::Local { maps, window, .. } => {
                let places = [output.rows, output.columns];
                Some([&[*maps], &places[..], &[input.maps], &window.kernel[..]].concat())
            }
            _ => None,
        }
    }

    /// The full initial weights.
    pub(crate) fn weight<T: Number>(
        &self,
        seed: u64,
        name: &'static str,
        input: Shape,
        output: Shape,
    ) -> Weight<T> {
        let shape = self.weight_shape(input, output).expect("the layer has weights");
        // For local filters, each position is an output of its own.
        let axes = if matches!(self.kind, LayerKind::Local { .. }) { 3 } else { 1 };
        let (outputs, inputs) = (shape[..axes].iter().product(), shape[axes..].iter().product());
        let stream = RandomStream::new(seed, &format!("{}/{name}", self.name));
        let sharding = match self.kind {
            LayerKind::Convolution { .. } => WeightSharding::Replicated,
            _ => WeightSharding::Sharded,
        };
        Weight::new(name, shape, self.weights.draw(stream, outputs, inputs), self.rule.clone(), sharding)
    }

    /// A weight with one element per output map, without weight decay.
    pub(crate) fn vector<T: Number>(
        &self,
        name: &'static str,
        size: usize,
        value: f64,
        sharding: WeightSharding,
    ) -> Weight<T> {
        let rule = Rule { weight_decay: 0.0, ..self.rule.clone() };
        Weight::new(name, vec![size], vec![T::of(value); size], rule, sharding)
    }

    /// Builds the layer for an input shape, followed by its activation.
    pub fn build<T: Number>(&self, input: Shape, seed: u64) -> Result<Vec<Box<dyn Layer<T>>>> {
        let output = self.output(input)?;
        let name = self.name.clone();
        let weight = || self.weight(seed, "weights", input, output);
        let bias = |sharding: WeightSharding| {
            self.bias.map(|value| self.vector("bias", output.maps, value, sharding))
        };
        let layer: Box<dyn Layer<T>> = match &self.kind {
            LayerKind::FullyConnected { .. } => Box::new(FullyConnected::new(
                name,
                input,
                weight(),
                bias(WeightSharding::ReplicatedFullGradient),
            )),
            LayerKind::Convolution { window, .. } => {
                Box::new(Convolution::new(name, input, *window, weight(), bias(WeightSharding::Replicated)))
            }
            LayerKind::Local { window, unit_rows, .. } => {
                Box::new(LocalFilter::new(name, input, *window, weight(), *unit_rows))
            }
            LayerKind::Pooling { pool, window } => Box::new(Pooling::new(name, *pool, input, *window)),
            LayerKind::Contrast { kernel } => Box::new(LocalContrast::new(name, input, *kernel)),
            LayerKind::Response { size, alpha, beta } => {
                Box::new(CrossMapResponse::new(name, input, *size, *alpha, *beta))
            }
            LayerKind::Dropout { keep } => Box::new(Dropout::new(name, input, *keep, seed)),
            LayerKind::BatchNorm { kept, epsilon } => {
                let [scale, shift] = [("scale", 1.0), ("shift", 0.0)]
                    .map(|(name, value)| self.vector(name, input.maps, value, WeightSharding::Replicated));
                Box::new(BatchNorm::new(name, input, (scale, shift), *kept, *epsilon))
            }
            LayerKind::Custom(own) => own.build(self, input, seed)?,
            LayerKind::Activation => {
                return Ok(vec![Box::new(ActivationLayer::new(name, input, self.activation))]);
            }
        };
        let mut layers = vec![layer];
        if self.activation != Activation::Identity {
            let name = format!("{}.activation", self.name);
            layers.push(Box::new(ActivationLayer::new(name, output, self.activation)));
        }
        Ok(layers)
    }
}

impl Experiment {
    /// Loads the full data set.
    pub fn data(&self) -> Result<DataSet> {
        DataSet::load(&self.source, self.seed).map_err(|error| self.locate_data_error(error))
    }

    /// Opens the data set, and reads only sizes and classes.
    pub(crate) fn open_data(&self) -> Result<DataSet> {
        DataSet::open(&self.source, self.seed).map_err(|error| self.locate_data_error(error))
    }

    /// Prefixes an error with the location in the file that specifies the data.
    pub(crate) fn locate_data_error(&self, error: Error) -> Error {
        let data = self.resolved.get("data").unwrap_or(&self.resolved);
        data.get("folder").unwrap_or(data).location.locate(error)
    }

    /// Checks that every layer fits the output of the previous layer and the memory, and that the last layer fits the
    /// targets, if any.
    pub fn shapes(&self, input: Shape, targets: usize) -> Result<Vec<Shape>> {
        self.shapes_in_parts(input, targets, 1)
    }

    /// [`Experiment::shapes`] with each sample divided between `parts` ranks.
    pub(crate) fn shapes_in_parts(&self, input: Shape, targets: usize, parts: usize) -> Result<Vec<Shape>> {
        let mut shapes = vec![input];
        for layer in &self.layers {
            let input = shapes[shapes.len() - 1];
            let output = layer.output(input)?;
            check_layer_memory(self, layer, (input, output), parts)?;
            shapes.push(output);
        }
        let last = self.layers.last().expect("an experiment has layers");
        let output = shapes[shapes.len() - 1];
        let wanted = match (&self.model, targets) {
            (ModelKind::Autoencoder, _) => input.size(),
            // Samples without targets can still be used for prediction.
            (_, 0) => output.size(),
            (_, targets) => targets,
        };
        if output.size() != wanted {
            let what = format!("the last layer `{}`", last.name);
            let expected = match self.model {
                ModelKind::Autoencoder => format!("{wanted} outputs, like the input of {input}"),
                _ => format!("{wanted} outputs, like the data's targets"),
            };
            return Err(last.location.error(&what, expected, output.to_string(), "change its outputs"));
        }
        if last.activation == Activation::Softmax && self.cost == Cost::SoftmaxCrossEntropy {
            let what = format!("the last layer `{}`", last.name);
            let expected = "no softmax before the cost softmax_cross_entropy, which applies it itself";
            return Err(last.location.error(&what, expected, "activation: softmax", "remove the activation"));
        }
        Ok(shapes)
    }

    /// Builds the network with its initial weights.
    pub fn network<T: Number>(&self, input: Shape, targets: usize) -> Result<Network<T>> {
        let shapes = self.shapes(input, targets)?;
        let mut layers = Vec::new();
        for (layer, input) in self.layers.iter().zip(shapes) {
            layers.extend(layer.build(input, self.seed)?);
        }
        Ok(Network::new(layers, self.cost))
    }

    /// The pretraining of a sparse autoencoder's groups; `None` for other models.
    pub fn pretraining<T: Number>(
        &self,
        network: &mut Network<T>,
        input: Shape,
    ) -> Result<Option<Pretraining<T>>> {
        let ModelKind::SparseAutoencoder { sparsity, pretrain_rate, tied_weights, .. } = self.model else {
            return Ok(None);
        };
        let rule = Rule::sgd(pretrain_rate);
        let mut pretraining = Pretraining { filters: Vec::new(), sparsity, rule, decoders: Vec::new() };
        for pair in self.layers.windows(2) {
            let pools = matches!(pair[1].kind, LayerKind::Pooling { pool: Pool::L2, .. });
            if matches!(pair[0].kind, LayerKind::Local { .. })
                && !(pools && pair[0].activation == Activation::Identity)
            {
                let what = format!("layer `{}`", pair[0].name);
                let expected = "l2 pooling right after the local filters of a sparse autoencoder";
                return Err(pair[0].location.error(&what, expected, format!("`{}`", pair[1].name), "add it"));
            }
        }
        let mut shape = input;
        for spec in &self.layers {
            let (input, output) = (shape, spec.output(shape)?);
            shape = output;
            if !matches!(spec.kind, LayerKind::Local { .. }) {
                continue;
            }
            let place = network.layers().iter().position(|layer| layer.name() == spec.name);
            let place = place.expect("every layer of the file is in the network");
            pretraining.filters.push(place);
            if !tied_weights {
                let decoder: Weight<T> = spec.weight(self.seed, "decoder", input, output);
                let shard = network.layers()[place].weights()[0].shard.clone();
                pretraining.decoders.push(match shard {
                    Some(shard) => decoder.part(shard),
                    None => decoder,
                });
            }
        }
        if pretraining.filters.is_empty() {
            let expected = "groups that begin with a `local` layer";
            return Err(self.layers[0].location.error(
                "sparse_autoencoder",
                expected,
                "none",
                "use a network",
            ));
        }
        Ok(Some(pretraining))
    }
}
