//! MNIST: handwritten digits in their authors' idx format.

use std::io::Read;
use std::path::Path;

use unisono::Result;

use super::file::{DataSetFile, damaged, open};
use super::number_type::NumberType;
use super::records::{RecordFormat, Records};
use super::{DataSet, Inputs, Split, Stored, Targets};
use crate::shape::Shape;

/// A small subset of MNIST, embedded in the program, so that first runs need no other file.
const SAMPLE: [(&str, &[u8]); 4] = [
    ("train-images-idx3-ubyte", include_bytes!("../../data/mnist/train-images-idx3-ubyte.gz")),
    ("train-labels-idx1-ubyte", include_bytes!("../../data/mnist/train-labels-idx1-ubyte.gz")),
    ("t10k-images-idx3-ubyte", include_bytes!("../../data/mnist/t10k-images-idx3-ubyte.gz")),
    ("t10k-labels-idx1-ubyte", include_bytes!("../../data/mnist/t10k-labels-idx1-ubyte.gz")),
];

/// The axis lengths of an idx file of bytes.
fn sizes(file: &DataSetFile, axes: usize) -> Result<Vec<usize>> {
    let mut head = Vec::new();
    let read = file.reader()?.take(head_of(axes) as u64).read_to_end(&mut head);
    read.map_err(|error| file.failed(error))?;
    if head.len() < head_of(axes) || head[..4] != [0, 0, 8, axes as u8] {
        return Err(damaged(
            &file.path,
            format!("an idx file of bytes with {axes} axes"),
            "a different magic number",
        ));
    }
    let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    Ok((0..axes).map(|axis| word(4 + 4 * axis) as usize).collect())
}

/// The length of the header in bytes.
fn head_of(axes: usize) -> usize {
    4 + 4 * axes
}

fn labels(file: &DataSetFile, images: usize) -> Result<Vec<u32>> {
    let counts = sizes(file, 1)?;
    let labels = file.all()?.split_off(head_of(1));
    if counts[0] != labels.len() {
        return Err(damaged(&file.path, format!("{} labels", counts[0]), format!("{} bytes", labels.len())));
    }
    if counts[0] != images {
        let expected = format!("a label for each of {images} images");
        return Err(damaged(&file.path, expected, format!("{} labels", counts[0])));
    }
    if let Some(label) = labels.iter().find(|label| **label > 9) {
        return Err(damaged(&file.path, "labels from 0 to 9", label));
    }
    Ok(labels.into_iter().map(u32::from).collect())
}

/// The samples of an image file and a label file.
pub(super) fn split(images: DataSetFile, classes: &DataSetFile) -> Result<(Shape, Split)> {
    let sizes = sizes(&images, 3)?;
    let (count, shape) = (sizes[0], Shape::new(1, sizes[1], sizes[2]));
    let labels = labels(classes, count)?;
    let form = RecordFormat {
        head: head_of(3),
        lead: 0,
        width: shape.size(),
        kind: NumberType::U1,
        swapped: false,
        divisor: 255.0,
    };
    let images = Stored::new(Records::new(vec![(images, count)], form)?, count, shape.size());
    Ok((shape, Split { count, inputs: Inputs::Stored(images), targets: Targets::Classes(labels) }))
}

/// The data set of four files, which `find` opens by name.
fn assemble(find: impl Fn(&str) -> Result<DataSetFile>) -> Result<DataSet> {
    let (shape, train) = split(find("train-images-idx3-ubyte")?, &find("train-labels-idx1-ubyte")?)?;
    let images = find("t10k-images-idx3-ubyte")?;
    let path = images.path.clone();
    let (test_shape, test) = split(images, &find("t10k-labels-idx1-ubyte")?)?;
    if shape != test_shape {
        return Err(damaged(&path, format!("test images of {shape}"), test_shape));
    }
    Ok(DataSet { shape, outputs: 10, train, test })
}

/// The data set in a folder.
pub(super) fn open_set(folder: &Path) -> Result<DataSet> {
    assemble(|name| open(&folder.join(name)))
}

/// The subset embedded in the program.
pub(super) fn sample() -> Result<DataSet> {
    assemble(|name| {
        let (_, bytes) = SAMPLE.into_iter().find(|(own, _)| *own == name).expect("it has all four files");
        Ok(DataSetFile::embedded(name, bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_has_digits() {
        let mut digits = sample().expect("it is in this program");
        assert_eq!(digits.shape, Shape::new(1, 28, 28));
        assert_eq!((digits.train.count, digits.test.count), (3000, 1000));
        assert_eq!(digits.train.class(0), Some(5));
        digits.keep().expect("its files are whole");
        let mut image = vec![0.0_f64; 784];
        digits.train.fill(&[0], &mut image, &mut []).expect("all is in memory");
        let ink: f64 = image.iter().sum();
        assert!((ink * 255.0 - 27525.0).abs() < 1e-6, "the five has {} levels of ink", ink * 255.0);
    }

    #[test]
    fn a_folder_without_files_is_named() {
        let error = open_set(Path::new("no/such/folder")).expect_err("there is none");
        assert!(error.to_string().contains("no/such/folder"), "{error}");
    }
}
