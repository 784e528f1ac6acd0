//! A run's folder: settings, metrics, images and checkpoints.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use unisono::{Error, Result};

use super::curve::{svg, thinned};
use super::events::Events;
use super::files::{
    CHECKPOINTS, append, checkpoint_name, existing_run_files, lock, remove_partial_files, saved,
    write_atomically,
};
use super::metrics::{EpochMetrics, HEADER};
use super::settings::must_continue;
use crate::data::{Picture, encode_png};
use crate::experiment::Experiment;

/// The minimum interval between two plots of the losses during a run: each plot is drawn from scratch.
const REDRAW_INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct RunFolder {
    path: PathBuf,
    pub(super) rows: Vec<EpochMetrics>,
    /// The cost of each batch.
    pub(super) losses: Vec<(u64, f64)>,
    /// The number of rows and losses already written to the tables and the event file.
    written: (usize, usize),
    drawn: Option<Instant>,
    events: Option<Events>,
    /// The lock that excludes other processes.
    lock: Option<File>,
}

impl RunFolder {
    pub(super) fn new(path: &Path) -> RunFolder {
        let (rows, losses) = (Vec::new(), Vec::new());
        RunFolder { path: path.into(), rows, losses, written: (0, 0), drawn: None, events: None, lock: None }
    }

    fn settings(&self) -> PathBuf {
        self.path.join("experiment.yaml")
    }

    fn checkpoints(&self) -> PathBuf {
        self.path.join(CHECKPOINTS)
    }

    /// Rejects a folder with files that do not belong to this run, or that another process is writing.
    pub(super) fn claim(&mut self, resume: bool) -> Result<()> {
        match resume {
            // If there is no run, reading the missing settings reports it.
            true if self.settings().exists() => {
                self.lock = Some(lock(&self.path)?);
                Ok(())
            }
            true => Ok(()),
            false => self.must_be_free(),
        }
    }

    /// Rejects a folder in which this run would overwrite another run or the user's files.
    fn must_be_free(&self) -> Result<()> {
        let existing_run_files = existing_run_files(&self.path);
        if existing_run_files.is_empty() {
            return Ok(());
        }
        let received = format!("{}, which has {}", self.path.display(), existing_run_files.join(", "));
        let advice = match self.settings().exists() {
            true => "give another --out, or continue the run that is there with --resume",
            false => "give another --out",
        };
        Err(Error::usage("train", "a folder without files that a run writes", received, advice))
    }

    /// The checkpoints of an interrupted run of the same experiment, newest last. A run interrupted early has none.
    pub(super) fn resumable(&self, experiment: &Experiment) -> Result<Vec<PathBuf>> {
        let advice = "name the folder of the run with --out, or start it without --resume";
        let settings = self.settings();
        let old = std::fs::read_to_string(&settings)
            .map_err(|error| Error::io("resume", settings.display().to_string(), error, advice))?;
        must_continue(&settings.display().to_string(), &old, experiment)?;
        Ok(saved(&self.checkpoints()))
    }

    /// The path of the checkpoint after this number of epochs.
    pub(super) fn checkpoint(&self, epochs: usize) -> PathBuf {
        self.checkpoints().join(checkpoint_name(epochs))
    }

    pub(super) fn remove_old_checkpoints(&self, keep: usize) {
        let saved = saved(&self.checkpoints());
        for path in &saved[..saved.len().saturating_sub(keep)] {
            // A checkpoint that cannot be removed does no harm.
            let _ = std::fs::remove_file(path);
        }
    }

    /// Creates the folder, and writes the settings and the tables up to the current progress.
    pub(super) fn begin(&mut self, experiment: &Experiment, resume: bool) -> Result<()> {
        let checkpoints = self.checkpoints();
        std::fs::create_dir_all(&checkpoints).map_err(|error| {
            Error::io("make", checkpoints.display().to_string(), error, "give another --out")
        })?;
        if self.lock.is_none() {
            self.lock = Some(lock(&self.path)?);
        }
        if !resume {
            // Another run may have started, and even ended, while this one was reading its data.
            self.must_be_free()?;
        }
        remove_partial_files(&self.path);
        write_atomically(&self.settings(), experiment.resolved_text().as_bytes())?;
        let steps = self.losses.last().map_or(0, |(step, _)| *step);
        self.events = Some(Events::open(&self.path, resume.then_some(steps))?);
        // The files may contain more than the restored checkpoint, with an incomplete last line.
        self.tables()
    }

