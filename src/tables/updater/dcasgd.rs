//! `dcasgd`, delay-compensated gradient descent: g = δ/η, w −= η·(g + λ·g²·(w − b)), b = w after the update.
//!
//! A gradient was computed from weights that other workers have changed since; λ·g² approximates the second derivative, which
//! extrapolates it to the current weights. b is the value of w that this worker saw last. Zheng and others, "Asynchronous
//! stochastic gradient descent with delay compensation", 2017 (arXiv 1609.08326). The paper records b when the worker reads; here
//! it is recorded when the worker adds, because a table does not track reads. δ is a step of learning rate η.
//!
//! State starts at zero, and zero must mean "this worker has not added yet": then there is no delay to compensate, and the update
//! is that of `sgd`. So the plane holds +0 for no backup, and −0 for the backup of a weight that is zero; the two are equal in
//! every sum and difference.

use super::setting::{Setting, setting, settings};
use super::{UpdateContext, Updater, planes};
use crate::memory::each::update_each;
use crate::memory::{Real, TableElement};

pub(super) struct Dcasgd;

const LEARNING_RATE: Setting = setting!(lr = 0.01, Positive);
const LAMBDA: Setting = setting!(lambda = 0.1, NotNegative);

impl<T: TableElement<State: Real>> Updater<T> for Dcasgd {
    fn name(&self) -> &str {
        "dcasgd"
    }

    fn worker_planes(&self) -> usize {
        1
    }

    settings!(&[LEARNING_RATE, LAMBDA]);

    fn update(&self, values: &mut [T], state: &mut [&mut [T::State]], delta: &[T], context: &UpdateContext) {
        // η·λ·g² is λ/η·δ²: without a delay, the update is exactly δ.
        let factor = T::State::from_f64(LAMBDA.as_f64(context) / LEARNING_RATE.as_f64(context));
        update_each(values, planes(state), delta, |value, [backup], delta| {
            let missed = value - from_backup(backup, value);
            let value = T::narrow(value - (delta + factor * (delta * delta) * missed)).widen();
            (value, [to_backup(value)])
        });
    }
}

/// The weight that a worker saw last; `value` if it has seen none.
#[inline(always)]
pub(super) fn from_backup<R: Real>(backup: R, value: R) -> R {
    if backup == R::ZERO && R::ONE.with_sign_of(backup) > R::ZERO { value } else { backup }
}

/// Encodes a weight so that [`from_backup`] can distinguish it from no backup. It must be the stored weight: rounded to the
/// table's type.
#[inline(always)]
pub(super) fn to_backup<R: Real>(value: R) -> R {
    if value == R::ZERO { -R::ZERO } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_of_zero_differs_from_none() {
        assert_eq!(from_backup(0.0, 5.0), 5.0);
        for value in [0.0, -0.0, 1.5, -2.0, f32::MIN_POSITIVE, f32::INFINITY] {
            assert_eq!(from_backup(to_backup(value), 5.0), value);
        }
        assert!(from_backup(to_backup(f64::NAN), 5.0).is_nan());
    }
}
