//! Dropout: zeroes values at random during training.

use unisono::Result;

use super::{Layer, LayerInfo, Pass, ReceptiveField};
use crate::number::Number;
use crate::random::RandomStream;
use crate::shape::Shape;

/// Keeps each value with probability `keep` and divides it by `keep`, or sets it to zero; outside training it is the
/// identity.
///
/// The mask depends only on the seed, the step and the index in the global batch.
#[derive(Debug)]
pub struct Dropout {
    name: String,
    shape: Shape,
    keep: f64,
    stream: RandomStream,
    /// For a part of a sample, its indices within the full sample, and the size of the full sample.
    places: Option<(Vec<usize>, usize)>,
}

impl Dropout {
    /// Keeps values with this probability.
    pub fn new(name: impl Into<String>, shape: Shape, keep: f64, seed: u64) -> Dropout {
        let name = name.into();
        let stream = RandomStream::new(seed, &format!("{name}/dropout"));
        Dropout { name, shape, keep, stream, places: None }
    }

    /// Applies the mask of the full sample to a part of it.
    #[must_use]
    pub fn at(mut self, places: Vec<usize>, whole: usize) -> Dropout {
        self.places = Some((places, whole));
        self
    }

    fn apply<T: Number>(&self, pass: &Pass<'_, T>, from: &[T], to: &mut [T]) {
        if !pass.training {
            return to.copy_from_slice(from);
        }
        let (stream, scale) = (self.stream.branch(pass.step), T::of(1.0 / self.keep));
        let size = self.shape.size();
        for (index, (from, to)) in from.iter().zip(to).enumerate() {
            let (sample, place) = (pass.first + index / size, index % size);
            let index = match &self.places {
                Some((places, whole)) => sample * whole + places[place],
                None => sample * size + place,
            };
            *to = if stream.uniform(index as u64) < self.keep { *from * scale } else { T::ZERO };
        }
    }
}

impl<T: Number> Layer<T> for Dropout {
    fn info(&self) -> LayerInfo<'_> {
        LayerInfo {
            name: &self.name,
            input: self.shape,
            output: self.shape,
            receptive_field: ReceptiveField::Point,
        }
    }

    fn fprop(&mut self, pass: &Pass<'_, T>, inputs: &[T], outputs: &mut [T]) -> Result<()> {
        self.apply(pass, inputs, outputs);
        Ok(())
    }

    fn bprop(
        &mut self,
        pass: &Pass<'_, T>,
        _inputs: &[T],
        _outputs: &[T],
        error: &[T],
        input_error: Option<&mut [T]>,
    ) -> Result<()> {
        if let Some(input_error) = input_error {
            self.apply(pass, error, input_error);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kept_share_is_right_and_prediction_keeps_all() {
        let mut layer = Dropout::new("drop", Shape::flat(1000), 0.8, 3);
        let (inputs, mut outputs) = (vec![1.0_f32; 4000], vec![0.0; 4000]);
        layer.fprop(&Pass::alone(4, true, 5), &inputs, &mut outputs).expect("it computes");
        let kept = outputs.iter().filter(|value| **value == 1.25).count();
        let dropped = outputs.iter().filter(|value| **value == 0.0).count();
        assert!(kept + dropped == 4000 && (3100..3300).contains(&kept), "{kept}");
        let first = outputs.clone();
        layer.fprop(&Pass::alone(4, true, 6), &inputs, &mut outputs).expect("it computes");
        assert_ne!(outputs, first, "each step draws new values");
        layer.fprop(&Pass::alone(4, false, 5), &inputs, &mut outputs).expect("it computes");
        assert_eq!(outputs, inputs);
    }
}
