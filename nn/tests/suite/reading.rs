//! Ranks read only their own part: all file formats yield the same samples, complete, in parts, and compressed.

use crate::folder;

use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use unisono::testing::spawn;
use unisono_nn::{
    DataSet, Experiment, Inputs, Picture, Shape, Source, Split, Store, Stored, Summary, Targets,
    TrainOptions, Trainer, encode_png, train, train_on, write_npy,
};

use folder::Folder;

/// A value for each position of each sample.
fn level(sample: usize, place: usize) -> u8 {
    ((sample * 37 + place * 11) % 251) as u8
}

fn picture(sample: usize, size: usize) -> Vec<u8> {
    (0..size).map(|place| level(sample, place)).collect()
}

fn pack(path: &Path) {
    let packed = std::fs::File::create(format!("{}.gz", path.display())).expect("it can be made");
    let mut packer = flate2::write::GzEncoder::new(packed, flate2::Compression::fast());
    packer.write_all(&std::fs::read(path).expect("it is there")).expect("it can be written");
    packer.finish().expect("it can be written");
    std::fs::remove_file(path).expect("it can be removed");
}

/// Writes an idx file with these sizes and bytes.
fn idx(path: &Path, sizes: &[usize], bytes: &[u8]) {
    let mut file = vec![0, 0, 8, sizes.len() as u8];
    sizes.iter().for_each(|size| file.extend_from_slice(&(*size as u32).to_be_bytes()));
    file.extend_from_slice(bytes);
    std::fs::write(path, file).expect("it can be written");
}

/// Writes the files of a data set with images of [`level`]s, and returns the shape of a sample.
fn files(kind: &str, folder: &Path, count: usize) -> (Source, Shape) {
    let classes: Vec<u8> = (0..count).map(|sample| (sample % 3) as u8).collect();
    let pictures =
        |size: usize| (0..count).flat_map(move |sample| picture(sample, size)).collect::<Vec<u8>>();
    match kind {
        "mnist" => {
            for name in ["train", "t10k"] {
                idx(&folder.join(format!("{name}-images-idx3-ubyte")), &[count, 5, 7], &pictures(35));
                idx(&folder.join(format!("{name}-labels-idx1-ubyte")), &[count], &classes);
            }
            (Source::Mnist { folder: Some(folder.into()), download: false }, Shape::new(1, 5, 7))
        }
        "cifar" => {
            let record = |sample: usize| [vec![classes[sample]], picture(sample, 3072)].concat();
            let names = (1..=5).map(|number| format!("data_batch_{number}.bin"));
            let each = count.div_ceil(5);
            for (number, name) in names.enumerate() {
                let own = (number * each).min(count - 1)..((number + 1) * each).min(count);
                std::fs::write(folder.join(name), own.flat_map(record).collect::<Vec<u8>>())
                    .expect("written");
            }
            std::fs::write(folder.join("test_batch.bin"), record(0)).expect("it can be written");
            (Source::Cifar10 { folder: Some(folder.into()), download: false }, Shape::new(3, 32, 32))
        }
        "images" => {
            for sample in 0..count {
                let inside = folder.join("train").join(format!("class{}", sample * 3 / count));
                std::fs::create_dir_all(&inside).expect("it can be made");
                let picture = Picture { shape: Shape::new(3, 4, 5), pixels: picture(sample, 60) };
                std::fs::write(inside.join(format!("{sample:04}.png")), encode_png(&picture))
                    .expect("written");
            }
            (Source::Images { folder: folder.into() }, Shape::new(3, 4, 5))
        }
        _ => {
            let values: Vec<f32> = pictures(24).into_iter().map(|value| f32::from(value) / 255.0).collect();
            write_npy(&folder.join("x.npy"), &[count, 2, 3, 4], &values).expect("it can be written");
            let arrays = unisono_nn::Arrays {
                inputs: folder.join("x.npy"),
                targets: None,
                test_inputs: None,
                test_targets: None,
            };
            (Source::Arrays(arrays), Shape::new(2, 3, 4))
        }
    }
}

#[test]
fn every_format_reads_the_requested_elements_of_the_requested_samples() {
    for kind in ["mnist", "cifar", "images", "arrays"] {
        for packed in [false, true].into_iter().filter(|packed| kind != "images" || !packed) {
            let folder = Folder::new(&format!("files-{kind}-{packed}"));
            let (source, shape) = files(kind, &folder.0, 13);
            if packed {
                let entries = std::fs::read_dir(&folder.0).expect("it is there").flatten();
                entries.for_each(|entry| pack(&entry.path()));
            }
            let data = DataSet::load(&source, 0).expect("it is intact");
            assert_eq!((data.shape, data.train.count), (shape, 13), "{kind} {packed}");
            let places: Vec<usize> = (0..shape.size()).filter(|place| place % 5 < 3).collect();
            let part = data.train.choose(&[12, 3, 3, 7]).part(&places);
            let mut values = vec![0.0_f64; 3 * places.len()];
            part.fill(&[3, 0, 1], &mut values, &mut []).expect("it can be read");
            for (sample, values) in [7, 12, 3].into_iter().zip(values.chunks(places.len())) {
                for (place, value) in places.iter().zip(values) {
                    let expected = f64::from(level(sample, *place)) / 255.0;
                    assert!((value - expected).abs() < 1e-7, "{kind} {packed}: {sample} {place}");
                }
            }
        }
    }
}

/// Counts the elements read from samples that all differ slightly.
#[derive(Debug, Default)]
struct Counted {
    read: Arc<AtomicUsize>,
    checked: Arc<AtomicUsize>,
}

