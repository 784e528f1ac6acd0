//! Checks a distributed run: compares every layer's outputs, errors and gradients with those of a single process.

use unisono::{Error, Group, ReduceOp, Result};

use super::samples::{batch_of, load_data, must_have_targets, pass};
use crate::distributed::{BuiltNetwork, Failure, Mode, Sharding, Topology, build};
use crate::experiment::{Experiment, Precision};
use crate::models::Network;
use crate::number::Number;

/// The difference between some values of a layer and those of a single process.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// The layer.
    pub layer: String,
    /// The values compared: `outputs`, `errors`, or the gradient of a weight, by name.
    pub what: String,
    /// The largest difference over all ranks.
    pub difference: f64,
    /// The largest magnitude of the values.
    pub scale: f64,
    /// The reference of the relative difference: the largest magnitude of the values, for gradients that of all gradients of
    /// the layer.
    pub reference: f64,
    /// The largest difference that rounding can explain.
    pub allowed: f64,
}

impl Comparison {
    /// Whether rounding can explain the difference.
    pub fn passes(&self) -> bool {
        self.difference <= self.allowed
    }

    /// The difference relative to the reference.
    pub fn relative(&self) -> f64 {
        if self.difference == 0.0 { 0.0 } else { self.difference / self.reference }
    }
}

/// Passes the first batch through the network of a single process and through that of these ranks, and compares them layer
/// by layer. Every rank must call this, and gets the same result.
///
/// ```
/// use unisono_nn::{Experiment, check};
/// let text = "{epochs: 1, batch_size: 9, data: iris, distributed: vector, \
///              model: {type: network, cost: sum_of_squares, layers: [{type: fully_connected, outputs: 3}]}}";
/// let experiment = Experiment::parse("iris.yaml", text, &[])?;
/// unisono::testing::spawn(2, |group| {
///     let found = check(&group, &experiment).unwrap();
///     assert!(found.len() == 4 && found.iter().all(|comparison| comparison.passes()));
/// });
/// # Ok::<(), unisono::Error>(())
/// ```
pub fn check(group: &Group, experiment: &Experiment) -> Result<Vec<Comparison>, Failure> {
    let failed = |error| Failure { error, own: group.rank() == 0 };
    let topology = Topology::new(group, experiment).map_err(failed)?;
    if topology.mode == Mode::Table {
        let location = &experiment.resolved.get("distributed").unwrap_or(&experiment.resolved).location;
        let advice = "check the mode data, or compare complete runs with `unisono compare`";
        return Err(failed(location.error("check", "the mode data, halo or vector", "table", advice)));
    }
    match experiment.precision {
        Precision::Single => check_in::<f32>(experiment, &topology),
        Precision::Double => check_in::<f64>(experiment, &topology),
    }
}

/// The largest difference and the largest magnitude.
pub(super) fn distance<T: Number>(whole: impl Iterator<Item = T>, own: &[T]) -> [f64; 2] {
    let (mut difference, mut scale) = (0.0_f64, 0.0_f64);
    for (one, other) in whole.zip(own) {
        let apart = (one.double() - other.double()).abs();
        // A NaN differs from everything.
        difference = if apart.is_nan() { f64::INFINITY } else { difference.max(apart) };
        scale = scale.max(one.double().abs());
    }
    [difference, scale]
}

/// A network after a forward and a backward pass, with the output errors of its layers.
struct Passed<T> {
    network: Network<T>,
    errors: Vec<Option<Vec<T>>>,
}

impl<T: Number> Passed<T> {
    fn new(
        mut network: Network<T>,
        experiment: &Experiment,
        topology: Option<&Topology>,
        (inputs, targets): (&[T], &[T]),
        count: usize,
    ) -> Result<Passed<T>> {
        let own = topology.map_or(0..count, |topology| topology.local_samples(count));
        let pass = pass(topology, experiment, 0, &own, true);
        let mut errors = vec![None; network.layers().len()];
        network.fprop(&pass, inputs)?;
        network.bprop_observed(&pass, inputs, targets, count, 0, &mut |layer, error| {
            errors[layer] = Some(error.to_vec());
        })?;
        if let Some(topology) = topology.filter(|_| !pass.exact) {
            topology.sum_gradients(&mut network, 0, &mut Vec::new())?;
        }
        Ok(Passed { network, errors })
    }
}

/// The inputs of the comparison: the first batch, the network of a single process, and this rank's network.
struct Prepared<T> {
    inputs: Vec<T>,
    targets: Vec<T>,
    count: usize,
    whole: Network<T>,
    built: BuiltNetwork<T>,
}

