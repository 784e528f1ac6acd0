//! Data sets: samples to learn from and samples to be tested on. One data set, one file.

mod arrays;
mod cifar;
mod download;
mod file;
#[cfg(test)]
mod fuzz;
mod images;
mod iris;
mod number_type;
mod mnist;
mod npy;
mod npz;
mod png;
mod records;
mod split;
mod store;
mod synthetic;

pub use arrays::Arrays;
pub use npy::{Array, Values, read as read_npy, write as write_npy};
pub(crate) use npz::read as read_npz;
pub use png::{Picture, decode as decode_png, encode as encode_png};
pub use split::{Inputs, Split, Targets};
pub use store::{Store, Stored};

use std::path::PathBuf;

use unisono::halo::Partition;
use unisono::{Error, Result};

use crate::experiment::OwnData;
use crate::shape::Shape;

/// Samples of one shape.
///
/// ```
/// use unisono_nn::{DataSet, Source};
/// let iris = DataSet::load(&Source::Iris, 0)?;
/// assert_eq!((iris.shape.size(), iris.train.count + iris.test.count), (4, 150));
/// # Ok::<(), unisono::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct DataSet {
    /// The shape of a sample.
    pub shape: Shape,
    /// How many numbers a target has; for classes, how many there are.
    pub outputs: usize,
    /// What the model learns from.
    pub train: Split,
    /// What it never sees while learning.
    pub test: Split,
}

/// Which data set.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// Handwritten digits, 28 × 28, in their own files; without a folder, the sample that is in this program.
    Mnist {
        /// The folder with the four files, perhaps with `.gz`.
        folder: Option<PathBuf>,
        /// Whether what the folder lacks is downloaded; without a folder, into the user's cache.
        download: bool,
    },
    /// Small colour pictures, 3 × 32 × 32, in the binary version's files.
    Cifar10 {
        /// The folder with the batches, perhaps with `.gz`.
        folder: Option<PathBuf>,
        /// Whether what the folder lacks is downloaded; without a folder, into the user's cache.
        download: bool,
    },
    /// Fisher's flowers.
    Iris,
    /// Random numbers with random classes.
    UniformRandom {
        /// How many samples to learn from.
        train: usize,
        /// How many to test on.
        test: usize,
        /// The shape of a sample.
        shape: Shape,
        /// How many classes.
        classes: usize,
    },
    /// Circles and ellipses, 3 × 32 × 32.
    ToyImages,
    /// A folder with `train` and perhaps `test`, in each a folder for each class with pictures.
    Images {
        /// The folder.
        folder: PathBuf,
    },
    /// Arrays in `.npy` files.
    Arrays(Arrays),
    /// Whatever a program added.
    Own(OwnData),
}

impl DataSet {
    /// Finds it, and looks through it for damage. Whatever is random comes from the seed. Samples that are in plain files
    /// stay there until a batch needs them.
    pub fn load(source: &Source, seed: u64) -> Result<DataSet> {
        let mut data = DataSet::open(source, seed)?;
        data.keep()?;
        data.check(0, 1)?;
        Ok(data)
    }

    /// Brings into memory what cannot be read in parts. Whoever wants samples calls it first.
    pub(crate) fn keep(&mut self) -> Result<()> {
        self.train.keep()?;
        self.test.keep()
    }

    /// Looks for damage in a part of the samples.
    pub(crate) fn check(&self, part: usize, parts: usize) -> Result<()> {
        let own = |split: &Split| Partition::balanced(split.count, parts).range(part);
        self.train.check(own(&self.train))?;
        self.test.check(own(&self.test))
    }

    /// Which sample makes it have so many classes, where its targets are classes.
    pub(crate) fn largest_class(&self) -> Option<String> {
        let largest = |split: &Split, name: &str| match &split.targets {
            Targets::Classes(classes) => {
                let class = *classes.iter().max()?;
                let sample = classes.iter().position(|other| *other == class)?;
                Some((class, format!("the largest class is {class}, of {name} sample {sample}")))
            }
            _ => None,
        };
        let found = [largest(&self.test, "test"), largest(&self.train, "training")];
        found.into_iter().flatten().max_by_key(|(class, _)| *class).map(|(_, words)| words)
    }

    /// Finds it, and reads nothing but sizes and classes.
    pub(crate) fn open(source: &Source, seed: u64) -> Result<DataSet> {
        match source {
            Source::Mnist { folder: None, download: false } => mnist::sample(),
            Source::Mnist { folder, download } => {
                mnist::open_set(&fetched("mnist", folder, download.then(download::mnist))?)
            }
            Source::Cifar10 { folder, download } => {
                cifar::open_set(&fetched("cifar10", folder, download.then(download::cifar10))?)
            }
            Source::Iris => Ok(iris::load(seed)),
            Source::UniformRandom { train, test, shape, classes } => {
                synthetic::uniform([*train, *test], *shape, *classes, seed)
            }
            Source::ToyImages => Ok(synthetic::toy_images()),
            Source::Images { folder } => images::open_set(folder),
            Source::Arrays(arrays) => arrays.open(),
            Source::Own(own) => check_finite(own.load(seed)?),
        }
    }
}

/// Refuses a program's data where it has a NaN or an infinity: whatever learns from one is lost.
fn check_finite(data: DataSet) -> Result<DataSet> {
    for (name, split) in [("training", &data.train), ("test", &data.test)] {
        if let Some(sample) = split.first_non_finite() {
            let received = format!("NaN or infinity in {name} sample {sample}");
            let advice = "mend the program that makes the samples";
            return Err(Error::usage("load a data set of its own", "finite numbers", received, advice));
        }
    }
    Ok(data)
}

/// The folder of a data set, where it is complete if it is to be downloaded.
fn fetched(name: &str, folder: &Option<PathBuf>, from: Option<download::RemoteDataSet>) -> Result<PathBuf> {
    let folder = folder.clone().unwrap_or_else(|| download::cache(name));
    if let Some(remote) = from {
        remote.fetch(&folder)?;
    }
    Ok(folder)
}
