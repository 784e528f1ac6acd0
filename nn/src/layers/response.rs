//! Cross-map response normalisation: neighbouring maps inhibit each other at each position.

use unisono::Result;

use super::{Layer, LayerInfo, Pass, ReceptiveField};
use crate::number::Number;
use crate::shape::Shape;
use crate::threads;

/// y = x / (1 + α·Σx²)^β, with the sum over `size` maps around a map at the same position: Krizhevsky and others 2012.
#[derive(Debug)]
pub struct CrossMapResponse {
    name: String,
    shape: Shape,
    size: usize,
    alpha: f64,
    beta: f64,
}

impl CrossMapResponse {
    /// Normalises over this many maps.
    pub fn new(
        name: impl Into<String>,
        shape: Shape,
        size: usize,
        alpha: f64,
        beta: f64,
    ) -> CrossMapResponse {
        CrossMapResponse { name: name.into(), shape, size, alpha, beta }
    }

    /// The neighbourhood of a map. If `size` is even, it has one more map after the map than before it.
    fn around(&self, map: usize) -> std::ops::Range<usize> {
        map.saturating_sub((self.size - 1) / 2)..(map + self.size / 2 + 1).min(self.shape.maps)
    }

    /// 1 + α·Σx² for each element of a sample.
    fn bases<T: Number>(&self, sample: &[T], bases: &mut [T]) {
        let area = self.shape.area();
        bases.fill(T::ONE);
        let alpha = T::of(self.alpha);
        for (map, base) in bases.chunks_mut(area).enumerate() {
            for other in self.around(map) {
                let seen = &sample[other * area..][..area];
                base.iter_mut().zip(seen).for_each(|(base, x)| *base += alpha * *x * *x);
            }
        }
    }

    fn power<T: Number>(base: T, exponent: f64) -> T {
        T::of(base.double().powf(exponent))
    }
}

impl<T: Number> Layer<T> for CrossMapResponse {
    fn info(&self) -> LayerInfo<'_> {
        LayerInfo {
            name: &self.name,
            input: self.shape,
            output: self.shape,
            receptive_field: ReceptiveField::Point,
        }
    }

    fn fprop(&mut self, pass: &Pass<'_, T>, inputs: &[T], outputs: &mut [T]) -> Result<()> {
        let (layer, size) = (&*self, self.shape.size());
        threads::samples(pass.threads, outputs, size, |first, outputs| {
            let samples = inputs[first * size..].chunks(size);
            for (sample, output) in samples.zip(outputs.chunks_mut(size)) {
                layer.bases(sample, output);
                for (output, x) in output.iter_mut().zip(sample) {
                    *output = *x * Self::power(*output, -layer.beta);
                }
            }
        });
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
        let (layer, size, area) = (&*self, self.shape.size(), self.shape.area());
        let twice = T::of(2.0 * self.alpha * self.beta);
        threads::samples(pass.threads, input_error, size, |first, input_error| {
            let mut bases = vec![T::ZERO; size];
            for (sample, result) in input_error.chunks_mut(size).enumerate() {
                let part = (first + sample) * size..(first + sample + 1) * size;
                let (inputs, outputs, error) = (&inputs[part.clone()], &outputs[part.clone()], &error[part]);
                layer.bases(inputs, &mut bases);
                for (index, result) in result.iter_mut().enumerate() {
                    *result = error[index] * Self::power(bases[index], -layer.beta);
                }
                // x loses 2αβ·x·δₘ·yₘ / baseₘ for each map m whose neighbourhood contains it.
                for map in 0..layer.shape.maps {
                    for other in layer.around(map) {
                        for place in 0..area {
                            let (at, from) = (other * area + place, map * area + place);
                            result[at] -= twice * inputs[at] * error[from] * outputs[from] / bases[from];
                        }
                    }
                }
            }
        });
        Ok(())
    }
}
