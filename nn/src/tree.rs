//! Tree sums: groups of four consecutive terms, then pairs of such sums, pairs of pairs, and so on, regardless of which rank
//! adds which.
//!
//! Terms are numbered, and a rank has consecutive ones. It adds up the subtrees that its own terms complete; the rest, a few
//! partial sums at most, is added up together with those of the other ranks. So the bits of a sum depend only on the number
//! of its terms, and neither terms nor partial sums need extended precision.

use std::ops::Range;

use unisono::Result;
use unisono::halo::Partition;

use crate::layers::Sums;
use crate::number::Number;
use crate::product::OutputMode;

/// The number of terms that are added up sequentially. A term that is a product is accumulated in place, which saves a pass
/// over all elements.
const GROUP: usize = 4;

/// The number of integers that describe which terms the partial sums of a rank cover: two for each of up to two sums of
/// every size, and for the terms of groups that begin or end on another rank.
const MAX_BOUNDS: usize = 2 * (2 * 32 + 2 * GROUP);

/// Up to this length, every rank computes the full sum, which saves one message.
const SHORT: usize = 2048;

/// The partial sums of terms that are vectors of one length.
#[derive(Debug, Clone)]
pub struct TreeSum<T> {
    /// The range of terms and their sum: a subtree, the beginning of a group, or a term of a group that begins before the
    /// first term here. The ranges are in order, and no two of them can be combined.
    parts: Vec<(Range<usize>, Vec<T>)>,
    length: usize,
    /// Buffers for reuse.
    spare: Vec<Vec<T>>,
}

impl<T: Number> TreeSum<T> {
    /// An empty sum of terms of this length.
    pub(crate) fn new(length: usize) -> TreeSum<T> {
        TreeSum { parts: Vec::new(), length, spare: Vec::new() }
    }

    /// A buffer for a term, with arbitrary contents.
    pub(crate) fn spare_term(&mut self) -> Vec<T> {
        self.spare.pop().unwrap_or_else(|| vec![T::ZERO; self.length])
    }

    /// Adds the term with this number, which follows the last one.
    pub(crate) fn push(&mut self, number: usize, term: Vec<T>) {
        self.add(number..number + 1, term);
    }

    /// [`TreeSum::push`] for a term that `work` computes. With `at_once`, the term is accumulated into the group before it.
    pub(crate) fn push_with(
        &mut self,
        number: usize,
        at_once: bool,
        work: impl FnOnce(OutputMode, &mut [T]),
    ) {
        let before = self.parts.pop_if(|(terms, _)| at_once && continues(terms, number));
        let (terms, into, mut sum) = match before {
            Some((before, sum)) => (before.start..number + 1, OutputMode::Add, sum),
            None => (number..number + 1, OutputMode::Replace, self.spare_term()),
        };
        work(into, &mut sum);
        self.add(terms, sum);
    }

    /// Adds the partial sums of another tree, whose terms follow all terms of this one.
    pub(crate) fn append(&mut self, other: TreeSum<T>) {
        other.parts.into_iter().for_each(|(terms, sum)| self.add(terms, sum));
    }

    fn add(&mut self, mut terms: Range<usize>, mut sum: Vec<T>) {
        debug_assert_eq!(sum.len(), self.length);
        let follows = |before: &Range<usize>, terms: &Range<usize>| {
            let pair = before.len() == terms.len() && before.start.is_multiple_of(2 * terms.len());
            let next = terms.len() == 1 && continues(before, terms.start);
            next || (pair && terms.len() >= GROUP && before.end == terms.start)
        };
        while let Some((before, other)) = self.parts.pop_if(|(before, _)| follows(before, &terms)) {
            sum.iter_mut().zip(&other).for_each(|(sum, other)| *sum = *other + *sum);
            self.spare.push(other);
            terms.start = before.start;
        }
        self.parts.push((terms, sum));
    }

    /// The sum of all terms; zeros if there are none.
    pub(crate) fn total(mut self) -> Vec<T> {
        let Some((_, mut total)) = self.parts.pop() else { return vec![T::ZERO; self.length] };
        while let Some((_, part)) = self.parts.pop() {
            total.iter_mut().zip(&part).for_each(|(total, part)| *total = *part + *total);
        }
        total
    }

