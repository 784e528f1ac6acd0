//! CIFAR-10: small colour images of ten classes, in the binary format.

use std::path::Path;

use unisono::Result;

use super::file::{DataSetFile, damaged, open};
use super::number_type::NumberType;
use super::records::{RecordFormat, Records};
use super::{DataSet, Inputs, Split, Stored, Targets};
use crate::shape::Shape;

const PICTURE: usize = 3 * 32 * 32;

/// Each record is a label followed by the red, green and blue planes.
const FORM: RecordFormat =
    RecordFormat { head: 0, lead: 1, width: PICTURE, kind: NumberType::U1, swapped: false, divisor: 255.0 };

/// The labels of a file.
pub(super) fn labels(file: &DataSetFile) -> Result<Vec<u32>> {
    let mut labels = Vec::new();
    if file.compressed {
        labels.extend(file.all()?.chunks(PICTURE + 1).map(|record| u32::from(record[0])));
    } else {
        for record in 0..file.length()? / (PICTURE as u64 + 1) {
            let mut label = [0];
            file.read_at(&mut label, record * (PICTURE as u64 + 1))?;
            labels.push(u32::from(label[0]));
        }
    }
    match labels.iter().find(|label| **label > 9) {
        Some(label) => Err(damaged(&file.path, "labels from 0 to 9", label)),
        None if labels.is_empty() => {
            Err(damaged(&file.path, format!("records of {} bytes", PICTURE + 1), "none"))
        }
        None => Ok(labels),
    }
}

fn batches(folder: &Path, names: &[String]) -> Result<Split> {
    let (mut files, mut classes) = (Vec::new(), Vec::new());
    for name in names {
        let file = open(&folder.join(name))?;
        let labels = labels(&file)?;
        files.push((file, labels.len()));
        classes.extend(labels);
    }
    let count = classes.len();
    let pictures = Stored::new(Records::new(files, FORM)?, count, PICTURE);
    Ok(Split { count, inputs: Inputs::Stored(pictures), targets: Targets::Classes(classes) })
}

pub(super) fn open_set(folder: &Path) -> Result<DataSet> {
    let names: Vec<String> = (1..=5).map(|number| format!("data_batch_{number}.bin")).collect();
    let train = batches(folder, &names)?;
    let test = batches(folder, &["test_batch.bin".into()])?;
    Ok(DataSet { shape: Shape::new(3, 32, 32), outputs: 10, train, test })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_become_pictures_and_damage_is_named() {
        let folder = std::env::temp_dir().join(format!("unisono-cifar-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        let record = |label: u8| [vec![label], vec![label * 20; PICTURE]].concat();
        for number in 1..=5 {
            let bytes = [record(number), record(9)].concat();
            std::fs::write(folder.join(format!("data_batch_{number}.bin")), bytes)
                .expect("it can be written");
        }
        std::fs::write(folder.join("test_batch.bin"), record(3)).expect("it can be written");
        let pictures = open_set(&folder).expect("all files are there");
        assert_eq!((pictures.train.count, pictures.test.count), (10, 1));
        assert_eq!((pictures.train.class(2), pictures.test.class(0)), (Some(2), Some(3)));
        std::fs::write(folder.join("test_batch.bin"), [1, 2, 3]).expect("it can be written");
        let error = open_set(&folder).expect_err("three bytes are no record");
        assert!(error.to_string().contains("test_batch.bin"), "{error}");
        std::fs::remove_dir_all(&folder).expect("it can be removed");
    }
}
