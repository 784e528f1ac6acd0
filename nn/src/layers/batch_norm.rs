//! Batch normalisation: normalises each map to mean 0 and deviation 1 over a batch, then applies a learned scale and shift.

use unisono::Result;

use super::{Layer, LayerInfo, Pass, ReceptiveField};
use crate::exact::{ExactSums, largest};
use crate::number::Number;
use crate::shape::Shape;
use crate::weight::Weight;

/// y = scale·(x − mean) / √(variance + ε) + shift, with statistics of each map over the batch and all positions: Ioffe and
/// Szegedy 2015.
///
/// Training uses the mean and variance of the batch; prediction uses running averages. In a distributed run the statistics
/// cover the global batch: all of them are reduced through [`super::Sums`].
#[derive(Debug)]
pub struct BatchNorm<T> {
    name: String,
    shape: Shape,
    scale: Weight<T>,
    shift: Weight<T>,
    kept: f64,
    epsilon: f64,
    running_mean: Vec<T>,
    running_variance: Vec<T>,
    mean: Vec<T>,
    inverse: Vec<T>,
    count: T,
}

impl<T: Number> BatchNorm<T> {
    /// Creates the layer from a scale and a shift per map; `kept` is the decay of the running averages per batch.
    pub fn new(
        name: impl Into<String>,
        shape: Shape,
        (scale, shift): (Weight<T>, Weight<T>),
        kept: f64,
        epsilon: f64,
    ) -> BatchNorm<T> {
        assert_eq!((scale.values.len(), shift.values.len()), (shape.maps, shape.maps));
        BatchNorm {
            name: name.into(),
            shape,
            scale,
            shift,
            kept,
            epsilon,
            running_mean: vec![T::ZERO; shape.maps],
            running_variance: vec![T::ONE; shape.maps],
            mean: vec![T::ZERO; shape.maps],
            inverse: vec![T::ONE; shape.maps],
            count: T::ONE,
        }
    }

    /// For each map, the sum of a function over the batch and all positions; the last element is the number of terms.
    fn sums(&self, pass: &Pass<'_, T>, length: usize, each: impl Fn(usize, usize) -> T) -> Vec<T> {
        let (maps, area) = (self.shape.maps, self.shape.area());
        let mut sums = vec![T::ZERO; maps + 1];
        for chunk in 0..length / area.max(1) {
            let map = chunk % maps;
            sums[map] += (chunk * area..(chunk + 1) * area).map(|index| each(map, index)).sum();
        }
        sums[maps] = T::of((pass.batch * area) as f64);
        sums
    }

    /// The same sums over all ranks.
    fn totals(&self, pass: &Pass<'_, T>, length: usize, each: impl Fn(usize, usize) -> T) -> Result<Vec<T>> {
        let (maps, area) = (self.shape.maps, self.shape.area().max(1));
        if !pass.exact {
            let mut sums = self.sums(pass, length, each);
            pass.sums.sum(&mut sums)?;
            return Ok(sums);
        }
        let terms: Vec<T> = (0..length).map(|index| each(index / area % maps, index)).collect();
        let mut sums = ExactSums::new(pass, maps, [largest(&terms), 1.0])?;
        terms.iter().enumerate().for_each(|(index, term)| sums.add(index / area % maps, term.double()));
        let (sums, count) = sums.all_reduce(pass.sums, (pass.batch * self.shape.area()) as f64)?;
        let mut totals = vec![T::of(count); maps + 1];
        sums.round(&mut totals[..maps]);
        Ok(totals)
    }

