//! Runs that cannot succeed are rejected with one clear message, and leave nothing behind.

use crate::folder;

use std::path::Path;

use unisono_nn::{Experiment, TrainOptions, predict, train, write_npy};

use folder::Folder;

impl Folder {
    fn array(&self, name: &str, shape: &[usize], values: &[f32]) {
        write_npy(&self.0.join(name), shape, values).expect("it can be written");
    }

    /// An experiment on arrays in this folder.
    fn experiment(&self, data: &str, model: &str, changes: &[&str]) -> Experiment {
        let text = format!(
            "epochs: 2\nbatch_size: 6\ndata: {{type: arrays, {data}}}\nmodel: {{type: {model}, cost: sum_of_squares, \
             layers: [{{type: fully_connected, outputs: 4, activation: rectified}}]}}\n"
        );
        let changes: Vec<String> = changes.iter().map(|change| change.to_string()).collect();
        let file = self.0.join("arrays.yaml").display().to_string();
        Experiment::parse(&file, &text, &changes).expect("it is right")
    }
}

fn options(out: &Path, resume: bool) -> TrainOptions {
    TrainOptions { out: out.into(), resume, trace: None }
}

fn rejected(experiment: &Experiment, out: &Path) -> String {
    let error = train(experiment, &options(out, false), &mut ()).expect_err("it cannot go well");
    assert_eq!(error.kind(), unisono::Kind::Usage, "{error}");
    error.to_string()
}

fn arrays(folder: &Folder) -> Vec<f32> {
    let inputs: Vec<f32> = (0..24).map(|number| number as f32 / 24.0).collect();
    folder.array("x.npy", &[6, 4], &inputs);
    folder.array("y.npy", &[6], &[0.0, 1.0, 2.0, 3.0, 0.0, 1.0]);
    inputs
}

#[test]
fn nan_and_infinity_are_rejected_by_file_and_sample() {
    let folder = Folder::new("unbounded");
    let out = folder.0.join("run");
    let inputs = arrays(&folder);
    for bad in [f32::NAN, f32::INFINITY] {
        let mut broken = inputs.clone();
        broken[13] = bad;
        folder.array("bad.npy", &[6, 4], &broken);
        for data in [
            "inputs: bad.npy, targets: y.npy",
            "inputs: x.npy, targets: bad.npy",
            "inputs: x.npy, targets: y.npy, test_inputs: bad.npy, test_targets: y.npy",
        ] {
            let message = rejected(&folder.experiment(data, "network", &[]), &out);
            assert!(message.contains("bad.npy") && message.contains("index 1 of sample 3"), "{message}");
            assert!(message.contains("arrays.yaml:3") && !out.exists(), "{message}");
        }
    }
}

#[test]
fn diverged_weights_are_never_saved() {
    let folder = Folder::new("lost");
    arrays(&folder);
    // One batch per epoch: the cost is computed before the step that destroys the weights.
    let experiment = folder.experiment(
        "inputs: x.npy, targets: y.npy",
        "network",
        &["rule.type=momentum", "rule.rate=1e39"],
    );
    let out = folder.0.join("run");
    let message = rejected(&experiment, &out);
    assert!(message.contains("epoch 1") && message.contains("`fully_connected0/"), "{message}");
    let saved = std::fs::read_dir(out.join("checkpoints")).expect("the run began").count();
    assert_eq!(saved, 0);
}

