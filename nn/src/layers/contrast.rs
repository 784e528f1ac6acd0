//! Local contrast normalisation: each place minus the mean around it, over the deviation around it.

use super::{Layer, Pass, Reach};
use crate::number::Number;
use crate::shape::{Shape, Window};
use crate::threads;

/// M = Σ g∗x over all maps, S = x − M, D = √(Σ g∗S²), Y = S / D, where D = 0 counts as 1.
///
/// So does a D of some rounding errors of inputs around 1: a flat patch has no contrast, whatever its brightness.
///
/// g is a Gaussian window, the same for all maps, whose sum over all maps is one. Beyond the border are zeros.
/// A distributed run needs the halo of x for S, and then the halo of S for D.
#[derive(Debug)]
pub struct LocalContrast<T> {
    name: String,
    shape: Shape,
    window: Window,
    gaussian: Vec<T>,
    differences: Vec<T>,
    deviations: Vec<T>,
}

/// The density at each place of a window with odd sides, scaled so that `maps` of them sum to one.
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
    /// When a side is even.
    pub fn new(name: impl Into<String>, shape: Shape, kernel: [usize; 2]) -> LocalContrast<T> {
        assert!(kernel.iter().all(|side| side % 2 == 1), "the window has a middle");
        let window = Window { kernel, stride: [1, 1], padding: [kernel[0] / 2, kernel[1] / 2] };
        LocalContrast {
            name: name.into(),
            shape,
            window,
            gaussian: gaussian(kernel, shape.maps),
            differences: Vec::new(),
            deviations: Vec::new(),
        }
    }

    /// result += g ∗ map. The window is symmetric, so this is its own adjoint.
    fn blur(&self, map: &[T], result: &mut [T]) {
        let (rows, columns) = (self.shape.rows, self.shape.columns);
        let [above, left] = self.window.padding;
        for (index, weight) in self.gaussian.iter().enumerate() {
            let (down, right) = (index / self.window.kernel[1], index % self.window.kernel[1]);
            // The outputs for which this place of the window lies on the map.
            let (first, end) =
                (left.saturating_sub(right), (columns + left).saturating_sub(right).min(columns));
            for row in above.saturating_sub(down)..(rows + above).saturating_sub(down).min(rows) {
                if first >= end {
                    continue;
                }
                let source = (row + down - above) * columns + first + right - left;
                let seen = &map[source..][..end - first];
                let result = &mut result[row * columns + first..row * columns + end];
                result.iter_mut().zip(seen).for_each(|(result, seen)| *result += *weight * *seen);
            }
        }
    }
}

impl<T: Number> Layer<T> for LocalContrast<T> {
    fn name(&self) -> &str {
        &self.name
    }

    fn input(&self) -> Shape {
        self.shape
    }

    fn output(&self) -> Shape {
        self.shape
    }

    fn reach(&self) -> Reach {
        Reach::Window(self.window)
    }

    fn fprop(&mut self, pass: &Pass<'_, T>, inputs: &[T], outputs: &mut [T]) {
        let (size, area) = (self.shape.size(), self.shape.area());
        let (mut differences, mut deviations) =
            (std::mem::take(&mut self.differences), std::mem::take(&mut self.deviations));
        differences.resize(inputs.len(), T::ZERO);
        deviations.resize(pass.batch * area, T::ZERO);
        let layer = &*self;
        threads::samples(pass.threads, &mut differences, size, |first, differences| {
            let mut mean = vec![T::ZERO; area];
            for (sample, difference) in differences.chunks_mut(size).enumerate() {
                let image = &inputs[(first + sample) * size..][..size];
                mean.fill(T::ZERO);
                image.chunks(area).for_each(|map| layer.blur(map, &mut mean));
                for (difference, map) in difference.chunks_mut(area).zip(image.chunks(area)) {
                    let values = difference.iter_mut().zip(map).zip(&mean);
                    values.for_each(|((difference, x), mean)| *difference = *x - *mean);
                }
            }
        });
        threads::samples(pass.threads, &mut deviations, area, |first, deviations| {
            let mut squares = vec![T::ZERO; area];
            for (sample, deviation) in deviations.chunks_mut(area).enumerate() {
                deviation.fill(T::ZERO);
                for map in differences[(first + sample) * size..][..size].chunks(area) {
                    squares.iter_mut().zip(map).for_each(|(square, value)| *square = *value * *value);
                    layer.blur(&squares, deviation);
                }
                for value in deviation {
                    let root = value.square_root();
                    *value = if root > T::EPSILON * T::of(64.0) { root } else { T::ONE };
                }
            }
        });
        for (index, (output, difference)) in
            outputs.chunks_mut(area).zip(differences.chunks(area)).enumerate()
        {
            let deviation = &deviations[index / self.shape.maps * area..][..area];
            let values = output.iter_mut().zip(difference).zip(deviation);
            values.for_each(|((output, difference), deviation)| *output = *difference / *deviation);
        }
        (self.differences, self.deviations) = (differences, deviations);
    }

    fn bprop(
        &mut self,
        pass: &Pass<'_, T>,
        _inputs: &[T],
        outputs: &[T],
        error: &[T],
        input_error: Option<&mut [T]>,
    ) {
        let Some(input_error) = input_error else { return };
        let (size, area) = (self.shape.size(), self.shape.area());
        let layer = &*self;
        threads::samples(pass.threads, input_error, size, |first, input_error| {
            let (mut along, mut spread) = (vec![T::ZERO; area], vec![T::ZERO; area]);
            for (sample, result) in input_error.chunks_mut(size).enumerate() {
                let place = (first + sample) * size;
                let (error, outputs) = (&error[place..][..size], &outputs[place..][..size]);
                let differences = &layer.differences[place..][..size];
                let deviations = &layer.deviations[(first + sample) * area..][..area];
                // Σ δ·S / D³ over the maps, for the derivative of D.
                along.fill(T::ZERO);
                for (error, output) in error.chunks(area).zip(outputs.chunks(area)) {
                    let values = along.iter_mut().zip(error).zip(output);
                    values.for_each(|((along, error), output)| *along += *error * *output);
                }
                along.iter_mut().zip(deviations).for_each(|(along, d)| *along /= *d * *d);
                spread.fill(T::ZERO);
                layer.blur(&along, &mut spread);
                // δ/D − S·(g∗along), which is the error of S; along is then its sum over the maps.
                along.fill(T::ZERO);
                for (index, result) in result.iter_mut().enumerate() {
                    let place = index % area;
                    *result = error[index] / deviations[place] - differences[index] * spread[place];
                    along[place] += *result;
                }
                spread.fill(T::ZERO);
                layer.blur(&along, &mut spread);
                for map in result.chunks_mut(area) {
                    map.iter_mut().zip(&spread).for_each(|(result, spread)| *result -= *spread);
                }
            }
        });
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
        layer.fprop(&Pass::alone(1, true, 0), &inputs, &mut outputs);
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
