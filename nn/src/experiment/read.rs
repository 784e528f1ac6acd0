//! Converts parts of a validated file to typed values: data sets, rules, weights, windows.

use unisono::tables::AddOptions;
use unisono::{Error, Result};

use super::extensions::Extensions;
use super::node::Node;
use super::spec::path;
use crate::cost::Cost;
use crate::data::{Arrays, Source};
use crate::initial::Initial;
use crate::layers::{Activation, Pool};
use crate::rules::{Rule, Schedule};
use crate::shape::{ConvWindow, Shape};

/// The value of a key that `complete` has checked and filled in. Its absence is an error of the reader, which asks for a key
/// that the format does not have.
fn filled<'a, R>(node: &'a Node, key: &str, value: impl FnOnce(&'a Node) -> Option<R>) -> Result<R> {
    node.get(key).and_then(value).ok_or_else(|| {
        let received = format!("{}: the format has no such value under the key `{key}`", node.location);
        Error::internal("read an experiment", received)
    })
}

pub(super) fn number(node: &Node, key: &str) -> Result<f64> {
    filled(node, key, Node::number)
}

pub(super) fn whole(node: &Node, key: &str) -> Result<usize> {
    Ok(filled(node, key, Node::whole)? as usize)
}

pub(super) fn flag(node: &Node, key: &str) -> Result<bool> {
    filled(node, key, Node::flag)
}

pub(super) fn word<'a>(node: &'a Node, key: &str) -> Result<&'a str> {
    filled(node, key, Node::text)
}

fn kind(node: &Node) -> Result<&str> {
    word(node, "type")
}

/// The error for a name that the format accepts but no code handles.
pub(super) fn unhandled(node: &Node, what: &str, name: &str) -> Error {
    Error::internal("read an experiment", format!("{}: the {what} `{name}` is not handled", node.location))
}

pub(super) fn pair(node: &Node, key: &str) -> Result<[usize; 2]> {
    filled(node, key, |node| {
        let at = |index: usize| Some(node.items().get(index)?.whole()? as usize);
        Some([at(0)?, at(1)?])
    })
}

/// The window of a layer; without a stride, it moves by its own size.
pub(super) fn window(layer: &Node) -> Result<ConvWindow> {
    let kernel = pair(layer, "kernel")?;
    let stride = if layer.get("stride").is_some() { pair(layer, "stride")? } else { kernel };
    Ok(ConvWindow { kernel, stride, padding: pair(layer, "padding")? })
}

/// The activation of a layer.
pub(super) fn function(layer: &Node) -> Result<Activation> {
    let name = layer.get("activation").or(layer.get("function")).and_then(Node::text);
    Ok(match name.unwrap_or("identity") {
        "identity" => Activation::Identity,
        "logistic" => Activation::Logistic,
        "tanh" => Activation::Tanh,
        "rectified" => Activation::Rectified,
        "leaky" => Activation::Leaky(number(layer, "slope")?),
        "softplus" => Activation::Softplus,
        "softmax" => Activation::Softmax,
        other => return Err(unhandled(layer, "activation", other)),
    })
}

pub(super) fn pool(layer: &Node) -> Result<Pool> {
    match word(layer, "pool")? {
        "max" => Ok(Pool::Max),
        "average" => Ok(Pool::Average),
        "l2" => Ok(Pool::L2),
        other => Err(unhandled(layer, "pool", other)),
    }
}

pub(super) fn cost(model: &Node) -> Result<Cost> {
    match word(model, "cost")? {
        "cross_entropy" => Ok(Cost::CrossEntropy),
        "softmax_cross_entropy" => Ok(Cost::SoftmaxCrossEntropy),
        "sum_of_squares" => Ok(Cost::SumOfSquares),
        other => Err(unhandled(model, "cost", other)),
    }
}

fn schedule(node: &Node) -> Result<Schedule> {
    if let Some(value) = node.number() {
        return Ok(Schedule::Constant(value));
    }
    Ok(match kind(node)? {
        "step" => Schedule::Step {
            initial: number(node, "initial")?,
            ratio: number(node, "ratio")?,
            epochs: whole(node, "epochs")?,
        },
        "linear" => Schedule::Linear {
            initial: number(node, "initial")?,
            start: whole(node, "start")?,
            saturate: whole(node, "saturate")?,
            saturated: number(node, "saturated")?,
        },
        other => return Err(unhandled(node, "schedule", other)),
    })
}