impl<T: Number> Prepared<T> {
    fn new(experiment: &Experiment, topology: &Topology) -> Result<Prepared<T>> {
        let mut data = load_data(experiment)?;
        data.keep().map_err(|error| experiment.locate_data_error(error))?;
        must_have_targets(experiment, &data)?;
        let count = experiment.batch_size.min(data.train.count);
        let (inputs, targets) = batch_of(&data.train, experiment, data.shape, data.outputs, count)?;
        let whole = experiment.network(data.shape, data.outputs)?;
        let built = build(experiment, topology, data.shape, data.outputs)?;
        Ok(Prepared { inputs, targets, count, whole, built })
    }
}

fn check_in<T: Number>(experiment: &Experiment, topology: &Topology) -> Result<Vec<Comparison>, Failure> {
    // No rank enters a collective if another rank has no samples.
    let prepared = topology.agree(Prepared::<T>::new(experiment, topology))?;
    topology.agree(compared(prepared, experiment, topology).inspect_err(|_| topology.revoke_subgroups()))
}

fn compared<T: Number>(
    prepared: Prepared<T>,
    experiment: &Experiment,
    topology: &Topology,
) -> Result<Vec<Comparison>> {
    let Prepared { inputs, targets, count, whole, built } = prepared;
    let mut single = Passed::new(whole, experiment, None, (&inputs, &targets), count)?;
    let own = topology.local_samples(count);
    let part = |values: &[T], sharding: Sharding| -> Vec<T> {
        let (size, places) = (sharding.global_shape().size(), sharding.indices(topology));
        let samples = values[own.start * size..own.end * size].chunks(size);
        samples.flat_map(|sample| places.iter().map(|place| sample[*place])).collect()
    };
    let width = targets.len() / count;
    let own_inputs = part(&inputs, built.input);
    let own_targets = &targets[own.start * width..own.end * width];
    let mut many = Passed::new(built.network, experiment, Some(topology), (&own_inputs, own_targets), count)?;
    let mut found: Vec<(String, String, [f64; 2])> = Vec::new();
    for index in 0..single.network.layers().len() {
        let name = single.network.layers()[index].name().to_string();
        let other = many.network.layers().iter().position(|layer| layer.name() == name);
        let other = other.expect("both have the layers of the file");
        let sharding = built.output_shardings[other];
        let mut compare = |what: &str, one: &[T], other: &[T]| {
            found.push((name.clone(), what.into(), distance(part(one, sharding).into_iter(), other)));
        };
        compare("outputs", single.network.outputs_of(index), many.network.outputs_of(other));
        if let (Some(one), Some(other)) = (&single.errors[index], &many.errors[other]) {
            compare("errors", one, other);
        }
        let weights = single.network.layers()[index].weights();
        for (one, other) in weights.into_iter().zip(many.network.layers()[other].weights()) {
            let expected = match &other.shard {
                Some(shard) => shard.take(&one.gradient),
                None => one.gradient.clone(),
            };
            let own = expected[other.updated()].iter().copied();
            let apart = distance(own, &other.gradient);
            found.push((name.clone(), format!("gradient of {}", one.name), apart));
        }
    }
    let mut numbers: Vec<f64> = found.iter().flat_map(|(_, _, numbers)| *numbers).collect();
    topology.world.group.all_reduce(&mut numbers, ReduceOp::Max)?;
    if numbers.is_empty() {
        return Err(Error::internal("check", "no layers to compare"));
    }
    Ok(with_tolerances(experiment, found, &numbers))
}

/// Determines the allowed difference of each comparison.
fn with_tolerances(
    experiment: &Experiment,
    found: Vec<(String, String, [f64; 2])>,
    numbers: &[f64],
) -> Vec<Comparison> {
    let relative = match (experiment.deterministic, experiment.precision) {
        (true, _) => 0.0,
        (false, Precision::Single) => 1e-5,
        (false, Precision::Double) => 1e-10,
    };
    let mut comparisons: Vec<Comparison> = found
        .into_iter()
        .zip(numbers.chunks(2))
        .map(|((layer, what, _), numbers)| {
            let (difference, scale) = (numbers[0], numbers[1]);
            Comparison { layer, what, difference, scale, reference: scale, allowed: relative * scale }
        })
        .collect();
    // A gradient that is zero up to rounding has an error relative to the other weights of its layer.
    for index in 0..comparisons.len() {
        let layer = &comparisons[index].layer;
        let gradients =
            comparisons.iter().filter(|other| other.layer == *layer && other.what.starts_with("gradient"));
        let most = gradients.fold(0.0_f64, |most, other| most.max(other.scale));
        if comparisons[index].what.starts_with("gradient") {
            comparisons[index].reference = most;
            comparisons[index].allowed = relative * most;
        }
    }
    comparisons
}
