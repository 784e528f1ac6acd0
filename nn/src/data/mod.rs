//! Data sets: training samples and test samples. One data set, one file.

mod arrays;
mod cifar;
mod download;
mod file;
#[cfg(test)]
mod fuzz;
mod images;
mod iris;
mod mnist;
mod npy;
mod npz;
mod number_type;
mod png;
mod records;
mod sparse;
mod split;
mod store;
mod synthetic;

pub use arrays::Arrays;
pub use npy::{Array, Values, read as read_npy, write as write_npy};
pub(crate) use npz::read as read_npz;
pub use png::{Picture, decode as decode_png, encode as encode_png};
pub use sparse::{FeatureIds, SparseFormat, SparseReader, SparseSamples};
pub use split::{Inputs, Split, Targets};
pub use store::{Store, Stored};

use std::path::PathBuf;

use unisono::halo::Partition;
use unisono::{Error, Result};

use crate::experiment::CustomData;
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
    /// The number of values per target; for classes, the number of classes.
    pub outputs: usize,
    /// The training samples.
    pub train: Split,
    /// The test samples, never used for training.
    pub test: Split,
}

/// The choice of a data set.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// Handwritten digits, 28 × 28, in their original files; without a folder, the subset embedded in the program.
    Mnist {
        /// The folder with the four files, possibly with the suffix `.gz`.
        folder: Option<PathBuf>,
        /// Whether to download files that are missing from the folder; without a folder, into the user's cache.
        download: bool,
    },
    /// Small colour images, 3 × 32 × 32, in the files of the binary version.
    Cifar10 {
        /// The folder with the batches, possibly with the suffix `.gz`.
        folder: Option<PathBuf>,
        /// Whether to download files that are missing from the folder; without a folder, into the user's cache.
        download: bool,
    },
    /// Fisher's irises.
    Iris,
    /// Random numbers with random classes.
    UniformRandom {
        /// The number of training samples.
        train: usize,
        /// The number of test samples.
        test: usize,
        /// The shape of a sample.
        shape: Shape,
        /// The number of classes.
        classes: usize,
    },
    /// Circles and ellipses, 3 × 32 × 32.
    ToyImages,
    /// A folder with `train` and optionally `test`, each with one folder of images per class.
    Images {
        /// The folder.
        folder: PathBuf,
    },
    /// Arrays in `.npy` files.
    Arrays(Arrays),
    /// A data set that the program added.
    Custom(CustomData),
}

impl DataSet {
    /// Opens the data set and checks it for damage. All randomness comes from the seed. Samples in plain files stay there
    /// until a batch needs them.
    pub fn load(source: &Source, seed: u64) -> Result<DataSet> {
        let mut data = DataSet::open(source, seed)?;
        data.keep()?;
        data.check(0, 1)?;
        Ok(data)
    }

    /// Loads into memory what cannot be read in parts. Callers must call this before reading samples.
    pub(crate) fn keep(&mut self) -> Result<()> {
        self.train.keep()?;
        self.test.keep()
    }

    /// Checks one of `parts` parts of the samples for damage.
    pub(crate) fn check(&self, part: usize, parts: usize) -> Result<()> {
        let own = |split: &Split| Partition::balanced(split.count, parts).range(part);
        self.train.check(own(&self.train))?;
        self.test.check(own(&self.test))
    }

    /// A description of the sample that determines the number of classes, if the targets are classes.
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

    /// Opens the data set, and reads only sizes and classes.
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
            Source::Custom(own) => check_finite(own.load(seed)?),
        }
    }
}

/// Rejects user-defined data with a NaN or an infinity, which would destroy the weights of any model trained on it.
fn check_finite(data: DataSet) -> Result<DataSet> {
    for (name, split) in [("training", &data.train), ("test", &data.test)] {
        if let Some(sample) = split.first_non_finite() {
            let received = format!("NaN or infinity in {name} sample {sample}");
            let advice = "fix the program that generates the samples";
            return Err(Error::usage("load a data set of its own", "finite numbers", received, advice));
        }
    }
    Ok(data)
}

/// The folder of a data set, complete if a download was requested.
fn fetched(name: &str, folder: &Option<PathBuf>, from: Option<download::RemoteDataSet>) -> Result<PathBuf> {
    let folder = folder.clone().unwrap_or_else(|| download::cache(name));
    if let Some(remote) = from {
        remote.fetch(&folder)?;
    }
    Ok(folder)
}
