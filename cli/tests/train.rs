//! `unisono train` and related commands as a user calls them.

mod common;

use common::*;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn shipped(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments").join(name).display().to_string()
}

#[test]
fn an_experiment_trains_and_predicts() {
    let folder = Folder::new();
    let out = folder.path("run");
    let output = finish(unisono(["train", &shipped("iris.yaml"), "--set", "epochs=30", "--out", &out]));
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("epoch 30 full"), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).trim(), out);
    let settings = format!("{out}/experiment.yaml");
    let checkpoint = format!("{out}/checkpoints/epoch-000030.safetensors");
    let output = finish(unisono(["predict", &settings, &checkpoint]));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = text(&output.stdout);
    assert_eq!((lines.lines().next(), lines.lines().count()), (Some("sample,predicted,class,outputs"), 31));
    // The folder of a run stands for its newest checkpoint.
    let newest = finish(unisono(["predict", &settings, &out]));
    assert_eq!(text(&newest.stdout), lines, "{}", text(&newest.stderr));
    let empty = folder.path("empty");
    std::fs::create_dir_all(&empty).unwrap();
    let rejected = finish(unisono(["predict", &settings, &empty]));
    assert_eq!(rejected.status.code(), Some(2));
    let errors = text(&rejected.stderr);
    assert!(
        errors.contains("expected a checkpoint, received the folder") && errors.contains("empty"),
        "{errors}"
    );
    let right = lines.lines().skip(1).filter(|line| line.split(',').nth(1) == line.split(',').nth(2)).count();
    assert!(right >= 27, "{right} of 30 flowers");
    let output = finish(unisono(["grad", &settings]));
    assert!(
        output.status.success() && text(&output.stdout).contains("hidden/weights"),
        "{}",
        text(&output.stdout)
    );
}

#[test]
fn the_first_run_needs_only_its_own_file() {
    let folder = Folder::new();
    let experiment = "epochs: 1\nbatch_size: 20\ndata: {type: mnist, sample: 2}\nmodel:\n  type: network\n  \
                      cost: softmax_cross_entropy\n  layers: [{type: fully_connected, outputs: 10}]\n";
    std::fs::write(folder.path("digits.yaml"), experiment).unwrap();
    let mut command = unisono(["train", "digits.yaml"]);
    command.current_dir(&folder.0);
    let output = finish(command);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let metrics = std::fs::read_to_string(folder.path("runs/digits/metrics.csv")).unwrap();
    assert!(metrics.lines().nth(1).is_some_and(|line| line.starts_with("1,full,3,")), "{metrics}");
}

