//! Experiments from file to results: shipped files, interrupted runs, threads, and invalid files.

use crate::folder;

use std::path::{Path, PathBuf};

use unisono_nn::{Experiment, Phase, TrainOptions, check_gradients, predict, train};

use folder::Folder;

impl Folder {
    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("it can be written");
        path
    }
}

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments").join(name)
}

fn changes(list: &[&str]) -> Vec<String> {
    list.iter().map(|change| change.to_string()).collect()
}

const SMALL: &str = "
epochs: 4
batch_size: 10
precision: f64
data: {type: uniform_random, train: 45, test: 12, shape: [2, 9, 8], classes: 3}
rule: {type: adam, rate: 0.01, decay: 0.001}
model:
  type: network
  cost: softmax_cross_entropy
  layers:
    - {type: convolution, maps: 4, kernel: 3, padding: 1}
    - {type: batch_norm, activation: leaky}
    - {type: pooling, kernel: 2}
    - {type: response, size: 3}
    - {type: local, maps: 3, kernel: 2, rule: {type: momentum, rate: 0.1}}
    - {type: pooling, pool: l2, kernel: 2, stride: 1}
    - {type: contrast, kernel: 3}
    - {type: dropout, keep: 0.7}
    - {type: fully_connected, outputs: 6, activation: tanh, rule: {type: nesterov, rate: 0.1}}
    - {type: fully_connected, outputs: 3, rule: {type: adadelta}}
";

const SPARSE: &str = "
epochs: 3
batch_size: 10
data: {type: toy_images, sample: 30}
model:
  type: sparse_autoencoder
  cost: cross_entropy
  pretrain_epochs: 3
  pretrain_rate: 0.01
  last_layer_epochs: 1
  sparsity: 0.1
  layers:
    - {type: local, name: filter1, maps: 3, kernel: 4, stride: 2, weights: {type: uniform, low: -1, high: 1}}
    - {type: pooling, pool: l2, kernel: 3, stride: 1}
    - {type: contrast, kernel: 3}
    - {type: local, name: filter2, maps: 3, kernel: 3, weights: {type: uniform, low: -1, high: 1}}
    - {type: pooling, pool: l2, kernel: 3, stride: 1}
    - {type: contrast, kernel: 3}
    - {type: fully_connected, name: output, outputs: 2, bias: false, activation: logistic}
";

fn run(experiment: &Experiment, out: &Path, resume: bool) -> unisono::Result<unisono_nn::Summary> {
    train(experiment, &TrainOptions { out: out.into(), resume, trace: None }, &mut ())
}

#[test]
fn every_shipped_file_loads_and_fits_its_data() {
    let mut seen = 0;
    let folders = [shipped(""), shipped("distributed")];
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).expect("it is there").flatten());
    for path in entries.map(|entry| entry.path()) {
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let experiment = Experiment::read(&path, &[]).unwrap_or_else(|error| panic!("{error}"));
        let (maps, side) = if experiment.name.starts_with("cifar10") { (3, 32) } else { (1, 28) };
        if experiment.name.starts_with("iris") {
            continue;
        }
        let shapes = experiment.shapes(unisono_nn::Shape::new(maps, side, side), 10);
        assert!(shapes.is_ok(), "{}: {shapes:?}", path.display());
        // The resolved text is an equivalent experiment in our own format.
        let again =
            Experiment::parse("resolved.yaml", &experiment.resolved_text(), &[]).expect("it reads back");
        assert_eq!(again.layers.len(), experiment.layers.len());
        assert_eq!(again.phases(), experiment.phases());
        seen += 1;
    }
    assert!(seen >= 20, "{seen} files");
}

