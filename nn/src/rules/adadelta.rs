//! AdaDelta: M. Zeiler, "ADADELTA: an adaptive learning rate method", 2012.

use crate::number::Number;

pub(super) fn update<T: Number>(
    weights: &mut [T],
    gradient: &[T],
    (squares, steps): (&mut [T], &mut [T]),
    rate: f64,
    rho: f64,
    epsilon: f64,
) {
    let (rate, kept, fresh, epsilon) = (T::of(rate), T::of(rho), T::of(1.0 - rho), T::of(epsilon));
    for (((weight, gradient), square), step_square) in
        weights.iter_mut().zip(gradient).zip(squares).zip(steps)
    {
        *square = kept * *square + fresh * *gradient * *gradient;
        let step = ((*step_square + epsilon) / (*square + epsilon)).square_root() * *gradient;
        *step_square = kept * *step_square + fresh * step * step;
        *weight -= rate * step;
    }
}
