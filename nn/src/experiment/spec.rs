//! The typed contents of a validated experiment file.

use std::path::{Path, PathBuf};

use unisono::Result;

use super::describe::complete;
use super::extensions::{CustomLayer, Extensions};
use super::format::EXPERIMENT;
use super::node::{Node, SourceLocation};
use super::read::{
    cost, flag, function, initial, number, pair, pool, rule, source, unhandled, whole, window, word,
};
use super::{aliases, compose, neon, yaml};
use crate::cost::Cost;
use crate::data::Source;
use crate::initial::Initial;
use crate::layers::{Activation, Pool};
use crate::models::{Phase, Phases};
use crate::rules::Rule;
use crate::shape::ConvWindow;

/// Single or double precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// `f32`.
    Single,
    /// `f64`.
    Double,
}

/// The kind of a layer.
#[derive(Debug, Clone, PartialEq)]
pub enum LayerKind {
    /// Every output depends on all inputs.
    FullyConnected {
        /// The number of outputs.
        outputs: usize,
    },
    /// The same filters at every position.
    Convolution {
        /// Output maps.
        maps: usize,
        /// The window.
        window: ConvWindow,
    },
    /// Separate filters at every position.
    Local {
        /// Output maps.
        maps: usize,
        /// The window.
        window: ConvWindow,
        /// Whether filters are normalised to length one.
        unit_rows: bool,
    },
    /// One number per window.
    Pooling {
        /// The pooling function.
        pool: Pool,
        /// The window.
        window: ConvWindow,
    },
    /// Local contrast normalisation.
    Contrast {
        /// The rows and columns of the window.
        kernel: [usize; 2],
    },
    /// Cross-map response normalisation.
    Response {
        /// The number of maps in the neighbourhood.
        size: usize,
        /// The scale α of the sum of squares.
        alpha: f64,
        /// The exponent β.
        beta: f64,
    },
    /// Zeroes values at random.
    Dropout {
        /// The probability of keeping a value.
        keep: f64,
    },
    /// Batch normalisation.
    BatchNorm {
        /// The decay of the running averages.
        kept: f64,
        /// The term added to the variance.
        epsilon: f64,
    },
    /// An activation function without a layer.
    Activation,
    /// A layer that the program added.
    Custom(CustomLayer),
}

/// The specification of a layer.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerSpec {
    /// The layer's name.
    pub name: String,
    /// Its location in the file.
    pub location: SourceLocation,
    /// Its kind.
    pub kind: LayerKind,
    /// The activation function after it.
    pub activation: Activation,
    /// The initialisation of its weights.
    pub weights: Initial,
    /// The initial value of its biases, if it has any.
    pub bias: Option<f64>,
    /// Its learning rule.
    pub rule: Rule,
}

/// What a model is trained for.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelKind {
    /// To predict targets.
    Network,
    /// To reconstruct its input.
    Autoencoder,
    /// To reconstruct inputs group by group, then to predict targets.
    SparseAutoencoder {
        /// Pretraining epochs per group.
        pretrain_epochs: usize,
        /// The learning rate of pretraining.
        pretrain_rate: f64,
        /// Epochs that train only the last layer.
        last_layer_epochs: usize,
        /// The cost of pooled units.
        sparsity: f64,
        /// Whether the decoder shares the weights of the filters.
        tied_weights: bool,
        /// Whether to search for the unit that best detects each class.
        spot_check: bool,
        /// Whether to draw the inputs to which these units respond most.
        visualize: bool,
    },
}

