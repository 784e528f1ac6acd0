//! Runs that cannot go well are refused with one clear message, and leave nothing behind.

mod folder;

use std::path::Path;

use unisono_nn::{Experiment, TrainOptions, predict, train, write_npy};

use folder::Folder;

impl Folder {
    fn array(&self, name: &str, shape: &[usize], values: &[f32]) {
        write_npy(&self.0.join(name), shape, values).expect("it can be written");
    }

    /// An experiment on arrays of this folder.
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

fn refused(experiment: &Experiment, out: &Path) -> String {
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
fn numbers_without_bounds_are_refused_by_file_and_sample() {
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
            let message = refused(&folder.experiment(data, "network", &[]), &out);
            assert!(message.contains("bad.npy") && message.contains("sample 3, at place 1"), "{message}");
            assert!(message.contains("arrays.yaml:3") && !out.exists(), "{message}");
        }
    }
}

#[test]
fn lost_weights_are_never_saved() {
    let folder = Folder::new("lost");
    arrays(&folder);
    // One batch an epoch: the cost is computed before the step that loses the weights.
    let experiment = folder.experiment(
        "inputs: x.npy, targets: y.npy",
        "network",
        &["rule.type=momentum", "rule.rate=1e39"],
    );
    let out = folder.0.join("run");
    let message = refused(&experiment, &out);
    assert!(message.contains("epoch 1") && message.contains("`fully_connected0/"), "{message}");
    let saved = std::fs::read_dir(out.join("checkpoints")).expect("the run began").count();
    assert_eq!(saved, 0);
}

#[test]
fn targets_are_asked_for_where_a_model_needs_them() {
    let folder = Folder::new("targets");
    arrays(&folder);
    let out = folder.0.join("run");
    for (data, key) in [
        ("inputs: x.npy", "`targets`"),
        ("inputs: x.npy, targets: y.npy, test_inputs: x.npy", "`test_targets`"),
    ] {
        let message = refused(&folder.experiment(data, "network", &[]), &out);
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
fn a_run_does_not_go_back_and_finds_its_data_from_anywhere() {
    let folder = Folder::new("back");
    arrays(&folder);
    let data = "inputs: x.npy, targets: y.npy, test_inputs: x.npy, test_targets: y.npy";
    let out = folder.0.join("run");
    let summary = train(&folder.experiment(data, "network", &[]), &options(&out, false), &mut ());
    let summary = summary.expect("it trains");
    let fewer = folder.experiment(data, "network", &["epochs=1"]);
    let error = train(&fewer, &options(&out, true), &mut ()).expect_err("two are done").to_string();
    assert!(error.contains("at least 2 epochs") && error.contains("received 1"), "{error}");
    let again = Experiment::read(&out.join("experiment.yaml"), &[]).expect("it was saved");
    assert_eq!(predict(&again, &summary.checkpoint).expect("its data is found").len(), 6);
}

#[test]
fn beside_a_damaged_checkpoint_the_whole_one_is_named() {
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