    /// The sum of the terms of all ranks.
    pub(crate) fn total_over(self, group: &dyn Sums<T>) -> Result<Vec<T>> {
        let (rank, ranks) = group.rank_and_size();
        if ranks == 1 {
            return Ok(self.total());
        }
        let mut terms = self.terms();
        // A rank has at most two partial sums of each size.
        terms.resize(MAX_BOUNDS, 0);
        let terms = group.gather_whole(&terms)?;
        let count = |terms: &[i64]| terms.chunks_exact(2).filter(|terms| terms[0] < terms[1]).count();
        let counts = terms.chunks_exact(MAX_BOUNDS).map(count);
        if self.length <= SHORT {
            let counts: Vec<usize> = counts.map(|count| count * self.length).collect();
            let mut own = Vec::with_capacity(self.parts.len() * self.length);
            self.slices(0..self.length, &mut own);
            let mut sums = vec![T::ZERO; counts.iter().sum()];
            group.gather(&own, &mut sums, &counts)?;
            return Ok(TreeSum::from_flat(self.length, &terms, &sums).total());
        }
        // Each rank adds up a slice for all ranks.
        let slices = Partition::balanced(self.length, ranks);
        let own = slices.range(rank).len();
        let sent: Vec<usize> = slices.sizes().iter().map(|size| size * self.parts.len()).collect();
        let received: Vec<usize> = counts.map(|count| count * own).collect();
        let received = match &self.parts[..] {
            // The slices of a single sum are consecutive as they are.
            [(_, sum)] => group.exchange(sum, &sent, &received)?,
            parts => {
                let mut parted = Vec::with_capacity(parts.len() * self.length);
                (0..ranks).for_each(|to| self.slices(slices.range(to), &mut parted));
                group.exchange(&parted, &sent, &received)?
            }
        };
        let total = TreeSum::from_flat(own, &terms, &received).total();
        let mut all = vec![T::ZERO; self.length];
        group.gather(&total, &mut all, &slices.sizes())?;
        Ok(all)
    }

    /// The ranges of terms that the partial sums cover.
    fn terms(&self) -> Vec<i64> {
        self.parts.iter().flat_map(|(terms, _)| [terms.start as i64, terms.end as i64]).collect()
    }

    /// Appends a slice of each partial sum.
    fn slices(&self, range: Range<usize>, slices: &mut Vec<T>) {
        self.parts.iter().for_each(|(_, sum)| slices.extend_from_slice(&sum[range.clone()]));
    }

    /// The tree of the partial sums of all ranks, given in any order.
    fn from_flat(length: usize, terms: &[i64], sums: &[T]) -> TreeSum<T> {
        let terms = terms.chunks_exact(2).map(|terms| terms[0] as usize..terms[1] as usize);
        let terms = terms.filter(|terms| !terms.is_empty());
        let sum = |index: usize| sums[index * length..(index + 1) * length].to_vec();
        let mut parts: Vec<_> = terms.enumerate().map(|(index, terms)| (terms, sum(index))).collect();
        parts.sort_by_key(|(terms, _)| terms.start);
        let mut tree = TreeSum::new(length);
        parts.into_iter().for_each(|(terms, sum)| tree.add(terms, sum));
        tree
    }
}

/// Whether a range of terms is the beginning of a group, and this term is the next one in it.
fn continues(terms: &Range<usize>, number: usize) -> bool {
    terms.start.is_multiple_of(GROUP) && terms.len() < GROUP && terms.end == number
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::RandomStream;

    #[test]
    fn bits_depend_on_the_number_of_terms_alone() {
        let stream = RandomStream::new(8, "tree");
        let term = |number: usize| -> Vec<f32> {
            (0..3).map(|at| stream.branch(number as u64).normal(at) as f32).collect()
        };
        let part = |terms: Range<usize>| {
            let mut tree = TreeSum::new(3);
            terms.for_each(|number| tree.push(number, term(number)));
            tree
        };
        let in_place = |terms: Range<usize>| {
            let mut tree = TreeSum::new(3);
            for number in terms {
                tree.push_with(number, number % 7 > 0, |into, sum| match into {
                    OutputMode::Add => sum.iter_mut().zip(term(number)).for_each(|(sum, term)| *sum += term),
                    OutputMode::Replace => sum.copy_from_slice(&term(number)),
                });
            }
            tree
        };
        for count in [0, 1, 2, 3, 7, 8, 100, 128] {
            let whole = part(0..count).total();
            let plain = (0..count).map(|number| f64::from(term(number)[1])).sum::<f64>();
            assert!((f64::from(whole[1]) - plain).abs() < 1e-5);
            assert_eq!(in_place(0..count).total(), whole);
            for ranks in [1, 2, 3, 6, 9, 200] {
                let cut = |rank: usize| rank * count / ranks;
                let parts = (0..ranks).rev().map(|rank| part(cut(rank)..cut(rank + 1)));
                let (mut terms, mut sums) = (Vec::new(), Vec::new());
                for part in parts {
                    terms.extend(part.terms());
                    part.slices(0..3, &mut sums);
                }
                let merged = TreeSum::from_flat(3, &terms, &sums);
                assert_eq!(merged.total(), whole, "{count} terms on {ranks} ranks");
                let mut appended = part(0..cut(1));
                (1..ranks).for_each(|rank| appended.append(in_place(cut(rank)..cut(rank + 1))));
                assert_eq!(appended.total(), whole);
            }
        }
    }
}
