//! Predictions of a trained model on the test samples.

use std::path::Path;

use unisono::Result;

use super::checkpoint;
use super::samples::largest;
use super::trainer::Trainer;
use crate::experiment::{Experiment, Precision};
use crate::number::Number;

/// What the model says of one sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// The number of the sample.
    pub sample: usize,
    /// The largest output.
    pub predicted: usize,
    /// Its class, where it has one.
    pub class: Option<u32>,
    /// All outputs.
    pub outputs: Vec<f64>,
}

/// Loads a checkpoint and predicts every test sample.
pub fn predict(experiment: &Experiment, checkpoint: &Path) -> Result<Vec<Prediction>> {
    match experiment.precision {
        Precision::Single => predict_in::<f32>(experiment, checkpoint),
        Precision::Double => predict_in::<f64>(experiment, checkpoint),
    }
}

fn predict_in<T: Number>(experiment: &Experiment, path: &Path) -> Result<Vec<Prediction>> {
    let mut trainer: Trainer<T> = Trainer::new(experiment)?;
    checkpoint::load(&mut trainer, path)?;
    let mut predictions = Vec::new();
    trainer.outputs(|sample, outputs, class| {
        predictions.push(Prediction {
            sample,
            predicted: largest(outputs),
            class,
            outputs: outputs.iter().map(|output| output.double()).collect(),
        });
    });
    Ok(predictions)
}
