//! Data files of `unisono train`: damaged ones, and ones larger than the memory of a process.

mod common;

use common::*;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use unisono_nn::{Picture, Shape, encode_png};

const MODEL: &str = "
epochs: 1
batch_size: 8
model:
  type: network
  cost: softmax_cross_entropy
  layers:
    - {type: convolution, maps: 2, kernel: 3, stride: 3}
    - {type: fully_connected, outputs: 10}
";

fn idx(sizes: &[u32], bytes: usize) -> Vec<u8> {
    let mut file = vec![0, 0, 8, sizes.len() as u8];
    sizes.iter().for_each(|size| file.extend_from_slice(&size.to_be_bytes()));
    file.resize(file.len() + bytes, 1);
    file
}

/// The header of a `.npy` file, without its data.
fn npy(kind: &str, shape: &str) -> Vec<u8> {
    let header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}\n");
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes()].concat()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

/// Valid files of every kind, each in its own folder.
fn good(folder: &Folder) {
    let put = |path: &str, bytes: Vec<u8>| {
        let path = folder.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    for name in ["train", "t10k"] {
        put(&format!("mnist/{name}-images-idx3-ubyte"), idx(&[16, 9, 9], 16 * 81));
        put(&format!("mnist/{name}-labels-idx1-ubyte"), idx(&[16], 16));
        put(&format!("packed/{name}-images-idx3-ubyte.gz"), gzip(&idx(&[16, 9, 9], 16 * 81)));
        put(&format!("packed/{name}-labels-idx1-ubyte.gz"), gzip(&idx(&[16], 16)));
    }
    for name in ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"]
    {
        put(&format!("cifar/{name}.bin"), vec![1; 3 * 3073]);
    }
    for name in ["a", "b", "c", "d", "e"] {
        let pixels: Vec<u8> = [b"P5 9 9 255\n", &[7; 81][..]].concat();
        put(&format!("images/train/one/{name}.pgm"), pixels);
    }
    let picture = Picture { shape: Shape::new(1, 9, 9), pixels: vec![7; 81] };
    put("images/train/one/f.png", encode_png(&picture));
    let values = (0..12 * 81).flat_map(|number| (number as f32).to_le_bytes());
    put("arrays/x.npy", npy("<f4", "12, 9, 9").into_iter().chain(values).collect());
    put("arrays/y.npy", npy("|u1", "12,").into_iter().chain(0..12).collect());
}

/// An experiment file for one of the kinds.
fn experiment(folder: &Folder, kind: &str) -> String {
    let inside = folder.path(kind);
    let (data, outputs) = match kind {
        "arrays" => (format!("{{type: arrays, inputs: {inside}/x.npy, targets: {inside}/y.npy}}"), 12),
        "cifar" => (format!("{{type: cifar10, folder: {inside}}}"), 10),
        "images" => (format!("{{type: images, folder: {inside}}}"), 1),
        _ => (format!("{{type: mnist, folder: {inside}}}"), 10),
    };
    let model = MODEL.replace("outputs: 10", &format!("outputs: {outputs}"));
    format!("# one line\ndata: {data}{model}")
}

#[test]
fn damaged_data_ends_with_2_one_line_and_nothing_written() {
    let folder = Folder::new();
    good(&folder);
    let cut = |path: &Path, by: usize| {
        let bytes = std::fs::read(path).unwrap();
        bytes[..bytes.len() - by].to_vec()
    };
    type Damage<'a> = &'a dyn Fn(&Path) -> Vec<u8>;
    let truncated: Damage = &|path| cut(path, 10);
    let first_word: Damage = &|path| [b"?????", &std::fs::read(path).unwrap()[5..]].concat();
    let halved: Damage = &|path| cut(path, std::fs::read(path).unwrap().len() / 2);
    let emptied: Damage = &|_| Vec::new();
    let longer: Damage = &|path| [std::fs::read(path).unwrap(), vec![1; 3]].concat();
    let unbounded: Damage = &|path| [cut(path, 4), f32::NAN.to_le_bytes().to_vec()].concat();
    let label: Damage = &|path| [cut(path, 1), vec![77]].concat();
    let other_record: Damage = &|path| [vec![200], std::fs::read(path).unwrap()[1..].to_vec()].concat();
    for (kind, name, damage) in [
        ("mnist", "train-images-idx3-ubyte", truncated),
        ("mnist", "train-images-idx3-ubyte", first_word),
        ("mnist", "t10k-images-idx3-ubyte", longer),
        ("mnist", "train-labels-idx1-ubyte", label),
        ("mnist", "t10k-labels-idx1-ubyte", emptied),
        ("packed", "train-images-idx3-ubyte.gz", truncated),
        ("packed", "t10k-labels-idx1-ubyte.gz", truncated),
        ("cifar", "data_batch_3.bin", truncated),
        ("cifar", "test_batch.bin", other_record),
        ("images", "train/one/d.pgm", truncated),
        ("images", "train/one/a.pgm", first_word),
        ("images", "train/one/f.png", halved),
        ("arrays", "x.npy", truncated),
        ("arrays", "x.npy", unbounded),
        ("arrays", "y.npy", first_word),
        ("arrays", "y.npy", longer),
    ] {
        let path = folder.0.join(kind).join(name);
        let intact = std::fs::read(&path).unwrap();
        std::fs::write(&path, damage(&path)).unwrap();
        let file = folder.path("bad.yaml");
        std::fs::write(&file, experiment(&folder, kind)).unwrap();
        for spread in [&[][..], &["--grid", "h=2,w=2"]] {
            let output = finish(unisono(["train", &file, "--out", &folder.path("run")].iter().chain(spread)));
            let message = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{kind} {name} {spread:?}: {message}");
            let words = message.contains(name) && message.contains("bad.yaml:2");
            assert!(words && message.trim_end().lines().count() == 1, "{kind} {name} {spread:?}: {message}");
            assert!(!folder.0.join("run").exists(), "{kind} {name}");
        }
        std::fs::write(&path, intact).unwrap();
    }
    // The undamaged files can be trained on.
    for kind in ["mnist", "packed", "cifar", "images", "arrays"] {
        let file = folder.path("good.yaml");
        std::fs::write(&file, experiment(&folder, kind)).unwrap();
        let output =
            finish(unisono(["train", &file, "--quiet", "--grid", "data=2", "--out", &folder.path("run")]));
        assert_eq!(output.status.code(), Some(0), "{kind}: {}", text(&output.stderr));
        std::fs::remove_dir_all(folder.0.join("run")).unwrap();
    }
}

/// A statistic of a living process, in bytes.
fn figure(pid: u32, file: &str, name: &str, unit: u64) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(unit * line.split_whitespace().next()?.parse::<u64>().ok()?)
}