#[test]
fn wrong_files_end_with_2_one_line_and_nothing_written() {
    let folder = Folder::new();
    let good = std::fs::read_to_string(shipped("iris.yaml")).unwrap();
    for (name, bad, words) in [
        ("unknown key", good.replace("epochs", "epoch"), "did you mean `epochs`?"),
        ("unknown layer", good.replace("fully_connected, name: hidden", "full, name: hidden"), "bad.yaml:11"),
        ("impossible shape", good.replace("outputs: 3}", "outputs: 5}"), "bad.yaml:12"),
        ("missing data", good.replace("{type: iris}", "{type: mnist, folder: nowhere}"), "bad.yaml:5"),
        ("no data", good.replace("{type: iris}", "{type: cifar10}"), "bad.yaml:5"),
        ("missing weights", format!("{good}initial_weights: none.npz\n"), "bad.yaml:13"),
        ("negative rate", good.replace("lr: 0.01", "lr: -0.01"), "at least 0"),
        (
            "missing array",
            good.replace("{type: iris}", "{type: arrays, inputs: none.npy}"),
            "give the path of a .npy file",
        ),
        ("endless", good.replace("epochs: ", "epochs: 99999999999999"), "from 0 to 2147483648"),
        ("too large", good.replace("outputs: 3}", "outputs: 2147483648}"), "bytes of this machine's memory"),
        ("not YAML", good.replace("data: {type: iris}", "data: {type: iris"), "bad.yaml:"),
    ] {
        let file = folder.path("bad.yaml");
        std::fs::write(&file, bad).unwrap();
        for spread in [&[][..], &["-n", "4"]] {
            let output = finish(unisono(["train", &file, "--out", &folder.path("run")].iter().chain(spread)));
            let message = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{name}: {message}");
            assert!(message.contains(words) && message.trim_end().lines().count() == 1, "{name}: {message}");
            assert!(!folder.0.join("run").exists(), "{name}");
        }
    }
    let output = finish(unisono(["train", &folder.path("none.yaml")]));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_corrupt_checkpoint_ends_with_2_and_changes_nothing() {
    let folder = Folder::new();
    let (file, out) = (shipped("iris.yaml"), folder.path("run"));
    let train = |more: &[&str]| {
        let arguments = ["train", &file, "--quiet", "--out", &out, "--set"];
        finish(unisono(arguments.iter().chain(more).map(|word| word.to_string()).collect::<Vec<_>>()))
    };
    assert!(train(&["epochs=2"]).status.success());
    let checkpoint = folder.path("run/checkpoints/epoch-000002.safetensors");
    let intact = std::fs::read(&checkpoint).unwrap();
    let state = || -> Vec<(PathBuf, Vec<u8>)> {
        let entries = std::fs::read_dir(folder.0.join("run")).unwrap().flatten().map(|entry| entry.path());
        let mut files: Vec<PathBuf> = entries.filter(|path| path.is_file()).collect();
        files.sort();
        files.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
    };
    let before = state();
    let mut flipped = intact.clone();
    let last = flipped.len() - 5;
    flipped[last] ^= 16;
    for bad in [flipped, intact[..intact.len() / 2].to_vec(), Vec::new()] {
        std::fs::write(&checkpoint, &bad).unwrap();
        let resumed = [train(&["epochs=4", "--resume"]), train(&["epochs=4", "--resume", "-n", "4"])];
        for output in &resumed {
            // The previous intact checkpoint, and how to continue from it.
            let message = text(&output.stderr);
            assert!(message.contains("move it away to continue from"), "{message}");
            assert!(message.contains("epoch-000001.safetensors, which is intact"), "{message}");
        }
        for output in resumed.into_iter().chain([finish(unisono(["predict", &file, &checkpoint]))]) {
            let message = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{message}");
            assert!(message.contains("epoch-000002.safetensors"), "{message}");
            assert_eq!(message.trim_end().lines().count(), 1, "{message}");
        }
        assert!(state() == before, "a rejected run changed its folder");
    }
}

#[test]
fn a_trace_is_written_on_request() {
    let folder = Folder::new();
    let trace = folder.path("trace.json");
    let run = ["train", &shipped("iris.yaml"), "--set", "epochs=1", "--quiet", "--out", &folder.path("run")];
    let output =
        finish(unisono(run.into_iter().chain(["--trace", &trace]).map(String::from).collect::<Vec<_>>()));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let trace = std::fs::read_to_string(trace).unwrap();
    assert!(trace.contains("hidden fprop") && trace.contains("output update") && trace.contains("rank 0"));
}

#[test]
fn a_killed_run_resumes_to_the_same_weights() {
    let folder = Folder::new();
    let settings = ["--set", "epochs=6", "--set", "data.sample=20", "--quiet", "--out"];
    let file = shipped("mnist_convnet.yaml");
    let train = |out: &str, more: &[&str]| {
        let arguments =
            ["train", file.as_str()].into_iter().chain(settings).chain([out]).chain(more.iter().copied());
        unisono(arguments.map(String::from).collect::<Vec<_>>())
    };
    let (complete, killed) = (folder.path("complete"), folder.path("killed"));
    assert!(finish(train(&complete, &[])).status.success());
    let mut child = train(&killed, &[]).spawn().unwrap();
    let saved = folder.0.join("killed/checkpoints/epoch-000002.safetensors");
    let deadline = Instant::now() + DEADLINE;
    while !saved.exists() && child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "no checkpoint appeared");
        std::thread::sleep(Duration::from_millis(5));
    }
    // On a fast machine the run may have completed; then there is nothing left to do, and that must work too.
    let _ = child.kill();
    child.wait().unwrap();
    let output = finish(train(&killed, &["--resume"]));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let weights = |out: &str| std::fs::read(format!("{out}/checkpoints/epoch-000006.safetensors")).unwrap();
    assert!(weights(&complete) == weights(&killed), "different weights after resuming");
}

