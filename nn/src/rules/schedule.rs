//! Schedules of learning rates and momentum over the epochs.

/// A value per epoch, counted from 0.
///
/// ```
/// use unisono_nn::Schedule;
/// let halved = Schedule::Step { initial: 0.1, ratio: 0.5, epochs: 2 };
/// assert_eq!([0, 1, 2, 5].map(|epoch| halved.at(epoch)), [0.1, 0.1, 0.05, 0.025]);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Schedule {
    /// Constant.
    Constant(f64),
    /// Multiplied by `ratio` after every `epochs` epochs.
    Step {
        /// The first value.
        initial: f64,
        /// The factor.
        ratio: f64,
        /// The number of epochs between two steps.
        epochs: usize,
    },
    /// `initial` up to epoch `start`, `saturated` from epoch `saturate` on, linear in between.
    Linear {
        /// The first value.
        initial: f64,
        /// The last epoch with the first value.
        start: usize,
        /// The first epoch with the last value.
        saturate: usize,
        /// The last value.
        saturated: f64,
    },
}

impl Schedule {
    /// The value in an epoch.
    pub fn at(&self, epoch: usize) -> f64 {
        match *self {
            Schedule::Constant(value) => value,
            Schedule::Step { initial, ratio, epochs } => {
                initial * ratio.powi((epoch / epochs.max(1)).min(i32::MAX as usize) as i32)
            }
            Schedule::Linear { initial, start, .. } if epoch <= start => initial,
            Schedule::Linear { saturate, saturated, .. } if epoch >= saturate => saturated,
            Schedule::Linear { initial, start, saturate, saturated } => {
                initial + (saturated - initial) * (epoch - start) as f64 / (saturate - start) as f64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_from_its_first_to_its_last_value() {
        let line = Schedule::Linear { initial: 0.5, start: 1, saturate: 5, saturated: 0.9 };
        for (epoch, expected) in [(0, 0.5), (1, 0.5), (2, 0.6), (3, 0.7), (5, 0.9), (100, 0.9)] {
            assert!((line.at(epoch) - expected).abs() < 1e-12, "{epoch}: {}", line.at(epoch));
        }
        let jump = Schedule::Linear { initial: 0.5, start: 3, saturate: 2, saturated: 0.9 };
        assert_eq!([jump.at(3), jump.at(4)], [0.5, 0.9]);
    }
}
