//! A whole run: train, test, save, and continue where an interrupted one stood.

use std::path::PathBuf;
use std::sync::Arc;

use unisono::Result;

use super::checkpoint::{self, Progressed};
use super::folder::Folder;
use super::metrics::EpochMetrics;
use super::results;
use super::trainer::{Progress, Trainer};
use crate::experiment::{Experiment, Precision};
use crate::number::Number;
use crate::timeline::Timeline;

/// Where a run goes and whether it continues.
#[derive(Debug, Clone)]
pub struct TrainOptions {
    /// The folder of results.
    pub out: PathBuf,
    /// Whether to continue an interrupted run there.
    pub resume: bool,
    /// Where to write a trace that Chrome and Perfetto show.
    pub trace: Option<PathBuf>,
}

/// Someone who watches a run.
pub trait Watch {
    /// The run begins, or continues after some epochs.
    fn begin(&mut self, _experiment: &Experiment, _done: usize, _epochs: usize) {}
    /// A batch is done.
    fn batch(&mut self, _progress: Progress) {}
    /// An epoch is done.
    fn epoch(&mut self, _metrics: &EpochMetrics) {}
}

impl Watch for () {}

/// What came of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The folder of results.
    pub out: PathBuf,
    /// A row for each epoch, with those before an interruption.
    pub metrics: Vec<EpochMetrics>,
    /// The last checkpoint.
    pub checkpoint: PathBuf,
}

/// Trains as the experiment says. Nothing is written before the data, the model and the checkpoint are known to be good.
pub fn train(experiment: &Experiment, options: &TrainOptions, watch: &mut dyn Watch) -> Result<Summary> {
    match experiment.precision {
        Precision::Single => train_in::<f32>(experiment, options, watch),
        Precision::Double => train_in::<f64>(experiment, options, watch),
    }
}

fn train_in<T: Number>(
    experiment: &Experiment,
    options: &TrainOptions,
    watch: &mut dyn Watch,
) -> Result<Summary> {
    let mut folder = Folder::new(&options.out);
    if !options.resume {
        folder.must_be_free()?;
    }
    let mut trainer: Trainer<T> = Trainer::new(experiment)?;
    let mut done = 0;
    if options.resume {
        let Progressed { epochs, steps } = checkpoint::load(&mut trainer, &folder.newest(experiment)?)?;
        (done, trainer.steps) = (epochs, steps);
        folder.take_up(epochs, steps)?;
    }
    let timeline = options.trace.as_ref().map(|_| Arc::new(Timeline::new(0)));
    timeline.iter().for_each(|timeline| trainer.network.record(timeline.clone()));
    folder.begin(experiment)?;
    watch.begin(experiment, done, trainer.epochs());
    let mut saved = folder.checkpoint(done);
    for epoch in done..trainer.epochs() {
        let mut losses = std::mem::take(&mut folder.losses);
        let first = trainer.steps;
        let metrics = trainer.epoch(epoch, &mut |progress| {
            losses.push((first + progress.batch as u64, progress.loss));
            watch.batch(progress);
        })?;
        folder.losses = losses;
        watch.epoch(&metrics);
        folder.rows.push(metrics);
        if (epoch + 1).is_multiple_of(experiment.save_every) || epoch + 1 == trainer.epochs() {
            let progress = Progressed { epochs: epoch + 1, steps: trainer.steps };
            // The tables first: a checkpoint whose rows are missing could not be taken up.
            folder.write(&experiment.name)?;
            saved = folder.checkpoint(epoch + 1);
            checkpoint::save(&mut trainer, &saved, progress)?;
            folder.forget_old_checkpoints(experiment.keep);
        }
    }
    folder.write(&experiment.name)?;
    if trainer.epochs() == 0 {
        checkpoint::save(&mut trainer, &saved, Progressed { epochs: 0, steps: 0 })?;
    }
    if let (Some(path), Some(timeline)) = (&options.trace, timeline) {
        checkpoint::write_whole(path, timeline.trace().as_bytes())?;
    }
    results::write(experiment, &mut trainer, &mut folder)?;
    Ok(Summary { out: options.out.clone(), metrics: folder.rows, checkpoint: saved })
}
