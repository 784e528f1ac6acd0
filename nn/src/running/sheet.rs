//! Arranges many small images on one sheet.

use crate::data::Picture;
use crate::shape::Shape;

/// The gap between two images in pixels, and its grey level.
const GAP: usize = 2;
const GROUND: u8 = 64;

/// The values that are shown as black and white.
#[derive(Debug, Clone, Copy)]
pub(super) enum LevelRange {
    /// The minimum and maximum of each image.
    Own,
    /// These values, for all images; values beyond them are clipped.
    Fixed(f64, f64),
}

impl LevelRange {
    fn bounds(self, picture: &[f64]) -> (f64, f64) {
        match self {
            LevelRange::Fixed(low, high) => (low, high),
            LevelRange::Own => {
                picture.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                    (low.min(*value), high.max(*value))
                })
            }
        }
    }
}

/// Arranges images of one shape in rows of `across`, with each pixel as a square of `scale`. Three maps are colours; for any
/// other number, the first map is shown. `None` if there are no images.
pub(super) fn sheet(
    pictures: &[Vec<f64>],
    shape: Shape,
    (across, scale): (usize, usize),
    range: LevelRange,
) -> Option<Picture> {
    if pictures.is_empty() {
        return None;
    }
    let across = across.clamp(1, pictures.len());
    let down = pictures.len().div_ceil(across);
    let colours = if shape.maps == 3 { 3 } else { 1 };
    let (tall, wide) = (shape.rows * scale + GAP, shape.columns * scale + GAP);
    let whole = Shape::new(colours, down * tall + GAP, across * wide + GAP);
    let mut pixels = vec![GROUND; whole.size()];
    for (number, picture) in pictures.iter().enumerate() {
        let (top, left) = (number / across * tall + GAP, number % across * wide + GAP);
        let (low, high) = range.bounds(picture);
        let width = if high > low { high - low } else { 1.0 };
        for colour in 0..colours {
            for row in 0..shape.rows * scale {
                for column in 0..shape.columns * scale {
                    let from = (colour * shape.rows + row / scale) * shape.columns + column / scale;
                    let at = (colour * whole.rows + top + row) * whole.columns + left + column;
                    let level = (picture[from] - low) / width;
                    pixels[at] = (level.clamp(0.0, 1.0) * 255.0).round() as u8;
                }
            }
        }
    }
    Some(Picture { shape: whole, pixels })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_lie_in_rows_with_gaps() {
        let pictures = [vec![0.0, 2.0], vec![-1.0, 5.0], vec![7.0, 7.0]];
        let own = sheet(&pictures, Shape::new(1, 1, 2), (2, 1), LevelRange::Own).expect("there are pictures");
        assert_eq!(own.shape, Shape::new(1, 8, 10));
        let at = |picture: &Picture, row: usize, column: usize| picture.pixels[row * 10 + column];
        assert_eq!((at(&own, 2, 2), at(&own, 2, 3), at(&own, 2, 4)), (0, 255, GROUND));
        assert_eq!((at(&own, 2, 6), at(&own, 2, 7)), (0, 255));
        assert_eq!(
            (at(&own, 5, 2), at(&own, 5, 6)),
            (0, GROUND),
            "one level alone is black, and no fourth picture"
        );
        let fixed =
            sheet(&pictures, Shape::new(1, 1, 2), (2, 1), LevelRange::Fixed(0.0, 4.0)).expect("pictures");
        assert_eq!((at(&fixed, 2, 3), at(&fixed, 2, 6), at(&fixed, 2, 7)), (128, 0, 255));
        assert!(sheet(&[], Shape::flat(1), (1, 1), LevelRange::Own).is_none());
    }
}
