//! A complete run: trains, tests, saves, and resumes after an interruption.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use unisono::{Error, Group, Result, World};

use super::checkpoint::{self, CheckpointProgress};
use super::epoch::Progress;
use super::files::write_atomically;
use super::folder::RunFolder;
use super::metrics::EpochMetrics;
use super::results;
use super::samples::load_data;
use super::trace;
use super::trainer::Trainer;
use crate::distributed::{Failure, Mode, TableTraining, Topology};
use crate::experiment::{Experiment, Precision};
use crate::number::Number;

/// Where a run is stored, and whether it is resumed.
#[derive(Debug, Clone)]
pub struct TrainOptions {
    /// The folder of results.
    pub out: PathBuf,
    /// Whether to continue an interrupted run there.
    pub resume: bool,
    /// The path of a trace for Chrome or Perfetto.
    pub trace: Option<PathBuf>,
}

/// An observer of a run.
pub trait Watch {
    /// The run starts, or resumes after `done` epochs.
    fn begin(&mut self, _experiment: &Experiment, _done: usize, _epochs: usize) {}
    /// A batch is done.
    fn batch(&mut self, _progress: Progress) {}
    /// An epoch is done.
    fn epoch(&mut self, _metrics: &EpochMetrics) {}
}

impl Watch for () {}

/// The result of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The folder of results.
    pub out: PathBuf,
    /// One row per epoch, including those before an interruption.
    pub metrics: Vec<EpochMetrics>,
    /// The last checkpoint.
    pub checkpoint: PathBuf,
}

/// Trains an experiment. Nothing is written before the data, the model and the checkpoint have been validated.
pub fn train(experiment: &Experiment, options: &TrainOptions, watch: &mut dyn Watch) -> Result<Summary> {
    match experiment.precision {
        Precision::Single => train_in::<f32>(experiment, options, watch, None, None),
        Precision::Double => train_in::<f64>(experiment, options, watch, None, None),
    }
    .map_err(Into::into)
}

/// Trains with all ranks of a group, distributed as the experiment specifies. Every rank must call this; the first one
/// writes the folder, and is the only one that calls `watch`.
///
/// ```
/// use unisono_nn::{Experiment, TrainOptions, train_on};
/// let text = "{epochs: 2, batch_size: 25, data: iris, model: {type: network, cost: softmax_cross_entropy, \
///              layers: [{type: fully_connected, outputs: 3}]}}";
/// let experiment = Experiment::parse("iris.yaml", text, &[])?;
/// let out = std::env::temp_dir().join(format!("unisono-train-on-{}", std::process::id()));
/// let options = TrainOptions { out: out.clone(), resume: false, trace: None };
/// unisono::testing::spawn(3, |group| {
///     let summary = train_on(&group, &experiment, &options, &mut ()).unwrap();
///     assert_eq!(summary.metrics.len(), 2);
/// });
/// # std::fs::remove_dir_all(&out).unwrap();
/// # Ok::<(), unisono::Error>(())
/// ```
pub fn train_on(
    group: &Group,
    experiment: &Experiment,
    options: &TrainOptions,
    watch: &mut dyn Watch,
) -> Result<Summary, Failure> {
    train_in_group(group, None, experiment, options, watch)
}

/// Trains with all ranks of a world, like [`train_on`]; also supports the mode `table`, which needs more than a group.
pub fn train_in_world(
    world: &World,
    experiment: &Experiment,
    options: &TrainOptions,
    watch: &mut dyn Watch,
) -> Result<Summary, Failure> {
    let failed = |error| Failure { error, own: world.rank() == 0 };
    let table_training = TableTraining::new(world, experiment).map_err(failed)?;
    train_in_group(world.group(), table_training, experiment, options, watch)
}

fn train_in_group(
    group: &Group,
    table_training: Option<TableTraining>,
    experiment: &Experiment,
    options: &TrainOptions,
    watch: &mut dyn Watch,
) -> Result<Summary, Failure> {
    let topology = match group.size() {
        1 => None,
        // Every rank finds the same error; one reports it.
        _ => {
            let failed = |error| Failure { error, own: group.rank() == 0 };
            let topology = Topology::new(group, experiment).map_err(failed)?;
            if topology.mode == Mode::Table && table_training.is_none() {
                let advice = "call train_in_world, or choose another mode";
                let error = Error::unsupported("train_on", "a group has no tables", advice);
                return Err(failed(error));
            }
            Some(topology)
        }
    };
    let mut no_watch = ();
    let watch = if group.rank() == 0 { watch } else { &mut no_watch };
    match experiment.precision {
        Precision::Single => train_in::<f32>(experiment, options, watch, topology, table_training),
        Precision::Double => train_in::<f64>(experiment, options, watch, topology, table_training),
    }
}

/// Fails on all ranks if it failed on one.
fn agree<R>(topology: Option<&Topology>, result: Result<R>) -> Result<R, Failure> {
    match topology {
        Some(topology) => topology.agree(result),
        None => Ok(result?),
    }
}

/// Adds advice on how to start over after a run that must not be resumed: its folder would reject other settings.
fn with_restart_advice(mut error: Error, out: &Path) -> Error {
    if let Error::Usage { advice, .. } = &mut error {
        *advice = format!("{advice}; give another --out, or delete this run from {} first", out.display());
    }
    error
}

