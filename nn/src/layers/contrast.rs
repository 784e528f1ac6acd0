//! Local contrast normalisation: subtracts the local mean at each position, and divides by the local deviation.

use unisono::Result;

use super::{Layer, LayerInfo, Pass, ReceptiveField};
use crate::number::Number;
use crate::shape::{ConvWindow, Shape};
use crate::threads;

/// M = Σ g∗x over all maps, S = x − M, D = √(Σ g∗S²), Y = S / D, where D = 0 is replaced by 1.
///
/// So is a D within the rounding errors of inputs around 1: a flat region has no contrast, whatever its brightness.
///
/// g is a Gaussian window, the same for all maps, whose sum over all maps is one. The values beyond the border are zeros. A
/// distributed run needs the halo of x for S, and then the halo of S for D.
#[derive(Debug)]
pub struct LocalContrast<T> {
    name: String,
    shape: Shape,
    window: ConvWindow,
    gaussian: Vec<T>,
    padder: Box<dyn Padder<T>>,
    differences: Vec<T>,
    deviations: Vec<T>,
}

/// The density at each position of a window with odd sides, scaled so that `maps` of them sum to one.
fn gaussian<T: Number>([rows, columns]: [usize; 2], maps: usize) -> Vec<T> {
    let (middle_row, middle_column) = ((rows / 2) as f64, (columns / 2) as f64);
    let deviation = (middle_row.powi(2) + middle_column.powi(2)).sqrt() / 3.0;
    let density = |index: usize| {
        let (row, column) = ((index / columns) as f64, (index % columns) as f64);
        let square = (row - middle_row).powi(2) + (column - middle_column).powi(2);
        if deviation > 0.0 { (-square / (2.0 * deviation * deviation)).exp() } else { 1.0 }
    };
    let sum: f64 = (0..rows * columns).map(density).sum::<f64>() * maps as f64;
    (0..rows * columns).map(|index| T::of(density(index) / sum)).collect()
}

impl<T: Number> LocalContrast<T> {
    /// Normalises over windows with odd sides.
    ///
    /// # Panics
    /// If a side is even.
    pub fn new(name: impl Into<String>, shape: Shape, kernel: [usize; 2]) -> LocalContrast<T> {
        assert!(kernel.iter().all(|side| side % 2 == 1), "the window has a middle");
        let window = ConvWindow { kernel, stride: [1, 1], padding: [kernel[0] / 2, kernel[1] / 2] };
        LocalContrast {
            name: name.into(),
            shape,
            window,
            gaussian: gaussian(kernel, shape.maps),
            padder: Box::new(ZeroPadder { shape, padding: window.padding }),
            differences: Vec::new(),
            deviations: Vec::new(),
        }
    }

    /// Pads with the neighbours' values around this rank's part, instead of zeros.
    #[must_use]
    pub(crate) fn with_padder(mut self, padder: Box<dyn Padder<T>>) -> LocalContrast<T> {
        self.padder = padder;
        self
    }

    /// g ∗ map for one map of each sample. The window is symmetric, so the operation is self-adjoint.
    fn blur(&mut self, pass: &Pass<'_, T>, maps: &[T]) -> Result<Vec<T>> {
        let Shape { rows, columns, .. } = self.shape;
        let [above, left] = self.window.padding;
        let wide = columns + 2 * left;
        let size = (rows + 2 * above) * wide;
        let padded = self.padder.pad(pass.batch, maps)?;
        let mut result = vec![T::ZERO; maps.len()];
        let (gaussian, width) = (&self.gaussian, self.window.kernel[1]);
        threads::samples(pass.threads, &mut result, rows * columns, |first, result| {
            for (sample, map) in result.chunks_mut((rows * columns).max(1)).enumerate() {
                let padded = &padded[(first + sample) * size..][..size];
                for (index, weight) in gaussian.iter().enumerate() {
                    let start = index / width * wide + index % width;
                    for (row, result) in map.chunks_mut(columns).enumerate() {
                        let seen = &padded[start + row * wide..][..columns];
                        result.iter_mut().zip(seen).for_each(|(result, seen)| *result += *weight * *seen);
                    }
                }
            }
        });
        Ok(result)
    }

    /// For each position of each sample, the sum over the maps of a function of the index.
    fn over_maps(&self, pass: &Pass<'_, T>, each: impl Fn(usize) -> T) -> Vec<T> {
        let area = self.shape.area();
        let mut sums = vec![T::ZERO; pass.batch * area];
        for (sample, sums) in sums.chunks_mut(area.max(1)).enumerate() {
            for map in sample * self.shape.maps..(sample + 1) * self.shape.maps {
                sums.iter_mut().enumerate().for_each(|(place, sum)| *sum += each(map * area + place));
            }
        }
        sums
    }

