//! MNIST: handwritten digits in the idx format of their authors.

use std::path::Path;

use unisono::Result;

use super::file::{damaged, read};
use super::{DataSet, Inputs, Split, Targets};
use crate::shape::Shape;

/// An idx file of bytes: its sizes and its numbers.
fn idx(path: &Path, axes: usize) -> Result<(Vec<usize>, Vec<u8>)> {
    let bytes = read(path)?;
    let header = 4 + 4 * axes;
    if bytes.len() < header || bytes[..4] != [0, 0, 8, axes as u8] {
        return Err(damaged(path, format!("an idx file of bytes with {axes} axes"), "another first word"));
    }
    let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let sizes: Vec<usize> = (0..axes).map(|axis| word(4 + 4 * axis) as usize).collect();
    let size = sizes.iter().try_fold(1_usize, |size, axis| size.checked_mul(*axis));
    if size != Some(bytes.len() - header) {
        return Err(damaged(path, format!("{sizes:?} bytes"), format!("{} bytes", bytes.len() - header)));
    }
    Ok((sizes, bytes[header..].to_vec()))
}

fn split(folder: &Path, name: &str) -> Result<(Shape, Split)> {
    let path = folder.join(format!("{name}-images-idx3-ubyte"));
    let (sizes, images) = idx(&path, 3)?;
    let labels_path = folder.join(format!("{name}-labels-idx1-ubyte"));
    let (counts, labels) = idx(&labels_path, 1)?;
    if counts[0] != sizes[0] {
        return Err(damaged(
            &labels_path,
            format!("a label for each of {} images", sizes[0]),
            format!("{} labels", counts[0]),
        ));
    }
    if let Some(label) = labels.iter().find(|label| **label > 9) {
        return Err(damaged(&labels_path, "labels from 0 to 9", label));
    }
    let classes = labels.into_iter().map(u32::from).collect();
    let split = Split { count: sizes[0], inputs: Inputs::Bytes(images), targets: Targets::Classes(classes) };
    Ok((Shape::new(1, sizes[1], sizes[2]), split))
}

pub(super) fn load(folder: &Path) -> Result<DataSet> {
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
        let digits = load(&super::super::sample_folder()).expect("the sample is in the repository");
        assert_eq!(digits.shape, Shape::new(1, 28, 28));
        assert_eq!((digits.train.count, digits.test.count), (3000, 1000));
        assert_eq!(digits.train.class(0), Some(5));
    }

    #[test]
    fn a_folder_without_files_is_named() {
        let error = load(Path::new("no/such/folder")).expect_err("there is none");
        assert!(error.to_string().contains("no/such/folder"), "{error}");
    }
}