/// Rejects a momentum that keeps all of its velocity at the start or the end of its schedule: its steps would grow without
/// bound.
fn below_one(node: &Node, key: &str) -> Result<()> {
    if node.number().is_some_and(|value| value >= 1.0) {
        let advice = format!("write, for example, `{key}: 0.9`");
        let expected = "a number of at least 0 and below 1";
        return Err(node.location.error(&format!("`{key}`"), expected, node.to_string(), advice));
    }
    let mut ends = ["initial", "saturated"].iter().filter_map(|key| Some((node.get(key)?, *key)));
    ends.try_for_each(|(end, key)| below_one(end, key))
}

/// A rule. Its type is an updater's name, except that `sgd` with a momentum is the updater `momentum` or `nesterov`, and its
/// keys are the updater's options.
pub(super) fn rule(node: &Node) -> Result<Rule> {
    let name = kind(node)?;
    let known = Rule::UPDATERS.iter().find(|(updater, _)| *updater == name);
    let Some(&(mut updater, _)) = known else { return Err(unhandled(node, "rule", name)) };
    let momentum = match node.get("momentum") {
        Some(value) => {
            below_one(value, "momentum")?;
            schedule(value)?
        }
        None => Schedule::Constant(0.0),
    };
    if updater == "sgd" {
        let is_nesterov = flag(node, "nesterov")?;
        match momentum == Schedule::Constant(0.0) {
            true if is_nesterov => {
                let advice = "write, for example, `momentum: 0.9`";
                return Err(node.location.error("sgd", "a `momentum` with `nesterov`", "none", advice));
            }
            true => {}
            false => updater = if is_nesterov { "nesterov" } else { "momentum" },
        }
    }
    let mut options = AddOptions::default();
    for (key, value) in node.entries() {
        // The others are values of the rule.
        if !["type", "lr", "momentum", "nesterov", "weight_decay"].contains(&key.as_str()) {
            options.set(key, value.number().unwrap_or(f64::NAN))?;
        }
    }
    let lr = schedule(filled(node, "lr", Some)?)?;
    Ok(Rule { updater, lr, momentum, weight_decay: number(node, "weight_decay")?, options })
}

pub(super) fn initial(node: &Node) -> Result<Initial> {
    Ok(match kind(node)? {
        "auto_uniform" => Initial::AutoUniform,
        "constant" => Initial::Constant(number(node, "value")?),
        "uniform" => {
            let (low, high) = (number(node, "low")?, number(node, "high")?);
            if low > high {
                let (what, received) = ("`low` of uniform", low.to_string());
                let advice = format!("write, for example, `low: {high}` and `high: {low}`");
                return Err(node.location.error(what, format!("at most `high`, {high}"), received, advice));
            }
            Initial::Uniform { low, high }
        }
        "normal" => Initial::Normal { mean: number(node, "mean")?, deviation: number(node, "deviation")? },
        "node_normalized" => Initial::NodeNormalized { scale: number(node, "scale")? },
        "orthogonal" => Initial::Orthogonal { scale: number(node, "scale")? },
        "sparse_eigen" => {
            Initial::SparseEigen { connections: whole(node, "connections")?, radius: number(node, "radius")? }
        }
        other => return Err(unhandled(node, "first weights", other)),
    })
}

/// One size for a vector, or maps, rows and columns.
fn sample_shape(node: &Node) -> Option<Shape> {
    let sizes: Option<Vec<usize>> = node.items().iter().map(|size| Some(size.whole()? as usize)).collect();
    match sizes?[..] {
        [maps, rows, columns] => Some(Shape::new(maps, rows, columns)),
        [size] => Some(Shape::flat(size)),
        _ => None,
    }
}

pub(super) fn source(data: &Node, extensions: &Extensions) -> Result<Source> {
    let needed = |key: &str| filled(data, key, Some).map(path);
    let download = || flag(data, "download");
    Ok(match kind(data)? {
        "mnist" => Source::Mnist { folder: data.get("folder").map(path), download: download()? },
        "cifar10" => {
            let (folder, download) = (data.get("folder").map(path), download()?);
            if folder.is_none() && !download {
                let expected = "a key `folder`: where the binary batches are, or `download: true`";
                return Err(data.location.error("cifar10", expected, "neither", "add one of them"));
            }
            Source::Cifar10 { folder, download }
        }
        "iris" => Source::Iris,
        "uniform_random" => Source::UniformRandom {
            train: whole(data, "train")?,
            test: whole(data, "test")?,
            shape: filled(data, "shape", sample_shape)?,
            classes: whole(data, "classes")?,
        },
        "toy_images" => Source::ToyImages,
        "own" => Source::Custom(extensions.data(data)?),
        "images" => Source::Images { folder: needed("folder")? },
        "arrays" => Source::Arrays(Arrays {
            inputs: needed("inputs")?,
            targets: data.get("targets").map(path),
            test_inputs: data.get("test_inputs").map(path),
            test_targets: data.get("test_targets").map(path),
        }),
        other => return Err(unhandled(data, "data set", other)),
    })
}

