//! Data sets in `.npy` arrays: inputs and targets, with samples along the first axis.

use std::path::{Path, PathBuf};

use unisono::{Error, Result};

use super::file::{DataSetFile, damaged};
use super::npy::{self, NpyHeader};
use super::number_type::NumberType;
use super::records::{RecordFormat, Records, reject_non_finite};
use super::{DataSet, Inputs, Split, Stored, Targets};
use crate::shape::Shape;

/// The paths of the arrays. One-dimensional integer targets are classes; two-dimensional targets are numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrays {
    /// Training inputs: (samples, …), with one or three more axes.
    pub inputs: PathBuf,
    /// Training targets; without them, the data set serves autoencoders.
    pub targets: Option<PathBuf>,
    /// Test inputs.
    pub test_inputs: Option<PathBuf>,
    /// Test targets.
    pub test_targets: Option<PathBuf>,
}

fn shape(path: &Path, axes: &[usize]) -> Result<Shape> {
    let shape = match axes {
        [_, size] => Shape::flat(*size),
        [_, rows, columns] => Shape::new(1, *rows, *columns),
        [_, maps, rows, columns] => Shape::new(*maps, *rows, *columns),
        _ => {
            let received = format!("shape {axes:?}");
            return Err(damaged(path, "an array of 2 to 4 axes, samples first", received));
        }
    };
    match shape.size() {
        0 => Err(damaged(path, "samples of at least one number", format!("shape {axes:?}"))),
        _ => Ok(shape),
    }
}

/// The array of a file, with samples along the first axis. Bytes are divided by `divisor`.
fn stored(file: DataSetFile, head: &NpyHeader, divisor: f64) -> Result<Stored> {
    let (count, width) = (head.shape[0], head.shape[1..].iter().product());
    if head.fortran {
        let received = "one in Fortran order; save numpy.ascontiguousarray(array)";
        return Err(damaged(&file.path, "an array with contiguous samples", received));
    }
    let (kind, swapped) = (head.kind, head.swapped);
    let form = RecordFormat { head: head.start, lead: 0, width, kind, swapped, divisor };
    Ok(Stored::new(Records::new(vec![(file, count)], form)?, count, width))
}

/// The targets, and the number of values per target.
fn targets(path: &Path, count: usize) -> Result<(Targets, usize)> {
    let file = npy::open(path)?;
    let head = npy::read_header(&file.path, &mut file.reader()?)?;
    if head.shape.first() != Some(&count) {
        return Err(damaged(path, format!("{count} targets"), format!("shape {:?}", head.shape)));
    }
    let width = head.shape[1..].iter().product();
    if width == 0 {
        return Err(damaged(path, "targets of at least one number", format!("shape {:?}", head.shape)));
    }
    if head.shape.len() > 1 && !file.compressed {
        return Ok((Targets::Stored(stored(file, &head, 1.0)?), width));
    }
    let values = npy::read(path)?.doubles();
    for (sample, values) in values.chunks(width.max(1)).enumerate() {
        reject_non_finite(path, sample, values)?;
    }
    if head.shape.len() > 1 {
        return Ok((Targets::Values(values), width));
    }
    if let Some(value) = values.iter().find(|value| value.fract() != 0.0 || **value < 0.0 || **value > 1e6) {
        return Err(damaged(path, "classes: integers of at least 0", value));
    }
    let classes: Vec<u32> = values.iter().map(|value| *value as u32).collect();
    let outputs = classes.iter().max().map_or(0, |largest| *largest as usize + 1);
    Ok((Targets::Classes(classes), outputs))
}

/// The samples of a file and their properties.
struct Read {
    shape: Shape,
    /// Whether the elements are bytes, which are divided by 255.
    bytes: bool,
    outputs: usize,
    split: Split,
}

fn split(inputs: &Path, target: Option<&Path>) -> Result<Read> {
    let file = npy::open(inputs)?;
    let head = npy::read_header(&file.path, &mut file.reader()?)?;
    let shape = shape(inputs, &head.shape)?;
    let count = head.shape[0];
    let (targets, outputs) = match target {
        Some(path) => targets(path, count)?,
        None => (Targets::Unknown, 0),
    };
    let bytes = head.kind == NumberType::U1;
    let inputs = Inputs::Stored(stored(file, &head, if bytes { 255.0 } else { 1.0 })?);
    Ok(Read { shape, bytes, outputs, split: Split { count, inputs, targets } })
}

/// The meaning of a target, to compare training and test targets.
fn meaning(targets: &Targets, width: usize) -> String {
    match targets {
        Targets::Classes(_) => "classes".into(),
        _ => format!("{width} values per sample"),
    }
}

/// The error for a test file that does not match the training file.
fn unlike(path: &Path, learned_from: &Path, expected: &str, received: &str, advice: &str) -> Error {
    let expected = format!("{expected}, like {}", learned_from.display());
    Error::usage(format!("load {}", path.display()), expected, received, advice)
}

impl Arrays {
    pub(super) fn open(&self) -> Result<DataSet> {
        let Read { shape, bytes, outputs, split: train } = split(&self.inputs, self.targets.as_deref())?;
        let mut data = DataSet { shape, outputs, train, test: Split::empty() };
        if let Some(path) = &self.test_inputs {
            let tested = split(path, self.test_targets.as_deref())?;
            if tested.shape != shape {
                let (expected, received) = (format!("samples of {shape}"), tested.shape.to_string());
                let advice = "give both files the axes (samples, maps, rows, columns), in this order";
                return Err(unlike(path, &self.inputs, &expected, &received, advice));
            }
            if tested.bytes != bytes {
                let name = |bytes: bool| if bytes { "uint8" } else { "a type other than uint8" };
                let advice =
                    "save both with the same type: uint8 is divided by 255, other types are used unchanged";
                return Err(unlike(path, &self.inputs, name(bytes), name(tested.bytes), advice));
            }
            let (test, test_outputs) = (tested.split, tested.outputs);
            data.outputs = match (&data.train.targets, &test.targets) {
                (Targets::Unknown, _) => test_outputs,
                (_, Targets::Unknown) => outputs,
                (Targets::Classes(_), Targets::Classes(_)) => outputs.max(test_outputs),
                (learned, tested) => {
                    let [learned, tested] = [meaning(learned, outputs), meaning(tested, test_outputs)];
                    if learned != tested {
                        let path = self.test_targets.as_deref().unwrap_or(path);
                        let learned_from = self.targets.as_deref().unwrap_or(&self.inputs);
                        let advice = "give both one axis of classes, or the same number of values per sample";
                        return Err(unlike(path, learned_from, &learned, &tested, advice));
                    }
                    outputs
                }
            };
            data.test = test;
        }
        Ok(data)
    }
}
