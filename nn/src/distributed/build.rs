//! Builds the network of one rank: for each layer of an experiment, the part that this rank computes.

use unisono::Result;

use super::arrangement::Mode;
use super::convolution::{PartitionedConvolution, SampleBuffers};
use super::halos::Halos;
use super::input_parallel::{AllGatherLayer, InputParallelLayer};
use super::partitioned_layer::{ErrorExchange, IdleLayer, PartitionedLayer};
use super::sharding::Sharding;
use super::topology::Topology;
use crate::experiment::{Experiment, LayerKind, LayerSpec};
use crate::layers::{
    Activation, ActivationLayer, BatchNorm, Convolution, CrossMapResponse, Dropout, FullyConnected, Layer,
    LocalContrast, LocalFilter, Pool, Pooling, ReceptiveField, overlaps,
};
use crate::models::Network;
use crate::number::Number;
use crate::shape::{ConvWindow, Shape};
use crate::weight::{UpdateShards, Weight, WeightShard, WeightSharding};

/// The layers of a rank, with the sharding of the network's input and of each layer's output.
pub(crate) struct BuiltNetwork<T> {
    pub(crate) network: Network<T>,
    pub(crate) input: Sharding,
    pub(crate) output_shardings: Vec<Sharding>,
}

struct Builder<'a, T> {
    topology: &'a Topology,
    seed: u64,
    /// Whether all results must be bitwise equal to those of a single process.
    exact: bool,
    buffers: SampleBuffers<T>,
    layers: Vec<Box<dyn Layer<T>>>,
    output_shardings: Vec<Sharding>,
}

/// The sharding of the samples.
pub(crate) fn input(topology: &Topology, shape: Shape) -> Sharding {
    match topology.mode {
        _ if topology.spatial.group.size() == 1 => Sharding::Replicated(shape),
        Mode::Halo if shape.area() > 1 => Sharding::Patch(shape),
        _ => Sharding::Slice(shape),
    }
}

/// Builds the part of an experiment's network that this rank computes.
pub(crate) fn build<T: Number>(
    experiment: &Experiment,
    topology: &Topology,
    shape: Shape,
    targets: usize,
) -> Result<BuiltNetwork<T>> {
    let shapes = experiment.shapes_in_parts(shape, targets, topology.parts())?;
    let is_own = |spec: &&LayerSpec| matches!(spec.kind, LayerKind::Custom(_));
    if let Some(own) = experiment.layers.iter().find(is_own).filter(|_| experiment.deterministic) {
        let what = format!("layer `{}`", own.name);
        let expected = "only built-in layers if many processes must give the same bits";
        return Err(own.location.error(&what, expected, "a custom layer", "remove `deterministic`"));
    }
    let input = input(topology, shape);
    let (seed, exact) = (experiment.seed, experiment.deterministic);
    let mut builder = Builder {
        topology,
        seed,
        exact,
        buffers: SampleBuffers::default(),
        layers: Vec::new(),
        output_shardings: Vec::new(),
    };
    let mut sharding = input;
    for (spec, output) in experiment.layers.iter().zip(&shapes[1..]) {
        sharding = builder.layer(spec, sharding, *output)?;
    }
    if let Sharding::Patch(_) | Sharding::Slice(_) = sharding {
        builder.gather("outputs", sharding);
    }
    Ok(BuiltNetwork {
        network: Network::new(builder.layers, experiment.cost),
        input,
        output_shardings: builder.output_shardings,
    })
}

