//! AdaGrad: J. Duchi and others, "Adaptive subgradient methods", 2011.

use crate::number::Number;

pub(super) fn update<T: Number>(
    weights: &mut [T],
    gradient: &[T],
    squares: &mut [T],
    rate: f64,
    epsilon: f64,
) {
    let (rate, epsilon) = (T::of(rate), T::of(epsilon));
    for ((weight, gradient), square) in weights.iter_mut().zip(gradient).zip(squares) {
        *square += *gradient * *gradient;
        let divisor = square.square_root() + epsilon;
        if divisor > T::ZERO {
            *weight -= rate * *gradient / divisor;
        }
    }
}
