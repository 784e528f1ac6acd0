//! Translates experiments written for neon to this crate's own format: only a fixed list of class names is accepted, and no
//! tag can instantiate anything else.
//!
//! Both file formats are supported: that of 2014, where layers state their shapes and rates, and that of 2015, with data
//! layers, cost layers and rules in maps. Shapes that a file repeats by hand are derived from the data instead.

mod layers;
mod learning;
mod object;

use unisono::Result;

use super::node::{Node, Value};
use layers::layers;
use object::{NeonObject, flag, map, number, text};

/// Whether a file is a neon file, recognised by its first tag.
pub(super) fn is_neon(node: &Node) -> bool {
    node.tag.as_deref().is_some_and(|tag| tag.starts_with("!obj:"))
}

const BACKENDS: &str = "Numpy Numpy64 CPU CPUDataDist Cudamat Cudanet CC2 GPU GPUDataDist";

/// Translates an experiment to this crate's own format.
pub(super) fn translate(node: &Node) -> Result<Node> {
    let experiment = NeonObject::of(node, "FitExperiment FitPredictErrorExperiment GradientChecker")?;
    experiment.only(&format!(
        "{ANCHORS} name dist_flag backend dataset datasets model logging metrics predictions diagnostics \
         inference_sets inference_metrics timing_plots"
    ))?;
    let location = &node.location;
    let mut entries = Vec::new();
    let model =
        NeonObject::of(experiment.need("model")?, "MLP Convnet Autoencoder GB ConvnetDist MLPDist GBDist")?;
    model.only(&format!("{MODEL_KEYS} {ANCHORS}"))?;
    if let Some(path) = model.given("deserialized_path") {
        let advice = "remove it; `initial_weights` takes a .safetensors or .npz file with weights";
        return Err(path.location.error(model.class, "no pickled model", path.to_string(), advice));
    }
    // The 2014 format specifies the backend in the experiment; the 2015 format leaves it to the command line.
    if let Some(backend) = experiment.maybe("backend") {
        let backend = NeonObject::of(backend, BACKENDS)?;
        backend.only("rng_seed seterr_handling default_dtype num_dev actual_batch_size")?;
        if let Some(seed) = backend.given("rng_seed") {
            entries.push(("seed", seed.clone()));
        }
        if backend.class == "Numpy64" {
            entries.push(("precision", text("f64", location)));
        }
    }
    let (data, batch) = data(&experiment)?;
    entries.push(("epochs", model.need("num_epochs")?.clone()));
    // With data parallelism, the model's batch size is its share of the data set's.
    entries.push(("batch_size", batch.map_or_else(|| model.need("batch_size").cloned(), Ok)?));
    if let Some(mode) = distribution(&experiment, &model)? {
        entries.push(("distributed", mode));
    }
    entries.push(("data", data));
    entries.push(("model", translate_model(&model)?));
    Ok(map(entries, location))
}

/// How a file with `dist_flag` distributes its model: according to `dist_mode`, or to the class of the model.
fn distribution(experiment: &NeonObject<'_>, model: &NeonObject<'_>) -> Result<Option<Node>> {
    let data = data_node(experiment)?;
    let spreads = |node: &Node| node.get("dist_flag").map_or(Ok(None), |node| flag(node, "dist_flag"));
    // Both flags are parsed, so that an invalid value in either is rejected.
    if [spreads(experiment.node)?, spreads(data)?].iter().all(|flag| *flag != Some(true)) {
        return Ok(None);
    }
    let is = |name: &str| model.node.tag.as_deref().is_some_and(|tag| tag.ends_with(name));
    let Some(mode) = data.get("dist_mode").or(model.maybe("dist_mode")) else {
        let mode = if is(".MLPDist") { "vector" } else { "halo" };
        return Ok(Some(text(mode, &data.location)));
    };
    let name = match (mode.whole(), mode.text()) {
        (Some(0), _) | (_, Some("halopar")) => "halo",
        (Some(1), _) | (_, Some("vecpar")) => "vector",
        (_, Some("datapar")) => "data",
        _ => {
            let expected = "0, 1, halopar, vecpar or datapar";
            return Err(mode.location.error("dist_mode", expected, mode.to_string(), "choose one"));
        }
    };
    Ok(Some(text(name, &mode.location)))
}

fn data_node<'a>(experiment: &NeonObject<'a>) -> Result<&'a Node> {
    match (experiment.maybe("dataset"), experiment.maybe("datasets")) {
        (Some(node), _) => Ok(node),
        (None, Some(list)) => match list.items() {
            [node] => Ok(node),
            other => {
                let received = other.len().to_string();
                Err(list.location.error("datasets", "one data set", received, "keep one of them"))
            }
        },
        (None, None) => experiment.need("datasets"),
    }
}

