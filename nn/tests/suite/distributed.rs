//! Distributed training gives the curves and weights of a single process, on any grid.

use crate::folder;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use safetensors::tensor::Dtype;
use unisono::testing::spawn;
use unisono_nn::{Experiment, Summary, TrainOptions, Watch, predict, train, train_on};

use folder::Folder;

const CONVNET: &str = "
name: same
epochs: 2
batch_size: 10
precision: f64
data: {type: uniform_random, train: 25, test: 12, shape: [2, 11, 9], classes: 3}
rule: {type: adam, rate: 0.01, decay: 0.001}
model:
  type: network
  cost: softmax_cross_entropy
  layers:
    - {type: convolution, maps: 4, kernel: 3, padding: 1, bias: false}
    - {type: batch_norm, activation: leaky}
    - {type: pooling, kernel: 3, stride: 2, padding: 1}
    - {type: response, size: 3}
    - {type: local, maps: 3, kernel: 2, rule: {type: momentum, rate: 0.1}}
    - {type: pooling, pool: l2, kernel: 2, stride: 1}
    - {type: contrast, kernel: 3}
    - {type: dropout, keep: 0.7}
    - {type: pooling, pool: average, kernel: 2, stride: 1}
    - {type: fully_connected, outputs: 7, bias: false, activation: tanh, rule: {type: nesterov, rate: 0.1}}
    - {type: batch_norm}
    - {type: dropout, keep: 0.8}
    - {type: fully_connected, outputs: 3, rule: {type: adadelta}}
";

const PERCEPTRON: &str = "
name: same
epochs: 2
batch_size: 10
precision: f64
data: {type: uniform_random, train: 25, test: 7, shape: 13, classes: 3}
rule: {type: momentum, rate: 0.1}
model:
  type: network
  cost: cross_entropy
  layers:
    - {type: dropout, keep: 0.9}
    - {type: fully_connected, outputs: 5, activation: rectified}
    - {type: fully_connected, outputs: 4, activation: tanh, bias: false}
    - {type: fully_connected, outputs: 3, activation: logistic}
";

/// Settings with which a layer of [`PERCEPTRON`] has many weights.
const LARGE: &[&str] = &["data.shape=70", "model.layers.1.outputs=500"];

const SPARSE: &str = "
name: same
epochs: 2
batch_size: 10
precision: f64
data: {type: uniform_random, train: 23, test: 5, shape: [1, 13, 14], classes: 2}
model:
  type: sparse_autoencoder
  cost: cross_entropy
  pretrain_epochs: 2
  pretrain_rate: 0.01
  last_layer_epochs: 1
  sparsity: 0.1
  layers:
    - {type: local, name: filter1, maps: 3, kernel: 4, stride: 1, weights: {type: uniform, low: -1, high: 1}}
    - {type: pooling, pool: l2, kernel: 3, stride: 1}
    - {type: contrast, kernel: 3}
    - {type: local, name: filter2, maps: 2, kernel: 3, weights: {type: uniform, low: -1, high: 1}}
    - {type: pooling, pool: l2, kernel: 3, stride: 1}
    - {type: contrast, kernel: 3}
    - {type: fully_connected, name: output, outputs: 2, bias: false, activation: logistic}
";

const AUTOENCODER: &str = "
name: same
epochs: 2
batch_size: 8
precision: f64
data: {type: uniform_random, train: 20, test: 3, shape: [1, 6, 5], classes: 2}
model:
  type: autoencoder
  cost: sum_of_squares
  layers:
    - {type: convolution, maps: 2, kernel: 3, padding: 1, activation: tanh}
    - {type: convolution, maps: 1, kernel: 3, padding: 1}
";

/// Convolutions with all kinds of windows: wide, strided, with gaps between them, of a single position.
const WINDOWS: &str = "
name: same
epochs: 1
batch_size: 5
precision: f32
data: {type: uniform_random, train: 17, test: 3, shape: [2, 23, 37], classes: 3}
rule: {type: momentum, rate: 0.05}
model:
  type: network
  cost: softmax_cross_entropy
  layers:
    - {type: convolution, maps: 22, kernel: 5, padding: 2, activation: rectified}
    - {type: convolution, maps: 3, kernel: [4, 3], padding: [1, 2], stride: [1, 2], activation: rectified}
    - {type: convolution, maps: 18, kernel: 1, bias: false, activation: rectified}
    - {type: convolution, maps: 5, kernel: 3, padding: 1, stride: 2}
    - {type: pooling, kernel: 2, stride: 1}
    - {type: convolution, maps: 4, kernel: [2, 1], padding: [1, 0], stride: [1, 2], activation: tanh}
    - {type: convolution, maps: 3, kernel: [2, 2], stride: [3, 2]}
    - {type: pooling, kernel: 2}
    - {type: fully_connected, outputs: 9, activation: rectified}
    - {type: fully_connected, outputs: 3}