/// A small experiment whose results have the same bits on any number of processes.
const SMALL: &str = "
epochs: 4
batch_size: 10
deterministic: true
data: {type: uniform_random, train: 43, test: 7, shape: [1, 9, 8], classes: 3}
rule: {type: momentum, rate: 0.05}
model:
  type: network
  cost: softmax_cross_entropy
  layers:
    - {type: convolution, name: conv, maps: 4, kernel: 3, padding: 1, activation: rectified}
    - {type: pooling, kernel: 2}
    - {type: fully_connected, name: hidden, outputs: 6, activation: tanh}
    - {type: fully_connected, name: output, outputs: 3}
";

fn last_weights(out: &str) -> Vec<u8> {
    std::fs::read(format!("{out}/checkpoints/epoch-000004.safetensors")).unwrap()
}

#[test]
fn many_processes_learn_the_same_weights() {
    let folder = Folder::new();
    let file = folder.path("small.yaml");
    std::fs::write(&file, SMALL).unwrap();
    let one = folder.path("one");
    assert!(finish(unisono(["train", &file, "--quiet", "--out", &one])).status.success());
    for (name, spread) in [
        ("halo", &["-n", "4", "--mode", "halo"][..]),
        ("samples", &["-n", "3"]),
        ("product", &["--grid", "data=2,h=1,w=2"]),
    ] {
        let out = folder.path(name);
        let output = finish(unisono(["train", &file, "--out", &out].iter().chain(spread)));
        let lines = text(&output.stderr);
        assert!(output.status.success(), "{name}: {lines}");
        // Only one rank reports.
        let split = |line: &&str| line.contains(" processes, mode ");
        assert_eq!(lines.lines().filter(split).count(), 1, "{lines}");
        assert_eq!(lines.lines().filter(|line| line.starts_with("epoch 4 full")).count(), 1, "{lines}");
        assert_eq!(text(&output.stdout).trim(), out);
        assert!(last_weights(&one) == last_weights(&out), "{name}: other bits");
    }
    // Under a launcher, the processes are those that it started.
    let out = folder.path("joined");
    let program = env!("CARGO_BIN_EXE_unisono");
    let output = finish(unisono([
        "run", "-n", "2", "--", program, "train", &file, "--mode", "halo", "--quiet", "--out", &out,
    ]));
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(last_weights(&one) == last_weights(&out));
    let output = finish(unisono(["compare", &one, &out, "--within", "0"]));
    assert!(output.status.success() && text(&output.stdout).trim_end().ends_with("equal bit for bit"));
    let output = finish(unisono(["check", &file, "-n", "4", "--mode", "halo"]));
    let table = text(&output.stdout);
    assert!(output.status.success(), "{table}{}", text(&output.stderr));
    assert!(table.contains("gradient of weights") && table.contains("h=2,w=2"), "{table}");
    for (spread, words) in
        [(&["--mode", "halo"][..], "with -n"), (&["-n", "2", "--set", "distributed=table"], "compare")]
    {
        let output = finish(unisono(["check", &file].iter().chain(spread)));
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(words) && message.trim_end().lines().count() == 1, "{message}");
    }
}

