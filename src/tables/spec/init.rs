//! Initial values of a table. Random values depend only on the seed and the element's index, not on the rank that holds it.

use half::{bf16, f16};

use crate::error::{Error, Result};
use crate::memory::DType;

/// The initial values of a table.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Init {
    /// All zero.
    #[default]
    Zero,
    /// All equal.
    Constant(f64),
    /// All equal to this integer: for int64, where [`Init::Constant`] is exact only up to 2^53.
    Whole(i64),
    /// Uniformly distributed between two bounds.
    Uniform {
        /// The lower bound.
        low: f64,
        /// The upper bound, exclusive.
        high: f64,
        /// Equal seeds give equal tables.
        seed: u64,
    },
    /// Normally distributed.
    Normal {
        /// The mean.
        mean: f64,
        /// The standard deviation.
        deviation: f64,
        /// Equal seeds give equal tables.
        seed: u64,
    },
}

impl Init {
    /// The value of an element, by its index in the table.
    fn value(&self, index: u64) -> f64 {
        match *self {
            Init::Zero => 0.0,
            Init::Constant(value) => value,
            Init::Whole(value) => value as f64,
            Init::Uniform { low, high, seed } => low + (high - low) * uniform(seed, 2 * index),
            Init::Normal { mean, deviation, seed } => {
                // Box and Muller, 1958; the logarithm's argument is never zero.
                let (radius, angle) = (1.0 - uniform(seed, 2 * index), uniform(seed, 2 * index + 1));
                mean + deviation * (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
            }
        }
    }

    /// Rejects a value that an integer table cannot represent.
    pub(crate) fn validate(&self, dtype: DType) -> Result<()> {
        let (least, most) = match dtype {
            DType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
            DType::I64 => (i64::MIN, i64::MAX),
            _ => return Ok(()),
        };
        let fits = match *self {
            // The largest 64-bit integer is not representable as f64; the next larger number is.
            Init::Constant(value) => {
                value.fract() == 0.0 && value >= least as f64 && value < most as f64 + 1.0
            }
            Init::Whole(value) => (least..=most).contains(&value),
            _ => true,
        };
        let expected = format!("a first value from {least} to {most}, the whole numbers of {dtype}");
        let received = || match self {
            Init::Whole(value) => value.to_string(),
            other => format!("{other:?}"),
        };
        if fits { Ok(()) } else { Err(Error::usage("table", expected, received(), "choose another type")) }
    }

    /// Fills elements of a table that begin at index `first`.
    pub(crate) fn fill(&self, dtype: DType, first: usize, out: &mut [u8]) {
        for (index, element) in out.chunks_exact_mut(dtype.size()).enumerate() {
            let value = self.value((first + index) as u64);
            match dtype {
                DType::F32 => element.copy_from_slice(&(value as f32).to_ne_bytes()),
                DType::F64 => element.copy_from_slice(&value.to_ne_bytes()),
                DType::F16 => element.copy_from_slice(&f16::from_f64(value).to_ne_bytes()),
                DType::BF16 => element.copy_from_slice(&bf16::from_f64(value).to_ne_bytes()),
                DType::I32 => element.copy_from_slice(&(value as i32).to_ne_bytes()),
                DType::I64 => {
                    let exact = if let Init::Whole(whole) = *self { whole } else { value as i64 };
                    element.copy_from_slice(&exact.to_ne_bytes());
                }
                DType::I8 => element[0] = value as i8 as u8,
                DType::U8 => element[0] = value as u8,
                _ => unreachable!("a table of {dtype} was rejected"),
            }
        }
    }
}

/// A number in [0, 1) that depends on seed and index: one step of SplitMix64 (Steele, Lea and Flood, 2014).
fn uniform(seed: u64, index: u64) -> f64 {
    let mixed = mix(seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    (mixed >> 11) as f64 / (1u64 << 53) as f64
}

/// Mixes all bits of a number: the finalizer of SplitMix64, a bijection.
#[inline]
pub(crate) fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_values_have_the_right_moments_and_do_not_depend_on_the_cut() {
        let moments = |init: Init| {
            let mut bytes = vec![0; 8 * 40_000];
            init.fill(DType::F64, 0, &mut bytes);
            let mut tail = vec![0; 8 * 10_000];
            init.fill(DType::F64, 30_000, &mut tail);
            assert_eq!(bytes[8 * 30_000..], tail);
            let values: Vec<f64> = bytes.chunks_exact(8).map(bytemuck::pod_read_unaligned).collect();
            let mean = values.iter().sum::<f64>() / 40_000.0;
            (mean, values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 40_000.0)
        };
        let (mean, variance) = moments(Init::Uniform { low: -1.0, high: 3.0, seed: 5 });
        assert!((mean - 1.0).abs() < 0.03 && (variance - 16.0 / 12.0).abs() < 0.03, "{mean} {variance}");
        let (mean, variance) = moments(Init::Normal { mean: 2.0, deviation: 0.5, seed: 7 });
        assert!((mean - 2.0).abs() < 0.02 && (variance - 0.25).abs() < 0.01, "{mean} {variance}");
    }

    #[test]
    fn whole_numbers_are_exact_or_rejected() {
        let (large, mut bytes) = ((1 << 53) + 1, [0; 8]);
        Init::Whole(large).fill(DType::I64, 0, &mut bytes);
        assert_eq!(i64::from_ne_bytes(bytes), large);
        for fits in [Init::Whole(i64::MIN), Init::Whole(i64::MAX), Init::Constant(-(2f64.powi(63)))] {
            fits.validate(DType::I64).unwrap();
            fits.validate(DType::F32).unwrap();
            let error = fits.validate(DType::I32).unwrap_err().to_string();
            assert!(error.contains("from -2147483648 to 2147483647"), "{error}");
        }
        for wrong in [0.5, f64::NAN, f64::INFINITY, 2f64.powi(63)] {
            assert!(Init::Constant(wrong).validate(DType::I64).is_err(), "{wrong}");
        }
        Init::Constant(f64::from(i32::MAX)).validate(DType::I32).unwrap();
        assert!(Init::Constant(f64::from(i32::MAX) + 1.0).validate(DType::I32).is_err());
    }
}
