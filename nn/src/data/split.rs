//! Samples in their stored representation, and their conversion to batches for a network.

use std::ops::Range;

use unisono::Result;

use super::Stored;
use crate::number::Number;
use crate::random::RandomStream;

/// The inputs of samples.
#[derive(Debug, Clone, PartialEq)]
pub enum Inputs {
    /// Bytes, each divided by 255.
    Bytes(Vec<u8>),
    /// Single precision.
    Singles(Vec<f32>),
    /// Double precision.
    Doubles(Vec<f64>),
    /// Stored in files, and read when a batch needs them.
    Stored(Stored),
}

/// The targets of samples.
#[derive(Debug, Clone, PartialEq)]
pub enum Targets {
    /// One class per sample, encoded one-hot.
    Classes(Vec<u32>),
    /// Numbers for each sample.
    Values(Vec<f64>),
    /// Numbers for each sample, stored in files.
    Stored(Stored),
    /// No targets: such samples serve autoencoders and predictions.
    Unknown,
}

/// Samples with their targets.
#[derive(Debug, Clone, PartialEq)]
pub struct Split {
    /// The number of samples.
    pub count: usize,
    /// The inputs, consecutively.
    pub inputs: Inputs,
    /// The targets, consecutively.
    pub targets: Targets,
}

impl Split {
    /// No samples.
    pub fn empty() -> Split {
        Split { count: 0, inputs: Inputs::Bytes(Vec::new()), targets: Targets::Classes(Vec::new()) }
    }

    /// Fills a batch with the samples of these indices.
    pub fn fill<T: Number>(&self, chosen: &[usize], inputs: &mut [T], targets: &mut [T]) -> Result<()> {
        let (width, height) = (inputs.len() / chosen.len().max(1), targets.len() / chosen.len().max(1));
        let each = |inputs: &mut [T], convert: &dyn Fn(usize, &mut [T])| {
            for (sample, input) in chosen.iter().zip(inputs.chunks_mut(width.max(1))) {
                convert(sample * width, input);
            }
        };
        match &self.inputs {
            Inputs::Bytes(bytes) => {
                let levels: Vec<T> = (0..256).map(|byte| T::of(f64::from(byte) / 255.0)).collect();
                each(inputs, &|at, input| copy(&bytes[at..], input, |byte| levels[usize::from(byte)]));
            }
            Inputs::Singles(values) => {
                each(inputs, &|at, input| copy(&values[at..], input, |value| T::of(f64::from(value))));
            }
            Inputs::Doubles(values) => each(inputs, &|at, input| copy(&values[at..], input, T::of)),
            Inputs::Stored(stored) => fetch(stored, chosen, inputs)?,
        }
        if let Targets::Stored(stored) = &self.targets {
            return fetch(stored, chosen, targets);
        }
        for (sample, target) in chosen.iter().zip(targets.chunks_mut(height.max(1))) {
            match &self.targets {
                Targets::Classes(classes) => {
                    target.fill(T::ZERO);
                    target[classes[*sample] as usize] = T::ONE;
                }
                Targets::Values(values) => copy(&values[sample * height..], target, T::of),
                Targets::Stored(_) | Targets::Unknown => target.fill(T::ZERO),
            }
        }
        Ok(())
    }

    /// Loads into memory what cannot be read in parts, such as compressed files, restricted to the samples of this split.
    /// Callers must call this before reading samples.
    pub(super) fn keep(&mut self) -> Result<()> {
        if let Inputs::Stored(stored) = &self.inputs
            && let Some(inputs) = stored.keep()?
        {
            self.inputs = inputs;
        }
        Ok(())
    }

    /// Checks a range of samples that are stored in files for damage.
    pub(super) fn check(&self, samples: Range<usize>) -> Result<()> {
        if let Inputs::Stored(stored) = &self.inputs {
            stored.check(samples.clone())?;
        }
        if let Targets::Stored(stored) = &self.targets {
            stored.check(samples)?;
        }
        Ok(())
    }

    /// The class of a sample, if the targets are classes.
    pub fn class(&self, sample: usize) -> Option<u32> {
        match &self.targets {
            Targets::Classes(classes) => Some(classes[sample]),
            Targets::Values(_) | Targets::Stored(_) | Targets::Unknown => None,
        }
    }