#[test]
fn check_offers_no_option_that_it_rejects() {
    let help = text(&finish(unisono(["check", "--help"])).stdout);
    assert!(help.contains("[possible values: data, halo, vector]"), "{help}");
    assert!(!help.contains("table") && !help.contains("--consistency"), "{help}");
    let output = finish(unisono(["check", "small.yaml", "-n", "2", "--mode", "table"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("possible values: data, halo, vector"));
}

#[test]
fn wrong_grids_end_with_2_one_line_and_nothing_written() {
    let folder = Folder::new();
    let file = folder.path("small.yaml");
    std::fs::write(&file, SMALL).unwrap();
    let spread = folder.path("spread.yaml");
    std::fs::write(&spread, format!("distributed: {{type: halo, grid: 'h=2,w=3'}}{SMALL}")).unwrap();
    let missing = folder.path("missing.yaml");
    std::fs::write(
        &missing,
        SMALL.replace(
            "{type: uniform_random, train: 43, test: 7, shape: [1, 9, 8], classes: 3}",
            "{type: mnist, folder: nowhere}",
        ),
    )
    .unwrap();
    for (file, arguments, words) in [
        (&file, &["-n", "3", "--grid", "h=2,w=2"][..], "make 3"),
        (&file, &["--grid", "h=2,x=2"], "axes of the mode halo"),
        (&file, &["-n", "2", "--mode", "data", "--grid", "h=2"], "unisono: --mode data --grid h=2: grid"),
        (&file, &["-n", "2", "--consistency", "often"], "unisono: --consistency often: distributed"),
        (&file, &["-n", "2", "--trace", "nowhere/trace.json"], "a folder that exists"),
        (&spread, &["-n", "4"], "spread.yaml:1"),
        (&missing, &["-n", "2"], "nowhere"),
    ] {
        let out = folder.path("out");
        let output = finish(unisono(["train", file, "--out", &out].iter().chain(arguments)));
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(words), "{arguments:?}: {message}");
        assert_eq!(message.trim_end().lines().count(), 1, "{arguments:?}: {message}");
        assert!(!folder.0.join("out").exists(), "{arguments:?}");
    }
}

#[test]
fn killed_processes_resume_to_the_same_weights() {
    let folder = Folder::new();
    let (bits, plain) = (folder.path("bits.yaml"), folder.path("plain.yaml"));
    // Long enough to be killed before the end.
    let long = SMALL.replace("train: 43", "train: 600");
    std::fs::write(&bits, &long).unwrap();
    std::fs::write(&plain, long.replace("deterministic: true", "precision: f64")).unwrap();
    let train = |file: &str, out: &str, more: &[&str]| {
        unisono(["train", file, "--quiet", "--out", out].iter().chain(more))
    };
    let complete = |file: &str, grid: &str| {
        let out = folder.path(&format!("complete-{grid}-{}", file == bits));
        if !Path::new(&out).exists() {
            assert!(finish(train(file, &out, &["--grid", grid])).status.success());
        }
        out
    };
    // The number of checkpoints after which all ranks are killed, and the grid on which they resume: on the same grid with the
    // same bits, on another grid with the same bits only if the file asks for that.
    for (number, (file, after, first, then)) in [
        (&bits, 1, "h=2,w=1", "data=2"),
        (&plain, 0, "h=2,w=2", "h=2,w=2"),
        (&plain, 2, "h=2,w=2", "h=2,w=2"),
        (&plain, 1, "data=3", "data=3"),
        (&plain, 1, "data=2", "h=1,w=2"),
    ]
    .into_iter()
    .enumerate()
    {
        let (out, mark) = (folder.path(&format!("killed-{number}")), mark());
        let (name, value) = mark.split_once('=').unwrap();
        let mut child = train(file, &out, &["--grid", first]).env(name, value).spawn().unwrap();
        let wanted = match after {
            0 => format!("{out}/experiment.yaml"),
            after => format!("{out}/checkpoints/epoch-{after:06}.safetensors"),
        };
        let wanted = Path::new(&wanted);
        eventually("it begins", || wanted.exists() || child.try_wait().unwrap().is_some());
        // At a different time of the epoch in each run. On a fast machine the run may have completed: then there is nothing left
        // to do, and that must work too.
        std::thread::sleep(Duration::from_millis(u64::from(std::process::id()) * (number as u64 + 1) % 40));
        for pid in marked(&mark) {
            // It may have exited already.
            let mut command = std::process::Command::new("kill");
            let _ = command.args(["-KILL", &pid.to_string()]).stderr(std::process::Stdio::null()).status();
        }
        child.wait().unwrap();
        eventually("all are gone", || marked(&mark).is_empty());
        let output = finish(train(file, &out, &["--resume", "--grid", then]));
        assert!(output.status.success(), "{}", text(&output.stderr));
        let expected = complete(file, first);
        let name = format!("{first} {after} {then}");
        if first == then || *file == bits {
            assert!(last_weights(&expected) == last_weights(&out), "{name}: different bits after resuming");
        } else {
            let output = finish(unisono(["compare", &expected, &out, "--within", "1e-10"]));
            assert!(output.status.success(), "{name}: {}", text(&output.stdout));
        }
    }
}

#[test]
fn the_schema_is_json_and_the_benchmark_runs() {
    let output = finish(unisono(["schema"]));
    assert!(output.status.success());
    let schema = text(&output.stdout);
    assert!(
        schema.contains("\"additionalProperties\": false") && schema.contains("\"softmax_cross_entropy\"")
    );
    let output = finish(unisono(["bench", "nn", "--batch", "8", "--seconds", "0.01", "--layers"]));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(table.contains("cifar10") && table.contains("halo, 128 x 128: all / one"), "{table}");
}

#[test]
fn a_folder_of_other_files_is_rejected_and_unchanged() {
    let folder = Folder::new();
    let (file, out) = (folder.path("small.yaml"), folder.path("project"));
    std::fs::write(&file, SMALL).unwrap();
    std::fs::create_dir_all(folder.0.join("project/checkpoints")).unwrap();
    std::fs::write(folder.path("project/metrics.csv"), "mine").unwrap();
    for spread in [&[][..], &["-n", "2"]] {
        let output = finish(unisono(["train", &file, "--out", &out].iter().chain(spread)));
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains("which has metrics.csv; give another --out"), "{message}");
        assert_eq!(message.trim_end().lines().count(), 1, "{message}");
        assert_eq!(std::fs::read_to_string(folder.path("project/metrics.csv")).unwrap(), "mine");
        assert_eq!(std::fs::read_dir(&out).unwrap().count(), 2);
    }
}