";

/// All tensors of a checkpoint in double precision.
fn tensors(path: &Path) -> BTreeMap<String, (Vec<usize>, Vec<f64>)> {
    let bytes = std::fs::read(path).expect("it was saved");
    let file = SafeTensors::deserialize(&bytes).expect("it is intact");
    let numbers = |name: &str| {
        let tensor = file.tensor(name).expect("it is listed");
        let values = match tensor.dtype() {
            Dtype::F32 => tensor
                .data()
                .chunks_exact(4)
                .map(|bytes| f64::from(f32::from_le_bytes(bytes.try_into().expect("four bytes"))))
                .collect(),
            _ => tensor
                .data()
                .chunks_exact(8)
                .map(|bytes| f64::from_le_bytes(bytes.try_into().expect("eight bytes")))
                .collect(),
        };
        (tensor.shape().to_vec(), values)
    };
    file.names().into_iter().map(|name| (name.to_string(), numbers(name))).collect()
}

fn options(out: &Path, resume: bool) -> TrainOptions {
    TrainOptions { out: out.into(), resume, trace: None }
}

/// Trains on the ranks of a grid, as threads.
fn spread(text: &str, settings: &[String], grid: &str, out: &Path, resume: bool) -> Summary {
    let mode = match grid {
        _ if grid.contains('h') => "halo",
        _ if grid.contains('v') => "vector",
        _ => "data",
    };
    let size = grid.split(',').filter_map(|axis| axis.split_once('=')?.1.parse::<usize>().ok()).product();
    let mut settings = settings.to_vec();
    settings.push(format!("distributed={{type: {mode}, grid: '{grid}'}}"));
    let experiment = Experiment::parse("x.yaml", text, &settings).expect("it is right");
    let options = options(out, resume);
    let run = |group: unisono::Group| train_on(&group, &experiment, &options, &mut ());
    let mut summaries = spawn(size, run);
    summaries.swap_remove(0).unwrap_or_else(|failure| panic!("{grid}: {}", failure.error))
}

fn single(text: &str, settings: &[String], out: &Path) -> Summary {
    let experiment = Experiment::parse("x.yaml", text, settings).expect("it is right");
    train(&experiment, &options(out, false), &mut ()).expect("it trains")
}

/// Asserts that curves and weights are equal within a relative tolerance.
fn assert_same(what: &str, one: &Summary, other: &Summary, distance: f64) {
    let close = |name: &str, one: f64, other: f64, scale: f64| {
        assert!((one - other).abs() <= distance * scale.max(1e-3), "{what} {name}: {one} {other}");
    };
    assert_eq!(one.metrics.len(), other.metrics.len());
    for (one, other) in one.metrics.iter().zip(&other.metrics) {
        close("loss", one.loss, other.loss, one.loss.abs());
        close("test loss", one.test_loss.unwrap_or(0.0), other.test_loss.unwrap_or(0.0), one.loss.abs());
        assert_eq!((one.train_error, one.test_error), (other.train_error, other.test_error), "{what}");
    }
    let (one, other) = (tensors(&one.checkpoint), tensors(&other.checkpoint));
    assert!(one.keys().eq(other.keys()), "{what}: {:?} {:?}", one.keys(), other.keys());
    for (name, (shape, values)) in &one {
        assert_eq!(shape, &other[name].0, "{what} {name}");
        let scale = values.iter().fold(0.0_f64, |scale, value| scale.max(value.abs()));
        values.iter().zip(&other[name].1).for_each(|(one, other)| close(name, *one, *other, scale));
    }
}

/// Compares runs without `deterministic`, whose summation order depends on the grid.
fn compare(name: &str, text: &str, settings: &[&str], grids: &[&str], distance: f64) {
    let folder = Folder::new(name);
    let mut settings: Vec<String> = settings.iter().map(|setting| setting.to_string()).collect();
    settings.push("deterministic=false".into());
    let one = single(text, &settings, &folder.0.join("single"));
    for grid in grids {
        let other = spread(text, &settings, grid, &folder.0.join(grid), false);
        assert_same(&format!("{name} {grid}"), &one, &other, distance);
    }
}

