//! Workers that share weights through a table: with `bsp` they learn what a single process learns, otherwise training still
//! converges.

use crate::folder;

use std::path::Path;

use unisono::testing::{spawn, spawn_worlds};
use unisono_nn::{Experiment, Summary, TrainOptions, compare, predict, train, train_in_world, train_on};

use folder::Folder;

const TEXT: &str = "
name: same
epochs: 3
batch_size: 12
precision: f64
data: {type: toy_images, sample: 40}
rule: {type: momentum, rate: 0.02, coefficient: 0.9, decay: 0.001}
distributed: {type: table, consistency: bsp}
model:
  type: network
  cost: softmax_cross_entropy
  layers:
    - {type: convolution, maps: 3, kernel: 5, stride: 3, activation: rectified}
    - {type: pooling, kernel: 2}
    - {type: dropout, keep: 0.8}
    - {type: fully_connected, outputs: 6, activation: tanh, rule: {type: nesterov, rate: 0.02}}
    - {type: fully_connected, outputs: 2}
";

fn read(changes: &[&str]) -> Experiment {
    let changes: Vec<String> = changes.iter().map(|change| change.to_string()).collect();
    Experiment::parse("table.yaml", TEXT, &changes).expect("it is right")
}

fn options(out: &Path, resume: bool) -> TrainOptions {
    TrainOptions { out: out.into(), resume, trace: None }
}

fn together(workers: usize, experiment: &Experiment, out: &Path, resume: bool) -> Summary {
    let run = |world: &unisono::World| {
        train_in_world(world, experiment, &options(out, resume), &mut ())
            .unwrap_or_else(|f| panic!("{}", f.error))
    };
    spawn_worlds(workers, run).remove(0)
}

fn near(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-10 * (1.0 + other.abs())
}

/// Asserts equal curves, and equal outputs of the final weights for the test samples.
fn assert_same(one: &Summary, other: &Summary, experiment: &Experiment) {
    for (one, other) in one.metrics.iter().zip(&other.metrics) {
        assert!(near(one.loss, other.loss), "{} {}", one.loss, other.loss);
        assert_eq!(one.train_error, other.train_error);
        assert!(near(one.test_loss.expect("it is tested"), other.test_loss.expect("it is tested")));
    }
    let outputs = |summary: &Summary| {
        let predictions = predict(experiment, &summary.checkpoint).expect("the checkpoint is intact");
        predictions.into_iter().flat_map(|one| one.outputs).collect::<Vec<f64>>()
    };
    let (one, other) = (outputs(one), outputs(other));
    assert_eq!(one.len(), other.len());
    assert!(one.iter().zip(&other).all(|(one, other)| near(*one, *other)), "{one:?} {other:?}");
}

#[test]
fn rounds_equal_one_process() {
    let folder = Folder::new("rounds");
    let experiment = read(&[]);
    let alone = train(&experiment, &options(&folder.0.join("alone"), false), &mut ()).expect("it trains");
    let data = read(&["distributed=data"]);
    // 51 samples in batches of 12: the last batch has three samples, fewer than workers.
    for workers in [1, 2, 3, 4] {
        let out = folder.0.join(workers.to_string());
        let shared = together(workers, &experiment, &out, false);
        assert_same(&shared, &alone, &experiment);
        let summed = together(workers, &data, &folder.0.join(format!("data{workers}")), false);
        assert_same(&shared, &summed, &experiment);
        // Each worker knows only the costs of its own samples of a batch, and has its own optimiser state.
        let rows = compare(&shared.out, &summed.out, 1e-8).expect("they have the same epochs and weights");
        assert!(rows.iter().all(|row| row.passes() && !row.what.starts_with("batches")), "{rows:?}");
        assert!(rows.iter().any(|row| row.what == "epochs: test_error"), "{rows:?}");
    }
}