    /// The first sample with a NaN or an infinity, if any.
    pub(super) fn first_non_finite(&self) -> Option<usize> {
        let inputs = match &self.inputs {
            Inputs::Bytes(_) | Inputs::Stored(_) => None,
            Inputs::Singles(values) => first(values, self.count, |value| !value.is_finite()),
            Inputs::Doubles(values) => first(values, self.count, |value| !value.is_finite()),
        };
        let targets = match &self.targets {
            Targets::Values(values) => first(values, self.count, |value| !value.is_finite()),
            Targets::Classes(_) | Targets::Stored(_) | Targets::Unknown => None,
        };
        inputs.into_iter().chain(targets).min()
    }

    /// A random subset of the samples, in their original order.
    #[must_use]
    pub fn sample(&self, percent: f64, stream: RandomStream) -> Split {
        let keep = ((self.count as f64 * percent / 100.0).round() as usize).min(self.count);
        let mut chosen = stream.permutation(self.count);
        chosen.truncate(keep);
        chosen.sort_unstable();
        self.choose(&chosen)
    }

    /// The elements of each sample at these indices.
    #[must_use]
    pub fn part(&self, places: &[usize]) -> Split {
        fn pick<V: Copy>(values: &[V], count: usize, places: &[usize]) -> Vec<V> {
            let samples = values.chunks((values.len() / count.max(1)).max(1));
            samples.flat_map(|sample| places.iter().map(|place| sample[*place])).collect()
        }
        let inputs = match &self.inputs {
            Inputs::Bytes(values) => Inputs::Bytes(pick(values, self.count, places)),
            Inputs::Singles(values) => Inputs::Singles(pick(values, self.count, places)),
            Inputs::Doubles(values) => Inputs::Doubles(pick(values, self.count, places)),
            Inputs::Stored(stored) => Inputs::Stored(stored.part(places)),
        };
        Split { count: self.count, inputs, targets: self.targets.clone() }
    }

    /// The samples of these indices.
    #[must_use]
    pub fn choose(&self, chosen: &[usize]) -> Split {
        fn pick<V: Copy>(values: &[V], count: usize, chosen: &[usize]) -> Vec<V> {
            let width = values.len() / count.max(1);
            chosen.iter().flat_map(|sample| &values[sample * width..][..width]).copied().collect()
        }
        let inputs = match &self.inputs {
            Inputs::Bytes(values) => Inputs::Bytes(pick(values, self.count, chosen)),
            Inputs::Singles(values) => Inputs::Singles(pick(values, self.count, chosen)),
            Inputs::Doubles(values) => Inputs::Doubles(pick(values, self.count, chosen)),
            Inputs::Stored(stored) => Inputs::Stored(stored.choose(chosen)),
        };
        let targets = match &self.targets {
            Targets::Classes(classes) => Targets::Classes(pick(classes, self.count, chosen)),
            Targets::Values(values) => Targets::Values(pick(values, self.count, chosen)),
            Targets::Stored(stored) => Targets::Stored(stored.choose(chosen)),
            Targets::Unknown => Targets::Unknown,
        };
        Split { count: chosen.len(), inputs, targets }
    }
}

/// Reads these samples into a batch, consecutively.
fn fetch<T: Number>(stored: &Stored, chosen: &[usize], batch: &mut [T]) -> Result<()> {
    let width = batch.len() / chosen.len().max(1);
    let mut values = vec![0.0; width];
    for (sample, numbers) in chosen.iter().zip(batch.chunks_mut(width.max(1))) {
        stored.read(*sample, &mut values)?;
        copy(&values, numbers, T::of);
    }
    Ok(())
}

/// The first sample with an element that satisfies the predicate.
fn first<V: Copy>(values: &[V], count: usize, is: impl Fn(V) -> bool) -> Option<usize> {
    let width = (values.len() / count.max(1)).max(1);
    values.iter().position(|value| is(*value)).map(|at| at / width)
}

fn copy<V: Copy, T>(from: &[V], to: &mut [T], convert: impl Fn(V) -> T) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = convert(*from));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_have_the_chosen_samples() {
        let split = Split {
            count: 3,
            inputs: Inputs::Bytes(vec![0, 255, 51, 102, 255, 0]),
            targets: Targets::Classes(vec![1, 0, 2]),
        };
        let (mut inputs, mut targets) = (vec![9.0_f32; 4], vec![9.0; 6]);
        split.fill(&[2, 1], &mut inputs, &mut targets).expect("all is in memory");
        assert_eq!(inputs, [1.0, 0.0, 0.2, 0.4]);
        assert_eq!(targets, [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
        assert_eq!(split.choose(&[2, 1]).class(0), Some(2));
        let half = split.sample(34.0, RandomStream::new(0, "sample"));
        assert_eq!(half.count, 1);
    }
}
