//! Pooling: the maximum, the average or the L2 norm of a window of one map.

use unisono::Result;

use super::{Layer, LayerInfo, Pass, ReceptiveField};
use crate::exact::{ExactSums, largest};
use crate::number::Number;
use crate::shape::{ConvWindow, Shape};
use crate::threads;

/// Whether neighbouring windows overlap.
pub(crate) fn overlaps(window: ConvWindow) -> bool {
    window.kernel.iter().zip(window.stride).any(|(kernel, stride)| *kernel > stride)
}

/// The function applied to a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pool {
    /// The maximum; of equal elements, the first receives the gradient.
    Max,
    /// The sum divided by the size of the window; padding counts as zeros.
    Average,
    /// √Σx².
    L2,
}

/// A pooling layer.
#[derive(Debug)]
pub struct Pooling {
    name: String,
    kind: Pool,
    input: Shape,
    output: Shape,
    window: ConvWindow,
    /// For max pooling, the index in the map of each output's maximum.
    chosen: Vec<u32>,
}

impl Pooling {
    /// Pools each map separately.
    ///
    /// # Panics
    /// If the window does not fit the input, or could cover nothing but padding.
    pub fn new(name: impl Into<String>, kind: Pool, input: Shape, window: ConvWindow) -> Pooling {
        let [rows, columns] = window.outputs(input).expect("the window fits the input");
        assert!(window.padding[0] < window.kernel[0] && window.padding[1] < window.kernel[1]);
        let output = Shape::new(input.maps, rows, columns);
        Pooling { name: name.into(), kind, input, output, window, chosen: Vec::new() }
    }

    /// Calls `each` for every output of a map, with its index and the rows and columns of the input that it covers.
    #[inline(always)]
    fn places(&self, mut each: impl FnMut(usize, std::ops::Range<usize>, std::ops::Range<usize>)) {
        for row in 0..self.output.rows {
            let rows = self.window.inputs(0, row, self.input.rows);
            for column in 0..self.output.columns {
                let columns = self.window.inputs(1, column, self.input.columns);
                each(row * self.output.columns + column, rows.clone(), columns);
            }
        }
    }

    fn largest<T: Number>(&self, map: &[T], output: &mut [T], chosen: &mut [u32]) {
        if self.window == (ConvWindow { kernel: [2, 2], stride: [2, 2], padding: [0, 0] }) {
            // NaNs are rare: one scan of the map is cheaper than a check in every comparison.
            return match map.iter().fold(false, |lost, value| lost | value.exceeds(*value)) {
                false => self.largest_of_four(map, output, chosen, |one, other| one > other),
                true => self.largest_of_four(map, output, chosen, T::exceeds),
            };
        }
        let width = self.input.columns;
        self.places(|index, rows, columns| {
            let mut best = rows.start * width + columns.start;
            for row in rows {
                for place in row * width + columns.start..row * width + columns.end {
                    if map[place].exceeds(map[best]) {
                        best = place;
                    }
                }
            }
            (output[index], chosen[index]) = (map[best], best as u32);
        });
    }

    /// The most common window, without branches.
    #[inline(always)]
    fn largest_of_four<T: Number>(
        &self,
        map: &[T],
        output: &mut [T],
        chosen: &mut [u32],
        exceeds: impl Fn(T, T) -> bool,
    ) {
        let (width, columns) = (self.input.columns, self.output.columns);
        let rows = output.chunks_mut(columns).zip(chosen.chunks_mut(columns)).enumerate();
        for (row, (output, chosen)) in rows {
            let start = 2 * row * width;
            let (upper, lower) = (&map[start..][..2 * columns], &map[start + width..][..2 * columns]);
            let pairs = upper.chunks_exact(2).zip(lower.chunks_exact(2)).enumerate();
            for ((column, (upper, lower)), (output, chosen)) in pairs.zip(output.iter_mut().zip(chosen)) {
                let place = (start + 2 * column) as u32;
                let right = exceeds(upper[1], upper[0]);
                let high = if right { upper[1] } else { upper[0] };
                let lower_right = exceeds(lower[1], lower[0]);
                let low = if lower_right { lower[1] } else { lower[0] };
                let below = exceeds(low, high);
                *output = if below { low } else { high };
                *chosen =
                    place + if below { width as u32 + u32::from(lower_right) } else { u32::from(right) };
            }
        }
    }

    fn squares_or_sums<T: Number>(&self, map: &[T], output: &mut [T]) {
        let (width, share) = (self.input.columns, T::ONE / T::of(self.window.area() as f64));
        self.places(|index, rows, columns| {
            let seen = rows.flat_map(|row| &map[row * width + columns.start..row * width + columns.end]);
            output[index] = match self.kind {
                Pool::L2 => seen.map(|value| *value * *value).sum::<T>().square_root(),
                _ => seen.copied().sum::<T>() * share,
            };
        });
    }