#[test]
fn models_that_need_targets_require_them() {
    let folder = Folder::new("targets");
    arrays(&folder);
    let out = folder.0.join("run");
    for (data, key) in [
        ("inputs: x.npy", "`targets`"),
        ("inputs: x.npy, targets: y.npy, test_inputs: x.npy", "`test_targets`"),
    ] {
        let message = rejected(&folder.experiment(data, "network", &[]), &out);
        assert!(message.contains(key) && message.contains("arrays.yaml:3"), "{message}");
        assert!(!out.exists());
        let copies = folder.experiment(data, "autoencoder", &[]);
        let copied = folder.0.join(key.trim_matches('`'));
        train(&copies, &options(&copied, false), &mut ()).expect("an autoencoder needs none");
    }
    let labelled = folder.experiment("inputs: x.npy, targets: y.npy", "network", &[]);
    let summary = train(&labelled, &options(&out, false), &mut ()).expect("it trains");
    let message = predict(&labelled, &summary.checkpoint).expect_err("nothing to predict").to_string();
    assert!(message.contains("test samples") && message.contains("data.test_inputs"), "{message}");
    for data in ["inputs: x.npy, targets: y.npy, test_inputs: x.npy", "inputs: x.npy, test_inputs: x.npy"] {
        let found = predict(&folder.experiment(data, "network", &[]), &summary.checkpoint);
        let found = found.expect("samples without targets can be predicted");
        assert!(found.len() == 6 && found.iter().all(|one| one.class.is_none() && one.outputs.len() == 4));
    }
}

#[test]
fn a_run_keeps_completed_epochs_and_finds_its_data_from_any_folder() {
    let folder = Folder::new("back");
    arrays(&folder);
    let data = "inputs: x.npy, targets: y.npy, test_inputs: x.npy, test_targets: y.npy";
    let out = folder.0.join("run");
    let summary = train(&folder.experiment(data, "network", &[]), &options(&out, false), &mut ());
    let summary = summary.expect("it trains");
    let fewer = folder.experiment(data, "network", &["epochs=1"]);
    let error = train(&fewer, &options(&out, true), &mut ()).expect_err("two are done").to_string();
    assert!(error.contains("at least 2 epochs, the number already completed"), "{error}");
    let again = Experiment::read(&out.join("experiment.yaml"), &[]).expect("it was saved");
    assert_eq!(predict(&again, &summary.checkpoint).expect("its data is found").len(), 6);
}

#[test]
fn a_damaged_checkpoint_error_names_the_intact_one() {
    let folder = Folder::new("damaged");
    arrays(&folder);
    let data = "inputs: x.npy, targets: y.npy";
    let out = folder.0.join("run");
    let summary = train(&folder.experiment(data, "network", &[]), &options(&out, false), &mut ());
    std::fs::write(summary.expect("it trains").checkpoint, b"nothing").expect("it can be written");
    let more = folder.experiment(data, "network", &["epochs=3"]);
    let error = train(&more, &options(&out, true), &mut ()).expect_err("it is damaged").to_string();
    assert!(error.contains("epoch-000002.safetensors"), "{error}");
    assert!(error.contains("to continue from") && error.contains("epoch-000001.safetensors"), "{error}");
}

#[test]
fn test_targets_have_the_kind_of_training_targets() {
    let folder = Folder::new("widths");
    arrays(&folder);
    let out = folder.0.join("run");
    let zeros = [0.0; 24];
    for (name, width) in [("y4.npy", 4), ("y3.npy", 3)] {
        folder.array(name, &[6, width], &zeros[..6 * width]);
    }
    folder.array("none.npy", &[6, 0], &[]);
    let packed = std::fs::File::create(folder.0.join("packed.npy.gz")).expect("it can be made");
    let mut packer = flate2::write::GzEncoder::new(packed, flate2::Compression::fast());
    let plain = std::fs::read(folder.0.join("y3.npy")).expect("it is there");
    std::io::Write::write_all(&mut packer, &plain).and_then(|()| packer.finish()).expect("it can be written");
    let data = |targets: &str, test_targets: &str| {
        format!("inputs: x.npy, targets: {targets}, test_inputs: x.npy, test_targets: {test_targets}")
    };
    let four = "4 values per sample, like ";
    for (data, file, words) in [
        (data("y4.npy", "y3.npy"), "y3.npy", four),
        (data("y4.npy", "packed.npy"), "packed.npy", four),
        (data("y3.npy", "y4.npy"), "y4.npy", "3 values per sample"),
        (data("y4.npy", "y.npy"), "y.npy", four),
        (data("y.npy", "y4.npy"), "y4.npy", "classes, like "),
        (data("none.npy", "y4.npy"), "none.npy", "targets of at least one number"),
        ("inputs: none.npy".into(), "none.npy", "samples of at least one number"),
    ] {
        let message = rejected(&folder.experiment(&data, "network", &[]), &out);
        assert!(message.contains(file) && message.contains(words), "{data}: {message}");
        assert!(message.contains("arrays.yaml:3") && !out.exists(), "{message}");
    }
    let same = folder.experiment(&data("y4.npy", "y4.npy"), "network", &[]);
    train(&same, &options(&out, false), &mut ()).expect("both have four numbers");
}

