//! Options that distribute an experiment over processes, and the experiment with these options applied.

use std::path::Path;

use clap::Args;
use unisono::Error;
use unisono_nn::{Experiment, Node};

/// Number of processes, and their arrangement.
#[derive(Args)]
struct ProcessGrid {
    /// Number of processes to start [default: the size of the grid].
    #[arg(short = 'n', long = "ranks", value_name = "N", allow_negative_numbers = true, value_parser = crate::run::rank_count)]
    ranks: Option<usize>,
    /// Number of processes along each axis: data=2,h=2,w=2.
    #[arg(long, value_name = "AXES")]
    grid: Option<String>,
}

/// How training is distributed.
#[derive(Args)]
pub(super) struct TrainParallelism {
    #[command(flatten)]
    process_grid: ProcessGrid,
    /// What is partitioned: samples (data), rows and columns of samples (halo), inputs of layers (vector), or samples with
    /// weights that processes share through a table (table).
    #[arg(long, value_name = "MODE", value_parser = ["data", "halo", "vector", "table"])]
    mode: Option<String>,
    /// Consistency of the workers of a shared table: async, ssp:3, bsp.
    #[arg(long, value_name = "CONSISTENCY")]
    consistency: Option<String>,
}

/// How a comparison with one process is distributed. Workers of a shared table have no common batch, so that mode cannot be
/// compared.
#[derive(Args)]
pub(super) struct CheckParallelism {
    #[command(flatten)]
    process_grid: ProcessGrid,
    /// What is partitioned: samples (data), rows and columns of samples (halo), or inputs of layers (vector).
    #[arg(long, value_name = "MODE", value_parser = ["data", "halo", "vector"])]
    mode: Option<String>,
}

/// The values of any of these options.
#[derive(Clone, Copy)]
pub(super) struct ParallelOverrides<'a> {
    pub(super) ranks: Option<usize>,
    grid: Option<&'a str>,
    mode: Option<&'a str>,
    consistency: Option<&'a str>,
}

impl TrainParallelism {
    pub(super) fn parallelism(&self) -> ParallelOverrides<'_> {
        let (mode, consistency) = (self.mode.as_deref(), self.consistency.as_deref());
        ParallelOverrides {
            ranks: self.process_grid.ranks,
            grid: self.process_grid.grid.as_deref(),
            mode,
            consistency,
        }
    }
}

impl CheckParallelism {
    pub(super) fn parallelism(&self) -> ParallelOverrides<'_> {
        let grid = self.process_grid.grid.as_deref();
        ParallelOverrides {
            ranks: self.process_grid.ranks,
            grid,
            mode: self.mode.as_deref(),
            consistency: None,
        }
    }
}

/// The names of a grid's axes.
fn axes(grid: &str) -> impl Iterator<Item = &str> {
    grid.split(',').map(|axis| axis.split('=').next().unwrap_or_default().trim())
}

/// Whether a grid of this mode may have this axis.
fn has_axis(mode: &str, axis: &str) -> bool {
    matches!((mode, axis), (_, "data") | ("halo", "h" | "w") | ("vector", "v"))
}

