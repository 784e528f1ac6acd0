//! The filters of the first layer as a picture.

use crate::data::Picture;
use crate::layers::Layer;
use crate::number::Number;
use crate::shape::Shape;

/// At most this many filters are shown.
const MOST: usize = 256;
const SCALE: usize = 4;

/// A sheet of filters, each stretched to its own darkest and brightest weight; none where the first layer that learns
/// sees no picture.
pub(super) fn sheet<T: Number>(layers: &mut [Box<dyn Layer<T>>]) -> Option<Picture> {
    let first = layers.iter_mut().position(|layer| !layer.weights().is_empty())?;
    let layer = &mut layers[first];
    let input = layer.input();
    let weights = layer.weights();
    let weight = weights.first()?;
    let (maps, rows, columns) = match weight.shape[..] {
        [.., maps, rows, columns] if weight.shape.len() >= 4 => (maps, rows, columns),
        [_, _] if input.area() > 1 => (input.maps, input.rows, input.columns),
        _ => return None,
    };
    let size = maps * rows * columns;
    let filters: Vec<&[T]> = weight.values.chunks(size).take(MOST).collect();
    let across = (filters.len() as f64).sqrt().ceil() as usize;
    let down = filters.len().div_ceil(across.max(1));
    let colours = if maps == 3 { 3 } else { 1 };
    let (tall, wide) = (rows * SCALE + 2, columns * SCALE + 2);
    let shape = Shape::new(colours, down * tall + 2, across * wide + 2);
    let mut pixels = vec![64_u8; shape.size()];
    for (number, filter) in filters.iter().enumerate() {
        let (top, left) = (number / across * tall + 2, number % across * wide + 2);
        let low = filter.iter().map(|weight| weight.double()).fold(f64::INFINITY, f64::min);
        let high = filter.iter().map(|weight| weight.double()).fold(f64::NEG_INFINITY, f64::max);
        let range = if high > low { high - low } else { 1.0 };
        for colour in 0..colours {
            for row in 0..rows * SCALE {
                for column in 0..columns * SCALE {
                    let value = filter[(colour * rows + row / SCALE) * columns + column / SCALE].double();
                    let at = (colour * shape.rows + top + row) * shape.columns + left + column;
                    pixels[at] = ((value - low) / range * 255.0).round() as u8;
                }
            }
        }
    }
    Some(Picture { shape, pixels })
}
