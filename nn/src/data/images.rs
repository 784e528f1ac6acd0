//! Image folders: one subfolder per class.

use std::ops::Range;
use std::path::{Path, PathBuf};

use unisono::{Error, Result};

use super::file::damaged;
use super::png::{Decoded, Picture, decode, decode_portable};
use super::{DataSet, Inputs, Split, Store, Stored, Targets};
use crate::shape::Shape;

fn name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

/// The subfolders of a folder, which are its classes.
fn classes(folder: &Path) -> Result<Vec<String>> {
    let folders = entries(folder)?.into_iter().filter(|path| path.is_dir());
    Ok(folders.filter_map(|path| name(&path).map(String::from)).collect())
}

/// The entries of a folder, sorted by name.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error| {
        let advice =
            "give a folder with `train` and optionally `test`, each with one folder of images per class";
        Error::io("load pictures", folder.display().to_string(), error, advice)
    };
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .map_err(failed)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()
        .map_err(failed)?;
    // Hidden entries, and those that some systems leave in archives, belong to other programs.
    paths.retain(|path| name(path).is_some_and(|name| !name.starts_with('.') && name != "__MACOSX"));
    paths.sort();
    Ok(paths)
}

/// The decoder for a file of this name, if it is an image.
fn decoder(path: &Path) -> Option<fn(&[u8]) -> Decoded> {
    match path.extension()?.to_str()?.to_lowercase().as_str() {
        "png" => Some(decode),
        "pgm" | "ppm" => Some(decode_portable),
        _ => None,
    }
}

/// Image formats that are not supported. Silently skipping such files would train on an incomplete class.
const UNSUPPORTED: &[&str] =
    &["jpg", "jpeg", "jpe", "jfif", "gif", "bmp", "webp", "tif", "tiff", "heic", "avif", "pbm", "pnm"];

fn is_unsupported(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    UNSUPPORTED.contains(&extension.to_lowercase().as_str())
}

/// The image files of a class.
fn pictures(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = entries(folder)?;
    if let Some(first) = paths.iter().find(|path| is_unsupported(path)) {
        let count = paths.iter().filter(|path| is_unsupported(path)).count();
        let operation = format!("load {}", folder.display());
        let expected = "images in .png, .pgm or .ppm files only";
        let received = format!("{count} in other files, such as {}", name(first).unwrap_or_default());
        return Err(Error::usage(operation, expected, received, "convert them to PNG, or move them away"));
    }
    paths.retain(|path| decoder(path).is_some());
    Ok(paths)
}

fn picture(path: &Path) -> Result<Picture> {
    let bytes = std::fs::read(path).map_err(|error| damaged(path, "a picture", error))?;
    let decode = decoder(path).expect("only pictures are listed");
    decode(&bytes).map_err(|received| damaged(path, "a picture", received))
}

/// Images of one shape, each in its own file.
#[derive(Debug)]
struct Pictures {
    paths: Vec<PathBuf>,
    shape: Shape,
}

/// Data sets of at most this many bytes are decoded once and kept in memory.
const CACHE_LIMIT: usize = 64 << 20;

impl Pictures {
    fn pixels(&self, sample: usize) -> Result<Vec<u8>> {
        let path = &self.paths[sample];
        let picture = picture(path)?;
        match picture.shape == self.shape {
            true => Ok(picture.pixels),
            false => {
                let operation = format!("load {}", path.display());
                let expected = format!("an image of {}, like the first", self.shape);
                let advice = "scale or crop all images to one size, and make all of them greyscale or all of them colour";
                Err(Error::usage(operation, expected, picture.shape.to_string(), advice))
            }
        }
    }
}

impl Store for Pictures {
    fn read(&self, sample: usize, places: &[Range<usize>], values: &mut [f64]) -> Result<()> {
        let pixels = self.pixels(sample)?;
        let wanted = places.iter().flat_map(|run| &pixels[run.clone()]);
        values.iter_mut().zip(wanted).for_each(|(value, pixel)| *value = f64::from(*pixel) / 255.0);
        Ok(())
    }

