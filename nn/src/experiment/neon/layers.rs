//! Layers, activations and costs of neon files.

use unisono::Result;

use super::super::node::{Node, SourceLocation, Value};
use super::learning::{momentum, rule, weights};
use super::object::{NeonObject, map, number, one_of, text};

const LAYERS: &str = "Layer LayerWithNoBias LayerWithNoActivation FCLayer ConvLayer LocalFilteringLayer MaxPoolingLayer \
    L2PoolingLayer AveragePoolingLayer PoolingLayer LCNLayer LocalContrastNormLayer LocalContrastNorm \
    CrossMapResponseNormLayer CrossMapResponseNorm DropOutLayer DropOut ActivationLayer Activation \
    DataLayer ImageDataLayer CostLayer";

const LAYER_KEYS: &str = "name backend batch_size pos learning_rate nin nout activation weight_init nifm nofm ifmshape ofmshape \
    fshape stride pad pretraining pretrain_learning_rate sparsity tied_weights learning_rule lrule_init \
    op ksize alpha beta keep local_conv batch_norm cost ref_layer is_local is_random weight_dtype \
    velocity_dtype updates_dtype pre_act_dtype output_dtype berror_dtype weights_dtype nofm_ prev_names \
    scale brule_init init_params";

/// The entries of a map under construction.
type Entries = Vec<(&'static str, Node)>;

/// The cost, and the layers in this crate's own format.
pub(super) fn layers(model: &NeonObject<'_>) -> Result<(&'static str, Vec<Node>)> {
    let mut result: Vec<Node> = Vec::new();
    let mut cost = model.maybe("cost");
    for node in model.need("layers")?.items() {
        let layer = NeonObject::of(node, LAYERS)?;
        layer.only(LAYER_KEYS)?;
        match layer.class {
            "DataLayer" | "ImageDataLayer" => {}
            "CostLayer" => cost = Some(layer.need("cost")?),
            _ => result.extend(translate(model, &layer, result.len())?),
        }
    }
    let Some(cost) = cost else { return Err(model.need("cost").expect_err("it is absent")) };
    let cost = NeonObject::of(cost, "CrossEntropy CrossEntropyMulti SumSquaredDiffs")?;
    cost.only("backend name olayer shortcut_deriv")?;
    if cost.class == "SumSquaredDiffs" {
        return Ok(("sum_of_squares", result));
    }
    // Cross-entropy after a softmax is a single cost here, a function of the input of the softmax.
    if let Some(last) = result.last_mut()
        && last.get("activation").and_then(Node::text) == Some("softmax")
    {
        let location = last.location.clone();
        last.set("activation", text("identity", &location));
        return Ok(("softmax_cross_entropy", result));
    }
    Ok(("cross_entropy", result))
}

/// The pretraining rate in the first layer's own rule.
pub(super) fn pretrain_rate(layer: Option<&Node>) -> Option<Node> {
    let rule = layer?.get("learning_rule").or(layer?.get("lrule_init"))?;
    rule.get("lr_params")?.get("pretrain_learning_rate").cloned()
}

/// The name of an activation, and its slope if it has one.
fn activation(node: &Node) -> Result<(&'static str, Option<Node>)> {
    let function = NeonObject::of(node, "Logistic RectLin RectLeaky Tanh Linear Identity Softmax")?;
    let leaks = function.class == "RectLeaky";
    function.only(if leaks { "backend name slope" } else { "backend name" })?;
    Ok(match function.class {
        "Logistic" => ("logistic", None),
        "RectLin" => ("rectified", None),
        "RectLeaky" => {
            let location = &function.node.location;
            ("leaky", Some(function.given("slope").cloned().unwrap_or_else(|| number(0.01, location))))
        }
        "Tanh" => ("tanh", None),
        "Softmax" => ("softmax", None),
        _ => ("identity", None),
    })
}

fn translate(model: &NeonObject<'_>, layer: &NeonObject<'_>, index: usize) -> Result<Vec<Node>> {
    let location = &layer.node.location;
    let mut entries: Vec<(&'static str, Node)> = Vec::new();
    let mut push = |name: &'static str, node: Node| entries.push((name, node));
    let name = layer.maybe("name").and_then(Node::text);
    let name = name.map_or_else(|| format!("layer{index}"), |name| name.replace(['/', ' ', '.'], "_"));
    push("name", text(&name, location));
    let flag = |value: bool| Node::new(Value::Flag(value), location.clone());
    let is_local = layer.flag("local_conv")?.unwrap_or(false);
    let kind = match layer.class {
        "Layer" | "LayerWithNoBias" | "LayerWithNoActivation" | "FCLayer" => "fully_connected",
        "ConvLayer" if is_local => "local",
        "ConvLayer" => "convolution",
        "LocalFilteringLayer" => "local",
        "LCNLayer" | "LocalContrastNormLayer" | "LocalContrastNorm" => "contrast",
        "CrossMapResponseNormLayer" | "CrossMapResponseNorm" => "response",
        "DropOutLayer" | "DropOut" => "dropout",
        "ActivationLayer" | "Activation" => "activation",
        _ => "pooling",
    };
    push("type", text(kind, location));
    let window = |push: &mut dyn FnMut(&'static str, Node)| -> Result<()> {
        push("kernel", layer.need("fshape")?.clone());
        push(
            "stride",
            layer.maybe("stride").cloned().unwrap_or(Node::new(Value::Whole(1), location.clone())),
        );
        if let Some(padding) = layer.maybe("pad") {
            push("padding", padding.clone());
        }
        Ok(())
    };
    match kind {
        "fully_connected" => push("outputs", layer.need("nout")?.clone()),
        "convolution" | "local" => {
            push("maps", layer.need("nofm")?.clone());
            window(&mut push)?;
        }
        "pooling" => {
            let operation = match layer.given("op") {
                None => "max",
                Some(node) => one_of(node, "op", node.text().unwrap_or_default(), "max l2 avg")?,
            };
            let pool = match (layer.class, operation) {
                ("L2PoolingLayer", _) | (_, "l2") => "l2",
                ("AveragePoolingLayer", _) | (_, "avg") => "average",
                _ => "max",
            };
            push("pool", text(pool, location));
            window(&mut push)?;
        }
        "contrast" => {
            let size = layer.maybe("fshape").map_or_else(|| layer.need("ksize"), Ok)?;
            push("kernel", size.clone());
        }
        "response" => {
            for (theirs, ours) in [("ksize", "size"), ("alpha", "alpha"), ("beta", "beta")] {
                layer.maybe(theirs).into_iter().for_each(|value| push(ours, value.clone()));
            }
        }
        "dropout" => layer.maybe("keep").into_iter().for_each(|value| push("keep", value.clone())),
        _ => {}
    }
    let function = layer.given("activation").map(activation);
    let (function, slope) = function.transpose()?.unwrap_or(("identity", None));
    let normalizes = layer.flag("batch_norm")?.unwrap_or(false);
    let learns = matches!(kind, "fully_connected" | "convolution" | "local");
    if learns {
        let has_first_bias = layer.maybe("weight_init").is_some_and(|init| init.get("bias_init").is_some());
        let bias =
            layer.class == "Layer" || (matches!(layer.class, "FCLayer" | "ConvLayer") && has_first_bias);
        if kind != "local" {
            push("bias", flag(bias));
        }
        if let Some(init) = layer.maybe("weight_init") {
            let (weights, first_bias) = weights(init)?;
            push("weights", weights);
            if let Some(first) = first_bias.filter(|_| bias) {
                push("first_bias", first);
            }
        }
        // In the 2014 format, only layers with a bias used the model's momentum.
        let followed = if layer.class == "Layer" { momentum(model.maybe("momentum"), false)? } else { None };
        push("rule", rule(model, layer, followed)?);
    }
    let mut result = Vec::new();
    let mut push_activation = |entries: &mut Entries, key: &'static str| {
        entries.push((key, text(function, location)));
        entries.extend(slope.clone().map(|slope| ("slope", slope)));
    };
    if kind == "activation" {
        push_activation(&mut entries, "function");
    } else if learns && !normalizes {
        push_activation(&mut entries, "activation");
    }
    result.push(map(entries, location));
    if normalizes {
        result.push(normalization(&name, location, &mut push_activation));
    }
    Ok(result)
}

/// Batch normalisation between a layer and its activation.
fn normalization(
    name: &str,
    location: &SourceLocation,
    push_activation: &mut dyn FnMut(&mut Entries, &'static str),
) -> Node {
    let mut entries =
        vec![("name", text(&format!("{name}_norm"), location)), ("type", text("batch_norm", location))];
    push_activation(&mut entries, "activation");
    map(entries, location)
}