/// Loads the newest of some checkpoints, given oldest first; if it is damaged, the error names the newest intact one.
/// Without checkpoints, the run starts from the beginning, with its initial weights.
fn load_newest<T: Number>(trainer: &mut Trainer<T>, saved: &[PathBuf]) -> Result<CheckpointProgress> {
    let [older @ .., newest] = saved else {
        return trainer.load_initial_weights().map(|()| CheckpointProgress { epochs: 0, steps: 0 });
    };
    checkpoint::load(trainer, newest).map_err(|mut error| {
        let whole = older.iter().rev().find(|path| checkpoint::load(trainer, path).is_ok());
        if let Error::Usage { advice, .. } = &mut error {
            *advice = match whole {
                Some(whole) => format!("move it away to continue from {}, which is intact", whole.display()),
                None => format!("{advice}; without checkpoints, --resume begins again with the first epoch"),
            };
        }
        error
    })
}

/// A trainer with the progress of its run, and the number of completed epochs.
fn prepare<T: Number>(
    experiment: &Experiment,
    resume: bool,
    folder: &mut RunFolder,
    topology: Option<Arc<Topology>>,
) -> Result<(Trainer<T>, usize)> {
    let mut trainer: Trainer<T> = Trainer::for_rank(experiment, topology)?;
    let saved = if resume { folder.resumable(experiment)? } else { Vec::new() };
    let CheckpointProgress { epochs, steps } = load_newest(&mut trainer, &saved)?;
    if epochs > trainer.epochs() {
        let expected = format!("at least {epochs} epochs, the number already completed");
        let advice = "set `epochs` to at least that number, or give another --out";
        return Err(Error::usage("resume", expected, trainer.epochs().to_string(), advice));
    }
    if resume {
        folder.restore(epochs, steps)?;
    }
    trainer.steps = steps;
    Ok((trainer, epochs))
}

fn train_in<T: Number>(
    experiment: &Experiment,
    options: &TrainOptions,
    watch: &mut dyn Watch,
    topology: Option<Topology>,
    table_training: Option<TableTraining>,
) -> Result<Summary, Failure> {
    let topology = topology.map(Arc::new);
    let all = topology.as_deref();
    let is_root = all.is_none_or(Topology::is_root);
    let mut folder = RunFolder::new(&options.out);
    let claimed = match is_root {
        true => trace::check_writable(options.trace.as_deref()).and_then(|()| folder.claim(options.resume)),
        false => Ok(()),
    };
    agree(all, claimed)?;
    let prepared = prepare(experiment, options.resume, &mut folder, topology.clone());
    let (mut trainer, done): (Trainer<T>, usize) = agree(all, prepared)?;
    let share = |(table_training, all): (TableTraining, &Topology)| {
        table_training.create_table(&mut trainer.network, all.comm.clone())
    };
    let shared = table_training.zip(all).map(share).transpose();
    trainer.shared = agree(all, shared)?;
    let timeline = options.trace.as_ref().map(|_| trainer.record());
    agree(all, if is_root { folder.begin(experiment, options.resume) } else { Ok(()) })?;
    watch.begin(experiment, done, trainer.epochs());
    let mut saved = folder.checkpoint(done);
    for epoch in done..trainer.epochs() {
        let mut losses = std::mem::take(&mut folder.losses);
        let first = trainer.steps;
        let metrics = trainer.epoch(epoch, &mut |progress| {
            losses.push((first + progress.batch as u64, progress.loss));
            watch.batch(progress);
        });
        folder.losses = losses;
        let sound = |metrics| trainer.must_be_finite(epoch).map(|()| metrics);
        let advise = |error| with_restart_advice(error, &options.out);
        let metrics = agree(all, metrics.and_then(sound).map_err(advise))?;
        watch.epoch(&metrics);
        folder.rows.push(metrics);
        if (epoch + 1).is_multiple_of(experiment.save_every) || epoch + 1 == trainer.epochs() {
            saved = folder.checkpoint(epoch + 1);
            let progress = CheckpointProgress { epochs: epoch + 1, steps: trainer.steps };
            agree(all, save(&mut trainer, &mut folder, experiment, &saved, progress))?;
        }
    }
    if trainer.epochs() == 0 {
        let progress = CheckpointProgress { epochs: 0, steps: 0 };
        agree(all, save(&mut trainer, &mut folder, experiment, &saved, progress))?;
    }
    let traced = match (&options.trace, &timeline) {
        (Some(path), Some(timeline)) => trace::write(path, timeline, all),
        _ => Ok(()),
    };
    agree(all, traced)?;
    let finished = finish(&mut trainer, &mut folder, experiment, &saved, is_root);
    match all {
        Some(topology) => topology.agree_without_timeout(finished)?,
        None => finished?,
    }
    Ok(Summary { out: options.out.clone(), metrics: folder.rows, checkpoint: saved })
}

/// Writes the tables and a checkpoint. All ranks take part in gathering the weights; the root writes.
fn save<T: Number>(
    trainer: &mut Trainer<T>,
    folder: &mut RunFolder,
    experiment: &Experiment,
    path: &Path,
    progress: CheckpointProgress,
) -> Result<()> {
    if let Some(bytes) = checkpoint::pack_checkpoint(trainer, progress)? {
        // The tables come first: a checkpoint without its rows could not be resumed.
        folder.write(&experiment.name)?;
        write_atomically(path, &bytes)?;
        folder.remove_old_checkpoints(experiment.keep);
    }
    Ok(())
}

/// Writes the results of a run other than tables and checkpoints.
fn finish<T: Number>(
    trainer: &mut Trainer<T>,
    folder: &mut RunFolder,
    experiment: &Experiment,
    saved: &Path,
    is_root: bool,
) -> Result<()> {
    if !is_root {
        return Ok(());
    }
    folder.end(&experiment.name)?;
    if !trainer.is_partitioned() {
        return results::write(experiment, trainer, folder);
    }
    // This rank holds a part of the model; the checkpoint contains all of it.
    let mut whole: Trainer<T> = Trainer::unchecked(experiment, None, load_data(experiment)?)?;
    checkpoint::load(&mut whole, saved)?;
    results::write(experiment, &mut whole, folder)
}