    fn check(&self, samples: &[usize]) -> Result<()> {
        samples.iter().try_for_each(|sample| self.pixels(*sample).map(|_| ()))
    }

    fn keep(&self, samples: &[usize], places: &[Range<usize>]) -> Result<Option<Inputs>> {
        let size = samples.len() * places.iter().map(|run| run.len()).sum::<usize>();
        if size > CACHE_LIMIT {
            return Ok(None);
        }
        let mut kept = Vec::with_capacity(size);
        for sample in samples {
            let pixels = self.pixels(*sample)?;
            places.iter().for_each(|run| kept.extend_from_slice(&pixels[run.clone()]));
        }
        Ok(Some(Inputs::Bytes(kept)))
    }
}

fn split(folder: &Path, names: &[String], shape: &mut Option<Shape>) -> Result<Split> {
    let (mut paths, mut classes) = (Vec::new(), Vec::new());
    for (class, name) in names.iter().enumerate() {
        for path in pictures(&folder.join(name))? {
            paths.push(path);
            classes.push(class as u32);
        }
    }
    let Some(first) = paths.first() else { return Ok(Split::empty()) };
    let shape = match shape {
        Some(shape) => *shape,
        None => *shape.insert(picture(first)?.shape),
    };
    let count = paths.len();
    let pictures = Stored::new(Pictures { paths, shape }, count, shape.size());
    Ok(Split { count, inputs: Inputs::Stored(pictures), targets: Targets::Classes(classes) })
}

pub(super) fn open_set(folder: &Path) -> Result<DataSet> {
    let train_folder = folder.join("train");
    let names = classes(&train_folder)?;
    let mut shape = None;
    let train = split(&train_folder, &names, &mut shape)?;
    let Some(first) = shape else {
        return Err(damaged(&train_folder, "folders with .png, .pgm or .ppm images", "none"));
    };
    let test_folder = folder.join("test");
    let test = match test_folder.is_dir() {
        true => {
            if let Some(unknown) = classes(&test_folder)?.into_iter().find(|name| !names.contains(name)) {
                let expected = format!("the classes of {}", train_folder.display());
                let operation = format!("load {}", test_folder.display());
                let advice = "add it to the training images, or move it away";
                return Err(Error::usage(operation, expected, format!("a class `{unknown}`"), advice));
            }
            split(&test_folder, &names, &mut shape)?
        }
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
        // Hidden entries are neither classes nor images.
        for hidden in [".cache", "__MACOSX"] {
            std::fs::create_dir_all(folder.join("train").join(hidden)).expect("it can be made");
        }
        std::fs::write(folder.join("train/cat/._a.png"), "not a picture").expect("written");
        let data = open_set(&folder).expect("it is a data set");
        assert_eq!((data.shape, data.outputs, data.train.count), (Shape::new(1, 2, 3), 2, 4));
        assert_eq!((data.train.class(1), data.train.class(2)), (Some(0), Some(1)));
        let rejected = || open_set(&folder).expect_err("it is no such data set").to_string();
        std::fs::write(folder.join("train/dog/d.JPG"), "a photograph").expect("written");
        assert!(rejected().contains("d.JPG") && rejected().contains("PNG"), "{}", rejected());
        std::fs::remove_file(folder.join("train/dog/d.JPG")).expect("it can be removed");
        for class in ["cat", "dog", "eel"] {
            std::fs::create_dir_all(folder.join("test").join(class)).expect("it can be made");
        }
        assert!(rejected().contains("`eel`"), "{}", rejected());
        std::fs::remove_dir_all(folder.join("test")).expect("it can be removed");
        std::fs::write(folder.join("train/dog/c.pgm"), b"P5 1 1 255\n\x00").expect("written");
        let error = open_set(&folder).and_then(|mut data| data.train.keep()).expect_err("another size");
        assert!(error.to_string().contains("c.pgm") && error.to_string().contains("one size"), "{error}");
        std::fs::remove_dir_all(&folder).expect("it can be removed");
    }
}