#[test]
fn a_folder_name_need_not_be_utf8() {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let folder = Folder::new();
    let file = folder.path("small.yaml");
    std::fs::write(&file, SMALL).unwrap();
    let out = folder.0.join(std::ffi::OsStr::from_bytes(b"run-\xff"));
    for spread in [&[][..], &["-n", "2", "--resume"]] {
        let mut command = unisono(["train", &file, "--quiet", "--out"]);
        command.arg(&out).args(spread);
        let output = finish(command);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let printed = std::ffi::OsString::from_vec(output.stdout.trim_ascii_end().to_vec());
        assert_eq!(PathBuf::from(printed), out);
    }
}

#[test]
fn nan_gradients_exit_with_1() {
    let folder = Folder::new();
    let file = folder.path("small.yaml");
    std::fs::write(&file, SMALL).unwrap();
    let lost = "model.layers.3.weights={type: uniform, low: 1e200, high: 1e201}";
    let squares = "model.cost=sum_of_squares";
    let output = finish(unisono(["grad", &file, "--tries", "2", "--set", lost, "--set", squares]));
    let table = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{table}{}", text(&output.stderr));
    assert!(table.contains("WRONG") && table.contains("worst inf"), "{table}");
    assert_eq!(finish(unisono(["grad", &file, "--tries", "0"])).status.code(), Some(2));
}
