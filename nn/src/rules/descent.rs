//! Gradient descent: plain, with momentum, and with Nesterov momentum.

use crate::number::Number;

pub(super) fn plain<T: Number>(weights: &mut [T], gradient: &[T], rate: f64) {
    let rate = T::of(rate);
    weights.iter_mut().zip(gradient).for_each(|(weight, gradient)| *weight -= rate * *gradient);
}

pub(super) fn momentum<T: Number>(
    weights: &mut [T],
    gradient: &[T],
    velocity: &mut [T],
    rate: f64,
    kept: f64,
) {
    let (rate, kept) = (T::of(rate), T::of(kept));
    for ((weight, gradient), velocity) in weights.iter_mut().zip(gradient).zip(velocity) {
        *velocity = kept * *velocity - rate * *gradient;
        *weight += *velocity;
    }
}

pub(super) fn nesterov<T: Number>(
    weights: &mut [T],
    gradient: &[T],
    velocity: &mut [T],
    rate: f64,
    kept: f64,
) {
    let (rate, kept) = (T::of(rate), T::of(kept));
    for ((weight, gradient), velocity) in weights.iter_mut().zip(gradient).zip(velocity) {
        *velocity = kept * *velocity - rate * *gradient;
        *weight += kept * *velocity - rate * *gradient;
    }
}