#[test]
fn serial_and_distributed_files_are_the_same_experiment() {
    for (spread, serial) in [
        ("mnist_distarray_numpy_cnn-20-50-500-10.yaml", "mnist_numpy_cnn-20-50-500-10.yaml"),
        ("mnist_distarray_numpy_gb.yaml", "mnist_numpy_gb.yaml"),
        ("distributed/mnist_halopar_cpu_cnn-20-50-500-10.yaml", "mnist_numpy_cnn-20-50-500-10.yaml"),
        ("distributed/mnist_halopar_cpu_gb.yaml", "mnist_numpy_gb.yaml"),
        ("cifar10_distarray_numpy_mlp.yaml", "cifar10_numpy_mlp.yaml"),
        ("distributed/cifar10_halopar_cpu_gb.yaml", "cifar10_distarray_numpy_gb.yaml"),
    ] {
        let text = |name: &str| {
            let same = changes(&["name=twin", "distributed=data"]);
            let text = Experiment::read(&shipped(name), &same).expect(name).resolved_text();
            text.replace("../experiments/", "")
        };
        assert_eq!(text(spread), text(serial));
    }
    let sparse = Experiment::read(&shipped("mnist_numpy_gb.yaml"), &[]).expect("it loads");
    let phases = sparse.phases();
    assert_eq!(phases.epochs(), 3 * 8 + 4);
    assert_eq!(
        [0, 23, 24, 27].map(|epoch| phases.at(epoch)),
        [Phase::Pretrain { group: 0 }, Phase::Pretrain { group: 2 }, Phase::Last, Phase::Full].map(Some)
    );
}

#[test]
fn the_cost_of_sparse_autoencoders_decreases_with_every_epoch() {
    let folder = Folder::new("pictures");
    // Noise is as demanding for the learning rate as photographs are.
    let noise =
        "data={type: uniform_random, train: 60, test: 0, shape: [3, 32, 32], classes: 10, shuffle: false}";
    for name in ["cifar10_distarray_numpy_gb.yaml", "cifar10_numpy_gb.yaml"] {
        let experiment = Experiment::read(&shipped(name), &changes(&[noise, "batch_size=20"])).expect(name);
        let out = run(&experiment, &folder.0.join(name), false).expect("it trains").out;
        let column = |file: &str, at: usize| -> Vec<f64> {
            let text = std::fs::read_to_string(out.join(file)).expect("the run left it");
            let cells = text.lines().skip(1).filter_map(|line| line.split(',').nth(at)?.parse().ok());
            cells.collect()
        };
        let (epochs, batches) = (column("metrics.csv", 3), column("batches.csv", 1));
        assert_eq!((epochs.len(), batches.len()), (3 + 4, 3 * (3 + 4)), "{name}");
        // Each group has one epoch of pretraining, so the costs of its batches are compared.
        assert!(
            batches[..9].chunks(3).all(|group| group.is_sorted_by(|one, next| one > next)),
            "{batches:?}"
        );
        assert!(epochs[3..].is_sorted_by(|one, next| one > next), "{name}: {epochs:?}");
    }
}

#[test]
fn the_convnet_learns_digits() {
    let folder = Folder::new("digits");
    let experiment =
        Experiment::read(&shipped("mnist_convnet.yaml"), &changes(&["epochs=1", "data.sample=50"]))
            .expect("it loads");
    let summary = run(&experiment, &folder.0.join("run"), false).expect("it trains");
    let error = summary.metrics[0].test_error.expect("digits have classes");
    assert!(error < 30.0, "{error} % wrong after an epoch of 1500 digits");
    for name in ["experiment.yaml", "metrics.csv", "metrics.jsonl", "batches.csv", "loss.svg", "filters.png"]
    {
        assert!(summary.out.join(name).is_file(), "{name}");
    }
    let saved = Experiment::read(&summary.out.join("experiment.yaml"), &[]).expect("it reads back");
    let predictions = predict(&saved, &summary.checkpoint).expect("the checkpoint is intact");
    let wrong = predictions.iter().filter(|one| one.class != Some(one.predicted as u32)).count();
    assert!((100.0 * wrong as f64 / predictions.len() as f64 - error).abs() < 1e-9);
}

