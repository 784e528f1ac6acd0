//! The results of a run other than its weights: the event file, images, a trace, and the units that detect a class.

use crate::folder;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use unisono::testing::spawn;
use unisono_nn::{
    DataSet, EpochMetrics, Experiment, Extensions, Inputs, Shape, Split, Store, Stored, Summary, Targets,
    TrainOptions, Watch, decode_png, train, train_on,
};

use folder::Folder;

const SPARSE: &str = "
epochs: 1
batch_size: 16
data: {type: toy_images, sample: 40}
model:
  type: sparse_autoencoder
  cost: cross_entropy
  pretrain_epochs: 1
  pretrain_rate: 0.01
  sparsity: 0.1
  spot_check: true
  visualize: true
  layers:
    - {type: local, name: filter, maps: 2, kernel: 4, stride: 2, weights: {type: uniform, low: -1, high: 1}}
    - {type: pooling, name: pool, pool: l2, kernel: 3, stride: 1}
    - {type: contrast, name: contrast, kernel: 3}
    - {type: fully_connected, name: output, outputs: 2, bias: false, activation: logistic}
";

const CODER: &str = "
epochs: 2
batch_size: 16
data: {type: toy_images, sample: 20}
rule: {type: adam, rate: 0.003}
model:
  type: autoencoder
  cost: sum_of_squares
  layers:
    - {type: fully_connected, name: encoder, outputs: 8, activation: tanh}
    - {type: fully_connected, name: decoder, outputs: 3072}
";

fn run(text: &str, out: &Path, trace: Option<PathBuf>) -> Summary {
    let experiment = Experiment::parse("x.yaml", text, &[]).expect("it is right");
    train(&experiment, &TrainOptions { out: out.into(), resume: false, trace }, &mut ()).expect("it trains")
}

fn picture(out: &Path, name: &str) -> unisono_nn::Picture {
    let bytes = std::fs::read(out.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    decode_png(&bytes).expect("it is a picture")
}

#[test]
fn a_sparse_autoencoder_writes_its_spot_check_and_stimuli() {
    let folder = Folder::new("sparse");
    let out = run(SPARSE, &folder.0.join("run"), None).out;
    let table = std::fs::read_to_string(out.join("spot_check.csv")).expect("it was asked for");
    let rows: Vec<Vec<f64>> = table
        .lines()
        .skip(1)
        .map(|line| line.split(',').map(|word| word.parse().expect("a number")).collect())
        .collect();
    assert_eq!(rows.len(), 2, "a row for each class");
    for row in rows {
        // 15 × 15 positions after the filter, 13 × 13 after pooling, in two maps.
        assert!(row[1] < 2.0 * 13.0 * 13.0, "{row:?}");
        // The best of hundreds of units detects a class better than chance.
        assert!(row[2] > 0.6 && row[2] <= 1.0 && (0.0..=1.0).contains(&row[3]), "{row:?}");
    }
    let side = |count: usize| count * (32 * 3 + 2) + 2;
    assert_eq!(picture(&out, "stimuli.png").shape, Shape::new(3, side(1), side(2)));
    assert_eq!(picture(&out, "reconstructions.png").shape, Shape::new(3, side(2), side(10)));
    assert_eq!(picture(&out, "filters.png").shape.maps, 3);
}

#[test]
fn an_autoencoder_writes_only_its_reconstructions() {
    let folder = Folder::new("coder");
    let out = run(CODER, &folder.0.join("run"), None).out;
    let sheet = picture(&out, "reconstructions.png");
    let half = sheet.pixels.len() / 3 / 2;
    assert_ne!(sheet.pixels[..half], sheet.pixels[half..2 * half], "what it gives back is not its input");
    let mut names: Vec<String> = std::fs::read_dir(&out)
        .expect("the folder is there")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert!(names.remove(3).starts_with("events.out.tfevents."), "{names:?}");
    let expected = [
        ".lock",
        "batches.csv",
        "checkpoints",
        "experiment.yaml",
        "filters.png",
        "loss.svg",
        "metrics.csv",
        "metrics.jsonl",
        "reconstructions.png",
    ];
    assert_eq!(names, expected);
}

#[test]
fn a_trace_has_every_layer_in_every_batch() {
    let folder = Folder::new("trace");
    let path = folder.0.join("trace.json");
    run(CODER, &folder.0.join("run"), Some(path.clone()));
    let text = std::fs::read_to_string(&path).expect("it was asked for");
    let trace: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let events = trace["traceEvents"].as_array().expect("it has events");
    let count = |name: &str| events.iter().filter(|event| event["name"] == name).count();
    // 26 samples in batches of 16: two batches in each of two epochs, and as many for testing.
    assert_eq!(
        (count("encoder bprop"), count("encoder update"), count("encoder.activation update")),
        (4, 4, 0)
    );
    assert_eq!((count("decoder bprop"), count("decoder fprop")), (4, 8));
}

/// Samples that are slow to read once, on request.
#[derive(Debug, Clone)]
struct Slow(Arc<AtomicBool>);

impl Store for Slow {
    fn read(&self, sample: usize, places: &[Range<usize>], values: &mut [f64]) -> unisono::Result<()> {
        if self.0.swap(false, Ordering::Relaxed) {
            std::thread::sleep(Duration::from_secs(6));
        }
        let places = places.iter().cloned().flatten();
        values.iter_mut().zip(places).for_each(|(value, place)| *value = ((sample + place) % 5) as f64 / 5.0);
        Ok(())
    }
}

impl Watch for Slow {
    fn epoch(&mut self, _: &EpochMetrics) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn the_wait_for_pictures_outlasts_the_call_timeout() {
    let folder = Folder::new("slow");
    let options = TrainOptions { out: folder.0.join("run"), resume: false, trace: None };
    let results = spawn(2, |group| {
        let slow = Slow(Arc::default());
        let (mut watch, mut extensions) = (slow.clone(), Extensions::default());
        extensions.add_data("slow", move |_: &unisono_nn::Node, _| {
            let inputs = Inputs::Stored(Stored::new(slow.clone(), 6, 3 * 32 * 32));
            let train = Split { count: 6, inputs, targets: Targets::Unknown };
            Ok(DataSet { shape: Shape::new(3, 32, 32), outputs: 0, train, test: Split::empty() })
        });
        let changes = ["epochs=1".to_string(), "data={type: own, kind: slow}".into()];
        let experiment = Experiment::parse_with("x.yaml", CODER, &changes, &extensions).expect("it is right");
        train_on(&group.with_timeout(Duration::from_secs(4)), &experiment, &options, &mut watch)
    });
    for result in results {
        result.unwrap_or_else(|failure| panic!("{}", failure.error));
    }
    picture(&options.out, "reconstructions.png");
}