    fn learn_statistics(&mut self, pass: &Pass<'_, T>, inputs: &[T]) -> Result<()> {
        let maps = self.shape.maps;
        let sums = self.totals(pass, inputs.len(), |_, index| inputs[index])?;
        self.count = sums[maps];
        self.mean = sums[..maps].iter().map(|sum| *sum / self.count).collect();
        let squares = self.totals(pass, inputs.len(), |map, index| {
            let distance = inputs[index] - self.mean[map];
            distance * distance
        })?;
        let (kept, fresh, epsilon) = (T::of(self.kept), T::of(1.0 - self.kept), T::of(self.epsilon));
        for (map, square) in squares[..maps].iter().enumerate() {
            let variance = *square / self.count;
            self.inverse[map] = T::ONE / (variance + epsilon).square_root();
            self.running_mean[map] = kept * self.running_mean[map] + fresh * self.mean[map];
            self.running_variance[map] = kept * self.running_variance[map] + fresh * variance;
        }
        Ok(())
    }
}

impl<T: Number> Layer<T> for BatchNorm<T> {
    fn info(&self) -> LayerInfo<'_> {
        LayerInfo {
            name: &self.name,
            input: self.shape,
            output: self.shape,
            receptive_field: ReceptiveField::Point,
        }
    }

    fn fprop(&mut self, pass: &Pass<'_, T>, inputs: &[T], outputs: &mut [T]) -> Result<()> {
        if pass.training {
            self.learn_statistics(pass, inputs)?;
        } else {
            self.mean.clone_from(&self.running_mean);
            let epsilon = T::of(self.epsilon);
            let inverse = |variance: &T| T::ONE / (*variance + epsilon).square_root();
            self.inverse = self.running_variance.iter().map(inverse).collect();
        }
        let (maps, area) = (self.shape.maps, self.shape.area());
        for (chunk, (output, input)) in
            outputs.chunks_mut(area.max(1)).zip(inputs.chunks(area.max(1))).enumerate()
        {
            let map = chunk % maps;
            let slope = self.scale.values[map] * self.inverse[map];
            let offset = self.shift.values[map] - slope * self.mean[map];
            output.iter_mut().zip(input).for_each(|(output, input)| *output = slope * *input + offset);
        }
        Ok(())
    }

    fn bprop(
        &mut self,
        pass: &Pass<'_, T>,
        inputs: &[T],
        _outputs: &[T],
        error: &[T],
        input_error: Option<&mut [T]>,
    ) -> Result<()> {
        let (maps, area) = (self.shape.maps, self.shape.area());
        let (mean, inverse) = (self.mean.clone(), self.inverse.clone());
        let normal = |map: usize, index: usize| (inputs[index] - mean[map]) * inverse[map];
        let shift = |_: usize, index: usize| error[index];
        let scale = |map: usize, index: usize| error[index] * normal(map, index);
        let shifts = self.totals(pass, error.len(), shift)?;
        let scales = self.totals(pass, error.len(), scale)?;
        // Weight gradients are summed over ranks together with all others, so these remain local, unless they are exact.
        let own = |totals: &[T], each: &dyn Fn(usize, usize) -> T| match pass.exact {
            true => totals.to_vec(),
            false => self.sums(pass, error.len(), each),
        };
        let (own_shifts, own_scales) = (own(&shifts, &shift), own(&scales, &scale));
        self.shift.gradient.copy_from_slice(&own_shifts[..maps]);
        self.scale.gradient.copy_from_slice(&own_scales[..maps]);
        if let Some(input_error) = input_error {
            for (chunk, result) in input_error.chunks_mut(area.max(1)).enumerate() {
                let map = chunk % maps;
                let slope = self.scale.values[map] * self.inverse[map];
                for (place, result) in result.iter_mut().enumerate() {
                    let index = chunk * area + place;
                    // Outside training, the statistics are constants.
                    let mean = if pass.training {
                        (shifts[map] + normal(map, index) * scales[map]) / self.count
                    } else {
                        T::ZERO
                    };
                    *result = slope * (error[index] - mean);
                }
            }
        }
        Ok(())
    }

    fn weights(&mut self) -> Vec<&mut Weight<T>> {
        vec![&mut self.scale, &mut self.shift]
    }

    fn memory(&mut self) -> Vec<(&'static str, &mut Vec<T>)> {
        vec![("running_mean", &mut self.running_mean), ("running_variance", &mut self.running_variance)]
    }
}
