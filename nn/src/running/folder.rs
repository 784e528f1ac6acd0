//! A run's folder: settings, metrics, pictures and checkpoints.

use std::path::{Path, PathBuf};

use unisono::{Error, Result};

use super::checkpoint::write_whole;
use super::curve::{svg, thinned};
use super::events::Events;
use super::metrics::{EpochMetrics, HEADER};
use crate::data::{Picture, encode_png};
use crate::experiment::{Experiment, Extensions};

/// Settings that may differ when a run goes on.
const MAY_CHANGE: &[&str] = &["epochs", "threads", "test_every", "save_every", "keep", "distributed"];

pub(super) struct Folder {
    path: PathBuf,
    pub(super) rows: Vec<EpochMetrics>,
    /// The cost of each batch.
    pub(super) losses: Vec<(u64, f64)>,
    /// How many rows and losses TensorBoard's file has.
    told: (usize, usize),
    events: Option<Events>,
}

/// The settings that must stay the same, as text.
fn fixed(text: &str, file: &str, extensions: &Extensions) -> Result<String> {
    let mut experiment = Experiment::parse_with(file, text, &[], extensions)?;
    if let crate::experiment::NodeValue::Map(entries) = &mut experiment.resolved.value {
        entries.retain(|(key, _)| !MAY_CHANGE.contains(&key.as_str()));
    }
    Ok(experiment.resolved_text())
}

impl Folder {
    pub(super) fn new(path: &Path) -> Folder {
        Folder { path: path.into(), rows: Vec::new(), losses: Vec::new(), told: (0, 0), events: None }
    }

    fn settings(&self) -> PathBuf {
        self.path.join("experiment.yaml")
    }

    fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoints")
    }

    /// Refuses to write over another run.
    pub(super) fn must_be_free(&self) -> Result<()> {
        if !self.settings().exists() {
            return Ok(());
        }
        let received = format!("{}, which has a run", self.path.display());
        let advice = "continue it with --resume, give another --out, or remove it";
        Err(Error::usage("train", "a folder without a run", received, advice))
    }

    /// The checkpoints of an interrupted run of the same experiment, the newest last. One that was interrupted early has none.
    pub(super) fn resumable(&self, experiment: &Experiment) -> Result<Vec<PathBuf>> {
        let advice = "start the run without --resume first";
        let settings = self.settings();
        let old = std::fs::read_to_string(&settings)
            .map_err(|error| Error::io("resume", settings.display().to_string(), error, advice))?;
        let name = settings.display().to_string();
        let fixed = |text: &str, file: &str| fixed(text, file, &experiment.extensions);
        let (old, new) = (fixed(&old, &name)?, fixed(&experiment.resolved_text(), "this run")?);
        if let Some((old, new)) = old.lines().zip(new.lines()).find(|(old, new)| old != new) {
            let advice = format!("only {} may change, or give another --out", MAY_CHANGE.join(", "));
            return Err(Error::usage(
                format!("resume {name}"),
                format!("`{}`", old.trim()),
                format!("`{}`", new.trim()),
                advice,
            ));
        }
        Ok(self.saved())
    }

    /// All checkpoints, the oldest first.
    fn saved(&self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.checkpoints()) else { return Vec::new() };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|suffix| suffix == "safetensors"));
        paths.sort();
        paths
    }

    /// Where the checkpoint after this many epochs goes.
    pub(super) fn checkpoint(&self, epochs: usize) -> PathBuf {
        self.checkpoints().join(format!("epoch-{epochs:06}.safetensors"))
    }

    pub(super) fn forget_old_checkpoints(&self, keep: usize) {
        let saved = self.saved();
        for path in &saved[..saved.len().saturating_sub(keep)] {
            // One that stays too long does no harm.
            let _ = std::fs::remove_file(path);
        }
    }

    /// Makes the folder and writes the settings.
    pub(super) fn begin(&mut self, experiment: &Experiment) -> Result<()> {
        let checkpoints = self.checkpoints();
        std::fs::create_dir_all(&checkpoints).map_err(|error| {
            Error::io("make", checkpoints.display().to_string(), error, "give another --out")
        })?;
        write_whole(&self.settings(), experiment.resolved_text().as_bytes())?;
        let steps = self.losses.last().map_or(0, |(step, _)| *step);
        self.events = Some(Events::open(&self.path, steps)?);
        Ok(())
    }

    /// Takes up the metrics of an interrupted run, as far as its checkpoint.
    pub(super) fn take_up(&mut self, epochs: usize, steps: u64) -> Result<()> {
        let read = |name: &str| std::fs::read_to_string(self.path.join(name)).unwrap_or_default();
        let rows = read("metrics.jsonl");
        self.rows = rows.lines().filter_map(|line| serde_json::from_str(line).ok()).take(epochs).collect();
        self.losses = read("batches.csv")
            .lines()
            .filter_map(|line| line.split_once(','))
            .filter_map(|(step, loss)| Some((step.parse().ok()?, loss.parse().ok()?)))
            .take_while(|(step, _)| *step <= steps)
            .collect();
        self.told = (self.rows.len(), self.losses.len());
        Ok(())
    }

    /// Writes all tables, the picture of the losses and what TensorBoard has not been told.
    pub(super) fn write(&mut self, title: &str) -> Result<()> {
        let mut table = format!("{HEADER}\n");
        let mut lines = String::new();
        for row in &self.rows {
            table += &format!("{}\n", row.line());
            let json = serde_json::to_string(row)
                .map_err(|error| Error::internal("write metrics", error.to_string()))?;
            lines += &format!("{json}\n");
        }
        let batches: String = self.losses.iter().map(|(step, loss)| format!("{step},{loss}\n")).collect();
        let tests = self.rows.iter().filter_map(|row| Some((row.steps as f64, row.test_loss?))).collect();
        let picture = svg(title, &[("learning", thinned(&self.losses, 400)), ("test", tests)]);
        for (name, text) in [
            ("metrics.csv", table),
            ("metrics.jsonl", lines),
            ("batches.csv", format!("step,loss\n{batches}")),
            ("loss.svg", picture),
        ] {
            self.text(name, &text)?;
        }
        self.tell()
    }

    fn tell(&mut self) -> Result<()> {
        let Some(events) = &mut self.events else { return Ok(()) };
        for (step, loss) in &self.losses[self.told.1..] {
            events.scalar("batch/loss", *step, *loss);
        }
        for row in &self.rows[self.told.0..] {
            for (name, value) in row.figures() {
                events.scalar(&format!("epoch/{name}"), row.steps, value);
            }
        }
        self.told = (self.rows.len(), self.losses.len());
        events.flush()
    }

    /// Writes a file of text.
    pub(super) fn text(&self, name: &str, text: &str) -> Result<()> {
        write_whole(&self.path.join(name), text.as_bytes())
    }

    /// Writes a picture as a file, and for TensorBoard.
    pub(super) fn picture(&mut self, name: &str, picture: &Picture) -> Result<()> {
        write_whole(&self.path.join(format!("{name}.png")), &encode_png(picture))?;
        let step = self.losses.last().map_or(0, |(step, _)| *step);
        let Some(events) = &mut self.events else { return Ok(()) };
        events.picture(name, step, picture);
        events.flush()
    }
}
