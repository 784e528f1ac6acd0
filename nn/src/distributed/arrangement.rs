//! The grid of ranks of a run: which ranks share the same samples, and which process different ones.

use unisono::halo::Grid;
use unisono::{Error, Result};

use crate::experiment::{Experiment, Node};

/// How a model is distributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Data parallelism: each rank processes some samples of a batch.
    Data,
    /// Spatial parallelism: each rank holds some rows and columns of each sample, and exchanges halos.
    Halo,
    /// Each rank holds a slice of each sample as a flat vector.
    Vector,
    /// Each rank processes some samples of a batch, and shares the weights through a parameter table.
    Table,
}

impl Mode {
    /// The mode with this name.
    fn named(name: &str) -> Result<Mode> {
        match name {
            "data" => Ok(Mode::Data),
            "halo" => Ok(Mode::Halo),
            "vector" => Ok(Mode::Vector),
            "table" => Ok(Mode::Table),
            other => Err(Error::internal("arrange ranks", format!("the mode `{other}` is not handled"))),
        }
    }

    /// The axes of a spatial group in this mode.
    fn axes(self) -> &'static [&'static str] {
        match self {
            Mode::Data | Mode::Table => &[],
            Mode::Halo => &["h", "w"],
            Mode::Vector => &["v"],
        }
    }
}

/// A grid of ranks: ranks differ in their samples along the axis `data`, and in their parts of the same samples along the
/// other axes.
///
/// ```
/// use unisono_nn::{Arrangement, Experiment, Mode};
/// let text = "{epochs: 1, batch_size: 9, data: iris, distributed: {type: halo, grid: 'data=2,h=-1,w=3'}, \
///              model: {type: network, cost: sum_of_squares, layers: [{type: fully_connected, outputs: 3}]}}";
/// let experiment = Experiment::parse("spread.yaml", text, &[])?;
/// let arrangement = Arrangement::new(&experiment, 12)?;
/// assert_eq!((arrangement.mode, arrangement.data, arrangement.spatial_grid.size()), (Mode::Halo, 2, 6));
/// # Ok::<(), unisono::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrangement {
    /// How samples are divided within a spatial group.
    pub mode: Mode,
    /// The grid of all ranks.
    pub grid: Grid,
    /// The number of spatial groups.
    pub data: usize,
    /// The grid of one spatial group.
    pub spatial_grid: Grid,
}

impl Arrangement {
    /// The arrangement that a file requests; without a grid, as even as possible.
    pub fn new(experiment: &Experiment, ranks: usize) -> Result<Arrangement> {
        let node = experiment.resolved.get("distributed");
        let name = node.and_then(|node| node.get("type")).and_then(Node::text);
        let mode = name.map_or(Ok(Mode::Data), Mode::named)?;
        let location = node.map_or(&experiment.resolved.location, |node| &node.location);
        let text = match node.and_then(|node| node.get("grid")).and_then(Node::text) {
            Some(text) => text.to_string(),
            None => default_grid(mode, ranks),
        };
        let rejected = |expected: String, received: String, advice: &str| {
            location.error("grid", expected, received, advice)
        };
        let grid = Grid::parse(&text, ranks).map_err(|error| match error {
            unisono::Error::Usage { expected, received, advice, .. } => rejected(expected, received, &advice),
            other => other,
        })?;
        let known = |name: &str| name == "data" || mode.axes().contains(&name);
        if let Some((name, _)) = grid.axes().find(|(name, _)| !known(name)) {
            let axes = ["data"].iter().chain(mode.axes()).copied().collect::<Vec<_>>().join(", ");
            let advice = match (mode, name) {
                (Mode::Halo, "v") => {
                    "remove it: halo divides the inputs of fully connected layers over all its ranks"
                }
                _ => "h and w belong to halo, v to vector",
            };
            let expected = format!("axes of the mode {}: {axes}", format!("{mode:?}").to_lowercase());
            return Err(rejected(expected, format!("`{name}`"), advice));
        }
        let data = grid.axes().find(|(name, _)| *name == "data").map_or(1, |(_, size)| size);
        let mut spatial_grid: Vec<(&str, i64)> =
            grid.axes().filter(|(name, _)| *name != "data").map(|(name, size)| (name, size as i64)).collect();
        // Every axis of the mode is present, possibly with one rank.
        for axis in mode.axes() {
            if spatial_grid.iter().all(|(name, _)| name != axis) {
                spatial_grid.push((axis, 1));
            }
        }
        if spatial_grid.is_empty() {
            spatial_grid.push(("v", 1));
        }
        let spatial_grid = Grid::new(&spatial_grid, ranks / data)?;
        Ok(Arrangement { mode, grid, data, spatial_grid })
    }

    /// The index of a rank's spatial group along the data axis, and the rank's index within that group.
    pub(crate) fn position(&self, rank: usize) -> (usize, usize) {
        let coordinates = self.grid.coordinates(rank);
        let (mut data_index, mut spatial_index) = (0, 0);
        for ((name, size), coordinate) in self.grid.axes().zip(coordinates) {
            match name {
                "data" => data_index = coordinate,
                _ => spatial_index = spatial_index * size + coordinate,
            }
        }
        (data_index, spatial_index)
    }
}

/// The default grid of all ranks for a mode.
fn default_grid(mode: Mode, ranks: usize) -> String {
    match mode {
        Mode::Data | Mode::Table => format!("data={ranks}"),
        Mode::Vector => format!("v={ranks}"),
        Mode::Halo => {
            // As square as possible. Halo rows are contiguous in memory, so rows are divided first.
            let columns = (1..=ranks).take_while(|columns| columns * columns <= ranks);
            let columns = columns.filter(|columns| ranks.is_multiple_of(*columns)).last().unwrap_or(1);
            format!("h={},w={columns}", ranks / columns)
        }
    }
}
