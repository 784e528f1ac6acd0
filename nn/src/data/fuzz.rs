//! Corrupted data files yield an error or a data set, never a panic; formats with checksums never yield different values.

use std::io::Write;
use std::path::Path;

use unisono::testing::mutate;

use super::download::archive;
use super::file::DataSetFile;
use super::{Array, Picture, Values, cifar, mnist, npy, npz, png};
use crate::fuzz::fuzz;
use crate::shape::Shape;

const PATH: &str = "damaged";

fn npy_files() -> Vec<Vec<u8>> {
    let file = |kind: &str, fortran: &str, shape: &str, data: usize| {
        let header = format!("{{'descr': '{kind}', 'fortran_order': {fortran}, 'shape': ({shape}), }}\n");
        let length = (header.len() as u16).to_le_bytes();
        [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &vec![3; data]].concat()
    };
    vec![
        file("<f4", "False", "2, 3,", 24),
        file(">f8", "True", "2, 3, 4", 192),
        file("|u1", "False", "7,", 7),
        file("<i2", "True", "0, 5", 0),
        file("<i8", "False", "", 8),
    ]
}

fn is_consistent(array: &Array) {
    let count = match &array.values {
        Values::Bytes(values) => values.len(),
        Values::Singles(values) => values.len(),
        Values::Doubles(values) => values.len(),
    };
    assert_eq!(count, array.shape.iter().product::<usize>());
}

#[test]
fn damaged_npy() {
    let good = npy_files();
    fuzz!(|script: &[u8]| {
        if let Ok(array) = npy::parse(Path::new(PATH), &mutate(&good, script)) {
            is_consistent(&array);
        }
    });
}

#[test]
fn damaged_npz() {
    let arrays = npy_files();
    let pack = |method| {
        let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        let options = zip::write::SimpleFileOptions::default().compression_method(method);
        for (number, array) in arrays.iter().enumerate() {
            writer.start_file(format!("array{number}.npy"), options).expect("memory can be written");
            writer.write_all(array).expect("memory can be written");
        }
        writer.finish().expect("memory can be written").into_inner()
    };
    let good = [pack(zip::CompressionMethod::Stored), pack(zip::CompressionMethod::Deflated)];
    let path = Path::new(PATH);
    let expected: Vec<Array> =
        arrays.iter().map(|array| npy::parse(path, array).expect("it is good")).collect();
    fuzz!(|script: &[u8]| {
        for (_, array) in npz::unpack(path, &mutate(&good, script)).unwrap_or_default() {
            assert!(expected.contains(&array), "damaged numbers were accepted");
        }
    });
}

#[test]
fn damaged_png() {
    let picture = |maps: usize| Picture {
        shape: Shape::new(maps, 9, 7),
        pixels: (0..maps * 63).map(|pixel| (pixel * 5) as u8).collect(),
    };
    let pictures = [picture(1), picture(3)];
    let good = pictures.each_ref().map(png::encode);
    fuzz!(|script: &[u8]| {
        if let Ok(found) = png::decode(&mutate(&good, script)) {
            assert!(pictures.contains(&found), "damaged pixels were accepted");
        }
    });
}

#[test]
fn damaged_portable_pictures() {
    let good = [[b"P5 # remark\n3 2 255\n", &[7; 6][..]].concat(), [b"P6 2 2 255\n", &[9; 12][..]].concat()];
    fuzz!(|script: &[u8]| {
        if let Ok(Picture { shape, pixels }) = png::decode_portable(&mutate(&good, script)) {
            assert_eq!(shape.size(), pixels.len());
        }
    });
}

fn zipped(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).expect("memory can be written");
    packer.finish().expect("memory can be written")
}

#[test]
fn damaged_idx() {
    let images = [&[0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3][..], &[5; 12]].concat();
    let labels = [0, 0, 8, 1, 0, 0, 0, 2, 3, 9];
    let files = [images.clone(), zipped(&images), labels.to_vec(), zipped(&labels)];
    fuzz!(|script: &[u8]| {
        let damaged = mutate(&files, script);
        let is_labels = script.first().is_some_and(|choice| choice % 4 >= 2);
        let file = |bytes: &[u8]| DataSetFile::embedded(PATH, bytes.to_vec());
        let found = match is_labels {
            false => mnist::split(file(&damaged), &file(&labels)),
            true => mnist::split(file(&images), &file(&damaged)),
        };
        if let Ok((shape, mut split)) = found {
            assert_eq!(split.count, 2);
            // Compressed samples are read to the end: a truncated stream is only detected there.
            if split.keep().is_ok() {
                let mut values = vec![0.0_f64; split.count * shape.size()];
                split.fill(&[0, 1], &mut values, &mut []).expect("all is in memory");
            }
        }
    });
}

#[test]
fn damaged_cifar() {
    let records = [[&[3][..], &[7; 3072]].concat(), [&[9][..], &[1; 3072]].concat()].concat();
    let good = [records.clone(), zipped(&records)];
    fuzz!(|script: &[u8]| {
        let file = DataSetFile::embedded(PATH, mutate(&good, script));
        if let Ok(labels) = cifar::labels(&file) {
            assert!(labels.iter().all(|label| *label < 10));
        }
    });
}

#[test]
fn damaged_archives() {
    let good = [archive::tests::archive(&[("a.bin", b"abc"), ("b.bin", &[7; 600]), ("empty", b"")])];
    fuzz!(|script: &[u8]| {
        let damaged = mutate(&good, script);
        for (_, content) in archive::files(&damaged).unwrap_or_default() {
            assert!(content.len() <= damaged.len());
        }
    });
}
