//! A run's folder: which files belong to it, which process may write to it, and which inputs it accepts.

use crate::folder;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use unisono_nn::{EpochMetrics, Experiment, Summary, TrainOptions, Watch, check_gradients, predict, train};

use folder::Folder;

const SMALL: &str = "
epochs: 3
batch_size: 6
keep: 1
data: {type: uniform_random, train: 12, test: 4, shape: [1, 4, 4], classes: 2}
rule: {type: momentum, rate: 0.01}
model:
  type: network
  cost: sum_of_squares
  layers:
    - {type: convolution, name: conv, maps: 4, kernel: 5, padding: 2}
    - {type: fully_connected, name: output, outputs: 2}
";

fn experiment(changes: &[&str]) -> Experiment {
    let changes: Vec<String> = changes.iter().map(|change| change.to_string()).collect();
    Experiment::parse("small.yaml", SMALL, &changes).expect("it is right")
}

fn run(experiment: &Experiment, out: &Path, resume: bool) -> unisono::Result<Summary> {
    train(experiment, &TrainOptions { out: out.into(), resume, trace: None }, &mut ())
}

fn rejected(experiment: &Experiment, out: &Path, resume: bool) -> String {
    run(experiment, out, resume).expect_err("it must be rejected").to_string()
}

/// Creates the user's files in a folder, each with its own content.
fn put(folder: &Path, names: &[&str]) {
    for name in names {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("a folder can be made");
        std::fs::write(path, format!("somebody's {name}")).expect("it can be written");
    }
}