#[test]
fn mismatched_arrays_are_named_with_both_files() {
    let folder = Folder::new("together");
    arrays(&folder);
    let (out, bytes) = (folder.0.join("run"), [7; 24]);
    let mut header = "{'descr': '|u1', 'fortran_order': False, 'shape': (6, 4), }".to_string();
    header.push('\n');
    let length = (header.len() as u16).to_le_bytes();
    let file = [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &bytes].concat();
    std::fs::write(folder.0.join("bytes.npy"), file).expect("it can be written");
    folder.array("turned.npy", &[6, 2, 2], &[0.5; 24]);
    std::fs::write(folder.0.join("many.npz"), b"PK\x03\x04 and so on").expect("it can be written");
    folder.array("strange.npy", &[6], &[0.0, 1.0, 2.0, 9.0, 0.0, 9.0]);
    let tested =
        |file: &str| format!("inputs: x.npy, targets: y.npy, test_inputs: {file}, test_targets: y.npy");
    for (data, words) in [
        (tested("bytes.npy"), ["bytes.npy", "x.npy", "divided by 255"]),
        (tested("turned.npy"), ["turned.npy", "x.npy", "(samples, maps, rows, columns)"]),
        (tested("many.npz"), ["many.npz", "a .npz archive", "numpy.save"]),
        (
            "inputs: x.npy, targets: strange.npy".into(),
            ["10 outputs", "largest class is 9", "training sample 3"],
        ),
    ] {
        let message = rejected(&folder.experiment(&data, "network", &[]), &out);
        assert!(words.iter().all(|word| message.contains(word)) && !out.exists(), "{data}: {message}");
    }
    // An override from the command line is named together with the line that it changes.
    let data = "inputs: x.npy, targets: y.npy";
    let message = rejected(&folder.experiment(data, "network", &["model.layers.0.outputs=5"]), &out);
    assert!(message.contains("arrays.yaml:4 with --set model.layers.0.outputs=5"), "{message}");
    let changes = [
        "model.cost=cross_entropy",
        "model.layers.0.activation=identity",
        "rule={type: gradient_descent, rate: 1e30}",
    ];
    let message = rejected(&folder.experiment(data, "network", &changes), &out);
    assert!(message.contains("activation: logistic"), "{message}");
}

#[test]
fn compressed_arrays_that_claim_too_much_are_rejected() {
    let folder = Folder::new("promises");
    let out = folder.0.join("run");
    for shape in ["1125899906842624, 1", "1, 1125899906842624"] {
        let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({shape}), }}");
        let length = (header.len() as u16).to_le_bytes();
        let file = std::fs::File::create(folder.0.join("packed.npy.gz")).expect("it can be made");
        let mut packer = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        let bytes = [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &[0; 64]].concat();
        std::io::Write::write_all(&mut packer, &bytes).and_then(|()| packer.finish()).expect("it is written");
        let experiment = folder.experiment("inputs: packed.npy", "autoencoder", &[]);
        let message = rejected(&experiment, &out);
        assert!(message.contains("packed.npy.gz") && message.contains("machine's memory"), "{message}");
        assert!(!out.exists());
    }
}

