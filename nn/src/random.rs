//! Counter-based random numbers: each depends only on its seed, its stream and its index.
//!
//! A rank that keeps only part of a layer's weights, or a run that resumes in the middle, gets the same numbers as an
//! uninterrupted single process: there is no generator state to carry along.

/// An infinite sequence of random numbers with random access by index.
///
/// ```
/// use unisono_nn::RandomStream;
/// let weights = RandomStream::new(1, "first/weights");
/// let part: Vec<f64> = (10..20).map(|index| weights.uniform(index)).collect();
/// let all: Vec<f64> = (0..100).map(|index| weights.uniform(index)).collect();
/// assert_eq!(part, all[10..20]);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct RandomStream(u64);

/// Stafford's variant 13 of the SplitMix64 finaliser: every input bit changes half of the output bits.
pub(crate) fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl RandomStream {
    /// The stream with this name for a seed.
    pub fn new(seed: u64, name: &str) -> RandomStream {
        let start = mix(seed.wrapping_add(GOLDEN));
        RandomStream(
            name.bytes().fold(start, |state, byte| mix(state ^ u64::from(byte)).wrapping_add(GOLDEN)),
        )
    }

    /// An independent stream for each number, such as an epoch or a step.
    pub fn branch(self, number: u64) -> RandomStream {
        RandomStream(mix(self.0 ^ mix(number.wrapping_mul(GOLDEN).wrapping_add(1))))
    }

    /// 64 random bits.
    pub fn bits(self, index: u64) -> u64 {
        mix(mix(self.0.wrapping_add(index.wrapping_mul(GOLDEN))) ^ self.0)
    }

    /// Uniformly distributed in [0, 1).
    pub fn uniform(self, index: u64) -> f64 {
        (self.bits(index) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Normally distributed with mean 0 and deviation 1, by the Box–Muller transform.
    pub fn normal(self, index: u64) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform(2 * index)).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform(2 * index + 1)).cos()
    }

    /// A random permutation of the numbers below `count`, by the Fisher–Yates shuffle.
    pub fn permutation(self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for last in (1..count).rev() {
            let other = (self.uniform(last as u64) * (last + 1) as f64) as usize;
            order.swap(last, other);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_deviations_are_right() {
        let stream = RandomStream::new(7, "test");
        let count = 20_000;
        let moments = |value: &dyn Fn(u64) -> f64| {
            let mean = (0..count).map(value).sum::<f64>() / count as f64;
            let square = (0..count).map(|index| (value(index) - mean).powi(2)).sum::<f64>() / count as f64;
            (mean, square)
        };
        let (mean, square) = moments(&|index| stream.uniform(index));
        assert!((mean - 0.5).abs() < 0.01 && (square - 1.0 / 12.0).abs() < 0.005, "{mean} {square}");
        let (mean, square) = moments(&|index| stream.normal(index));
        assert!(mean.abs() < 0.03 && (square - 1.0).abs() < 0.05, "{mean} {square}");
    }

    #[test]
    fn streams_differ_and_repeat() {
        let (one, other) = (RandomStream::new(0, "a"), RandomStream::new(0, "b"));
        assert_eq!(one.bits(5), RandomStream::new(0, "a").bits(5));
        assert_ne!(one.bits(5), other.bits(5));
        assert_ne!(one.bits(5), RandomStream::new(1, "a").bits(5));
        assert_ne!(one.branch(1).bits(0), one.branch(2).bits(0));
    }

    #[test]
    fn a_permutation_has_every_number_once() {
        let mut order = RandomStream::new(3, "order").permutation(100);
        assert_ne!(order[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        order.sort_unstable();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
        assert_eq!(RandomStream::new(3, "order").permutation(0), [0; 0]);
    }
}