    /// Restores the metrics of an interrupted run up to its checkpoint.
    pub(super) fn restore(&mut self, epochs: usize, steps: u64) -> Result<()> {
        let read = |name: &str| std::fs::read_to_string(self.path.join(name)).unwrap_or_default();
        let rows = read("metrics.jsonl");
        self.rows = rows.lines().filter_map(|line| serde_json::from_str(line).ok()).take(epochs).collect();
        self.losses = read("batches.csv")
            .lines()
            .filter_map(|line| line.split_once(','))
            .filter_map(|(step, loss)| Some((step.parse().ok()?, loss.parse().ok()?)))
            .take_while(|(step, _)| *step <= steps)
            .collect();
        self.written = (self.rows.len(), self.losses.len());
        Ok(())
    }

    /// The lines of all tables from a row and a batch on.
    fn lines(&self, (row, batch): (usize, usize)) -> Result<[(&'static str, String); 3]> {
        let (mut table, mut lines) = (String::new(), String::new());
        for row in &self.rows[row..] {
            table += &format!("{}\n", row.line());
            let json = serde_json::to_string(row)
                .map_err(|error| Error::internal("write metrics", error.to_string()))?;
            lines += &format!("{json}\n");
        }
        let batches = self.losses[batch..].iter().map(|(step, loss)| format!("{step},{loss}\n")).collect();
        Ok([("metrics.csv", table), ("metrics.jsonl", lines), ("batches.csv", batches)])
    }

    /// Rewrites the tables in full.
    fn tables(&self) -> Result<()> {
        let headers = [format!("{HEADER}\n"), String::new(), "step,loss\n".into()];
        let tables = self.lines((0, 0))?.into_iter().zip(headers);
        tables.into_iter().try_for_each(|((name, lines), header)| self.text(name, &(header + &lines)))
    }

    /// Appends new lines to the tables and to the event file, and plots the losses occasionally, so that a checkpoint costs
    /// the same in a long run as in a short one.
    pub(super) fn write(&mut self, title: &str) -> Result<()> {
        for (name, lines) in self.lines(self.written)? {
            append(&self.path.join(name), lines.as_bytes())?;
        }
        if self.drawn.is_none_or(|drawn| drawn.elapsed() >= REDRAW_INTERVAL) {
            self.draw(title)?;
        }
        self.write_events()
    }

    /// Rewrites the final tables and the plot of the losses, regardless of what happened to them during the run.
    pub(super) fn end(&mut self, title: &str) -> Result<()> {
        self.tables()?;
        self.draw(title)?;
        self.write_events()
    }

    fn draw(&mut self, title: &str) -> Result<()> {
        let tests = self.rows.iter().filter_map(|row| Some((row.steps as f64, row.test_loss?))).collect();
        let picture = svg(title, &[("learning", thinned(&self.losses, 400)), ("test", tests)]);
        self.drawn = Some(Instant::now());
        self.text("loss.svg", &picture)
    }

    fn write_events(&mut self) -> Result<()> {
        let Some(events) = &mut self.events else { return Ok(()) };
        for (step, loss) in &self.losses[self.written.1..] {
            events.scalar("batch/loss", *step, *loss);
        }
        for row in &self.rows[self.written.0..] {
            for (name, value) in row.figures() {
                events.scalar(&format!("epoch/{name}"), row.steps, value);
            }
        }
        self.written = (self.rows.len(), self.losses.len());
        events.flush()
    }

    /// Writes a text file.
    pub(super) fn text(&self, name: &str, text: &str) -> Result<()> {
        write_atomically(&self.path.join(name), text.as_bytes())
    }

    /// Writes an image to a file and to TensorBoard.
    pub(super) fn picture(&mut self, name: &str, picture: &Picture) -> Result<()> {
        write_atomically(&self.path.join(format!("{name}.png")), &encode_png(picture))?;
        let step = self.losses.last().map_or(0, |(step, _)| *step);
        let Some(events) = &mut self.events else { return Ok(()) };
        events.picture(name, step, picture);
        events.flush()
    }
}