#[test]
fn a_run_finds_its_data_from_its_own_folder() {
    let folder = Folder::new("relative");
    let values: Vec<f32> = (0..12).map(|value| value as f32 / 10.0).collect();
    unisono_nn::write_npy(&folder.0.join("inputs.npy"), &[6, 2], &values).expect("it can be written");
    let text = "{epochs: 1, batch_size: 3, data: {type: arrays, inputs: inputs.npy, test_inputs: ./inputs.npy}, \
                model: {type: autoencoder, cost: sum_of_squares, layers: [{type: fully_connected, outputs: 2}]}}";
    let experiment = Experiment::read(&folder.write("e.yaml", text), &[]).expect("it is right");
    let summary = run(&experiment, &folder.0.join("runs/e"), false).expect("it trains");
    let saved = Experiment::read(&summary.out.join("experiment.yaml"), &[]).expect("it reads back");
    assert_eq!(predict(&saved, &summary.checkpoint).expect("the data is found").len(), 6);
}

#[test]
fn an_interrupted_run_continues_to_the_same_weights() {
    for (name, text, cut) in [("small", SMALL, 2), ("sparse", SPARSE, 4), ("untied", SPARSE, 8)] {
        let folder = Folder::new(name);
        let mut settings = vec!["name=same".to_string()];
        if name == "untied" {
            settings.push("model.tied_weights=false".into());
        }
        let experiment = Experiment::parse("x.yaml", text, &settings).expect("it is right");
        let uninterrupted = run(&experiment, &folder.0.join("uninterrupted"), false).expect("it trains");
        // A killed run leaves the checkpoints and tables of the completed epochs; here all later ones are removed.
        let part = folder.0.join("part");
        let mut keeps_all = settings.clone();
        keeps_all.push("keep=100".into());
        let again = Experiment::parse("x.yaml", text, &keeps_all).expect("it is right");
        run(&again, &part, false).expect("it trains");
        for epoch in cut + 1..=uninterrupted.metrics.len() {
            std::fs::remove_file(part.join(format!("checkpoints/epoch-{epoch:06}.safetensors")))
                .expect("it was saved");
        }
        let resumed = run(&experiment, &part, true).expect("it continues");
        let bytes = |summary: &unisono_nn::Summary| std::fs::read(&summary.checkpoint).expect("it was saved");
        assert!(bytes(&uninterrupted) == bytes(&resumed), "{name}: different weights");
        assert_eq!(resumed.metrics.len(), uninterrupted.metrics.len());
        for (one, other) in uninterrupted.metrics.iter().zip(&resumed.metrics) {
            assert_eq!((one.loss, one.test_loss), (other.loss, other.test_loss));
        }
        let text =
            |folder: &Path| std::fs::read_to_string(folder.join("batches.csv")).expect("it was written");
        assert_eq!(text(&uninterrupted.out), text(&part));
    }
}

#[test]
fn threads_change_only_rounding() {
    let folder = Folder::new("threads");
    let losses = |threads: usize| {
        let settings = [format!("threads={threads}")];
        let experiment = Experiment::parse("x.yaml", SMALL, &settings).expect("it is right");
        let summary = run(&experiment, &folder.0.join(threads.to_string()), false).expect("it trains");
        summary.metrics.iter().map(|row| row.loss).collect::<Vec<_>>()
    };
    for (one, other) in losses(1).into_iter().zip(losses(3)) {
        assert!((one - other).abs() < 1e-10, "{one} {other}");
    }
}

#[test]
fn pretraining_lowers_the_cost_of_every_group() {
    let folder = Folder::new("pretrain");
    let experiment = Experiment::parse("x.yaml", SPARSE, &changes(&["precision=f64"])).expect("it is right");
    let summary = run(&experiment, &folder.0.join("run"), false).expect("it trains");
    for group in ["pretrain0", "pretrain1"] {
        let losses: Vec<f64> =
            summary.metrics.iter().filter(|row| row.phase == group).map(|row| row.loss).collect();
        assert!(losses.len() == 3 && losses[2] < losses[0], "{group}: {losses:?}");
    }
    let last: Vec<f64> = summary.metrics[6..].iter().map(|row| row.loss).collect();
    assert!(last[2] < last[0], "{last:?}");
}

