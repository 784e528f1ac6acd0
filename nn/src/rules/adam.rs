//! Adam: D. Kingma and J. Ba, "Adam: a method for stochastic optimization", 2014.

use crate::number::Number;

/// The bias correction of the rate at a step (the first is 1), needed because the averages start at zero.
pub(super) fn correction(beta1: f64, beta2: f64, step: u64) -> f64 {
    let power = |base: f64| base.powf(step as f64);
    (1.0 - power(beta2)).sqrt() / (1.0 - power(beta1))
}

pub(super) fn update<T: Number>(
    weights: &mut [T],
    gradient: &[T],
    (averages, squares): (&mut [T], &mut [T]),
    rate: f64,
    (beta1, beta2, epsilon): (f64, f64, f64),
) {
    let (kept, fresh) = (T::of(beta1), T::of(1.0 - beta1));
    let (kept_square, fresh_square) = (T::of(beta2), T::of(1.0 - beta2));
    let (rate, epsilon) = (T::of(rate), T::of(epsilon));
    for (((weight, gradient), average), square) in weights.iter_mut().zip(gradient).zip(averages).zip(squares)
    {
        *average = kept * *average + fresh * *gradient;
        *square = kept_square * *square + fresh_square * *gradient * *gradient;
        let divisor = square.square_root() + epsilon;
        if divisor > T::ZERO {
            *weight -= rate * *average / divisor;
        }
    }
}