impl<T: Number> Builder<'_, T> {
    fn push(&mut self, layer: impl Layer<T> + 'static, sharding: Sharding) -> Sharding {
        self.layers.push(Box::new(layer));
        self.output_shardings.push(sharding);
        sharding
    }

    /// Appends a layer that gathers the parts of all ranks.
    fn gather(&mut self, name: &str, sharding: Sharding) -> Sharding {
        let whole = sharding.global_shape();
        let layer = AllGatherLayer {
            name: format!("{name}.gather"),
            input: sharding.local_shape(self.topology),
            output: whole,
            spatial: self.topology.spatial.clone(),
            places: (0..self.topology.spatial.group.size())
                .map(|rank| sharding.indices_of(self.topology, rank))
                .collect(),
        };
        self.push(layer, Sharding::Replicated(whole))
    }

    /// Appends a layer and its activation, and returns the sharding of the outputs.
    fn layer(&mut self, spec: &LayerSpec, sharding: Sharding, output: Shape) -> Result<Sharding> {
        let sharding = match (&spec.kind, sharding) {
            (LayerKind::FullyConnected { .. }, _) => self.fully_connected(spec, sharding, output),
            (LayerKind::Activation, _) => return Ok(self.activation(spec.name.clone(), spec, sharding)),
            (_, Sharding::Replicated(shape)) => self.replicated(spec, shape)?,
            (LayerKind::Custom(_), Sharding::Patch(shape)) => self.user_defined(spec, shape, output)?,
            (_, Sharding::Patch(shape)) => self.partitioned(spec, shape, output),
            (LayerKind::Dropout { keep }, Sharding::Slice(_)) => self.dropout(spec, *keep, sharding),
            (_, Sharding::Slice(shape)) => {
                // Only a few layers support a slice of a vector; the others need the full vector.
                self.gather(&spec.name, sharding);
                self.replicated(spec, shape)?
            }
        };
        if spec.activation == Activation::Identity {
            return Ok(sharding);
        }
        Ok(self.activation(format!("{}.activation", spec.name), spec, sharding))
    }

    fn activation(&mut self, name: String, spec: &LayerSpec, sharding: Sharding) -> Sharding {
        // A softmax runs over all elements of a sample.
        let sharding = match (spec.activation, sharding) {
            (Activation::Softmax, Sharding::Patch(_) | Sharding::Slice(_)) => self.gather(&name, sharding),
            _ => sharding,
        };
        self.push(ActivationLayer::new(name, sharding.local_shape(self.topology), spec.activation), sharding)
    }

    fn dropout(&mut self, spec: &LayerSpec, keep: f64, sharding: Sharding) -> Sharding {
        let own = sharding.local_shape(self.topology);
        let layer = Dropout::new(spec.name.clone(), own, keep, self.seed);
        self.push(layer.at(sharding.indices(self.topology), sharding.global_shape().size()), sharding)
    }

    /// A layer that every rank of a spatial group computes in full.
    fn replicated(&mut self, spec: &LayerSpec, shape: Shape) -> Result<Sharding> {
        let plain = LayerSpec { activation: Activation::Identity, ..spec.clone() };
        let mut layers = plain.build::<T>(shape, self.seed)?;
        let mut layer = layers.pop().expect("a layer is built");
        let is_spatial = self.topology.spatial.group.size() > 1;
        for weight in layer.weights().into_iter().filter(|_| is_spatial) {
            weight.sharding = WeightSharding::ReplicatedFullGradient;
        }
        let output = layer.output();
        let sums = self.topology.data.clone();
        Ok(match spec.kind {
            LayerKind::BatchNorm { .. } | LayerKind::Custom(_) => self.push(
                PartitionedLayer::new(layer, (shape, output), None, (sums.clone(), sums)),
                Sharding::Replicated(output),
            ),
            _ => {
                self.layers.push(layer);
                self.output_shardings.push(Sharding::Replicated(output));
                Sharding::Replicated(output)
            }
        })
    }

    /// Divides the update of a weight between the ranks that hold it, if each of them computes the gradients of some rows
    /// and the weight is large.
    fn shard_update(&self, weight: Weight<T>, rows: usize) -> Weight<T> {
        let data = &self.topology.data.group;
        if !self.exact || data.size() == 1 || weight.size() <= UpdateShards::SMALL {
            return weight;
        }
        weight.sharded(UpdateShards::new(rows, data.rank(), data.size()))
    }

    fn fully_connected(&mut self, spec: &LayerSpec, sharding: Sharding, output: Shape) -> Sharding {
        let input = sharding.global_shape();
        let weights: Weight<T> = spec.weight(self.seed, "weights", input, output);
        let bias = spec
            .bias
            .map(|value| spec.vector("bias", output.maps, value, WeightSharding::ReplicatedFullGradient));
        let topology = self.topology;
        if topology.spatial.group.size() == 1 {
            let weights = self.shard_update(weights, output.maps);
            return self.push(
                FullyConnected::new(spec.name.clone(), input, weights, bias),
                Sharding::Replicated(output),
            );
        }
        // A patch does not consist of entire parts of the layer's inputs, and it is the products of these parts that are
        // summed in a fixed order.
        let sharding = match sharding {
            Sharding::Patch(_) if self.exact => self.gather(&spec.name, sharding),
            _ => sharding,
        };
        let size = input.size();
        let range = topology.slice(size);
        let (kept, slice) = match sharding {
            Sharding::Replicated(_) => (range.clone().collect(), Some((size, range.clone()))),
            _ => (sharding.indices(topology), None),
        };
        let own = Shape::flat(kept.len());
        let weights =
            self.shard_update(weights.part(WeightShard { kept, length: size, inner: 1 }), output.maps);
        let inner = FullyConnected::new(spec.name.clone(), own, weights, bias);
        let inner = if let Sharding::Patch(_) = sharding { inner } else { inner.of(size, range) };
        self.push(
            InputParallelLayer::new(inner, topology.spatial.clone(), slice),
            Sharding::Replicated(output),
        )
    }

    /// A user-defined layer: partitioned if it is pointwise, otherwise computed in full on every rank of a spatial group.
    fn user_defined(&mut self, spec: &LayerSpec, shape: Shape, output: Shape) -> Result<Sharding> {
        let (topology, sharding) = (self.topology, Sharding::Patch(shape));
        let plain = LayerSpec { activation: Activation::Identity, ..spec.clone() };
        let build = |shape: Shape| plain.build::<T>(shape, self.seed).map(|mut layers| layers.remove(0));
        let mut whole = build(shape)?;
        let ranks = 0..topology.spatial.group.size();
        let is_pointwise = whole.receptive_field() == ReceptiveField::Point
            && [output.rows, output.columns] == [shape.rows, shape.columns]
            && ranks.into_iter().all(|rank| !sharding.indices_of(topology, rank).is_empty());
        if is_pointwise {
            let mut part = build(sharding.local_shape(topology))?;
            let mut pairs = whole.weights().into_iter().zip(part.weights());
            let same = |(whole, part): (&mut Weight<T>, &mut Weight<T>)| {
                whole.shape == part.shape && part.sharding == WeightSharding::Replicated
            };
            if pairs.all(same) {
                let shapes = (sharding.local_shape(topology), Sharding::Patch(output).local_shape(topology));
                return Ok(self.push(
                    PartitionedLayer::new(
                        part,
                        shapes,
                        None,
                        (topology.world.clone(), topology.world.clone()),
                    ),
                    Sharding::Patch(output),
                ));
            }
        }
        self.gather(&spec.name, sharding);
        self.replicated(spec, shape)
    }

    /// A layer whose inputs and outputs are partitioned in space.
    fn partitioned(&mut self, spec: &LayerSpec, shape: Shape, output: Shape) -> Sharding {
        let (topology, name, seed) = (self.topology, spec.name.clone(), self.seed);
        let sharding = Sharding::Patch(output);
        let (own, own_output) =
            (Sharding::Patch(shape).local_shape(topology), sharding.local_shape(topology));
        let empty = own_output.size() == 0;
        let bare = |window: &ConvWindow| ConvWindow { padding: [0, 0], ..*window };
        let mut halos = None;
        let mut padded = |window: &ConvWindow, pool: Option<Pool>| {
            let made = Halos::new(topology, shape, *window, pool);
            let padded = made.padded;
            halos = Some(made);
            padded
        };
        let weight = || spec.weight(seed, "weights", shape, output);
        let idle = |input: Shape, weights: Vec<Weight<T>>| -> Box<dyn Layer<T>> {
            let receptive_field = crate::layers::ReceptiveField::Point;
            let filters = matches!(spec.kind, LayerKind::Local { .. });
            let error_exchange = match &spec.kind {
                LayerKind::Pooling { window, .. } if !overlaps(*window) => ErrorExchange::Copied,
                LayerKind::Response { .. } => ErrorExchange::Nothing,
                _ => ErrorExchange::Summed,
            };
            Box::new(IdleLayer {
                name: spec.name.clone(),
                input,
                output: own_output,
                receptive_field,
                weights,
                error_exchange,
                filters,
            })
        };
        let inner: Box<dyn Layer<T>> = match &spec.kind {
            LayerKind::Convolution { maps, window } => {
                let bias =
                    spec.bias.map(|value| spec.vector("bias", *maps, value, WeightSharding::Replicated));
                let whole = Convolution::new(name, shape, *window, weight(), bias);
                return self
                    .push(PartitionedConvolution::new(whole, topology, self.buffers.clone()), sharding);
            }
            LayerKind::Local { window, unit_rows, maps } => {
                let places = Shape::new(1, output.rows, output.columns);
                let kept = Sharding::Patch(places).indices(topology);
                let inner = weight().size() / (maps * output.area());
                let weights = weight().part(WeightShard { kept, length: output.area(), inner });
                let seen = padded(window, None);
                match empty {
                    true => idle(seen, vec![weights]),
                    false => Box::new(LocalFilter::new(name, seen, bare(window), weights, *unit_rows)),
                }
            }
            LayerKind::Pooling { pool, window } => {
                let seen = padded(window, Some(*pool));
                match empty {
                    true => idle(seen, Vec::new()),
                    false => Box::new(Pooling::new(name, *pool, seen, bare(window))),
                }
            }
            LayerKind::Contrast { kernel } => {
                let window =
                    ConvWindow { kernel: *kernel, stride: [1, 1], padding: [kernel[0] / 2, kernel[1] / 2] };
                let one = Shape::new(1, shape.rows, shape.columns);
                let padder = Halos::new(topology, one, window, None);
                Box::new(LocalContrast::new(name, own, *kernel).with_padder(Box::new(padder)))
            }
            LayerKind::Response { size, alpha, beta } => match empty {
                true => idle(own, Vec::new()),
                false => Box::new(CrossMapResponse::new(name, own, *size, *alpha, *beta)),
            },
            LayerKind::BatchNorm { kept, epsilon } => {
                let scale = spec.vector("scale", shape.maps, 1.0, WeightSharding::Replicated);
                let shift = spec.vector("shift", shape.maps, 0.0, WeightSharding::Replicated);
                Box::new(BatchNorm::new(name, own, (scale, shift), *kept, *epsilon))
            }
            LayerKind::Dropout { keep } => return self.dropout(spec, *keep, sharding),
            LayerKind::Activation | LayerKind::FullyConnected { .. } | LayerKind::Custom(_) => {
                unreachable!("these come first")
            }
        };
        // Filters that belong to one position sum their gradients over other samples only; all other weights also sum over
        // positions.
        let gradients =
            if matches!(spec.kind, LayerKind::Local { .. }) { &topology.data } else { &topology.world };
        let sums = (topology.world.clone(), gradients.clone());
        self.push(PartitionedLayer::new(inner, (own, own_output), halos, sums), sharding)
    }
}