#[test]
fn gradients_of_full_networks_are_right() {
    for text in [SMALL, SPARSE] {
        let experiment = Experiment::parse("x.yaml", text, &[]).expect("it is right");
        for check in check_gradients(&experiment, 10).expect("it can be checked") {
            assert!(check.passes() && check.tried > 0, "{check:?}");
        }
    }
}

#[test]
fn an_autoencoder_learns_its_input() {
    let folder = Folder::new("auto");
    let settings = changes(&["epochs=2", "data.sample=20"]);
    let experiment = Experiment::read(&shipped("mnist_autoencoder.yaml"), &settings).expect("it loads");
    let summary = run(&experiment, &folder.0.join("run"), false).expect("it trains");
    assert!(summary.metrics[1].loss < summary.metrics[0].loss);
    assert_eq!(summary.metrics[1].test_error, None);
}

#[test]
fn weights_can_come_from_a_file() {
    let folder = Folder::new("initial");
    let experiment = Experiment::parse("x.yaml", SMALL, &changes(&["epochs=1"])).expect("it is right");
    let summary = run(&experiment, &folder.0.join("first"), false).expect("it trains");
    // A checkpoint contains more than weights: the state of layers is loaded, the optimiser state is not.
    let path = summary.checkpoint.display().to_string();
    let settings = [format!("initial_weights={path}"), "epochs=0".into(), "rule.type=momentum".into()];
    let experiment = Experiment::parse("x.yaml", SMALL, &settings).expect("it is right");
    let second = run(&experiment, &folder.0.join("second"), false).expect("a checkpoint has the weights");
    let read = |path: &Path| {
        let bytes = std::fs::read(path).expect("it was saved");
        let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("it is intact");
        let tensors = tensors.iter().map(|(name, view)| (name.to_string(), view.data().to_vec()));
        tensors.collect::<std::collections::BTreeMap<String, Vec<u8>>>()
    };
    let (first, second) = (read(&summary.checkpoint), read(&second.checkpoint));
    let is_of_a_rule = |name: &&String| name.contains('.');
    assert!(first.keys().any(|name| is_of_a_rule(&name)) && !second.keys().any(|name| is_of_a_rule(&name)));
    assert!(second.contains_key("batch_norm1/running_mean"), "{:?}", second.keys());
    for (name, values) in &second {
        // Local filters are normalised to length one, which rounds.
        let doubles = |bytes: &[u8]| -> Vec<f64> {
            bytes.chunks(8).map(|eight| f64::from_le_bytes(eight.try_into().expect("eight"))).collect()
        };
        let mut pairs = doubles(values).into_iter().zip(doubles(&first[name]));
        assert!(pairs.all(|(one, other)| (one - other).abs() <= 1e-14), "{name}");
    }
    // A NumPy archive, stored without compression.
    let weights: Vec<u8> = (0..30).flat_map(|value| (value as f32 / 7.0).to_le_bytes()).collect();
    let header = format!("{:<117}\n", "{'descr': '<f4', 'fortran_order': False, 'shape': (10, 3), }");
    let array = [b"\x93NUMPY\x01\x00\x76\x00".to_vec(), header.into_bytes(), weights].concat();
    let archive = zip("output/weights.npy", &array);
    let path = folder.0.join("weights.npz");
    std::fs::write(&path, archive).expect("it can be written");
    let text = "{epochs: 0, batch_size: 5, data: {type: uniform_random, train: 5, test: 2, shape: 3, classes: 10}, \
                model: {type: network, cost: sum_of_squares, layers: [{type: fully_connected, name: output, outputs: 10}]}}";
    let settings = [format!("initial_weights={}", path.display())];
    let experiment = Experiment::parse("x.yaml", text, &settings).expect("it is right");
    let mut trainer = unisono_nn::Trainer::<f32>::new(&experiment).expect("the weights fit");
    let weights = trainer.network.layers()[0].weights()[0].values.clone();
    assert_eq!(weights, (0..30).map(|value| value as f32 / 7.0).collect::<Vec<_>>());
}