/// The data set, and its batch size if it has one.
fn data(experiment: &NeonObject<'_>) -> Result<(Node, Option<Node>)> {
    let node = data_node(experiment)?;
    let object = NeonObject::of(node, "MNIST CIFAR10 Iris UniformRandom ToyImages")?;
    object.only(
        "name dist_flag dist_mode backend repo_path sample_pct serialized_path num_test_sample batch_size \
        ntrain ntest nin nout validation_pct",
    )?;
    let location = &node.location;
    let mut entries = Vec::new();
    let folder = match object.given("repo_path") {
        None => None,
        Some(path) => {
            let Some(folder) = path.text() else {
                return Err(path.location.error(
                    "repo_path",
                    "a folder",
                    path.to_string(),
                    "put it in quotes",
                ));
            };
            Some(text(&format!("{}/{}", folder.trim_end_matches('/'), object.class), &path.location))
        }
    };
    match object.class {
        "UniformRandom" => {
            entries.push(("type", text("uniform_random", location)));
            for (theirs, ours) in
                [("ntrain", "train"), ("ntest", "test"), ("nin", "shape"), ("nout", "classes")]
            {
                entries.push((ours, object.need(theirs)?.clone()));
            }
        }
        "Iris" => entries.push(("type", text("iris", location))),
        "ToyImages" => entries.push(("type", text("toy_images", location))),
        class => {
            entries.push(("type", text(if class == "MNIST" { "mnist" } else { "cifar10" }, location)));
            match folder {
                Some(folder) => entries.push(("folder", folder)),
                None if class == "CIFAR10" => return Err(object.missing("repo_path")),
                None => {}
            }
        }
    }
    if let Some(percent) = object.given("sample_pct") {
        // A value below one is a fraction, not a percentage.
        entries.push(match percent.number() {
            Some(share) if share < 1.0 => ("sample", number(share * 100.0, &percent.location)),
            _ => ("sample", percent.clone()),
        });
    }
    let none = |share: &&Node| share.value == Value::Null || share.number() == Some(0.0);
    if let Some(share) = object.maybe("validation_pct").filter(|share| !none(share)) {
        let expected = "no `validation_pct`: there are training samples and test samples";
        return Err(share.location.error(object.class, expected, share.to_string(), "remove it"));
    }
    entries.extend(object.maybe("num_test_sample").map(|count| ("test_samples", count.clone())));
    entries.push(("shuffle", Node::new(Value::Flag(false), location.clone())));
    Ok((map(entries, location), object.maybe("batch_size").cloned()))
}

/// Keys that only hold anchors, which are read through their aliases.
const ANCHORS: &str = "weight_init weight_inits lrule lrules";

const MODEL_KEYS: &str = "name backend num_epochs batch_size learning_rate momentum cost serialized_path deserialized_path \
    layers num_pretrain_epochs num_initial_epochs pretraining sparsity pretrain_learning_rate \
    tied_weights visualize spot_check pretrain_cost dist_mode step_print overwrite_list temp_dtype \
    num_grad_params activations_dtype weight_dtype updates_dtype pre_act_dtype deltas_dtype make_plots";

fn translate_model(model: &NeonObject<'_>) -> Result<Node> {
    let location = &model.node.location;
    let (cost, layers) = layers(model)?;
    let is_sparse = model.class.starts_with("GB");
    let kind = match model.class {
        "Autoencoder" => "autoencoder",
        _ if is_sparse => "sparse_autoencoder",
        _ => "network",
    };
    let mut entries = vec![("type", text(kind, location)), ("cost", text(cost, location))];
    entries.push(("layers", Node::new(Value::List(layers), location.clone())));
    if is_sparse {
        // Some files specify these in the model, others in its first layer.
        let first = model.need("layers")?.items().first();
        let find = |key: &str| {
            model
                .maybe(key)
                .or_else(|| first.and_then(|layer| layer.get(key)))
                .cloned()
                .ok_or(())
                .or_else(|()| model.need(key).cloned())
        };
        let pretrains = model.flag("pretraining")?.unwrap_or(true);
        let none = Node::new(Value::Whole(0), location.clone());
        let epochs = if pretrains { model.need("num_pretrain_epochs")?.clone() } else { none.clone() };
        entries.push(("pretrain_epochs", epochs));
        let rate = match layers::pretrain_rate(first) {
            Some(rate) => rate,
            None => find("pretrain_learning_rate")?,
        };
        entries.push(("pretrain_rate", rate));
        entries.push(("last_layer_epochs", model.maybe("num_initial_epochs").cloned().unwrap_or(none)));
        entries.push(("sparsity", find("sparsity")?));
        let tied = find("tied_weights").map_or(Ok(None), |tied| flag(&tied, "tied_weights"))?;
        let flags = [("tied_weights", tied), ("spot_check", model.flag("spot_check")?)];
        for (key, value) in flags.into_iter().chain([("visualize", model.flag("visualize")?)]) {
            entries.extend(value.map(|value| (key, Node::new(Value::Flag(value), location.clone()))));
        }
    }
    Ok(map(entries, location))
}