fn assert_unchanged(folder: &Path, names: &[&str]) {
    for name in names {
        let text =
            std::fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(text, format!("somebody's {name}"));
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn unrelated_files_are_not_changed() {
    let folder = Folder::new("others");
    // A path that looks like an event file makes no difference.
    let out = folder.0.join("events.out.tfevents.all");
    let theirs = [
        "checkpoints/alpha.safetensors",
        "checkpoints/best.safetensors",
        "checkpoints/zzz.safetensors",
        "checkpoints/epoch-7.safetensors",
        "events.out.tfevents.9999999999.host",
        "notes.txt",
    ];
    put(&out, &theirs);
    let summary = run(&experiment(&[]), &out, false).expect("nothing of these is a run's");
    assert_unchanged(&out, &theirs);
    assert_eq!(summary.checkpoint, out.join("checkpoints/epoch-000003.safetensors"));
    assert_eq!(names(&out.join("checkpoints")).len(), 5, "one checkpoint is kept");
    let resumed = run(&experiment(&["epochs=4"]), &out, true).expect("it resumes from its own checkpoint");
    assert_unchanged(&out, &theirs);
    assert_eq!(resumed.metrics.len(), 4);
    assert_eq!(names(&out).iter().filter(|name| name.ends_with(".unisono")).count(), 1, "one file of events");
    let newest = predict(&experiment(&[]), &out).expect("the newest checkpoint is its own");
    assert_eq!(newest, predict(&experiment(&[]), &resumed.checkpoint).expect("it is there"));
    let compared = unisono_nn::compare(&out, &out, 0.0).expect("a run is like itself");
    assert!(compared.iter().all(|one| one.passes()));
}

#[test]
fn a_folder_with_files_of_a_run_is_rejected() {
    let folder = Folder::new("taken");
    for (number, name) in [
        "metrics.csv",
        "experiment.yaml",
        "loss.svg",
        "filters.png",
        "events.out.tfevents.0000000001.unisono",
        "checkpoints/epoch-000009.safetensors",
    ]
    .iter()
    .enumerate()
    {
        let out = folder.0.join(number.to_string());
        put(&out, &[name, "notes.txt"]);
        let before = names(&out);
        let message = rejected(&experiment(&[]), &out, false);
        assert!(message.contains(name) && message.contains("another --out"), "{message}");
        assert!(!message.contains("notes.txt"), "{message}");
        assert_unchanged(&out, &[name, "notes.txt"]);
        assert_eq!(names(&out), before);
    }
    // Resuming without a run is also rejected without leaving a trace.
    let out = folder.0.join("0");
    let before = names(&out);
    rejected(&experiment(&[]), &out, true);
    assert_eq!(names(&out), before);
}

/// Tries to train into the same folder during a run.
struct Intruder {
    out: PathBuf,
    rejected: Vec<String>,
}

impl Watch for Intruder {
    fn epoch(&mut self, _: &EpochMetrics) {
        for resume in [true, false] {
            self.rejected.push(rejected(&experiment(&[]), &self.out, resume));
        }
    }
}

#[test]
fn one_process_at_a_time_writes_a_folder() {
    let folder = Folder::new("locked");
    let (out, alone) = (folder.0.join("run"), folder.0.join("alone"));
    let mut intruder = Intruder { out: out.clone(), rejected: Vec::new() };
    let options = TrainOptions { out: out.clone(), resume: false, trace: None };
    let summary = train(&experiment(&[]), &options, &mut intruder).expect("it is not disturbed");
    assert_eq!(intruder.rejected.len(), 6);
    let message = &intruder.rejected[0];
    assert!(message.contains("another process") && message.contains(&out.display().to_string()), "{message}");
    let expected = run(&experiment(&[]), &alone, false).expect("it trains");
    let read = |path: &Path| std::fs::read(path).expect("it was saved");
    assert!(read(&summary.checkpoint) == read(&expected.checkpoint));
    // The lock is released with the run, and the partial files of a killed process are removed.
    put(&out, &["metrics.csv.12.part", "checkpoints/epoch-000009.safetensors.12.part"]);
    run(&experiment(&["epochs=4"]), &out, true).expect("the folder is free again");
    let left = [names(&out), names(&out.join("checkpoints"))].concat();
    assert!(left.iter().all(|name| !name.ends_with(".part")), "{left:?}");
}

/// Hard-links the table of batches when the run starts, and records the contents of both names later.
struct Linker {
    out: PathBuf,
    seen: Vec<[String; 2]>,
}

impl Watch for Linker {
    fn epoch(&mut self, row: &EpochMetrics) {
        let (file, link) = (self.out.join("batches.csv"), self.out.join("link.csv"));
        if row.epoch == 1 {
            std::fs::hard_link(&file, &link).expect("the run has begun its tables");
        }
        self.seen.push([file, link].map(|path| std::fs::read_to_string(path).expect("it is there")));
    }
}

#[test]
fn tables_grow_line_by_line() {
    let folder = Folder::new("grow");
    let out = folder.0.join("run");
    let mut linker = Linker { out: out.clone(), seen: Vec::new() };
    let options = TrainOptions { out: out.clone(), resume: false, trace: None };
    train(&experiment(&["epochs=4"]), &options, &mut linker).expect("it trains");
    // An epoch has two batches, which are written after the observer is called; a file that is rewritten would be another
    // inode.
    for (epoch, [file, link]) in linker.seen.iter().enumerate() {
        assert_eq!(file, link, "after epoch {epoch}");
        assert_eq!(file.lines().count(), 1 + 2 * epoch);
    }
}

#[test]
fn a_run_that_was_killed_while_it_wrote_ends_with_the_same_files() {
    let folder = Folder::new("half");
    let uninterrupted = folder.0.join("uninterrupted");
    run(&experiment(&["name=same", "epochs=4", "keep=9"]), &uninterrupted, false).expect("it trains");
    // Times differ between runs; all other contents must be equal.
    let untimed = |out: &Path| -> Vec<String> {
        let read = |name: &str| std::fs::read_to_string(out.join(name)).expect("it was written");
        let rows: Vec<EpochMetrics> = read("metrics.jsonl")
            .lines()
            .map(|line| serde_json::from_str(line).expect("a full line"))
            .collect();
        let rows = rows.into_iter().map(|row| {
            format!(
                "{:?}",
                EpochMetrics { seconds: 0.0, samples_per_second: 0.0, communication: None, ..row }
            )
        });
        let csv = read("metrics.csv");
        let csv = csv.lines().map(|line| line.split(',').take(8).collect::<Vec<_>>().join(","));
        rows.chain(csv).chain([read("batches.csv"), read("loss.svg"), read("experiment.yaml")]).collect()
    };
    let expected = untimed(&uninterrupted);
    let settings = ["name=same", "epochs=4", "keep=9"];
    let (killed, part) = (folder.0.join("killed"), folder.0.join("part"));
    run(&experiment(&settings), &killed, false).expect("it trains");
    for epoch in [3, 4] {
        let path = killed.join(format!("checkpoints/epoch-{epoch:06}.safetensors"));
        std::fs::remove_file(path).expect("it was saved");
    }
    // The lines of two epochs, and the header if there is one, are complete before their checkpoint is written.
    for (name, kept) in [("metrics.csv", 3), ("metrics.jsonl", 2), ("batches.csv", 5)] {
        let text = std::fs::read_to_string(killed.join(name)).expect("it was written");
        let kept: usize = text.split_inclusive('\n').take(kept).map(str::len).sum();
        for length in (kept..=text.len()).step_by(7).chain([kept + 1, text.len() - 1]) {
            let _ = std::fs::remove_dir_all(&part);
            std::fs::create_dir_all(part.join("checkpoints")).expect("a folder can be made");
            let saved =
                names(&killed.join("checkpoints")).into_iter().map(|name| format!("checkpoints/{name}"));
            for name in names(&killed).into_iter().filter(|name| name != "checkpoints").chain(saved) {
                std::fs::copy(killed.join(&name), part.join(&name)).expect("it can be copied");
            }
            std::fs::write(part.join(name), &text[..length]).expect("it can be written");
            run(&experiment(&settings), &part, true).expect("it resumes");
            assert_eq!(untimed(&part), expected, "{name} was cut after {length} bytes");
        }
    }
}

/// Writes a safetensors file in single precision.
fn weights(path: &Path, tensors: &[(&str, &[usize], &[f32])]) {
    let bytes: Vec<Vec<u8>> = tensors
        .iter()
        .map(|(_, _, values)| values.iter().flat_map(|value| value.to_le_bytes()).collect())
        .collect();
    let views: BTreeMap<&str, safetensors::tensor::TensorView<'_>> = tensors
        .iter()
        .zip(&bytes)
        .map(|((name, shape, _), bytes)| {
            let kind = safetensors::tensor::Dtype::F32;
            let view = safetensors::tensor::TensorView::new(kind, shape.to_vec(), bytes);
            (*name, view.expect("as many numbers as the shape has"))
        })
        .collect();
    let bytes = safetensors::serialize(views, None).expect("they can be packed");
    std::fs::write(path, bytes).expect("it can be written");
}

#[test]
fn initial_weights_have_the_right_shape_and_are_finite() {
    let folder = Folder::new("first-weights");
    let (file, out) = (folder.0.join("first.safetensors"), folder.0.join("run"));
    let setting = format!("initial_weights={}", file.display());
    let experiment = experiment(&[&setting]);
    let (mut lost, fine) = ([0.01; 128], [0.01; 128]);
    lost[77] = f32::NAN;
    for (name, shape, values, words) in [
        ("output/weights", &[64, 2][..], &fine[..], &["[2, 64]", "[64, 2]"][..]),
        ("conv/weights", &[100], &fine[..100], &["[4, 1, 5, 5]", "[100]"]),
        ("output/weights", &[2, 64], &lost, &["NaN at index 77"]),
        ("output/weights.momentum_buffer", &[2, 64], &fine, &["output/bias"]),
    ] {
        weights(&file, &[(name, shape, values)]);
        let message = rejected(&experiment, &out, false);
        assert!(message.contains(name) && message.contains("first.safetensors"), "{message}");
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
        assert!(!out.exists(), "{message}");
    }
    weights(&file, &[("output/weights", &[2, 64], &fine)]);
    run(&experiment, &out, false).expect("these fit");
}

#[test]
fn a_resumed_run_keeps_its_initial_weights() {
    let folder = Folder::new("tail");
    let (file, out) = (folder.0.join("first.safetensors"), folder.0.join("run"));
    weights(&file, &[("output/bias", &[2], &[1.0, 2.0])]);
    let setting = format!("initial_weights={}", file.display());
    let with = [setting.as_str()];
    for (number, (before, after)) in [(&[][..], &with[..]), (&with, &[])].into_iter().enumerate() {
        let out = out.join(number.to_string());
        run(&experiment(before), &out, false).expect("it trains");
        let message = rejected(&experiment(after), &out, true);
        assert!(message.contains("initial_weights") && message.contains("another --out"), "{message}");
        run(&experiment(before), &out, true).expect("the same settings go on");
    }
}

#[test]
fn a_run_that_diverged_reports_how_to_start_over() {
    let folder = Folder::new("diverged");
    let out = folder.0.join("run");
    let message = rejected(&experiment(&["rule.rate=1e300"]), &out, false);
    let words = ["lower the learning rate", "another --out", "delete", &out.display().to_string()];
    assert!(words.iter().all(|word| message.contains(word)), "{message}");
    std::fs::remove_dir_all(&out).expect("the run left its folder");
    run(&experiment(&[]), &out, false).expect("it can begin again");
}

#[test]
fn names_cannot_leave_their_folder() {
    for name in [".", "..", "''", "a/b"] {
        let error = Experiment::parse("small.yaml", SMALL, &[format!("name={name}")]).expect_err(name);
        assert!(error.to_string().contains("the name of a folder"), "{error}");
    }
    assert_eq!(experiment(&["name=..a"]).name, "..a");
}

#[test]
fn paths_that_are_not_utf8_or_need_quotes_round_trip() {
    use std::os::unix::ffi::OsStrExt;
    let folder = Folder::new("paths");
    let out = folder.0.join(std::ffi::OsStr::from_bytes(b"run-\xff\xfe"));
    run(&experiment(&[]), &out, false).expect("it trains");
    let resumed = run(&experiment(&["epochs=4"]), &out, true).expect("it resumes");
    assert!(resumed.checkpoint.exists() && predict(&experiment(&[]), &out).is_ok());
    for name in
        ["de\u{301}but", "zero\u{200b}width", "no\u{a0}break", "delete\u{7f}", "quote\"\\'", "line\nbreak"]
    {
        let file = folder.0.join(name).with_extension("safetensors");
        weights(&file, &[("output/bias", &[2], &[1.0, 2.0])]);
        let quoted = serde_json::json!(file).to_string().replace('\u{7f}', "\\u007f");
        let text = format!("{SMALL}initial_weights: {quoted}\n");
        let experiment = Experiment::parse("small.yaml", &text, &[]).expect("it is right");
        assert_eq!(experiment.initial_weights.as_deref(), Some(&*file));
        let out = folder.0.join(format!("run-{name}"));
        run(&experiment, &out, false).expect("the weights are found");
        let again = Experiment::read(&out.join("experiment.yaml"), &[]).expect("it reads back");
        assert_eq!(again.initial_weights, experiment.initial_weights);
        run(&again, &out, true).expect("it resumes");
    }
}

#[test]
fn nan_gradients_fail_the_check() {
    let lost = "model.layers.1.weights={type: uniform, low: 1e200, high: 1e201}";
    let checks = check_gradients(&experiment(&[lost]), 3).expect("it can be checked");
    assert!(checks.iter().any(|check| !check.passes()), "{checks:?}");
    let checks = check_gradients(&experiment(&[]), 3).expect("it can be checked");
    assert!(checks.iter().all(|check| check.passes()), "{checks:?}");
}