#[test]
fn runs_that_exceed_memory_are_rejected_before_allocation() {
    let folder = Folder::new("large");
    let out = folder.0.join("run");
    let text = "epochs: 1\nbatch_size: 9\ndata: {type: uniform_random, train: 9, test: 0, shape: [1, 8, 8], classes: 3}\n\
                model:\n  type: network\n  cost: sum_of_squares\n  layers:\n\
                \x20 - {type: convolution, maps: 2, kernel: 3}\n  - {type: pooling, kernel: 2}\n\
                \x20 - {type: fully_connected, outputs: 3}\n";
    let parse = |change: &str| Experiment::parse("large.yaml", text, &[change.to_string()]);
    let large = i64::MAX;
    for change in [
        format!("epochs={large}"),
        "epochs=1000000000000".into(),
        "model.layers.2.outputs=99999999999".into(),
        format!("model.layers.0.maps={large}"),
        format!("model.layers.0.padding={}", large / 2),
        format!("model.layers.0.padding={large}"),
        "data.train=1000000000000".into(),
        format!("data.shape=[{large}, {large}, {large}]"),
    ] {
        let message = parse(&change).expect_err(&change).to_string();
        assert!(message.starts_with(&format!("--set {change}: `")), "{message}");
    }
    for (change, words) in [
        ("model.layers.0.maps=2147483648", "layer `convolution0`"),
        ("model.layers.0.kernel=2147483648", "fits its input"),
        ("model.layers.0={type: convolution, maps: 1, kernel: 2147483648, padding: 2147483647}", "bytes"),
        ("model.layers.1={type: pooling, kernel: 2147483648, padding: 2147483647, stride: 1}", "bytes"),
        ("data={type: uniform_random, train: 2147483648, test: 1, shape: [9, 99, 99], classes: 3}", "bytes"),
        ("data.shape=[2147483648, 2147483648, 2147483648]", "bytes"),
    ] {
        let message = rejected(&parse(change).expect("each number alone is right"), &out);
        assert!(message.contains(words) && !out.exists(), "{change}: {message}");
    }
    // Each layer fits for one sample, but a batch, or all layers together, do not. A batch is no larger than the data.
    let wide = "model.layers.0={type: convolution, name: wide, maps: 3000000, kernel: 1, bias: false}";
    let many = "data={type: uniform_random, train: 100000, test: 1, shape: [1, 2, 2], classes: 3}";
    for spread in ["distributed=data", "distributed=halo"] {
        let changes = [wide, many, "batch_size=100000", spread].map(String::from);
        let experiment = Experiment::parse("large.yaml", text, &changes).expect("each number alone is right");
        let message = rejected(&experiment, &out);
        let words = ["`wide`", "bytes of this machine's memory", "make the batch"];
        assert!(words.iter().all(|word| message.contains(word)) && !out.exists(), "{message}");
    }
    train(&parse("batch_size=2147483648").expect("it is right"), &options(&out, false), &mut ())
        .expect("nine samples fit");
    // The maximum number of epochs is counted, not listed.
    assert_eq!(parse("epochs=2147483648").expect("it is right").phases().epochs(), 1 << 31);
}

#[test]
fn names_come_from_file_names_and_are_unique() {
    let layers = "epochs: 1\nbatch_size: 9\ndata: iris\nmodel: {type: network, cost: sum_of_squares, layers: \
                  [{type: fully_connected, name: a, outputs: 3, activation: tanh}, \
                  {type: fully_connected, name: LAST, outputs: 3}]}\n";
    for (file, name) in [
        ("my exp (1).yaml", "my_exp_1"),
        ("runs/plain-2.5.yaml", "plain-2.5"),
        ("(?).yaml", "experiment"),
        ("größe.yaml", "größe"),
    ] {
        assert_eq!(Experiment::parse(file, layers, &[]).expect(file).name, name);
    }
    for (name, words) in [("a.activation", "without `/`, `.`"), ("a", "`a` again")] {
        let error = Experiment::parse("x.yaml", &layers.replace("LAST", name), &[]).expect_err(name);
        assert!(error.to_string().contains(words) && error.to_string().contains("x.yaml:4"), "{error}");
    }
}
