//! The example of a user-defined data set, layer and model: its parts and the program.

#[path = "../../examples/extending/denoising.rs"]
mod denoising;
#[path = "../../examples/extending/gate.rs"]
mod gate;
#[path = "../../examples/extending/spirals.rs"]
mod spirals;

use std::path::Path;
use std::process::Command;

use unisono_nn::{DataSet, Experiment, Extensions, check_gradients};

const TEXT: &str = include_str!("../../examples/extending/spirals.yaml");

fn extensions() -> Extensions {
    let mut extensions = Extensions::default();
    extensions.add_data("spirals", spirals::spirals);
    extensions.add_layer("gate", gate::Gates);
    extensions
}

#[test]
fn the_layer_has_the_right_gradients() {
    let experiment = Experiment::parse_with("spirals.yaml", TEXT, &[], &extensions()).expect("it is right");
    let checks = check_gradients(&experiment, 20).expect("it can be checked");
    assert!(checks.iter().any(|check| check.weight == "gate1/steepness"), "{checks:?}");
    assert!(checks.iter().all(|check| check.passes()), "{checks:?}");
}

#[test]
fn the_data_set_has_two_classes_and_its_settings() {
    let changes = ["data.settings.points=10".to_string()];
    let experiment =
        Experiment::parse_with("spirals.yaml", TEXT, &changes, &extensions()).expect("it is right");
    let data = DataSet::load(&experiment.source, experiment.seed).expect("it can be made");
    assert_eq!((data.train.count, data.test.count, data.train.class(3)), (10, 2, Some(1)));
}

#[test]
fn the_model_learns_the_same_on_any_number_of_ranks() {
    let alone = unisono::testing::spawn(1, |group| denoising::learn_digits(&group, 12).expect("it learns"));
    assert!(alone[0][11] < 0.9 * alone[0][0], "{:?}", alone[0]);
    for size in [2, 3] {
        for costs in
            unisono::testing::spawn(size, |group| denoising::learn_digits(&group, 12).expect("it learns"))
        {
            for (one, other) in costs.iter().zip(&alone[0]) {
                assert!((one - other).abs() < 1e-9 * other, "{one} {other}");
            }
        }
    }
}

#[test]
fn unregistered_kinds_are_rejected_with_their_line() {
    let line = |part: &str| 1 + TEXT.lines().position(|line| line.contains(part)).expect("it is there");
    for (part, wrong, words) in [
        ("kind: gate}", "kind: gat}", "did you mean `gate`?"),
        ("kind: spirals,", "kind: circles,", "a data set that this program added: spirals"),
        ("steepness: 1.5", "steepness: steep", "a number as `steepness`"),
    ] {
        let text = TEXT.replace(part, wrong);
        let experiment = Experiment::parse_with("own.yaml", &text, &[], &extensions());
        let error = experiment
            .and_then(|experiment| experiment.shapes(unisono_nn::Shape::flat(2), 2))
            .expect_err(wrong)
            .to_string();
        assert!(error.contains(&format!("own.yaml:{}", line(part))) && error.contains(words), "{error}");
    }
    let error = Experiment::parse("own.yaml", TEXT, &[]).expect_err("nothing was added").to_string();
    assert!(error.contains("that this program added"), "{error}");
}

#[test]
fn the_program_runs() {
    // Cargo places examples next to the folder of tests.
    let tests = std::env::current_exe().expect("a test is a program");
    let program = tests.ancestors().nth(2).expect("it lies in target/…/deps").join("examples/extending");
    if !program.is_file() {
        println!("left out: the program of the extending guide, because only this test was built");
        return;
    }
    let out = std::env::temp_dir().join(format!("unisono-extending-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&out);
    let output = Command::new(program).arg(&out).output().expect("it can be started");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let wrong =
        text.lines().find_map(|line| line.strip_prefix("spirals: ")?.split(' ').next()?.parse::<f64>().ok());
    assert!(wrong.is_some_and(|wrong| wrong < 15.0), "{text}");
    assert!(Path::new(&out).join("experiment.yaml").is_file());
    std::fs::remove_dir_all(&out).expect("it can be removed");
}

#[test]
fn a_user_defined_layer_computes_on_parts() {
    let text = "
name: same
epochs: 2
batch_size: 8
precision: f64
data: {type: uniform_random, train: 20, test: 5, shape: [2, 7, 6], classes: 3}
distributed: {type: halo}
model:
  type: network
  cost: softmax_cross_entropy
  layers:
    - {type: convolution, maps: 3, kernel: 3, padding: 1}
    - {type: own, name: gate1, kind: gate}
    - {type: convolution, maps: 2, kernel: 3}
    - {type: fully_connected, outputs: 4}
    - {type: own, name: gate2, kind: gate}
    - {type: fully_connected, outputs: 3}
";
    let experiment = Experiment::parse_with("parts.yaml", text, &[], &extensions()).expect("it is right");
    let folder = std::env::temp_dir().join(format!("unisono-own-parts-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let curve = |ranks: usize| {
        let out = folder.join(ranks.to_string());
        let options = unisono_nn::TrainOptions { out, resume: false, trace: None };
        let run = |group| unisono_nn::train_on(&group, &experiment, &options, &mut ()).expect("it trains");
        unisono::testing::spawn(ranks, run).remove(0).metrics.iter().map(|row| row.loss).collect::<Vec<_>>()
    };
    let alone = curve(1);
    // With more ranks than rows, some ranks have no part, and the layer is computed in full.
    for ranks in [2, 4, 6, 11] {
        for (one, other) in curve(ranks).iter().zip(&alone) {
            assert!((one - other).abs() < 1e-10, "{ranks} ranks: {one} {other}");
        }
    }
    std::fs::remove_dir_all(&folder).expect("it can be removed");
}
