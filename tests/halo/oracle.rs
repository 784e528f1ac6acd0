//! The direct computation in one process: no parts, no plans, one element at a time.

use unisono::halo::{Boundary, Edges, Region, Window};

/// A global array.
pub struct Global {
    pub shape: Vec<usize>,
    pub values: Vec<f64>,
}

pub fn offset(shape: &[usize], index: &[i64]) -> usize {
    shape.iter().zip(index).fold(0, |at, (&extent, &index)| at * extent + index as usize)
}

/// Maps a position into the array by the boundaries' definitions; a constant ends it.
fn walk(position: i64, length: i64, edges: &Edges) -> Result<i64, f64> {
    if (0..length).contains(&position) {
        return Ok(position);
    }
    let mut at = position;
    match if position < 0 { edges.before } else { edges.after } {
        Boundary::Zero => Err(0.0),
        Boundary::Constant(value) => Err(value),
        Boundary::Replicate => Ok(if position < 0 { 0 } else { length - 1 }),
        Boundary::Periodic => {
            while !(0..length).contains(&at) {
                at += if at < 0 { length } else { -length };
            }
            Ok(at)
        }
        Boundary::Reflect if length == 1 => Ok(0),
        Boundary::Reflect => {
            while !(0..length).contains(&at) {
                at = if at < 0 { -at } else { 2 * (length - 1) - at };
            }
            Ok(at)
        }
    }
}

impl Global {
    /// The value at a position that may lie outside; `linear` excludes constants.
    pub fn at(&self, position: &[i64], edges: &[Edges], linear: bool) -> f64 {
        let mut inside = Vec::new();
        let mut constant = None;
        for ((&position, edges), &length) in position.iter().zip(edges).zip(&self.shape) {
            match walk(position, length as i64, edges) {
                Ok(index) => inside.push(index),
                // Dimensions are padded in order, so the last one determines the corners.
                Err(value) => constant = Some(value),
            }
        }
        match constant {
            Some(_) if linear => 0.0,
            Some(value) => value,
            None => self.values[offset(&self.shape, &inside)],
        }
    }
}

/// A weight for each tap of a multi-dimensional window.
pub fn weight(taps: &[i64]) -> f64 {
    taps.iter().fold(0.3, |weight, &tap| (weight * 1.7 + tap as f64 * 0.37).sin())
}

/// Every tap of the windows, in order.
pub fn taps(windows: &[Window]) -> Vec<Vec<i64>> {
    let kernel: Vec<usize> = windows.iter().map(|window| window.kernel).collect();
    Region::whole(&kernel).indices().collect()
}

/// One output of the windows: a weighted sum over the inputs for which `input` has a value.
pub fn output(
    windows: &[Window],
    taps: &[Vec<i64>],
    index: &[i64],
    mut input: impl FnMut(&[i64]) -> f64,
) -> f64 {
    let mut sum = 0.0;
    let mut position = vec![0; windows.len()];
    'taps: for tap in taps {
        for (dimension, window) in windows.iter().enumerate() {
            let step = tap[dimension] * window.dilation as i64;
            let (stride, before) = (window.stride as i64, window.padding.0 as i64);
            position[dimension] = match window.transposed {
                false => index[dimension] * stride - before + step,
                true if (index[dimension] + before - step).rem_euclid(stride) == 0 => {
                    (index[dimension] + before - step).div_euclid(stride)
                }
                true => continue 'taps,
            };
        }
        sum += weight(tap) * input(&position);
    }
    sum
}
