//! Options that spread an experiment over processes, and the experiment as they change it.

use std::path::Path;

use clap::Args;
use unisono_nn::Experiment;

/// How many processes there are, and how they lie.
#[derive(Args)]
struct Layout {
    /// How many processes to start; as many as the grid has without it.
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = crate::run::positive)]
    ranks: Option<usize>,
    /// How many processes along each axis: data=2,h=2,w=2.
    #[arg(long, value_name = "AXES")]
    grid: Option<String>,
}

/// How training is spread.
#[derive(Args)]
pub(super) struct TrainSpread {
    #[command(flatten)]
    layout: Layout,
    /// What is divided: samples (data), rows and columns of samples (halo), inputs of layers (vector), or samples with
    /// weights that processes share through a table (table).
    #[arg(long, value_name = "MODE", value_parser = ["data", "halo", "vector", "table"])]
    mode: Option<String>,
    /// How far processes that share a table may drift apart: async, ssp:3, bsp.
    #[arg(long, value_name = "CONSISTENCY")]
    consistency: Option<String>,
}

/// How a comparison with one process is spread. Workers of a table have no batch in common that could be compared.
#[derive(Args)]
pub(super) struct CheckSpread {
    #[command(flatten)]
    layout: Layout,
    /// What is divided: samples (data), rows and columns of samples (halo), or inputs of layers (vector).
    #[arg(long, value_name = "MODE", value_parser = ["data", "halo", "vector"])]
    mode: Option<String>,
}

/// What any of these options say.
#[derive(Clone, Copy)]
pub(super) struct Spread<'a> {
    pub(super) ranks: Option<usize>,
    grid: Option<&'a str>,
    mode: Option<&'a str>,
    consistency: Option<&'a str>,
}

impl TrainSpread {
    pub(super) fn spread(&self) -> Spread<'_> {
        let (mode, consistency) = (self.mode.as_deref(), self.consistency.as_deref());
        Spread { ranks: self.layout.ranks, grid: self.layout.grid.as_deref(), mode, consistency }
    }
}

impl CheckSpread {
    pub(super) fn spread(&self) -> Spread<'_> {
        let grid = self.layout.grid.as_deref();
        Spread { ranks: self.layout.ranks, grid, mode: self.mode.as_deref(), consistency: None }
    }
}

impl Spread<'_> {
    /// The experiment as these options change it.
    pub(super) fn read(self, file: &Path, changes: &[String]) -> unisono::Result<Experiment> {
        // The axes say the mode where nothing else does.
        let axes = |names: &[&str]| {
            let grid = self.grid.unwrap_or_default();
            grid.split(',').any(|axis| names.contains(&axis.split('=').next().unwrap_or_default().trim()))
        };
        let mode = match self.mode {
            Some(mode) => Some(mode),
            None if self.consistency.is_some() => Some("table"),
            None if axes(&["h", "w"]) => Some("halo"),
            None if axes(&["v"]) => Some("vector"),
            None if self.grid.is_some() => Some("data"),
            None => None,
        };
        let Some(mode) = mode else { return Experiment::read(file, changes) };
        let more = [("grid", self.grid), ("consistency", self.consistency)];
        let more = more.iter().filter_map(|(key, value)| Some(format!(", {key}: '{}'", (*value)?)));
        let change = format!("distributed={{type: {mode}{}}}", more.collect::<String>());
        Experiment::read_with_option(file, changes, &self.typed(), &change)
    }

    /// These options as the user typed them.
    fn typed(self) -> String {
        let options = [("--mode", self.mode), ("--grid", self.grid), ("--consistency", self.consistency)];
        let options = options.iter().filter_map(|(name, value)| Some(format!("{name} {}", (*value)?)));
        options.collect::<Vec<_>>().join(" ")
    }
}
