//! Data sets in `.npy` arrays: inputs and targets, the first axis being the samples.

use std::path::{Path, PathBuf};

use unisono::Result;

use super::file::damaged;
use super::npy::{Array, Values, read};
use super::{DataSet, Inputs, Split, Targets};
use crate::shape::Shape;

/// Where the arrays are. Targets are classes where they have one axis of whole numbers, and numbers where they have two.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrays {
    /// Inputs to learn from: (samples, …), with one or three more axes.
    pub inputs: PathBuf,
    /// Their targets; without, the data set serves autoencoders.
    pub targets: Option<PathBuf>,
    /// Inputs to test on.
    pub test_inputs: Option<PathBuf>,
    /// Their targets.
    pub test_targets: Option<PathBuf>,
}

fn shape(path: &Path, array: &Array) -> Result<Shape> {
    match array.shape[..] {
        [_, size] => Ok(Shape::flat(size)),
        [_, rows, columns] => Ok(Shape::new(1, rows, columns)),
        [_, maps, rows, columns] => Ok(Shape::new(maps, rows, columns)),
        _ => Err(damaged(path, "an array of 2 to 4 axes, samples first", format!("shape {:?}", array.shape))),
    }
}

/// Refuses a NaN or an infinity: whatever learns from one is lost.
fn refuse_unbounded(path: &Path, array: &Array) -> Result<()> {
    let found = match &array.values {
        Values::Bytes(_) => None,
        Values::Singles(values) => values.iter().position(|value| !value.is_finite()),
        Values::Doubles(values) => values.iter().position(|value| !value.is_finite()),
    };
    let Some(at) = found else { return Ok(()) };
    let width = array.shape.iter().skip(1).product::<usize>().max(1);
    let received = format!("{} in sample {}, at place {} of it", array.doubles()[at], at / width, at % width);
    Err(damaged(path, "finite numbers", received))
}

/// Targets and how many numbers each has.
fn targets(path: &Path, count: usize) -> Result<(Targets, usize)> {
    let array = read(path)?;
    refuse_unbounded(path, &array)?;
    let values = array.doubles();
    if array.shape.first() != Some(&count) {
        return Err(damaged(path, format!("{count} targets"), format!("shape {:?}", array.shape)));
    }
    if array.shape.len() > 1 {
        return Ok((Targets::Values(values), array.shape[1..].iter().product()));
    }
    if let Some(value) = values.iter().find(|value| value.fract() != 0.0 || **value < 0.0 || **value > 1e6) {
        return Err(damaged(path, "classes: whole numbers from 0 on", value));
    }
    let classes: Vec<u32> = values.iter().map(|value| *value as u32).collect();
    let outputs = classes.iter().max().map_or(0, |largest| *largest as usize + 1);
    Ok((Targets::Classes(classes), outputs))
}

fn split(inputs: &Path, target: Option<&Path>) -> Result<(Shape, usize, Split)> {
    let array = read(inputs)?;
    let shape = shape(inputs, &array)?;
    refuse_unbounded(inputs, &array)?;
    let count = array.shape[0];
    let (targets, outputs) = match target {
        Some(path) => targets(path, count)?,
        None => (Targets::Unknown, 0),
    };
    let inputs = match array.values {
        Values::Bytes(values) => Inputs::Bytes(values),
        Values::Singles(values) => Inputs::Singles(values),
        Values::Doubles(values) => Inputs::Doubles(values),
    };
    Ok((shape, outputs, Split { count, inputs, targets }))
}

impl Arrays {
    pub(super) fn load(&self) -> Result<DataSet> {
        let (shape, outputs, train) = split(&self.inputs, self.targets.as_deref())?;
        let mut data = DataSet { shape, outputs, train, test: Split::empty() };
        if let Some(path) = &self.test_inputs {
            let (test_shape, test_outputs, test) = split(path, self.test_targets.as_deref())?;
            if test_shape != shape {
                return Err(damaged(path, format!("samples of {shape}"), test_shape));
            }
            data.outputs = data.outputs.max(test_outputs);
            data.test = test;
        }
        Ok(data)
    }
}