impl ParallelOverrides<'_> {
    /// Reads the experiment and applies these options.
    pub(super) fn read(self, file: &Path, changes: &[String]) -> unisono::Result<Experiment> {
        let plain = Experiment::read(file, changes)?;
        let in_file = |key: &str| plain.resolved.get("distributed")?.get(key).and_then(Node::text);
        let Some(mode) = self.resolve_mode(in_file("type")) else { return Ok(plain) };
        if let Some(consistency) = self.consistency.filter(|_| mode != "table") {
            let (what, advice) = (format!("--consistency {consistency}"), "remove it, or pass --mode table");
            return Err(Error::usage(what, "the mode table", format!("the mode {mode}"), advice));
        }
        let mut overrides = Vec::new();
        // If the mode changes, the file's grid is kept if all of its axes exist in the new mode.
        if in_file("type") != Some(mode) {
            let kept_grid = in_file("grid").filter(|grid| axes(grid).all(|axis| has_axis(mode, axis)));
            let kept_grid = kept_grid.map_or(String::new(), |grid| format!(", grid: '{grid}'"));
            overrides.push(format!("distributed={{type: {mode}{kept_grid}}}"));
        }
        let more = [("grid", self.grid), ("consistency", self.consistency)];
        let more = more.iter().filter_map(|(key, value)| Some(format!("distributed.{key}='{}'", (*value)?)));
        overrides.extend(more);
        plain.with_options(&self.as_typed(), &overrides)
    }

    /// The mode after applying these options: the one they name, else the file's if it has the axes of the grid, else one that
    /// has them. None if the options leave the mode unchanged.
    fn resolve_mode<'b>(&'b self, file: Option<&'b str>) -> Option<&'b str> {
        let grid = self.grid.unwrap_or_default();
        let has = |names: &[&str]| axes(grid).any(|axis| names.contains(&axis));
        match file {
            _ if self.mode.is_some() => self.mode,
            _ if self.consistency.is_some() => Some("table"),
            _ if self.grid.is_none() => None,
            Some(mode) if axes(grid).all(|axis| has_axis(mode, axis)) => Some(mode),
            _ if has(&["h", "w"]) => Some("halo"),
            _ if has(&["v"]) => Some("vector"),
            _ => Some("data"),
        }
    }

    /// These options as the user typed them.
    fn as_typed(self) -> String {
        let options = [("--mode", self.mode), ("--grid", self.grid), ("--consistency", self.consistency)];
        let options = options.iter().filter_map(|(name, value)| Some(format!("{name} {}", (*value)?)));
        options.collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: &str = "\nepochs: 1\nbatch_size: 9\ndata: iris\nmodel: {type: network, cost: sum_of_squares, layers: \
                         [{type: fully_connected, outputs: 3}]}\n";

    #[test]
    fn options_change_what_they_say_and_nothing_else() {
        let file = std::env::temp_dir().join(format!("unisono-spread-{}.yaml", std::process::id()));
        let plain = ParallelOverrides { ranks: None, grid: None, mode: None, consistency: None };
        let grid = |grid: &'static str| ParallelOverrides { grid: Some(grid), ..plain };
        let mode = |mode: &'static str| ParallelOverrides { mode: Some(mode), ..plain };
        let loose = ParallelOverrides { consistency: Some("ssp:3"), ..plain };
        let bsp = "{type: table, consistency: bsp, grid: 'data=2'}";
        for (distributed, parallelism, expected) in [
            (bsp, plain, ["table", "data=2", "bsp"]),
            (bsp, mode("table"), ["table", "data=2", "bsp"]),
            (bsp, grid("data=4"), ["table", "data=4", "bsp"]),
            (bsp, loose, ["table", "data=2", "ssp:3"]),
            (bsp, mode("data"), ["data", "data=2", ""]),
            (bsp, mode("halo"), ["halo", "data=2", ""]),
            (bsp, grid("h=2,w=1"), ["halo", "h=2,w=1", ""]),
            ("table", grid("data=2"), ["table", "data=2", "async"]),
            ("{type: halo, grid: 'h=2,w=2'}", mode("vector"), ["vector", "", ""]),
            ("{type: halo, grid: 'h=2,w=2'}", grid("data=2"), ["halo", "data=2", ""]),
            ("{type: halo, grid: 'h=2,w=2'}", grid("v=2"), ["vector", "v=2", ""]),
            ("null", grid("data=2"), ["data", "data=2", ""]),
            ("null", loose, ["table", "", "ssp:3"]),
        ] {
            std::fs::write(&file, format!("distributed: {distributed}{MODEL}")).expect("it can be written");
            let read = parallelism.read(&file, &[]).expect("it is right");
            let node = read.resolved.get("distributed");
            let found = ["type", "grid", "consistency"]
                .map(|key| node.and_then(|node| node.get(key)?.text()).unwrap_or_default());
            assert_eq!(found, expected, "{distributed} {}", parallelism.as_typed());
        }
        std::fs::write(&file, format!("distributed: data{MODEL}")).expect("it can be written");
        let error = ParallelOverrides { mode: Some("data"), ..loose }
            .read(&file, &[])
            .expect_err("data has no tables");
        assert!(error.to_string().contains("--mode table"), "{error}");
        std::fs::remove_file(&file).expect("it can be removed");
    }
}
