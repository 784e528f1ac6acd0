//! Folders of pictures: a folder for each class.

use std::path::{Path, PathBuf};

use unisono::{Error, Result};

use super::file::damaged;
use super::png::{Picture, decode, decode_portable};
use super::{DataSet, Inputs, Split, Targets};
use crate::shape::Shape;

/// What is in a folder, by name.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error| {
        let advice =
            "give a folder with `train` and perhaps `test`, in each a folder of pictures for each class";
        Error::io("load pictures", folder.display().to_string(), error, advice)
    };
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .map_err(failed)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()
        .map_err(failed)?;
    paths.sort();
    Ok(paths)
}

fn picture(path: &Path) -> Result<Option<Picture>> {
    let suffix = path.extension().and_then(|suffix| suffix.to_str()).unwrap_or_default();
    let decoded = match suffix.to_lowercase().as_str() {
        "png" => decode(&std::fs::read(path).map_err(|error| damaged(path, "a picture", error))?),
        "pgm" | "ppm" => {
            decode_portable(&std::fs::read(path).map_err(|error| damaged(path, "a picture", error))?)
        }
        _ => return Ok(None),
    };
    decoded.map(Some).map_err(|received| damaged(path, "a picture", received))
}

fn split(folder: &Path, names: &[String], shape: &mut Option<Shape>) -> Result<Split> {
    let (mut pixels, mut classes) = (Vec::new(), Vec::new());
    for (class, name) in names.iter().enumerate() {
        for path in entries(&folder.join(name))? {
            let Some(picture) = picture(&path)? else { continue };
            let expected = *shape.get_or_insert(picture.shape);
            if picture.shape != expected {
                return Err(damaged(
                    &path,
                    format!("a picture of {expected}, like the first"),
                    picture.shape,
                ));
            }
            pixels.extend_from_slice(&picture.pixels);
            classes.push(class as u32);
        }
    }
    let count = classes.len();
    Ok(Split { count, inputs: Inputs::Bytes(pixels), targets: Targets::Classes(classes) })
}

pub(super) fn load(folder: &Path) -> Result<DataSet> {
    let train_folder = folder.join("train");
    let names: Vec<String> = entries(&train_folder)?
        .iter()
        .filter(|path| path.is_dir())
        .filter_map(|path| Some(path.file_name()?.to_str()?.to_string()))
        .collect();
    let mut shape = None;
    let train = split(&train_folder, &names, &mut shape)?;
    let Some(first) = shape else {
        return Err(damaged(&train_folder, "folders with .png, .pgm or .ppm pictures", "none"));
    };
    let test_folder = folder.join("test");
    let test = match test_folder.is_dir() {
        true => split(&test_folder, &names, &mut shape)?,
        false => Split::empty(),
    };
    Ok(DataSet { shape: first, outputs: names.len(), train, test })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_folders() {
        let folder = std::env::temp_dir().join(format!("unisono-images-{}", std::process::id()));
        for (class, value) in [("cat", 10), ("dog", 200)] {
            let inside = folder.join("train").join(class);
            std::fs::create_dir_all(&inside).expect("it can be made");
            let picture = Picture { shape: Shape::new(1, 2, 3), pixels: vec![value; 6] };
            std::fs::write(inside.join("a.png"), super::super::png::encode(&picture)).expect("written");
            std::fs::write(inside.join("b.pgm"), [b"P5 # remark\n3 2 255\n", &[value; 6][..]].concat())
                .expect("written");
            std::fs::write(inside.join("notes.txt"), "not a picture").expect("written");
        }
        let data = load(&folder).expect("it is a data set");
        assert_eq!((data.shape, data.outputs, data.train.count), (Shape::new(1, 2, 3), 2, 4));
        assert_eq!((data.train.class(1), data.train.class(2)), (Some(0), Some(1)));
        std::fs::write(folder.join("train/dog/c.pgm"), b"P5 1 1 255\n\x00").expect("written");
        assert!(load(&folder).expect_err("another size").to_string().contains("c.pgm"));
        std::fs::remove_dir_all(&folder).expect("it can be removed");
    }
}