#[test]
fn samples_split_between_ranks_give_the_same_network() {
    compare("data", CONVNET, &[], &["data=2", "data=3", "data=6"], 1e-10);
}

#[test]
fn partitioned_layers_give_the_same_network() {
    let grids = ["h=1,w=2", "h=2,w=2", "h=2,w=3", "w=3,h=3", "h=13,w=1", "h=1,w=1,data=2"];
    compare("halo", CONVNET, &[], &grids, 1e-10);
}

#[test]
fn spatial_groups_times_samples_give_the_same_network() {
    compare("product", CONVNET, &[], &["data=2,h=2,w=2", "h=2,data=3,w=1"], 1e-10);
}

#[test]
fn single_precision_differs_only_by_rounding() {
    compare("single", CONVNET, &["precision=f32", "epochs=1"], &["data=2", "h=2,w=2"], 1e-5);
}

/// A network without discontinuities, such as those of rectifiers and max pooling.
const SMOOTH: &str = "
name: same
epochs: 20
batch_size: 10
test_every: 20
save_every: 20
data: {type: toy_images, sample: 40}
rule: {type: momentum, rate: 0.005}
model:
  type: network
  cost: softmax_cross_entropy
  layers:
    - {type: convolution, maps: 4, kernel: 5, stride: 3, activation: tanh}
    - {type: pooling, pool: average, kernel: 2}
    - {type: fully_connected, outputs: 8, activation: tanh}
    - {type: fully_connected, outputs: 2}
";

#[test]
fn rounding_stays_small_without_rectifiers_and_max_pooling() {
    compare("smooth", SMOOTH, &[], &["data=2", "h=2,w=2"], 1e-5);
}

#[test]
fn inputs_split_between_ranks_give_the_same_network() {
    compare("vector", PERCEPTRON, &[], &["v=2", "v=3", "v=6", "data=2,v=2", "h=2,w=2", "data=4"], 1e-10);
    compare("vector-images", AUTOENCODER, &[], &["v=3"], 1e-10);
}

#[test]
fn sparse_autoencoders_pretrain_and_learn_the_same() {
    let grids = ["h=2,w=2", "h=2,w=3", "h=4,w=4", "data=2,h=1,w=2", "data=3", "v=3", "data=2,v=2"];
    compare("sparse", SPARSE, &[], &grids, 1e-10);
    compare("untied", SPARSE, &["model.tied_weights=false", "epochs=1"], &["h=2,w=2"], 1e-10);
}

#[test]
fn shipped_files_learn_the_same_on_their_grids() {
    let read = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments").join(name);
        std::fs::read_to_string(path).expect("it is in the repository")
    };
    let few = ["precision=f64", "data.sample=2", "batch_size=20", "epochs=1"];
    for name in ["mnist_distarray_numpy_cnn-20-50-500-10.yaml", "mnist_convnet.yaml"] {
        compare("shipped", &read(name), &few, &["h=2,w=2"], 1e-10);
    }
    let fewer = ["precision=f64", "data.sample=0.4", "batch_size=6", "epochs=2", "model.pretrain_epochs=1"];
    compare("shipped-gb", &read("mnist_distarray_numpy_gb.yaml"), &fewer, &["h=2,w=3", "h=4,w=4"], 1e-10);
    let noise = "data={type: uniform_random, train: 8, test: 2, shape: [3, 32, 32], classes: 10}";
    let settings = ["precision=f64", noise, "batch_size=4", "epochs=2", "model.pretrain_epochs=1"];
    compare("shipped-colour", &read("cifar10_distarray_numpy_gb.yaml"), &settings, &["h=2,w=2"], 1e-10);
}

#[test]
fn outputs_split_between_ranks_are_gathered() {
    compare("autoencoder", AUTOENCODER, &[], &["h=2,w=2", "data=2,h=3,w=1", "data=3"], 1e-10);
}

