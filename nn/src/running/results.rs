//! Visualises a trained model: its first filters, its reconstructions, and the units that detect a class.

use unisono::Result;

use super::filters::first_filters;
use super::folder::RunFolder;
use super::sheet::{LevelRange, sheet};
use super::spot::{Responses, spots, table};
use super::stimulus::stimulus;
use super::trainer::Trainer;
use crate::data::Picture;
use crate::experiment::{Experiment, ModelKind};
use crate::layers::Pass;
use crate::number::Number;
use crate::random::RandomStream;

/// The number of samples to reconstruct.
const SHOWN: usize = 10;
const SCALE: usize = 3;
/// The number of samples per forward pass.
const BATCH: usize = 100;

/// Writes the images and tables of a trained model to a run's folder.
pub(super) fn write<T: Number>(
    experiment: &Experiment,
    trainer: &mut Trainer<T>,
    folder: &mut RunFolder,
) -> Result<()> {
    if let Some(picture) = first_filters(trainer.network.layers()) {
        folder.picture("filters", &picture)?;
    }
    if let Some(picture) = reconstructions(experiment, trainer)? {
        folder.picture("reconstructions", &picture)?;
    }
    let ModelKind::SparseAutoencoder { spot_check, visualize, .. } = experiment.model else { return Ok(()) };
    if !spot_check && !visualize {
        return Ok(());
    }
    let (train, test) = (responses(trainer, false)?, responses(trainer, true)?);
    let found = spots(&train, &test, trainer.data().outputs);
    if spot_check {
        folder.text("spot_check.csv", &table(&found))?;
    }
    if visualize {
        let layers = trainer.network.last_that_learns();
        let length = typical_length(trainer)?;
        let mut stimuli = Vec::new();
        for spot in &found {
            let stream = RandomStream::new(experiment.seed, "stimulus").branch(spot.unit as u64);
            stimuli.push(stimulus(&mut trainer.network, layers, spot.unit, (length, stream))?);
        }
        if let Some(picture) = sheet(&stimuli, trainer.data().shape, (SHOWN, SCALE), LevelRange::Own) {
            folder.picture("stimuli", &picture)?;
        }
    }
    Ok(())
}

/// The inputs of some samples, from the test samples or the training samples.
fn samples<T: Number>(trainer: &Trainer<T>, test: bool, chosen: &[usize]) -> Result<Vec<T>> {
    let data = trainer.data();
    let mut inputs = vec![T::ZERO; chosen.len() * data.shape.size()];
    let split = if test { &data.test } else { &data.train };
    split.fill(chosen, &mut inputs, &mut [])?;
    Ok(inputs)
}

/// A row of samples with their reconstructions below; `None` for models that do not reconstruct.
fn reconstructions<T: Number>(experiment: &Experiment, trainer: &mut Trainer<T>) -> Result<Option<Picture>> {
    if experiment.model != ModelKind::Autoencoder && trainer.pretraining.is_none() {
        return Ok(None);
    }
    let test = trainer.data().test.count > 0;
    let count = if test { trainer.data().test.count } else { trainer.data().train.count };
    let chosen: Vec<usize> = (0..count.min(SHOWN)).collect();
    let inputs: Vec<T> = samples(trainer, test, &chosen)?;
    let pass = Pass::alone(chosen.len(), false, 0);
    let images = match (&experiment.model, &mut trainer.pretraining) {
        (ModelKind::Autoencoder, _) => trainer.network.fprop(&pass, &inputs)?.to_vec(),
        (_, Some(pretraining)) => pretraining.reconstruct(&mut trainer.network, &pass, &inputs)?,
        _ => return Ok(None),
    };
    let shape = trainer.data().shape;
    // A flat vector is not an image.
    if shape.area() <= 1 || images.len() != inputs.len() {
        return Ok(None);
    }
    let pictures: Vec<Vec<f64>> = [&inputs, &images]
        .into_iter()
        .flat_map(|images| images.chunks(shape.size()))
        .map(|image| image.iter().map(|value| value.double()).collect())
        .collect();
    let bound = |pick: fn(f64, f64) -> f64| inputs.iter().map(|value| value.double()).reduce(pick);
    let range = bound(f64::min).zip(bound(f64::max)).map(|(low, high)| LevelRange::Fixed(low, high));
    Ok(range.and_then(|range| sheet(&pictures, shape, (chosen.len(), SCALE), range)))
}

/// The responses of the units below the last layer with weights to all samples that have a class.
fn responses<T: Number>(trainer: &mut Trainer<T>, test: bool) -> Result<Responses> {
    let layers = trainer.network.last_that_learns();
    let split = |trainer: &Trainer<T>, sample: usize| match test {
        true => trainer.data().test.class(sample),
        false => trainer.data().train.class(sample),
    };
    let count = if test { trainer.data().test.count } else { trainer.data().train.count };
    let mut found = Responses::default();
    for first in (0..count).step_by(BATCH) {
        let chosen: Vec<usize> = (first..count.min(first + BATCH)).collect();
        let inputs: Vec<T> = samples(trainer, test, &chosen)?;
        let pass = Pass::alone(chosen.len(), false, 0);
        let outputs = trainer.network.fprop_through(&pass, &inputs, layers)?;
        found.units = outputs.len() / chosen.len();
        found.values.extend(outputs.iter().map(|value| value.double() as f32));
        found.classes.extend(chosen.iter().filter_map(|sample| split(trainer, *sample)));
    }
    // Without classes there is nothing to detect.
    if found.classes.is_empty() {
        return Ok(Responses::default());
    }
    Ok(found)
}

/// The mean norm of the first training samples.
fn typical_length<T: Number>(trainer: &Trainer<T>) -> Result<f64> {
    let chosen: Vec<usize> = (0..trainer.data().train.count.min(BATCH)).collect();
    let inputs: Vec<T> = samples(trainer, false, &chosen)?;
    let norm = |sample: &[T]| sample.iter().map(|value| value.double().powi(2)).sum::<f64>().sqrt();
    let lengths = inputs.chunks(trainer.data().shape.size()).map(norm);
    Ok(lengths.sum::<f64>() / chosen.len() as f64)
}
