//! Predictions of a trained model on the test samples.

use std::path::{Path, PathBuf};

use unisono::{Error, Result};

use super::checkpoint;
use super::files::{CHECKPOINTS, saved};
use super::samples::{argmax, data_location, load_data};
use super::trainer::Trainer;
use crate::experiment::{Experiment, Precision};
use crate::number::Number;

/// The model's prediction for one sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// The index of the sample.
    pub sample: usize,
    /// The index of the largest output.
    pub predicted: usize,
    /// The sample's class, if it has one.
    pub class: Option<u32>,
    /// All outputs.
    pub outputs: Vec<f64>,
}

/// Loads a checkpoint and predicts every test sample. For a run's folder, or a folder of checkpoints, loads the newest
/// checkpoint.
pub fn predict(experiment: &Experiment, checkpoint: &Path) -> Result<Vec<Prediction>> {
    let checkpoint = &newest(checkpoint)?;
    match experiment.precision {
        Precision::Single => predict_in::<f32>(experiment, checkpoint),
        Precision::Double => predict_in::<f64>(experiment, checkpoint),
    }
}

/// The checkpoint that a path refers to.
fn newest(path: &Path) -> Result<PathBuf> {
    if !path.is_dir() {
        return Ok(path.to_path_buf());
    }
    let newest = saved(&path.join(CHECKPOINTS)).pop().or_else(|| saved(path).pop());
    newest.ok_or_else(|| {
        let received = format!("the folder {} without any", path.display());
        Error::usage(
            "predict",
            "a checkpoint",
            received,
            "train first, then give a file of its folder `checkpoints`",
        )
    })
}

fn predict_in<T: Number>(experiment: &Experiment, path: &Path) -> Result<Vec<Prediction>> {
    let data = load_data(experiment)?;
    if data.test.count == 0 {
        let (expected, advice) = ("test samples", "add some, for `arrays` with --set data.test_inputs=FILE");
        return Err(data_location(experiment).error("predict", expected, "none", advice));
    }
    let mut trainer: Trainer<T> = Trainer::unchecked(experiment, None, data)?;
    trainer.check_data()?;
    checkpoint::load(&mut trainer, path)?;
    let mut predictions = Vec::new();
    trainer.outputs(|sample, outputs, class| {
        predictions.push(Prediction {
            sample,
            predicted: argmax(outputs),
            class,
            outputs: outputs.iter().map(|output| output.double()).collect(),
        });
    })?;
    Ok(predictions)
}