impl Store for Counted {
    fn read(&self, sample: usize, places: &[Range<usize>], values: &mut [f64]) -> unisono::Result<()> {
        self.read.fetch_add(values.len(), Ordering::Relaxed);
        let places = places.iter().cloned().flatten();
        values.iter_mut().zip(places).for_each(|(value, at)| *value = f64::from(level(sample, at)) / 255.0);
        Ok(())
    }

    fn check(&self, samples: &[usize]) -> unisono::Result<()> {
        self.checked.fetch_add(samples.len(), Ordering::Relaxed);
        Ok(())
    }
}

const SPREAD: &str = "
epochs: 2
batch_size: 12
precision: f64
data: {type: own, kind: counted}
rule: {type: momentum, rate: 0.05}
model:
  type: network
  cost: softmax_cross_entropy
  layers:
    - {type: convolution, maps: 3, kernel: 3, activation: tanh}
    - {type: fully_connected, outputs: 3}
";

#[test]
fn ranks_read_only_their_own_samples_and_elements() {
    let (count, size) = (48, 2 * 12 * 16);
    // On any grid, each rank reads a quarter of all elements in each epoch.
    for grid in ["data=4", "h=2,w=2", "data=2,w=2"] {
        let counts = spawn(4, |group| {
            let (read, checked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let counters = (read.clone(), checked.clone());
            let mut extensions = unisono_nn::Extensions::default();
            extensions.add_data("counted", move |_: &unisono_nn::Node, _| {
                let store = Counted { read: counters.0.clone(), checked: counters.1.clone() };
                let inputs = Inputs::Stored(Stored::new(store, count, size));
                let targets = Targets::Classes((0..count as u32).map(|sample| sample % 3).collect());
                let train = Split { count, inputs, targets };
                Ok(DataSet { shape: Shape::new(2, 12, 16), outputs: 3, train, test: Split::empty() })
            });
            let mode = if grid.contains('w') { "halo" } else { "data" };
            let change = format!("distributed={{type: {mode}, grid: '{grid}'}}");
            let experiment = Experiment::parse_with("x.yaml", SPREAD, &[change], &extensions).expect("right");
            let mut trainer: Trainer<f64> = Trainer::on(&group, &experiment).expect("it can be spread");
            assert_eq!(checked.load(Ordering::Relaxed), count / 4, "{grid}");
            (0..2).for_each(|epoch| drop(trainer.epoch(epoch, &mut |_| {}).expect("it learns")));
            read.load(Ordering::Relaxed)
        });
        assert_eq!(counts, vec![2 * count * size / 4; 4], "{grid}");
    }
}

const FILES: &str = "
epochs: 2
batch_size: 7
precision: f64
rule: {type: momentum, rate: 0.05}
model:
  type: network
  cost: softmax_cross_entropy
  layers:
    - {type: convolution, maps: 3, kernel: 3, activation: tanh}
    - {type: fully_connected, outputs: 3}
";

fn run(text: &str, out: &Path, grid: Option<&str>) -> Summary {
    let options = TrainOptions { out: out.into(), resume: false, trace: None };
    let Some(grid) = grid else {
        let experiment = Experiment::parse("x.yaml", text, &[]).expect("it is right");
        return train(&experiment, &options, &mut ()).expect("it trains");
    };
    let mode = if grid.contains('w') {
        "halo"
    } else if grid.contains('v') {
        "vector"
    } else {
        "data"
    };
    let change = format!("distributed={{type: {mode}, grid: '{grid}'}}");
    let experiment = Experiment::parse("x.yaml", text, &[change]).expect("it is right");
    let ranks = grid.split(',').filter_map(|axis| axis.split_once('=')?.1.parse::<usize>().ok()).product();
    let mut found = spawn(ranks, |group| train_on(&group, &experiment, &options, &mut ()));
    found.swap_remove(0).unwrap_or_else(|failure| panic!("{grid}: {}", failure.error))
}

#[test]
fn runs_from_files_are_equal_on_every_grid() {
    for kind in ["mnist", "images", "arrays"] {
        for packed in [false, true].into_iter().filter(|packed| kind != "images" || !packed) {
            let folder = Folder::new(&format!("runs-{kind}-{packed}"));
            let inside = folder.0.join("data");
            std::fs::create_dir_all(&inside).expect("it can be made");
            files(kind, &inside, 23);
            let labels: Vec<f32> = (0..23).map(|sample| (sample % 3) as f32).collect();
            let place = inside.display();
            let source = match kind {
                "arrays" => {
                    write_npy(&inside.join("y.npy"), &[23], &labels).expect("it can be written");
                    format!("{{type: arrays, inputs: {place}/x.npy, targets: {place}/y.npy, sample: 90}}")
                }
                kind => format!("{{type: {kind}, folder: {place}, sample: 90}}"),
            };
            let outputs = if kind == "mnist" { 10 } else { 3 };
            let text =
                format!("data: {source}{}", FILES.replace("outputs: 3", &format!("outputs: {outputs}")));
            if packed {
                let entries = std::fs::read_dir(&inside).expect("it is there").flatten();
                entries.for_each(|entry| pack(&entry.path()));
            }
            let one = run(&text, &folder.0.join("one"), None);
            for grid in ["data=3", "h=2,w=2", "data=2,w=2", "v=3"] {
                let many = run(&text, &folder.0.join(grid), Some(grid));
                for (one, many) in one.metrics.iter().zip(&many.metrics) {
                    assert!((one.loss - many.loss).abs() < 1e-12, "{kind} {packed} {grid}");
                    assert_eq!(one.train_error, many.train_error, "{kind} {packed} {grid}");
                }
            }
        }
    }
}
