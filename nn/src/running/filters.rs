//! Draws the filters of the first layer as an image.

use super::sheet::{LevelRange, sheet};
use crate::data::Picture;
use crate::layers::Layer;
use crate::number::Number;
use crate::shape::Shape;

/// The maximum number of filters shown.
const MOST: usize = 256;
/// The minimum and maximum side of a weight in pixels: larger squares are used if the sheet would be narrower than `WIDTH`.
const SCALES: [usize; 2] = [4, 32];
const WIDTH: usize = 384;

/// A sheet of filters, each scaled to its own minimum and maximum; `None` if the input of the first layer with weights is
/// not an image.
pub(super) fn first_filters<T: Number>(layers: &mut [Box<dyn Layer<T>>]) -> Option<Picture> {
    let first = layers.iter_mut().position(|layer| !layer.weights().is_empty())?;
    let layer = &mut layers[first];
    let input = layer.input();
    let weights = layer.weights();
    let weight = weights.first()?;
    let shape = match weight.shape[..] {
        [.., maps, rows, columns] if weight.shape.len() >= 4 => Shape::new(maps, rows, columns),
        [_, _] if input.area() > 1 => input,
        _ => return None,
    };
    let filters = weight.values.chunks(shape.size()).take(MOST);
    let filters: Vec<Vec<f64>> =
        filters.map(|filter| filter.iter().map(|weight| weight.double()).collect()).collect();
    let across = (filters.len() as f64).sqrt().ceil() as usize;
    let scale = (WIDTH / (across * shape.columns).max(1)).clamp(SCALES[0], SCALES[1]);
    sheet(&filters, shape, (across, scale), LevelRange::Own)
}