#[test]
fn a_run_resumes_on_another_grid() {
    let folder = Folder::new("resume");
    for (number, text) in [CONVNET, SPARSE].into_iter().enumerate() {
        let (uninterrupted, part) =
            (folder.0.join(format!("uninterrupted{number}")), folder.0.join(format!("part{number}")));
        let settings = ["epochs=3".to_string(), "keep=100".into()];
        let one = single(text, &settings, &uninterrupted);
        let other = spread(text, &settings, "h=2,w=2", &part, false);
        assert_same("before", &one, &other, 1e-10);
        let last = other.metrics.len();
        std::fs::remove_file(&other.checkpoint).expect("it was saved");
        for (grid, epoch) in [("data=2,h=1,w=2", last), ("h=2,w=3", last - 1), ("data=3", last)] {
            let _ = std::fs::remove_file(&other.checkpoint);
            if epoch < last {
                let path = part.join(format!("checkpoints/epoch-{epoch:06}.safetensors"));
                std::fs::remove_file(path).expect("it was saved");
            }
            let resumed = spread(text, &settings, grid, &part, true);
            assert_same(grid, &one, &resumed, 1e-10);
        }
    }
}

/// Removes a file once a run has started.
struct Remover(PathBuf);

impl Watch for Remover {
    fn begin(&mut self, _: &Experiment, _: usize, _: usize) {
        std::fs::remove_file(&self.0).expect("it is there until the run begins");
    }
}

#[test]
fn initial_weights_are_not_needed_if_a_checkpoint_replaces_them() {
    let folder = Folder::new("first");
    let (file, out) = (folder.0.join("first.safetensors"), folder.0.join("run"));
    let drawn = single(AUTOENCODER, &["epochs=0".into()], &folder.0.join("drawn"));
    std::fs::copy(&drawn.checkpoint, &file).expect("it was saved");
    let setting = format!("initial_weights={}", file.display());
    let grid = "distributed={type: halo, grid: 'h=2,w=1'}".to_string();
    let experiment = Experiment::parse("x.yaml", AUTOENCODER, &[setting.clone(), grid]).expect("it is right");
    let results =
        spawn(2, |group| train_on(&group, &experiment, &options(&out, false), &mut Remover(file.clone())));
    for result in results {
        result.unwrap_or_else(|failure| panic!("{}", failure.error));
    }
    assert!(!file.exists() && out.join("reconstructions.png").exists());
    let longer = spread(AUTOENCODER, &[setting, "epochs=3".into()], "h=2,w=1", &out, true);
    assert_eq!(longer.metrics.len(), 3);
    assert_eq!(predict(&experiment, &longer.checkpoint).expect("the checkpoint has all weights").len(), 3);
}

#[test]
fn impossible_runs_fail_on_all_ranks_with_one_error_and_write_nothing() {
    let folder = Folder::new("wrong");
    let out = folder.0.join("out");
    for (setting, words) in [
        ("distributed={type: halo, grid: 'h=3,w=2'}", "which make 6"),
        ("distributed={type: halo, grid: 'v=4'}", "axes of the mode halo"),
        ("data={type: mnist, folder: no/where}", "no/where"),
        ("model.layers.0.kernel=99", "fits its input"),
        ("initial_weights=no/such.npz", "no/such.npz"),
    ] {
        let experiment = Experiment::parse("x.yaml", CONVNET, &[setting.to_string()]).expect("it is right");
        let failures = spawn(4, |group| train_on(&group, &experiment, &options(&out, false), &mut ()))
            .into_iter()
            .map(|result| result.expect_err(setting))
            .collect::<Vec<_>>();
        let own: Vec<_> = failures.iter().filter(|failure| failure.own).collect();
        assert_eq!(own.len(), 1, "{setting}: {failures:?}");
        assert!(own[0].error.to_string().contains(words), "{setting}: {}", own[0].error);
        assert!(!out.exists(), "{setting}");
    }
    // All ranks see the same infinite cost.
    let settings = ["rule={type: gradient_descent, rate: 1e200}".to_string()];
    let experiment = Experiment::parse("x.yaml", AUTOENCODER, &settings).expect("it is right");
    let failures = spawn(3, |group| train_on(&group, &experiment, &options(&out, false), &mut ()));
    let voices = failures.iter().filter(|result| result.as_ref().is_err_and(|failure| failure.own)).count();
    assert_eq!((failures.iter().filter(|result| result.is_err()).count(), voices), (3, 1));
}