    /// The input errors, as sums over windows that do not depend on which rank has which window.
    fn errors_exactly<T: Number>(
        &self,
        pass: &Pass<'_, T>,
        inputs: &[T],
        outputs: &[T],
        error: &[T],
        input_error: &mut [T],
    ) -> Result<()> {
        let (area, output_area) = (self.input.area(), self.output.area());
        let share = T::ONE / T::of(self.window.area() as f64);
        // The contributions of an output error are, up to rounding, no larger than the error itself.
        let mut sums = ExactSums::new(pass, pass.batch * self.input.size(), [largest(error), 2.0])?;
        for map in 0..pass.batch * self.input.maps {
            let (at, first) = (map * area, map * output_area);
            self.places(|index, rows, columns| {
                let index = first + index;
                let scale = match self.kind {
                    Pool::Max => return sums.add(at + self.chosen[index] as usize, error[index].double()),
                    Pool::L2 if outputs[index] > T::ZERO => error[index] / outputs[index],
                    Pool::L2 => error[index],
                    Pool::Average => error[index] * share,
                };
                for row in rows {
                    let row = at + row * self.input.columns;
                    let seen = row + columns.start..row + columns.end;
                    for (place, input) in seen.clone().zip(&inputs[seen]) {
                        let factor = if self.kind == Pool::L2 { *input } else { T::ONE };
                        sums.add(place, (scale * factor).double());
                    }
                }
            });
        }
        pass.round_input_error(sums, input_error)
    }

    /// The input error of one map, for average and L2 pooling.
    fn spread<T: Number>(&self, map: &[T], outputs: &[T], error: &[T], result: &mut [T]) {
        let (width, share) = (self.input.columns, T::ONE / T::of(self.window.area() as f64));
        self.places(|index, rows, columns| {
            let scale = match self.kind {
                // If all elements of a window are zero, so is the numerator, and any divisor will do.
                Pool::L2 if outputs[index] > T::ZERO => error[index] / outputs[index],
                Pool::L2 => error[index],
                _ => error[index] * share,
            };
            for row in rows {
                let part = row * width + columns.start..row * width + columns.end;
                let (seen, result) = (&map[part.clone()], &mut result[part]);
                match self.kind {
                    Pool::L2 => result.iter_mut().zip(seen).for_each(|(result, x)| *result += scale * *x),
                    _ => result.iter_mut().for_each(|result| *result += scale),
                }
            }
        });
    }
}

impl<T: Number> Layer<T> for Pooling {
    fn info(&self) -> LayerInfo<'_> {
        LayerInfo {
            name: &self.name,
            input: self.input,
            output: self.output,
            receptive_field: ReceptiveField::Window(self.window),
        }
    }

    fn fprop(&mut self, pass: &Pass<'_, T>, inputs: &[T], outputs: &mut [T]) -> Result<()> {
        let (area, output_area) = (self.input.area(), self.output.area());
        if self.kind != Pool::Max {
            let layer = &*self;
            threads::samples(pass.threads, outputs, self.output.size(), |first, outputs| {
                let inputs = inputs[first * self.input.size()..].chunks(area);
                for (map, output) in inputs.zip(outputs.chunks_mut(output_area)) {
                    layer.squares_or_sums(map, output);
                }
            });
            return Ok(());
        }
        let mut chosen = std::mem::take(&mut self.chosen);
        chosen.resize(outputs.len(), 0);
        let layer = &*self;
        let maps =
            inputs.chunks(area).zip(outputs.chunks_mut(output_area)).zip(chosen.chunks_mut(output_area));
        maps.for_each(|((map, output), chosen)| layer.largest(map, output, chosen));
        self.chosen = chosen;
        Ok(())
    }

    fn bprop(
        &mut self,
        pass: &Pass<'_, T>,
        inputs: &[T],
        outputs: &[T],
        error: &[T],
        input_error: Option<&mut [T]>,
    ) -> Result<()> {
        let Some(input_error) = input_error else { return Ok(()) };
        let (area, output_area, maps) = (self.input.area(), self.output.area(), self.input.maps);
        if pass.exact && overlaps(self.window) {
            return self.errors_exactly(pass, inputs, outputs, error, input_error);
        }
        let mut padded = Vec::new();
        let errors = match pass.halo {
            Some(_) => {
                padded.resize(pass.batch * self.input.size(), T::ZERO);
                &mut padded[..]
            }
            None => &mut *input_error,
        };
        let layer = &*self;
        threads::samples(pass.threads, errors, self.input.size(), |first, errors| {
            for (map, result) in errors.chunks_mut(area).enumerate() {
                let map = first * maps + map;
                let part = map * output_area..(map + 1) * output_area;
                let error = &error[part.clone()];
                result.fill(T::ZERO);
                match layer.kind {
                    Pool::Max => {
                        let chosen = layer.chosen[part].iter().zip(error);
                        chosen.for_each(|(&place, error)| result[place as usize] += *error);
                    }
                    _ => layer.spread(&inputs[map * area..][..area], &outputs[part], error, result),
                }
            }
        });
        // An error that crosses a border is the only contribution to its position: windows do not overlap.
        match pass.halo {
            Some(halo) => halo.adjoint(pass.batch, &padded, input_error),
            None => Ok(()),
        }
    }
}