/// The contents of an experiment file.
///
/// ```
/// use unisono_nn::Experiment;
/// let text = "{epochs: 1, batch_size: 10, data: iris, model: {type: network, cost: softmax_cross_entropy, \
///              layers: [{type: fully_connected, outputs: 3}]}}";
/// let experiment = Experiment::parse("iris.yaml", text, &[])?;
/// assert_eq!(experiment.layers[0].name, "fully_connected0");
/// let slip = Experiment::parse("iris.yaml", &text.replace("outputs", "output"), &[]).unwrap_err();
/// assert!(slip.to_string().contains("did you mean `outputs`?"));
/// # Ok::<(), unisono::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// The experiment's name.
    pub name: String,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The precision of all layers.
    pub precision: Precision,
    /// The number of threads per process.
    pub threads: usize,
    /// Whether results are bitwise independent of the number of processes.
    pub deterministic: bool,
    /// Training epochs, in addition to pretraining.
    pub epochs: usize,
    /// The batch size: samples per update.
    pub batch_size: usize,
    /// The data set.
    pub source: Source,
    /// The percentage of its samples that is used.
    pub sample: f64,
    /// Whether the samples are shuffled in each epoch.
    pub shuffle: bool,
    /// The number of test samples that are used, if not all are.
    pub test_samples: Option<usize>,
    /// What the model is trained for.
    pub model: ModelKind,
    /// The cost that training minimises.
    pub cost: Cost,
    /// The layers, from input to output.
    pub layers: Vec<LayerSpec>,
    /// A file of initial weights.
    pub initial_weights: Option<PathBuf>,
    /// Epochs between tests.
    pub test_every: usize,
    /// Epochs between checkpoints.
    pub save_every: usize,
    /// The number of checkpoints to keep.
    pub keep: usize,
    /// The data sets and layers that the program added.
    pub extensions: Extensions,
    /// The file merged with its base files, overrides and defaults.
    pub resolved: Node,
}

/// Resolves a path of a file: `~` is the home folder, and relative paths are relative to the file.
pub(super) fn path(node: &Node) -> PathBuf {
    let text = node.text().unwrap_or_default();
    if let (Some(rest), Some(home)) = (text.strip_prefix("~/"), std::env::var_os("HOME")) {
        return Path::new(&home).join(rest);
    }
    match (node.location.line, Path::new(&*node.location.file).parent()) {
        (1.., Some(folder)) => folder.join(text),
        _ => text.into(),
    }
}

/// Makes a relative path absolute, so that it stays valid when the resolved file is stored elsewhere.
fn anchor(map: &mut Node, key: &str) {
    let Some(node) = map.get(key).filter(|node| node.text().is_some_and(|text| !text.starts_with("~/")))
    else {
        return;
    };
    if let Some(whole) =
        std::path::absolute(path(node)).ok().and_then(|whole| whole.to_str().map(String::from))
    {
        let location = node.location.clone();
        map.set(key, Node::new(super::node::Value::Text(whole), location));
    }
}

/// Whether a character is allowed in the name of an experiment, which is also the name of a folder.
fn may_name(letter: char) -> bool {
    letter.is_alphanumeric() || "-_.".contains(letter)
}

impl Experiment {
    /// Reads a file and applies overrides such as `epochs=3`.
    pub fn read(path: &Path, changes: &[String]) -> Result<Experiment> {
        Experiment::read_with(path, changes, &Extensions::default())
    }

    /// [`Experiment::read`] for files with user-defined data sets and layers.
    pub fn read_with(path: &Path, changes: &[String], extensions: &Extensions) -> Result<Experiment> {
        Experiment::of(compose::read(path)?, changes, extensions)
    }

    /// The same experiment with further overrides that a program's options imply; errors name the options as the user typed
    /// them.
    pub fn with_options(&self, options: &str, meant: &[String]) -> Result<Experiment> {
        let mut node = self.resolved.clone();
        for change in meant {
            compose::change_as(&mut node, options, change)?;
        }
        Experiment::from_node(&node, &self.extensions)
    }

    /// [`Experiment::read`], then [`Experiment::with_options`].
    #[deprecated(note = "call read, then with_options")]
    pub fn read_with_options(
        path: &Path,
        changes: &[String],
        options: &str,
        meant: &[String],
    ) -> Result<Experiment> {
        Experiment::read(path, changes)?.with_options(options, meant)
    }

    /// Parses text as if it were in a file.
    pub fn parse(file: &str, text: &str, changes: &[String]) -> Result<Experiment> {
        Experiment::parse_with(file, text, changes, &Extensions::default())
    }

    /// [`Experiment::parse`] for text with user-defined data sets and layers.
    pub fn parse_with(
        file: &str,
        text: &str,
        changes: &[String],
        extensions: &Extensions,
    ) -> Result<Experiment> {
        let mut node = yaml::parse(file, text)?;
        aliases::resolve(&mut node)?;
        Experiment::of(node, changes, extensions)
    }