/// Asserts that curves and checkpoints are bitwise equal on all grids.
fn assert_bits(name: &str, text: &str, settings: &[&str], grids: &[&str]) {
    let folder = Folder::new(name);
    let mut settings: Vec<String> = settings.iter().map(|setting| setting.to_string()).collect();
    let one = single(text, &settings, &folder.0.join("single"));
    let bytes = |summary: &Summary| std::fs::read(&summary.checkpoint).expect("it was saved");
    let curve = |summary: &Summary| -> Vec<_> {
        let bits = |row: &unisono_nn::EpochMetrics| {
            (row.loss.to_bits(), row.sparsity.map(f64::to_bits), row.test_loss.map(f64::to_bits))
        };
        summary.metrics.iter().map(bits).collect()
    };
    for grid in grids {
        let other = spread(text, &settings, grid, &folder.0.join(grid), false);
        assert_same(&format!("{name} {grid}"), &one, &other, 0.0);
        assert!(bytes(&one) == bytes(&other), "{name} {grid}: different bits");
        assert_eq!(curve(&one), curve(&other), "{name} {grid}");
    }
    let threads: Vec<String> = settings.iter().cloned().chain(["threads=3".to_string()]).collect();
    let threaded = single(text, &threads, &folder.0.join("threads"));
    assert!(bytes(&one) == bytes(&threaded), "{name}: different bits with threads");
    // The same experiment, up to rounding.
    settings.push("deterministic=false".into());
    let free = single(text, &settings, &folder.0.join("free"));
    let distance =
        if text.contains("precision: f32") || settings.iter().any(|setting| setting == "precision=f32") {
            1e-4
        } else {
            1e-9
        };
    assert_same(&format!("{name} without"), &one, &free, distance);
}

#[test]
fn runs_have_the_same_bits_on_every_grid() {
    let grids =
        ["data=2", "h=1,w=2", "h=2,w=2", "data=2,h=3,w=1", "h=2,w=3", "h=3,w=3", "data=9", "h=13,w=1"];
    assert_bits("bits", CONVNET, &["precision=f32", "epochs=1"], &grids);
    assert_bits("bits-double", CONVNET, &["epochs=1"], &["h=2,w=3", "data=3,h=1,w=2"]);
    // Weights so large that ranks with other samples divide their update.
    assert_bits(
        "bits-large",
        PERCEPTRON,
        &[&["precision=f32"], LARGE].concat(),
        &["data=3", "data=2,v=2", "data=7"],
    );
    assert_bits("bits-vector", PERCEPTRON, &["precision=f32"], &["v=2", "v=4", "data=3,v=2", "data=9"]);
    assert_bits(
        "bits-windows",
        WINDOWS,
        &[],
        &["data=2", "h=1,w=2", "h=2,w=2", "h=2,w=3", "data=2,h=3,w=1", "h=3,w=3", "data=3,h=1,w=3", "data=9"],
    );
    // More ranks than samples, and more ranks than rows.
    assert_bits(
        "bits-few",
        WINDOWS,
        &["batch_size=2", "data.train=5"],
        &["h=2,w=3", "data=3,h=2,w=1", "h=13,w=1"],
    );
    assert_bits(
        "bits-sparse",
        SPARSE,
        &["precision=f32"],
        &["h=2,w=2", "h=3,w=3", "data=2,h=3,w=1", "h=9,w=1", "v=3", "data=2,v=2"],
    );
    // Filters long enough that each rank adds up a slice of them.
    assert_bits(
        "bits-long",
        AUTOENCODER,
        &["precision=f32", "model.layers.0.maps=240", "epochs=1"],
        &["data=3", "h=2,w=3", "data=2,h=2,w=1"],
    );
}

#[test]
fn a_resumed_run_has_the_same_bits_on_another_grid() {
    let folder = Folder::new("resume-bits");
    let mut settings = vec!["precision=f32".to_string(), "keep=100".into()];
    settings.extend(LARGE.iter().map(|setting| setting.to_string()));
    let one = single(PERCEPTRON, &settings, &folder.0.join("single"));
    let bytes = |path: &Path| std::fs::read(path).expect("it was saved");
    // Ranks that divide updates among them hold parts of the optimiser state.
    for (before, after) in
        [("data=3", "data=7"), ("data=2,v=2", "data=2"), ("data=7", "data=3,v=2"), ("v=2", "data=2")]
    {
        let out = folder.0.join(before);
        spread(PERCEPTRON, &[&settings[..], &["epochs=1".into()]].concat(), before, &out, false);
        let resumed = spread(PERCEPTRON, &settings, after, &out, true);
        assert_eq!(resumed.metrics.len(), one.metrics.len());
        assert!(bytes(&one.checkpoint) == bytes(&resumed.checkpoint), "{before}, then {after}");
    }
}
