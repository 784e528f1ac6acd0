//! MNIST: handwritten digits in the idx format of their authors.

use std::io::Read;
use std::path::Path;

use unisono::Result;

use super::file::{Opened, damaged, open};
use super::kind::Kind;
use super::records::{Form, Records};
use super::{DataSet, Inputs, Split, Stored, Targets};
use crate::shape::Shape;

/// An idx file of bytes, and its sizes.
fn idx(path: &Path, axes: usize) -> Result<(Opened, Vec<usize>)> {
    let file = open(path)?;
    let mut head = Vec::new();
    let read = file.reader()?.take(head_of(axes) as u64).read_to_end(&mut head);
    read.map_err(|error| file.failed(error))?;
    if head.len() < head_of(axes) || head[..4] != [0, 0, 8, axes as u8] {
        return Err(damaged(
            &file.path,
            format!("an idx file of bytes with {axes} axes"),
            "another first word",
        ));
    }
    let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let sizes = (0..axes).map(|axis| word(4 + 4 * axis) as usize).collect();
    Ok((file, sizes))
}

/// How many bytes come before the numbers.
fn head_of(axes: usize) -> usize {
    4 + 4 * axes
}

fn labels(path: &Path, images: usize) -> Result<Vec<u32>> {
    let (file, counts) = idx(path, 1)?;
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

fn split(folder: &Path, name: &str) -> Result<(Shape, Split)> {
    let (file, sizes) = idx(&folder.join(format!("{name}-images-idx3-ubyte")), 3)?;
    let (count, shape) = (sizes[0], Shape::new(1, sizes[1], sizes[2]));
    let labels = labels(&folder.join(format!("{name}-labels-idx1-ubyte")), count)?;
    let form = Form { head: head_of(3), lead: 0, width: shape.size(), kind: Kind::U1, divisor: 255.0 };
    let images = Stored::new(Records::new(vec![(file, count)], form)?, count, shape.size());
    Ok((shape, Split { count, inputs: Inputs::Stored(images), targets: Targets::Classes(labels) }))
}

pub(super) fn open_set(folder: &Path) -> Result<DataSet> {
    let (shape, train) = split(folder, "train")?;
    let (test_shape, test) = split(folder, "t10k")?;
    if shape != test_shape {
        return Err(damaged(folder, format!("test images of {shape}"), test_shape));
    }
    Ok(DataSet { shape, outputs: 10, train, test })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_has_digits() {
        let digits = open_set(&super::super::sample_folder()).expect("the sample is in the repository");
        assert_eq!(digits.shape, Shape::new(1, 28, 28));
        assert_eq!((digits.train.count, digits.test.count), (3000, 1000));
        assert_eq!(digits.train.class(0), Some(5));
    }

    #[test]
    fn a_folder_without_files_is_named() {
        let error = open_set(Path::new("no/such/folder")).expect_err("there is none");
        assert!(error.to_string().contains("no/such/folder"), "{error}");
    }
}