    /// Replaces each value by a function of itself, its index, and the value at its position in a single map of its sample.
    fn by_place(&self, values: &mut [T], places: &[T], each: impl Fn(T, usize, T) -> T) {
        let area = self.shape.area().max(1);
        for (map, values) in values.chunks_mut(area).enumerate() {
            let places = &places[map / self.shape.maps * area..][..area];
            for (place, (value, other)) in values.iter_mut().zip(places).enumerate() {
                *value = each(*value, map * area + place, *other);
            }
        }
    }
}

/// Pads maps: with zeros, or for a part of an image with the values of the neighbours.
pub(crate) trait Padder<T>: Send + std::fmt::Debug {
    /// Pads one map of each sample on all sides.
    fn pad(&mut self, batch: usize, maps: &[T]) -> Result<Vec<T>>;
}

/// Zero padding of complete maps.
#[derive(Debug)]
struct ZeroPadder {
    shape: Shape,
    padding: [usize; 2],
}

impl<T: Number> Padder<T> for ZeroPadder {
    fn pad(&mut self, batch: usize, maps: &[T]) -> Result<Vec<T>> {
        let [above, left] = self.padding;
        let wide = self.shape.columns + 2 * left;
        let size = (self.shape.rows + 2 * above) * wide;
        let mut padded = vec![T::ZERO; batch * size];
        for (padded, map) in padded.chunks_mut(size).zip(maps.chunks(self.shape.area())) {
            for (row, values) in map.chunks(self.shape.columns).enumerate() {
                padded[(row + above) * wide + left..][..self.shape.columns].copy_from_slice(values);
            }
        }
        Ok(padded)
    }
}

impl<T: Number> Layer<T> for LocalContrast<T> {
    fn info(&self) -> LayerInfo<'_> {
        LayerInfo {
            name: &self.name,
            input: self.shape,
            output: self.shape,
            receptive_field: ReceptiveField::Window(self.window),
        }
    }

    fn fprop(&mut self, pass: &Pass<'_, T>, inputs: &[T], outputs: &mut [T]) -> Result<()> {
        let sums = self.over_maps(pass, |index| inputs[index]);
        let mean = self.blur(pass, &sums)?;
        let mut differences = std::mem::take(&mut self.differences);
        differences.clear();
        differences.extend_from_slice(inputs);
        self.by_place(&mut differences, &mean, |x, _, mean| x - mean);
        let squares = self.over_maps(pass, |index| differences[index] * differences[index]);
        self.deviations = self.blur(pass, &squares)?;
        for value in &mut self.deviations {
            let root = value.square_root();
            *value = if root > T::EPSILON * T::of(64.0) { root } else { T::ONE };
        }
        outputs.copy_from_slice(&differences);
        self.by_place(outputs, &self.deviations, |difference, _, deviation| difference / deviation);
        self.differences = differences;
        Ok(())
    }

    fn bprop(
        &mut self,
        pass: &Pass<'_, T>,
        _inputs: &[T],
        outputs: &[T],
        error: &[T],
        input_error: Option<&mut [T]>,
    ) -> Result<()> {
        let Some(input_error) = input_error else { return Ok(()) };
        // Σ δ·S / D³ over the maps, for the derivative of D.
        let mut along = self.over_maps(pass, |index| error[index] * outputs[index]);
        along.iter_mut().zip(&self.deviations).for_each(|(along, d)| *along /= *d * *d);
        let spread = self.blur(pass, &along)?;
        // δ/D − S·(g∗along), the error of S.
        input_error.copy_from_slice(error);
        self.by_place(input_error, &self.deviations, |error, _, deviation| error / deviation);
        let differences = &self.differences;
        self.by_place(input_error, &spread, |error, index, spread| error - differences[index] * spread);
        let sums = self.over_maps(pass, |index| input_error[index]);
        let spread = self.blur(pass, &sums)?;
        self.by_place(input_error, &spread, |error, _, spread| error - spread);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flat_image_has_no_contrast_inside() {
        let mut layer: LocalContrast<f64> = LocalContrast::new("contrast", Shape::new(2, 7, 7), [3, 3]);
        let inputs = vec![0.7; 98];
        let mut outputs = vec![9.0; 98];
        layer.fprop(&Pass::alone(1, true, 0), &inputs, &mut outputs).expect("it computes");
        assert!(outputs[24].abs() < 1e-6 && outputs[0] > 0.1, "{outputs:?}");
    }

    #[test]
    fn the_window_sums_to_one() {
        for (kernel, maps) in [([3, 3], 1), ([5, 3], 4), ([1, 1], 2)] {
            let window: Vec<f64> = gaussian(kernel, maps);
            assert!((window.iter().sum::<f64>() * maps as f64 - 1.0).abs() < 1e-12);
        }
    }
}
