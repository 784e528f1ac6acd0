//! CIFAR-10: small colour pictures of ten classes, in the binary version.

use std::path::Path;

use unisono::Result;

use super::file::{damaged, read};
use super::{DataSet, Inputs, Split, Targets};
use crate::shape::Shape;

const PICTURE: usize = 3 * 32 * 32;

/// Each record is a label and the red, green and blue planes.
fn batches(folder: &Path, names: &[String]) -> Result<Split> {
    let (mut pictures, mut classes) = (Vec::new(), Vec::new());
    for name in names {
        let path = folder.join(name);
        let bytes = read(&path)?;
        if bytes.is_empty() || bytes.len() % (PICTURE + 1) != 0 {
            let received = format!("{} bytes", bytes.len());
            return Err(damaged(&path, format!("records of {} bytes", PICTURE + 1), received));
        }
        for record in bytes.chunks(PICTURE + 1) {
            if record[0] > 9 {
                return Err(damaged(&path, "labels from 0 to 9", record[0]));
            }
            classes.push(u32::from(record[0]));
            pictures.extend_from_slice(&record[1..]);
        }
    }
    let targets = Targets::Classes(classes.clone());
    Ok(Split { count: classes.len(), inputs: Inputs::Bytes(pictures), targets })
}

pub(super) fn load(folder: &Path) -> Result<DataSet> {
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
        let pictures = load(&folder).expect("all files are there");
        assert_eq!((pictures.train.count, pictures.test.count), (10, 1));
        assert_eq!((pictures.train.class(2), pictures.test.class(0)), (Some(2), Some(3)));
        std::fs::write(folder.join("test_batch.bin"), [1, 2, 3]).expect("it can be written");
        let error = load(&folder).expect_err("three bytes are no record");
        assert!(error.to_string().contains("test_batch.bin"), "{error}");
        std::fs::remove_dir_all(&folder).expect("it can be removed");
    }
}
