//! Reproducible sums: the bits depend neither on the order of the terms nor on which rank adds which.
//!
//! Each term is split into two or three pieces, each a multiple of a unit so large that 2³⁰ such pieces sum without
//! rounding. The units are derived from the largest term of all ranks. After J. Demmel and H. D. Nguyen, "Fast reproducible
//! floating-point summation", 2013.

use unisono::Result;

use crate::layers::{Pass, Sums};
use crate::number::Number;

/// The maximum number of terms of a sum, as a power of two.
const TERMS: i32 = 30;

/// A vector of sums that accumulate term by term.
pub(crate) struct ExactSums {
    /// Adding and then subtracting one of these rounds a number to a multiple of a unit.
    pub(crate) rounders: Vec<f64>,
    /// For each unit, the accumulated pieces of all sums.
    pub(crate) pieces: Vec<Vec<f64>>,
}

/// 1.5 · 2^power.
fn rounder(power: i32) -> f64 {
    1.5 * f64::from_bits(((power.clamp(-1000, 1000) + 1023) as u64) << 52)
}

/// The largest magnitude; a NaN counts as larger than everything.
pub(crate) fn largest<T: Number>(values: &[T]) -> f64 {
    let larger = |most: f64, value: &T| {
        let size = value.double().abs();
        if size <= most || most.is_nan() { most } else { size }
    };
    values.iter().fold(0.0, larger)
}

impl ExactSums {
    /// Sums of terms whose magnitude is bounded by the product of these factors, each the local maximum of this rank. All
    /// ranks of the run must call this together.
    pub(crate) fn new<T: Number>(
        pass: &Pass<'_, T>,
        length: usize,
        mut factors: [f64; 2],
    ) -> Result<ExactSums> {
        pass.all.largest(&mut factors)?;
        let bound = factors[0] * factors[1];
        // 2^power exceeds the magnitude of every term.
        let power = (bound.to_bits() >> 52 & 0x7ff) as i32 - 1022;
        let levels = if T::NAME == "f32" { 2 } else { 3 };
        let rounders = (0..levels).map(|level| match bound.is_finite() {
            // A rounded number keeps 52 − TERMS bits relative to the largest term, and the remainder is at most half a unit.
            true => rounder(power + TERMS - (53 - TERMS) * level),
            false => f64::NAN,
        });
        Ok(ExactSums { rounders: rounders.collect(), pieces: vec![vec![0.0; length]; levels as usize] })
    }

    /// Adds a term to one of the sums.
    #[inline(always)]
    pub(crate) fn add(&mut self, at: usize, mut term: f64) {
        for (rounder, pieces) in self.rounders.iter().zip(&mut self.pieces) {
            let piece = (term + rounder) - rounder;
            pieces[at] += piece;
            term -= piece;
        }
    }

    /// The sums over all ranks of a group, together with the sum of an integer count.
    pub(crate) fn all_reduce<T: Number>(
        mut self,
        group: &dyn Sums<T>,
        count: f64,
    ) -> Result<(ExactSums, f64)> {
        let mut all = self.pieces.concat();
        all.push(count);
        group.sum_f64(&mut all)?;
        let mut rest = &all[..];
        for pieces in &mut self.pieces {
            let (sums, others) = rest.split_at(pieces.len());
            pieces.copy_from_slice(sums);
            rest = others;
        }
        Ok((self, rest[0]))
    }

    /// The sums, each rounded once.
    pub(crate) fn round<T: Number>(&self, totals: &mut [T]) {
        for (index, total) in totals.iter_mut().enumerate() {
            // The smallest piece first: the order is the same on every rank.
            *total = T::of(self.pieces.iter().rev().map(|pieces| pieces[index]).sum());
        }
    }
}

/// The sum of terms over the ranks of a group: reproducible if the pass is exact, otherwise in the order given.
pub(crate) fn sum<T: Number>(
    pass: &Pass<'_, T>,
    group: &dyn Sums<T>,
    terms: impl Iterator<Item = f64>,
) -> Result<f64> {
    if !pass.exact {
        let mut sum = [terms.sum()];
        group.sum_f64(&mut sum)?;
        return Ok(sum[0]);
    }
    let terms: Vec<f64> = terms.collect();
    let mut sums = ExactSums::new(pass, 1, [largest(&terms), 1.0])?;
    terms.iter().for_each(|term| sums.add(0, *term));
    let (sums, _) = sums.all_reduce(group, 0.0)?;
    Ok(sums.pieces.iter().rev().map(|pieces| pieces[0]).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::RandomStream;

    #[test]
    fn sums_do_not_depend_on_the_order_and_are_accurate() {
        let stream = RandomStream::new(5, "terms");
        for scale in [1e-30, 1.0, 1e20] {
            let terms: Vec<f64> = (0..5000).map(|at| scale * stream.normal(at).powi(5)).collect();
            let sum = |order: &[usize], parts: usize| {
                let pass = Pass::<f64>::alone(1, true, 0);
                let all = || ExactSums::new(&pass, 1, [largest(&terms), 1.0]).expect("one rank has no peers");
                let mut total = all();
                for part in order.chunks(order.len().div_ceil(parts)) {
                    let mut sums = all();
                    part.iter().for_each(|index| sums.add(0, terms[*index]));
                    for (total, part) in total.pieces.iter_mut().zip(&sums.pieces) {
                        total[0] += part[0];
                    }
                }
                let mut result = [0.0_f64];
                total.round(&mut result);
                result[0]
            };
            let order: Vec<usize> = (0..terms.len()).collect();
            let expected = sum(&order, 1);
            for (branch, parts) in [(1, 1), (2, 2), (3, 9), (4, 700)] {
                let found = sum(&stream.branch(branch).permutation(terms.len()), parts);
                assert_eq!(found.to_bits(), expected.to_bits());
            }
            let plain: f64 = terms.iter().sum();
            let most = largest(&terms);
            assert!((plain - expected).abs() < 1e-12 * most, "{plain} {expected}");
        }
    }

    #[test]
    fn what_is_not_a_number_is_not_lost() {
        let pass = Pass::<f32>::alone(1, true, 0);
        let mut totals = [0.0_f32];
        let mut broken = ExactSums::new(&pass, 1, [f64::NAN, 1.0]).expect("one rank has no peers");
        broken.add(0, 1.0);
        broken.round(&mut totals);
        assert!(totals[0].is_nan());
    }
}