    pub(super) fn of(node: Node, changes: &[String], extensions: &Extensions) -> Result<Experiment> {
        Experiment::from_node(&Experiment::changed(node, changes)?, extensions)
    }

    /// Translates a file to this crate's own format and applies overrides.
    fn changed(mut node: Node, changes: &[String]) -> Result<Node> {
        if neon::is_neon(&node) {
            node = neon::translate(&node)?;
        }
        for change in changes {
            compose::change(&mut node, change)?;
        }
        Ok(node)
    }

    fn from_node(node: &Node, extensions: &Extensions) -> Result<Experiment> {
        let mut resolved = complete(node, &EXPERIMENT)?;
        if resolved.get("name").is_none() {
            let file = Path::new(&*node.location.file).file_stem().unwrap_or_default().to_string_lossy();
            let words: Vec<&str> =
                file.split(|letter| !may_name(letter)).filter(|word| !word.is_empty()).collect();
            let name = if words.is_empty() { "experiment".into() } else { words.join("_") };
            let name = super::node::Value::Text(name);
            resolved.set("name", Node::new(name, node.location.clone()));
        }
        if let Some(mut data) = resolved.get("data").cloned() {
            let paths = ["folder", "inputs", "targets", "test_inputs", "test_targets"];
            paths.iter().for_each(|key| anchor(&mut data, key));
            resolved.set("data", data);
        }
        anchor(&mut resolved, "initial_weights");
        let node = &resolved;
        let key = |name: &str| node.get(name).expect("complete() filled it in");
        let whole = |name: &str| whole(node, name);
        let (data, model) = (key("data"), key("model"));
        let sample = number(data, "sample")?;
        if !(sample > 0.0 && sample <= 100.0) {
            let expected = "a percentage above 0 and up to 100";
            let advice = "write, for example, `sample: 10` for a tenth of the samples";
            return Err(data.location.error("`sample` of the data", expected, sample.to_string(), advice));
        }
        let name = key("name").text().unwrap_or_default().to_string();
        if ["", ".", ".."].contains(&name.as_str()) || !name.chars().all(may_name) {
            let expected = "the name of a folder, of letters, digits, `-`, `_` and `.`";
            return Err(key("name").location.error("`name`", expected, format!("`{name}`"), "rename it"));
        }
        let layers = model.get("layers").expect("complete() filled it in");
        let specs = layers
            .items()
            .iter()
            .enumerate()
            .map(|(index, layer)| layer_spec(node, layer, index, extensions));
        let specs: Vec<LayerSpec> = specs.collect::<Result<_>>()?;
        if specs.is_empty() {
            return Err(layers.location.error("`layers`", "at least one layer", "none", "add one"));
        }
        for (index, spec) in specs.iter().enumerate() {
            if specs[..index].iter().any(|other| other.name == spec.name) {
                let received = format!("`{}` again", spec.name);
                return Err(spec.location.error("layer", "unique names", received, "rename one of them"));
            }
        }
        Ok(Experiment {
            name,
            seed: whole("seed")? as u64,
            precision: match word(node, "precision")? {
                "f32" => Precision::Single,
                "f64" => Precision::Double,
                other => return Err(unhandled(node, "precision", other)),
            },
            threads: whole("threads")?,
            deterministic: node
                .get("deterministic")
                .and_then(Node::flag)
                .unwrap_or_else(|| is_deterministic_by_default(node, &specs)),
            epochs: whole("epochs")?,
            batch_size: whole("batch_size")?,
            source: source(data, extensions)?,
            sample,
            shuffle: flag(data, "shuffle")?,
            test_samples: data.get("test_samples").and_then(Node::whole).map(|count| count as usize),
            model: model_kind(model)?,
            cost: cost(model)?,
            layers: specs,
            initial_weights: node.get("initial_weights").map(path),
            test_every: whole("test_every")?,
            save_every: whole("save_every")?,
            keep: whole("keep")?,
            extensions: extensions.clone(),
            resolved,
        })
    }

    /// The file merged with its base files, overrides and defaults, as YAML.
    pub fn resolved_text(&self) -> String {
        yaml::write(&self.resolved)
    }

