//! What an epoch achieved, as a row of a table.

use serde::{Deserialize, Serialize};

/// The figures of an epoch; what does not apply is missing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochMetrics {
    /// The epoch, the first being 1, counted over all phases.
    pub epoch: usize,
    /// What was trained.
    pub phase: String,
    /// Batches since the start.
    pub steps: u64,
    /// The mean cost while learning.
    pub loss: f64,
    /// In pretraining, the part of the cost that is sparsity.
    pub sparsity: Option<f64>,
    /// Percent of samples that were put into a wrong class while learning.
    pub train_error: Option<f64>,
    /// The mean cost on the test samples.
    pub test_loss: Option<f64>,
    /// Percent of test samples that are put into a wrong class.
    pub test_error: Option<f64>,
    /// How long learning took.
    pub seconds: f64,
    /// The share of that time that went into calls between ranks, where there are several.
    #[serde(default)]
    pub communication: Option<f64>,
    /// How many samples were learned from in a second.
    pub samples_per_second: f64,
}

/// The first line of a table.
pub(super) const HEADER: &str = "epoch,phase,steps,loss,sparsity,train_error,test_loss,test_error,seconds,communication,samples_per_second";

impl EpochMetrics {
    /// What the epoch achieved, with its names; nothing that a clock measured.
    pub(super) fn results(&self) -> [(&'static str, Option<f64>); 5] {
        [
            ("loss", Some(self.loss)),
            ("sparsity", self.sparsity),
            ("train_error", self.train_error),
            ("test_loss", self.test_loss),
            ("test_error", self.test_error),
        ]
    }

    /// The figures that there are, with their names.
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
