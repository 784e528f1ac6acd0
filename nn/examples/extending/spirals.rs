//! A user-defined data set: points on two interleaved spirals.

use unisono::Result;
use unisono_nn::{DataSet, Inputs, Node, RandomStream, Shape, Split, Targets};

/// Generates the data set from the settings in the file: the number of `points`, and the standard deviation of their
/// `noise`.
///
/// The points depend on the seed alone, so all ranks generate the same ones; a distributed run then assigns each rank its
/// own.
pub fn spirals(settings: &Node, seed: u64) -> Result<DataSet> {
    let points = settings.get("points").and_then(Node::whole).unwrap_or(400);
    if points < 2 {
        return Err(settings.location.error(
            "spirals",
            "at least 2 `points`",
            points.to_string(),
            "take more",
        ));
    }
    let noise = settings.get("noise").and_then(Node::number).unwrap_or(0.02);
    let split = |name: &str, count: usize| {
        let stream = RandomStream::new(seed, name);
        let point = |index: usize| {
            let along = stream.uniform(3 * index as u64);
            let angle = 2.5 * std::f64::consts::PI * along + std::f64::consts::PI * (index % 2) as f64;
            let jump = |axis: u64| noise * stream.branch(1).normal(2 * index as u64 + axis);
            [along * angle.cos() + jump(0), along * angle.sin() + jump(1)]
        };
        let inputs = (0..count).flat_map(point).map(|number| number as f32).collect();
        let classes = (0..count).map(|index| (index % 2) as u32).collect();
        Split { count, inputs: Inputs::Singles(inputs), targets: Targets::Classes(classes) }
    };
    let points = points as usize;
    Ok(DataSet {
        shape: Shape::flat(2),
        outputs: 2,
        train: split("spirals", points),
        test: split("test spirals", points / 4),
    })
}