#[test]
fn asynchronous_workers_learn() {
    let folder = Folder::new("pace");
    for (consistency, rule) in
        [("async", "momentum"), ("ssp:2", "momentum"), ("ssp", "adam"), ("async", "adam"), ("bsp", "adam")]
    {
        for workers in [2, 4] {
            let kind = format!("distributed.consistency={consistency}");
            let rule = format!("rule={{type: {rule}, rate: 0.02}}");
            let experiment = read(&[&kind, &rule, "epochs=12", "model.layers.2.keep=1"]);
            let out = folder.0.join(format!("{consistency}-{workers}-{}", rule.len()));
            let losses: Vec<f64> =
                together(workers, &experiment, &out, false).metrics.iter().map(|row| row.loss).collect();
            assert!(losses[11] < 0.9 * losses[0], "{consistency} on {workers}: {losses:?}");
        }
    }
}

#[test]
fn a_run_resumes_with_another_number_of_workers() {
    let folder = Folder::new("resumed");
    let plain = "rule={type: gradient_descent, rate: 0.05}";
    let layer = "model.layers.3.rule={type: gradient_descent, rate: 0.05}";
    let (short, long) = (read(&[plain, layer, "epochs=2"]), read(&[plain, layer, "epochs=4"]));
    let uninterrupted =
        train(&long, &options(&folder.0.join("uninterrupted"), false), &mut ()).expect("it trains");
    let out = folder.0.join("part");
    together(2, &short, &out, false);
    let resumed = together(3, &long, &out, true);
    assert_eq!(resumed.metrics.len(), 4);
    assert_same(&resumed, &uninterrupted, &long);
}

#[test]
fn every_worker_resumes_its_own_rule_state() {
    let folder = Folder::new("remembered");
    // A bias before batch normalisation has no gradient but rounding; a larger eps keeps adam from amplifying it.
    for rule in ["{type: momentum, rate: 0.02}", "{type: adam, rate: 0.01, eps: 1e-4}"] {
        let rule = format!("rule={rule}");
        let normal = "model.layers.2={type: batch_norm}";
        let (short, long) = (read(&[&rule, normal, "epochs=2"]), read(&[&rule, normal, "epochs=4"]));
        let name = rule.len().to_string();
        let uninterrupted = together(2, &long, &folder.0.join(format!("uninterrupted{name}")), false);
        let out = folder.0.join(format!("part{name}"));
        together(2, &short, &out, false);
        assert_same(&together(2, &long, &out, true), &uninterrupted, &long);
    }
    // For a linear rule, the mean of the workers' states is that of a single process, so any number of workers can continue
    // with it.
    let (short, long) = (read(&["epochs=2"]), read(&["epochs=4"]));
    let uninterrupted = train(&long, &options(&folder.0.join("alone"), false), &mut ()).expect("it trains");
    for workers in [1, 3] {
        let out = folder.0.join(format!("other{workers}"));
        together(2, &short, &out, false);
        assert_same(&together(workers, &long, &out, true), &uninterrupted, &long);
    }
}

#[test]
fn models_that_cannot_use_a_table_are_rejected() {
    let folder = Folder::new("rejected");
    let out = folder.0.join("run");
    let experiment = read(&[]);
    let errors = spawn(2, |group| {
        train_on(&group, &experiment, &options(&out, false), &mut ()).expect_err("no tables")
    });
    assert!(errors[0].own && !errors[1].own);
    assert!(errors[0].error.to_string().contains("train_in_world"), "{}", errors[0].error);
    let text = TEXT.replace("consistency: bsp", "consistency: sometimes");
    let experiment = Experiment::parse("table.yaml", &text, &[]).expect("it is looked at later");
    let run = |world: &unisono::World| train_in_world(world, &experiment, &options(&out, false), &mut ());
    let error = spawn_worlds(2, run).remove(0).expect_err("no such word").error.to_string();
    assert!(error.contains("table.yaml:8") && error.contains("sometimes"), "{error}");
    let steep = "rule={type: gradient_descent, rate: 1e38}";
    let cost = "model.cost=sum_of_squares";
    let experiment = read(&[steep, cost, "precision=f32", "distributed.consistency=async"]);
    let run = |world: &unisono::World| train_in_world(world, &experiment, &options(&out, false), &mut ());
    for failure in spawn_worlds(2, run) {
        assert_eq!(failure.expect_err("it diverges").error.kind(), unisono::Kind::Usage);
    }
}
