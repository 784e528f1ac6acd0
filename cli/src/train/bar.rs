//! A progress bar with the loss and the samples per second, and one line per epoch.

use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use unisono_nn::{Arrangement, EpochMetrics, Experiment, Progress, Watch};

pub(super) struct Bar {
    /// Number of processes.
    processes: usize,
    /// Whether an existing run is to be resumed.
    resumes: bool,
    bar: ProgressBar,
    /// Moving average of the loss, as single batches fluctuate.
    loss: Option<f64>,
    started: Instant,
    samples: usize,
}

impl Bar {
    pub(super) fn new(processes: usize, resumes: bool) -> Bar {
        let bar = ProgressBar::with_draw_target(None, super::terminal::target());
        let style = ProgressStyle::with_template("{prefix} {bar:32} {pos}/{len} batches  {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Bar { processes, resumes, bar, loss: None, started: Instant::now(), samples: 0 }
    }
}

impl Watch for Bar {
    fn begin(&mut self, experiment: &Experiment, done: usize, epochs: usize) {
        // A run that cannot be arranged has failed earlier.
        if let Some(arranged) =
            Arrangement::new(experiment, self.processes).ok().filter(|_| self.processes > 1)
        {
            let mode = format!("{:?}", arranged.mode).to_lowercase();
            let (name, count, grid) = (&experiment.name, self.processes, arranged.grid);
            eprintln!("{name}: {count} processes, mode {mode}, grid {grid}");
        }
        let name = &experiment.name;
        match done {
            0 if self.resumes => eprintln!("{name}: no checkpoint found; starting with epoch 1"),
            0 => {}
            _ if done == epochs => {
                eprintln!("{name}: all {epochs} epochs are complete; increase `epochs` to continue")
            }
            _ => eprintln!("{name}: resuming after epoch {done} of {epochs}"),
        }
    }

    fn batch(&mut self, progress: Progress) {
        if progress.batch == 1 {
            self.bar.reset();
            self.bar.set_length(progress.batches as u64);
            self.bar.set_prefix(format!(
                "epoch {}/{} {}",
                progress.epoch + 1,
                progress.epochs,
                progress.phase.name()
            ));
            (self.loss, self.started, self.samples) = (None, Instant::now(), 0);
        }
        self.samples += progress.samples;
        let loss = self.loss.map_or(progress.loss, |mean| 0.9 * mean + 0.1 * progress.loss);
        self.loss = Some(loss);
        let speed = self.samples as f64 / self.started.elapsed().as_secs_f64().max(1e-9);
        let waits = progress
            .communication
            .map_or(String::new(), |share| format!("  {:.0} % communication", share * 100.0));
        self.bar.set_message(format!("loss {loss:.4}  {speed:.0} samples/s{waits}"));
        self.bar.set_position(progress.batch as u64);
    }

    fn epoch(&mut self, metrics: &EpochMetrics) {
        let percent = |name: &str, value: Option<f64>| {
            value.map_or(String::new(), |value| format!("  {name} {value:.2} %"))
        };
        let number = |name: &str, value: Option<f64>| {
            value.map_or(String::new(), |value| format!("  {name} {value:.4}"))
        };
        let line = format!(
            "epoch {} {}  loss {:.4}{}{}{}{}  {:.0} samples/s{}",
            metrics.epoch,
            metrics.phase,
            metrics.loss,
            number("sparsity", metrics.sparsity),
            percent("error", metrics.train_error),
            number("test loss", metrics.test_loss),
            percent("test error", metrics.test_error),
            metrics.samples_per_second,
            percent("communication", metrics.communication.map(|share| share * 100.0)),
        );
        if self.bar.is_hidden() {
            eprintln!("{line}");
        } else {
            self.bar.println(line);
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