/// A zip archive of one stored file.
fn zip(name: &str, bytes: &[u8]) -> Vec<u8> {
    let stored = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    writer.start_file(name, stored).expect("memory can be written");
    std::io::Write::write_all(&mut writer, bytes).expect("memory can be written");
    writer.finish().expect("memory can be written").into_inner()
}

#[test]
fn wrong_files_are_rejected_with_their_line() {
    let line =
        |text: &str, part: &str| 1 + text.lines().position(|line| line.contains(part)).expect("it is there");
    for (part, wrong, words) in [
        ("type: local, maps", "type: locale, maps", "did you mean `local`?"),
        ("outputs: 6", "output: 6", "did you mean `outputs`?"),
        ("kernel: 3, padding", "kernel: 33, padding", "fits its input of 2×9×8"),
        ("outputs: 3", "outputs: 4", "3 outputs"),
        ("keep: 0.7", "keep: 7", "above 0 and up to 1"),
        ("contrast, kernel: 3", "contrast, kernel: 2", "odd sides"),
        ("batch_size: 10", "batch_size: 0", "from 1 to 2147483648"),
        ("batch_size: 10", "batch_size: 9223372036854775807", "from 1 to 2147483648"),
        ("kernel: 3, padding: 1", "kernel: 3, padding: 3", "a padding smaller than the kernel"),
        ("contrast, kernel: 3", "contrast, kernel: 2147483647", "a kernel of at most"),
        ("outputs: 6", "outputs: 2147483648", "bytes of this machine's memory"),
        ("outputs: 6", "name: a.b, outputs: 6", "without `/`, `.` and spaces"),
        ("type: adadelta", "type: adadelta, rate: fast", "a number"),
        ("size: 3", "size: [3]", "an integer"),
        ("cost: softmax_cross_entropy", "cost: entropy", "one of"),
    ] {
        let text = SMALL.replace(part, wrong);
        let experiment = Experiment::parse("bad.yaml", &text, &[]);
        let error = experiment
            .and_then(|experiment| experiment.shapes(unisono_nn::Shape::new(2, 9, 8), 3).map(|_| ()))
            .expect_err(wrong)
            .to_string();
        let place = format!("bad.yaml:{}", line(&text, wrong));
        assert!(error.contains(&place) && error.contains(words), "{wrong}: {error}");
    }
}

#[test]
fn wrong_runs_write_nothing() {
    let folder = Folder::new("wrong");
    let out = folder.0.join("out");
    let experiment = Experiment::parse("x.yaml", SMALL, &changes(&["name=small"])).expect("it is right");
    assert!(run(&experiment, &out, true).is_err(), "there is nothing to resume");
    let missing = Experiment::parse("x.yaml", SMALL, &changes(&["data={type: mnist, folder: no/where}"]));
    assert!(run(&missing.expect("it is right"), &out, false).is_err());
    assert!(!out.exists());
    let summary = run(&experiment, &out, false).expect("it trains");
    let again = run(&experiment, &out, false).expect_err("there is a run").to_string();
    assert!(again.contains("--resume"), "{again}");
    let other = Experiment::parse("x.yaml", SMALL, &changes(&["name=small", "seed=5"])).expect("it is right");
    let error = run(&other, &out, true).expect_err("another seed").to_string();
    assert!(error.contains("seed"), "{error}");
    let mut bytes = std::fs::read(&summary.checkpoint).expect("it was saved");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let path = folder.write("broken.safetensors", "");
    std::fs::write(&path, &bytes).expect("it can be written");
    let error = predict(&experiment, &path).expect_err("it is damaged").to_string();
    assert!(error.contains("broken.safetensors") && error.contains("damaged"), "{error}");
    let longer =
        Experiment::parse("x.yaml", SMALL, &changes(&["name=small", "epochs=5"])).expect("it is right");
    assert_eq!(run(&longer, &out, true).expect("more epochs are allowed").metrics.len(), 5);
}
