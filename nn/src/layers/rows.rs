//! Gradients whose rows the ranks divide: each rank computes some rows as sums over the samples of the global batch.

use std::borrow::Cow;
use std::ops::Range;

use unisono::Result;
use unisono::halo::Partition;

use super::Pass;
use crate::number::Number;
use crate::weight::Weight;

/// The rows of a gradient that a rank computes, and the samples that it computes them from.
pub(super) struct RowSamples<'a, T: Clone> {
    /// The number of rows of the gradient.
    count: usize,
    /// The rows of this rank.
    pub(super) rows: Range<usize>,
    /// The index of the first sample in the global batch.
    pub(super) first: usize,
    pub(super) inputs: &'a [T],
    /// The errors of the outputs that belong to these rows.
    pub(super) errors: Cow<'a, [T]>,
}

impl<T: Number> Pass<'_, T> {
    /// Whether the ranks divide the rows of a gradient. Otherwise, each computes all rows from its own samples.
    pub(super) fn divides_rows(&self) -> bool {
        self.exact && self.gradients.rank_and_size().1 > 1
    }

    /// The samples for this rank's part of a gradient with `count` rows. Inputs and errors are given with the size of a
    /// sample; the outputs of a row are consecutive. If the ranks divide the rows, all of them must call this together, and the
    /// inputs of all ranks are in `buffer`, which never shrinks: growing it again would fill it with zeros.
    pub(super) fn row_samples<'a>(
        &self,
        count: usize,
        (inputs, input_size): (&'a [T], usize),
        (errors, error_size): (&'a [T], usize),
        buffer: &'a mut Vec<T>,
    ) -> Result<RowSamples<'a, T>> {
        if !self.divides_rows() {
            return Ok(RowSamples {
                count,
                rows: 0..count,
                first: self.first,
                inputs,
                errors: errors.into(),
            });
        }
        let (rank, ranks) = self.gradients.rank_and_size();
        let batches = self.gradients.gather_whole(&[self.batch as i64])?;
        let counts =
            |size: usize| -> Vec<usize> { batches.iter().map(|samples| *samples as usize * size).collect() };
        let received = counts(input_size);
        let length = received.iter().sum();
        buffer.resize(buffer.len().max(length), T::ZERO);
        self.gradients.gather(inputs, &mut buffer[..length], &received)?;
        let (parts, width) = (Partition::balanced(count, ranks), error_size / count);
        let mut parted = Vec::with_capacity(errors.len());
        for rows in (0..ranks).map(|rank| parts.range(rank)) {
            let outputs = rows.start * width..rows.end * width;
            errors.chunks(error_size).for_each(|sample| parted.extend_from_slice(&sample[outputs.clone()]));
        }
        let sent: Vec<usize> = parts.sizes().iter().map(|rows| self.batch * rows * width).collect();
        let rows = parts.range(rank);
        let errors = self.gradients.exchange(&parted, &sent, &counts(rows.len() * width))?;
        Ok(RowSamples { count, rows, first: 0, inputs: &buffer[..length], errors: errors.into() })
    }

    /// Stores the gradient of a weight: `work` computes the rows of this rank. A rank that updates these rows alone needs no
    /// others; otherwise the ranks gather all rows, and must call this together.
    pub(super) fn store_rows(
        &self,
        samples: &RowSamples<'_, T>,
        weight: &mut Weight<T>,
        work: impl FnOnce(&mut [T]),
    ) -> Result<()> {
        if weight.update_shards.is_some() {
            work(&mut weight.gradient);
            return Ok(());
        }
        self.gather_rows(samples, &mut weight.gradient, work)
    }

    /// Gathers the rows of a gradient: `work` computes those of this rank. If the ranks divide the rows, all of them must
    /// call this together.
    pub(super) fn gather_rows(
        &self,
        samples: &RowSamples<'_, T>,
        gradient: &mut [T],
        work: impl FnOnce(&mut [T]),
    ) -> Result<()> {
        if !self.divides_rows() {
            work(gradient);
            return Ok(());
        }
        let parts = Partition::balanced(samples.count, self.gradients.rank_and_size().1);
        let width = gradient.len() / samples.count;
        let mut own = vec![T::ZERO; samples.rows.len() * width];
        work(&mut own);
        let counts: Vec<usize> = parts.sizes().iter().map(|rows| rows * width).collect();
        self.gradients.gather(&own, gradient, &counts)
    }
}
