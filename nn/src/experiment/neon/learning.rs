//! Initial weights, learning rules and momentum of neon files.

use unisono::Result;

use super::super::node::{Node, SourceLocation, Value};
use super::object::{NeonObject, map, number, one_of, only, text};

/// The initial weights, and the initial bias if given.
pub(super) fn weights(node: &Node) -> Result<(Node, Option<Node>)> {
    let location = &node.location;
    let kind = match &node.tag {
        Some(_) => {
            let classes = "UniformValGen AutoUniformValGen GaussianValGen NormalValGen NodeNormalizedValGen \
                OrthoNormalizedValGen SparseEigenValGen";
            NeonObject::of(node, classes)?.class
        }
        None => {
            let word = node.get("type").and_then(Node::text).unwrap_or_default();
            match one_of(node, "weight_init", word, "uniform gaussian normal node_normalized")? {
                "uniform" => "UniformValGen",
                "node_normalized" => "NodeNormalizedValGen",
                _ => "NormalValGen",
            }
        }
    };
    let keys = match kind {
        "UniformValGen" => "low high",
        "AutoUniformValGen" | "OrthoNormalizedValGen" => "",
        "NodeNormalizedValGen" => "scale",
        "SparseEigenValGen" => "sparseness eigenvalue",
        _ => "loc scale",
    };
    only(node, "weight_init", &format!("{keys} type bias_init name backend"))?;
    let get =
        |key: &str, otherwise: f64| node.get(key).cloned().unwrap_or_else(|| number(otherwise, location));
    let weights = match kind {
        "UniformValGen" => {
            vec![("type", text("uniform", location)), ("low", get("low", 0.0)), ("high", get("high", 1.0))]
        }
        "AutoUniformValGen" => vec![("type", text("auto_uniform", location))],
        "NodeNormalizedValGen" => {
            vec![("type", text("node_normalized", location)), ("scale", get("scale", 1.0))]
        }
        "OrthoNormalizedValGen" => vec![("type", text("orthogonal", location))],
        "SparseEigenValGen" => vec![
            ("type", text("sparse_eigen", location)),
            (
                "connections",
                node.get("sparseness").cloned().unwrap_or(Node::new(Value::Whole(15), location.clone())),
            ),
            ("radius", get("eigenvalue", 1.2)),
        ],
        _ => {
            vec![
                ("type", text("normal", location)),
                ("mean", get("loc", 0.0)),
                ("deviation", get("scale", 1.0)),
            ]
        }
    };
    Ok((map(weights, location), node.get("bias_init").cloned()))
}

/// The momentum that a file requests: whether it is Nesterov's, and its coefficient. `is_late` marks the 2015 format.
pub(super) fn momentum(node: Option<&Node>, is_late: bool) -> Result<Option<(bool, Node)>> {
    let Some(node) = node.filter(|node| node.value != Value::Null) else { return Ok(None) };
    let location = &node.location;
    only(node, "momentum", "type coef initial_coef start_epoch saturate_epoch saturated_coef")?;
    let word = match node.get("type") {
        Some(word) => word.text().unwrap_or_default(),
        None => "constant",
    };
    let get = |key: &str| node.get(key).cloned().unwrap_or_else(|| number(0.0, location));
    Ok(Some(match one_of(node, "momentum", word, "constant linear_monotone nesterov")? {
        // The 2014 format ignored `initial_coef` here: files that gave it to a constant momentum trained without momentum.
        "constant" if is_late && node.get("coef").is_none() => (false, get("initial_coef")),
        "constant" => (false, get("coef")),
        "nesterov" => (true, get("coef")),
        _ => {
            let line = vec![
                ("type", text("linear", location)),
                ("initial", get("initial_coef")),
                (
                    "start",
                    node.get("start_epoch").cloned().unwrap_or(Node::new(Value::Whole(0), location.clone())),
                ),
                (
                    "saturate",
                    node.get("saturate_epoch")
                        .cloned()
                        .unwrap_or(Node::new(Value::Whole(0), location.clone())),
                ),
                ("saturated", get("saturated_coef")),
            ];
            (false, map(line, location))
        }
    }))
}