    /// The phases of training, in order.
    pub fn phases(&self) -> Phases {
        let mut phases = Vec::new();
        let mut last = 0;
        if let ModelKind::SparseAutoencoder { pretrain_epochs, last_layer_epochs, .. } = self.model {
            let is_filter = |spec: &&LayerSpec| matches!(spec.kind, LayerKind::Local { .. });
            for group in 0..self.layers.iter().filter(is_filter).count() {
                phases.push((Phase::Pretrain { group }, pretrain_epochs));
            }
            last = last_layer_epochs.min(self.epochs);
        }
        phases.extend([(Phase::Last, last), (Phase::Full, self.epochs - last)]);
        Phases::new(phases)
    }
}

fn model_kind(model: &Node) -> Result<ModelKind> {
    Ok(match word(model, "type")? {
        "network" => ModelKind::Network,
        "autoencoder" => ModelKind::Autoencoder,
        "sparse_autoencoder" => ModelKind::SparseAutoencoder {
            pretrain_epochs: whole(model, "pretrain_epochs")?,
            pretrain_rate: number(model, "pretrain_rate")?,
            last_layer_epochs: whole(model, "last_layer_epochs")?,
            sparsity: number(model, "sparsity")?,
            tied_weights: flag(model, "tied_weights")?,
            spot_check: flag(model, "spot_check")?,
            visualize: flag(model, "visualize")?,
        },
        other => return Err(unhandled(model, "model", other)),
    })
}

fn layer_spec(experiment: &Node, layer: &Node, index: usize, extensions: &Extensions) -> Result<LayerSpec> {
    let kind = word(layer, "type")?;
    let name = layer.get("name").and_then(Node::text).map_or_else(|| format!("{kind}{index}"), String::from);
    // Auxiliary layers are named after their layer with a `.`, weights with a `/`.
    if name.is_empty() || name.contains(['/', '.', ' ', '\n']) {
        let expected = "a name without `/`, `.` and spaces";
        return Err(layer.location.error("layer", expected, format!("`{name}`"), "rename it"));
    }
    let (whole, number) = (|key: &str| whole(layer, key), |key: &str| number(layer, key));
    let share = |key: &str| match number(key)? {
        value if value > 0.0 && value <= 1.0 => Ok(value),
        value => {
            let what = format!("`{key}` of {name}");
            let advice = format!("write, for example, `{key}: 0.5`");
            Err(layer.location.error(&what, "a number above 0 and up to 1", value.to_string(), advice))
        }
    };
    let kind = match kind {
        "fully_connected" => LayerKind::FullyConnected { outputs: whole("outputs")? },
        "convolution" => LayerKind::Convolution { maps: whole("maps")?, window: window(layer)? },
        "local" => LayerKind::Local {
            maps: whole("maps")?,
            window: window(layer)?,
            unit_rows: flag(layer, "unit_rows")?,
        },
        "pooling" => LayerKind::Pooling { pool: pool(layer)?, window: window(layer)? },
        "contrast" => LayerKind::Contrast { kernel: pair(layer, "kernel")? },
        "response" => {
            LayerKind::Response { size: whole("size")?, alpha: number("alpha")?, beta: number("beta")? }
        }
        "dropout" => LayerKind::Dropout { keep: share("keep")? },
        "batch_norm" => LayerKind::BatchNorm { kept: share("kept")?, epsilon: number("epsilon")? },
        "own" => LayerKind::Custom(extensions.layer(layer)?),
        "activation" => LayerKind::Activation,
        other => return Err(unhandled(layer, "layer", other)),
    };
    let own_or_common = |key: &str| layer.get(key).or(experiment.get(key)).expect("complete() filled it in");
    let has_bias = layer.get("bias").and_then(Node::flag).unwrap_or(false);
    let bias = has_bias.then(|| number("first_bias")).transpose()?;
    Ok(LayerSpec {
        name,
        location: layer.location.clone(),
        kind,
        activation: function(layer)?,
        weights: initial(own_or_common("weights"))?,
        bias,
        rule: rule(own_or_common("rule"))?,
    })
}

/// Whether a file contains nothing that prevents bitwise equal results on any number of processes.
fn is_deterministic_by_default(node: &Node, layers: &[LayerSpec]) -> bool {
    let mode = node.get("distributed").and_then(|node| node.get("type")).and_then(Node::text);
    mode != Some("table") && !layers.iter().any(|layer| matches!(layer.kind, LayerKind::Custom(_)))
}
