//! The metrics of an epoch, as a row of a table.

use serde::{Deserialize, Serialize};

/// The metrics of an epoch; those that do not apply are `None`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochMetrics {
    /// The epoch, counted from 1 over all phases.
    pub epoch: usize,
    /// The phase.
    pub phase: String,
    /// The number of batches since the start.
    pub steps: u64,
    /// The mean cost on the training samples.
    pub loss: f64,
    /// In pretraining, the sparsity term of the cost.
    pub sparsity: Option<f64>,
    /// The percentage of misclassified training samples.
    pub train_error: Option<f64>,
    /// The mean cost on the test samples.
    pub test_loss: Option<f64>,
    /// The percentage of misclassified test samples.
    pub test_error: Option<f64>,
    /// The training time in seconds.
    pub seconds: f64,
    /// The fraction of that time spent in communication, if there are several ranks.
    #[serde(default)]
    pub communication: Option<f64>,
    /// The training throughput in samples per second.
    pub samples_per_second: f64,
}

/// The header line of a table.
pub(super) const HEADER: &str = "epoch,phase,steps,loss,sparsity,train_error,test_loss,test_error,seconds,communication,samples_per_second";

impl EpochMetrics {
    /// The named results of the epoch, without measured times.
    pub(super) fn results(&self) -> [(&'static str, Option<f64>); 5] {
        [
            ("loss", Some(self.loss)),
            ("sparsity", self.sparsity),
            ("train_error", self.train_error),
            ("test_loss", self.test_loss),
            ("test_error", self.test_error),
        ]
    }

    /// The available metrics, with their names.
    pub(super) fn figures(&self) -> Vec<(&'static str, f64)> {
        let times =
            [("communication", self.communication), ("samples_per_second", Some(self.samples_per_second))];
        let all = self.results().into_iter().chain(times);
        all.filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// A line of a table.
    pub(super) fn line(&self) -> String {
        let maybe = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
        format!(
            "{},{},{},{},{},{},{},{},{:.3},{},{:.1}",
            self.epoch,
            self.phase,
            self.steps,
            self.loss,
            maybe(self.sparsity),
            maybe(self.train_error),
            maybe(self.test_loss),
            maybe(self.test_error),
            self.seconds,
            self.communication.map_or(String::new(), |share| format!("{share:.3}")),
            self.samples_per_second
        )
    }
}