#[cfg(test)]
mod tests {
    use super::super::Experiment;
    use super::super::describe::{Field, MapSchema, Presence, ValueType};
    use super::super::format::{DATA, EXPERIMENT, FUNCTIONS, LAYERS, MODELS, RULES, SCHEDULES, WEIGHTS};
    use crate::layers::Activation;

    const TEXT: &str = "{epochs: 1, batch_size: 10, data: iris, model: {type: network, cost: sum_of_squares, \
                        layers: [{type: pooling, kernel: 1}, {type: fully_connected, outputs: 3}]}}";

    fn reads(change: String) {
        if let Err(error) = Experiment::parse("names.yaml", TEXT, std::slice::from_ref(&change)) {
            panic!("{change}: {error}");
        }
    }

    /// A map of this schema with its required keys, one value for each type.
    fn example(object: &MapSchema) -> String {
        let required = object.all_fields().filter(|field| matches!(field.need, Presence::Required));
        let keys: Vec<String> = required
            .map(|field| {
                let value = match field.kind {
                    ValueType::Text => "text",
                    ValueType::Choice(words) => words[0],
                    _ => "1",
                };
                format!(", {}: {value}", field.name)
            })
            .collect();
        format!("{{type: {}{}}}", object.name, keys.concat())
    }

    #[test]
    fn something_is_made_of_every_name_of_the_format() {
        // The reader asks for each key by name: a misspelt one fails here.
        RULES.iter().for_each(|rule| reads(format!("rule={}", example(rule))));
        WEIGHTS.iter().for_each(|weights| reads(format!("weights={}", example(weights))));
        SCHEDULES.iter().for_each(|schedule| {
            reads(format!("rule={{type: momentum, lr: {0}, momentum: 0.5}}", example(schedule)))
        });
        let ours = |object: &&&MapSchema| !["own", "cifar10"].contains(&object.name);
        DATA.iter().filter(ours).for_each(|data| reads(format!("data={}", example(data))));
        LAYERS.iter().filter(ours).for_each(|layer| reads(format!("model.layers.0={}", example(layer))));
        reads("model.layers.0={type: activation, function: leaky}".into());
        reads("data={type: cifar10, download: true}".into());
        let layers = "layers: [{type: fully_connected, outputs: 3}]";
        reads(format!(
            "model={{type: sparse_autoencoder, cost: sum_of_squares, pretrain_epochs: 1, pretrain_rate: 1, sparsity: 1, {layers}}}"
        ));
        let choices = |fields: &'static [&'static [Field]], name: &str| {
            let field = fields.iter().flat_map(|group| group.iter()).find(|field| field.name == name);
            match field.map(|field| &field.kind) {
                Some(ValueType::Choice(names)) => *names,
                _ => panic!("`{name}` is a choice of names"),
            }
        };
        let pooling = LAYERS.iter().find(|layer| layer.name == "pooling").expect("there is one");
        for (path, fields, name) in [
            ("precision", EXPERIMENT.fields, "precision"),
            ("model.cost", MODELS[0].fields, "cost"),
            ("model.layers.0.pool", pooling.fields, "pool"),
        ] {
            choices(fields, name).iter().for_each(|word| reads(format!("{path}={word}")));
        }
    }

    #[test]
    fn every_activation_of_the_format_is_one_of_its_own() {
        let ValueType::Choice(names) = FUNCTIONS else { panic!("activations are a choice of names") };
        let mut seen: Vec<Activation> = Vec::new();
        for name in names {
            let text = format!(
                "epochs: 1\nbatch_size: 10\ndata: {{type: toy_images, sample: 30}}\n\
                 model:\n  type: network\n  cost: sum_of_squares\n  layers:\n    \
                 - {{type: fully_connected, outputs: 2, activation: {name}}}\n    \
                 - {{type: activation, function: {name}}}\n"
            );
            let experiment = Experiment::parse("activation.yaml", &text, &[]).expect(name);
            let found = experiment.layers[0].activation;
            assert_eq!(found, experiment.layers[1].activation, "{name}");
            assert!(!seen.contains(&found), "{name} is read as {found:?}");
            seen.push(found);
        }
        assert!(seen.contains(&Activation::Softplus), "{seen:?}");
    }
}