#[test]
fn a_rank_of_four_reads_a_quarter_and_keeps_a_batch() {
    let folder = Folder::new();
    // A sparse file without disk blocks: 512 images of 64 rows and 2048 columns.
    let (count, rows, columns) = (512_u64, 64_u64, 2048_u64);
    let head = npy("<f4", &format!("{count}, {rows}, {columns}"));
    let size = count * rows * columns * 4;
    let mut inputs = File::create(folder.0.join("x.npy")).unwrap();
    inputs.write_all(&head).unwrap();
    inputs.set_len(head.len() as u64 + size).unwrap();
    let classes = (0..count).map(|sample| (sample % 3) as u8);
    std::fs::write(
        folder.0.join("y.npy"),
        npy("|u1", "512,").into_iter().chain(classes).collect::<Vec<u8>>(),
    )
    .unwrap();
    let file = folder.path("large.yaml");
    let model =
        MODEL.replace("kernel: 3, stride: 3", "kernel: 1, stride: 64").replace("outputs: 10", "outputs: 3");
    std::fs::write(&file, format!("data: {{type: arrays, inputs: x.npy, targets: y.npy}}{model}")).unwrap();
    for grid in ["data=4", "h=2,w=2"] {
        let mark = mark();
        let (name, value) = mark.split_once('=').unwrap();
        let out = folder.path(grid);
        let mut command = unisono(["train", &file, "--quiet", "--grid", grid, "--out", &out]);
        command.env(name, value).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut most = std::collections::BTreeMap::new();
        eventually("the run ends", || {
            let all = marked(&mark);
            for rank in 0..4 {
                for pid in marked(&format!("UNISONO_RANK={rank}")).into_iter().filter(|pid| all.contains(pid))
                {
                    let peak = figure(pid, "status", "VmHWM:", 1024).unwrap_or(0);
                    let read = figure(pid, "io", "rchar:", 1).unwrap_or(0);
                    let seen: &mut (u64, u64) = most.entry(rank).or_default();
                    *seen = (seen.0.max(peak), seen.1.max(read));
                }
            }
            child.try_wait().unwrap().is_some()
        });
        assert!(child.wait().unwrap().success());
        assert_eq!(most.len(), 4, "{grid}: {most:?}");
        for (peak, read) in most.into_values() {
            // Read once to check the data and once to train; gaps of less than a page between the wanted parts may be read too.
            assert!((size / 4..size / 2 + size / 32).contains(&read), "{grid}: {read} of {size} bytes");
            // A few samples of half a megabyte each, and the program itself.
            assert!(peak < size / 4, "{grid}: {peak} bytes in memory of {size} in the file");
        }
    }
}
