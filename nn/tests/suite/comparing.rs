//! `compare` reports every difference between two runs except times.

use crate::folder;

use std::path::{Path, PathBuf};

use unisono_nn::{Comparison, Experiment, TrainOptions, compare, train};

use folder::Folder;

const SMALL: &str = "
epochs: 2
batch_size: 6
data: {type: uniform_random, train: 12, test: 4, shape: [1, 4, 4], classes: 2}
rule: {type: momentum, rate: 0.01}
model: {type: network, cost: sum_of_squares, layers: [{type: fully_connected, name: output, outputs: 2}]}
";

fn run(out: &Path, changes: &[&str]) -> PathBuf {
    let changes: Vec<String> = changes.iter().map(|change| change.to_string()).collect();
    let experiment = Experiment::parse("small.yaml", SMALL, &changes).expect("it is right");
    let options = TrainOptions { out: out.into(), resume: false, trace: None };
    train(&experiment, &options, &mut ()).expect("it trains").out
}

/// The names of the values in which two runs differ.
fn differ(one: &Path, other: &Path) -> Vec<String> {
    let found = compare(one, other, 0.0).expect("they can be compared");
    found.iter().filter(|row| !row.passes()).map(|row: &Comparison| row.what.clone()).collect()
}

/// A second, identical run with the text of one file changed.
fn changed(folder: &Folder, name: &str, change: impl Fn(String) -> String) -> PathBuf {
    let out = folder.0.join("changed");
    let _ = std::fs::remove_dir_all(&out);
    let path = run(&out, &[]).join(name);
    let text = std::fs::read_to_string(&path).expect("it was written");
    let after = change(text.clone());
    assert_ne!(text, after, "nothing was changed");
    std::fs::write(&path, after).expect("it can be written");
    out
}

/// The table with one metric of one line changed.
fn with(text: String, name: &str, line: usize) -> String {
    let mut rows: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
    rows[line][name] = serde_json::json!(rows[line][name].as_f64().expect("a number") + 0.5);
    rows.iter().map(|row| format!("{row}\n")).collect()
}

#[test]
fn every_figure_except_times_is_compared() {
    let folder = Folder::new("figures");
    let one = run(&folder.0.join("one"), &[]);
    for figure in ["loss", "train_error", "test_loss", "test_error"] {
        let other = changed(&folder, "metrics.jsonl", |text| with(text, figure, 1));
        assert_eq!(differ(&one, &other), [format!("epochs: {figure}")]);
    }
    for time in ["seconds", "samples_per_second"] {
        let other = changed(&folder, "metrics.jsonl", |text| with(text, time, 1));
        assert!(differ(&one, &other).is_empty(), "{time}");
    }
    let other = changed(&folder, "batches.csv", |text| format!("{}9\n", text.trim_end()));
    assert_eq!(differ(&one, &other), ["batches 1 to 4"]);
}

#[test]
fn entries_of_only_one_run_are_named_from_either_side() {
    let folder = Folder::new("alone");
    let one = run(&folder.0.join("one"), &[]);
    let assert_reported = |other: &Path, words: [&str; 2]| {
        for (one, other, [expected, received]) in
            [(&*one, other, words), (other, &*one, [words[1], words[0]])]
        {
            let error = compare(one, other, 1e9).expect_err("they differ in kind").to_string();
            let (before, after) = error.split_once("received").expect("all errors contain it");
            let (expected, received) = match (expected, received) {
                (entry, "") => ("the same in both", format!("{entry} in {} alone", one.display())),
                ("", entry) => ("the same in both", format!("{entry} in {} alone", other.display())),
                (expected, received) => (expected, received.to_string()),
            };
            assert!(before.contains(expected) && after.contains(&received), "{error}");
        }
    };
    let shorter = changed(&folder, "batches.csv", |text| text.lines().take(4).collect::<Vec<_>>().join("\n"));
    assert_reported(&shorter, ["batches 1 to 4", "batches 1 to 3"]);
    let shorter = changed(&folder, "metrics.jsonl", |text| text.lines().take(1).collect());
    assert_reported(&shorter, ["epoch 2 of full after batch 4", ""]);
    let renamed = changed(&folder, "metrics.jsonl", |text| text.replace("full", "last"));
    assert_reported(&renamed, ["epoch 1 of full after batch 2", "epoch 1 of last after batch 2"]);
    for (number, (change, words)) in [
        ("test_every=2", ["test_loss of epoch 1", ""]),
        ("epochs=3", ["", "epoch 3 of full after batch 6"]),
        ("rule={type: gradient_descent}", ["`output/bias.momentum_buffer` of shape [2]", ""]),
        (
            "rule={type: adam}",
            ["`output/bias.momentum_buffer` of shape [2]", "`output/bias.average` of shape [2]"],
        ),
        ("model.layers.0.bias=false", ["`output/bias` of shape [2]", ""]),
        ("data.shape=[1, 4, 5]", ["`output/weights` of shape [2, 16]", "`output/weights` of shape [2, 20]"]),
    ]
    .into_iter()
    .enumerate()
    {
        assert_reported(&run(&folder.0.join(number.to_string()), &[change]), words);
    }
}

#[test]
fn checkpoints_of_different_epochs_are_distinguished() {
    let folder = Folder::new("newest");
    let [one, other] = ["one", "other"].map(|name| run(&folder.0.join(name), &[]));
    std::fs::remove_file(other.join("checkpoints/epoch-000002.safetensors")).expect("it was saved");
    let error = compare(&one, &other, 1e9).expect_err("an older checkpoint is left").to_string();
    assert!(error.contains("epoch-000002") && error.contains("epoch-000001"), "{error}");
}

#[test]
fn a_damaged_line_is_rejected() {
    let folder = Folder::new("damaged");
    let one = run(&folder.0.join("one"), &[]);
    for name in ["metrics.jsonl", "batches.csv"] {
        let other = changed(&folder, name, |text| format!("{text}half a li"));
        let error = compare(&one, &other, 1.0).expect_err("a line is damaged").to_string();
        assert!(error.contains(name) && error.contains("half a li"), "{error}");
    }
}
