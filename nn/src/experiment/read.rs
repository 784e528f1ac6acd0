//! Parts of a checked file in types: data sets, rules, weights, windows.

use unisono::Result;

use super::extensions::Extensions;
use super::node::Node;
use super::spec::path;
use crate::cost::Cost;
use crate::data::{Arrays, Source};
use crate::initial::Initial;
use crate::layers::Activation;
use crate::rules::{Method, Rule, Schedule};
use crate::shape::{Shape, Window};

fn number(node: &Node, key: &str) -> f64 {
    node.get(key).and_then(Node::number).unwrap_or(0.0)
}

fn whole(node: &Node, key: &str) -> usize {
    node.get(key).and_then(Node::whole).unwrap_or(0) as usize
}

fn kind(node: &Node) -> &str {
    node.get("type").and_then(Node::text).unwrap_or_default()
}

fn pair(node: &Node) -> [usize; 2] {
    let at = |index: usize| node.items().get(index).and_then(Node::whole).unwrap_or(0) as usize;
    [at(0), at(1)]
}

/// The window of a layer; without a stride it moves by its own size.
pub(super) fn window(layer: &Node) -> Window {
    let kernel = layer.get("kernel").map_or([1, 1], pair);
    Window {
        kernel,
        stride: layer.get("stride").map_or(kernel, pair),
        padding: layer.get("padding").map_or([0, 0], pair),
    }
}

/// The activation of a layer.
pub(super) fn function(layer: &Node) -> Activation {
    let name = layer.get("activation").or(layer.get("function")).and_then(Node::text);
    match name.unwrap_or("identity") {
        "logistic" => Activation::Logistic,
        "tanh" => Activation::Tanh,
        "rectified" => Activation::Rectified,
        "leaky" => Activation::Leaky(number(layer, "slope")),
        "softplus" => Activation::Softplus,
        "softmax" => Activation::Softmax,
        _ => Activation::Identity,
    }
}

pub(super) fn cost(name: &str) -> Cost {
    match name {
        "cross_entropy" => Cost::CrossEntropy,
        "softmax_cross_entropy" => Cost::SoftmaxCrossEntropy,
        _ => Cost::SumOfSquares,
    }
}

fn schedule(node: Option<&Node>) -> Schedule {
    let Some(node) = node else { return Schedule::Constant(0.0) };
    match kind(node) {
        "step" => Schedule::Step {
            initial: number(node, "initial"),
            ratio: number(node, "ratio"),
            epochs: whole(node, "epochs"),
        },
        "linear" => Schedule::Linear {
            initial: number(node, "initial"),
            start: whole(node, "start"),
            saturate: whole(node, "saturate"),
            saturated: number(node, "saturated"),
        },
        _ => Schedule::Constant(node.number().unwrap_or(0.0)),
    }
}

pub(super) fn rule(node: &Node) -> Rule {
    let epsilon = number(node, "epsilon");
    let coefficient = || schedule(node.get("coefficient"));
    let method = match kind(node) {
        "momentum" => Method::Momentum(coefficient()),
        "nesterov" => Method::Nesterov(coefficient()),
        "adadelta" => Method::AdaDelta { rho: number(node, "rho"), epsilon },
        "adagrad" => Method::AdaGrad { epsilon },
        "adam" => Method::Adam { beta1: number(node, "beta1"), beta2: number(node, "beta2"), epsilon },
        _ => Method::GradientDescent,
    };
    Rule { method, rate: schedule(node.get("rate")), decay: number(node, "decay") }
}

pub(super) fn initial(node: &Node) -> Initial {
    match kind(node) {
        "constant" => Initial::Constant(number(node, "value")),
        "uniform" => Initial::Uniform { low: number(node, "low"), high: number(node, "high") },
        "normal" => Initial::Normal { mean: number(node, "mean"), deviation: number(node, "deviation") },
        "node_normalized" => Initial::NodeNormalized { scale: number(node, "scale") },
        "orthogonal" => Initial::Orthogonal { scale: number(node, "scale") },
        "sparse_eigen" => {
            Initial::SparseEigen { connections: whole(node, "connections"), radius: number(node, "radius") }
        }
        _ => Initial::AutoUniform,
    }
}

pub(super) fn source(data: &Node, extensions: &Extensions) -> Result<Source> {
    let needed = |key: &str| path(data.get(key).expect("complete() checked it"));
    let flag = |key: &str| data.get(key).and_then(Node::flag).unwrap_or(false);
    let sizes: Vec<usize> = data
        .get("shape")
        .map(|shape| shape.items().iter().filter_map(|size| size.whole()).map(|size| size as usize).collect())
        .unwrap_or_default();
    Ok(match kind(data) {
        "mnist" => Source::Mnist { folder: data.get("folder").map(path), download: flag("download") },
        "cifar10" => {
            let (folder, download) = (data.get("folder").map(path), flag("download"));
            if folder.is_none() && !download {
                let expected = "a key `folder`: where the binary batches are, or `download: true`";
                return Err(data.place.error("cifar10", expected, "neither", "add one of them"));
            }
            Source::Cifar10 { folder, download }
        }
        "iris" => Source::Iris,
        "uniform_random" => Source::UniformRandom {
            train: whole(data, "train"),
            test: whole(data, "test"),
            shape: match sizes[..] {
                [maps, rows, columns] => Shape::new(maps, rows, columns),
                _ => Shape::flat(sizes.first().copied().unwrap_or(1)),
            },
            classes: whole(data, "classes"),
        },
        "toy_images" => Source::ToyImages,
        "own" => Source::Own(extensions.data(data)?),
        "images" => Source::Images { folder: needed("folder") },
        _ => Source::Arrays(Arrays {
            inputs: needed("inputs"),
            targets: data.get("targets").map(path),
            test_inputs: data.get("test_inputs").map(path),
            test_targets: data.get("test_targets").map(path),
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::super::Experiment;
    use super::super::describe::Kind;
    use super::super::format::FUNCTIONS;
    use crate::layers::Activation;

    #[test]
    fn every_activation_of_the_format_is_one_of_its_own() {
        let Kind::Choice(names) = FUNCTIONS else { panic!("activations are a choice of names") };
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