/// The settings of rules, most of them in a map `lr_params`.
const SETTINGS: &str = "learning_rate pretrain_learning_rate weight_decay momentum_params schedule rho epsilon backend \
    batch_size";

/// The rule of a layer: its own, or the rate and momentum of its model.
pub(super) fn rule(
    model: &NeonObject<'_>,
    layer: &NeonObject<'_>,
    followed: Option<(bool, Node)>,
) -> Result<Node> {
    let location = &layer.node.location;
    let Some(own) = layer.maybe("learning_rule").or(layer.maybe("lrule_init")) else {
        let rate = layer.maybe("learning_rate").or(model.maybe("learning_rate"));
        let Some(rate) = rate else { return Err(layer.need("learning_rate").expect_err("it is absent")) };
        return Ok(descent(rate.clone(), followed, location));
    };
    let word = match &own.tag {
        Some(_) => {
            let classes = "GradientDescent GradientDescentPretrain GradientDescentMomentum AdaDelta";
            NeonObject::of(own, classes)?.class
        }
        None => {
            let words = "gradient_descent gradient_descent_pretrain gradient_descent_momentum \
                gradient_descent_momentum_weight_decay adadelta";
            one_of(own, "learning rule", own.get("type").and_then(Node::text).unwrap_or_default(), words)?
        }
    };
    only(own, "learning rule", &format!("type name lr_params {SETTINGS}"))?;
    let empty = map(Vec::new(), location);
    let settings = own.get("lr_params").unwrap_or(&empty);
    only(settings, "lr_params", SETTINGS)?;
    let get = |key: &str| settings.get(key).or(own.get(key));
    let mut result = match word {
        "AdaDelta" | "adadelta" => {
            // neon's own defaults, which are not those of this crate's format.
            let or = |key: &str, default: f64| get(key).cloned().unwrap_or_else(|| number(default, location));
            let entries = vec![
                ("type", text("adadelta", location)),
                ("rho", or("rho", 0.95)),
                ("eps", or("epsilon", 1e-6)),
            ];
            map(entries, location)
        }
        _ => {
            let rate = get("learning_rate").cloned();
            let Some(rate) = rate else {
                return Err(own.location.error("learning rule", "a `learning_rate`", "none", "add it"));
            };
            let rate = scheduled(rate, get("schedule"))?;
            let with_momentum = word.contains("omentum");
            let followed =
                if with_momentum { momentum(get("momentum_params"), own.tag.is_none())? } else { None };
            descent(rate, followed, location)
        }
    };
    if let Some(decay) = get("weight_decay") {
        result.set("weight_decay", decay.clone());
    }
    Ok(result)
}

fn descent(rate: Node, followed: Option<(bool, Node)>, location: &SourceLocation) -> Node {
    match followed {
        None => map(vec![("type", text("sgd", location)), ("lr", rate)], location),
        Some((nesterov, coefficient)) => {
            let name = if nesterov { "nesterov" } else { "momentum" };
            map(vec![("type", text(name, location)), ("lr", rate), ("momentum", coefficient)], location)
        }
    }
}

/// A step schedule for the rate, if the file requests one.
fn scheduled(rate: Node, schedule: Option<&Node>) -> Result<Node> {
    let Some(schedule) = schedule.filter(|node| node.value != Value::Null) else { return Ok(rate) };
    let location = &schedule.location;
    only(schedule, "schedule", "type ratio step_epochs")?;
    one_of(schedule, "schedule", schedule.get("type").and_then(Node::text).unwrap_or_default(), "step")?;
    let (Some(ratio), Some(epochs)) = (schedule.get("ratio"), schedule.get("step_epochs")) else {
        return Err(location.error("schedule", "`ratio` and `step_epochs`", "not both", "add them"));
    };
    let entries = vec![
        ("type", text("step", location)),
        ("initial", rate),
        ("ratio", ratio.clone()),
        ("epochs", epochs.clone()),
    ];
    Ok(map(entries, location))
}
