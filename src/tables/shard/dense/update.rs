//! Updates of rows in host memory by a table's rule, with the state and the step counts that belong to them.

use std::ops::Range;

use super::storage::Storage;
use crate::memory::prefetch::prefetch;
use crate::tables::updater::UpdateContext;

/// Number of state planes that an add handles without allocating.
const INLINE_PLANES: usize = 4;

impl Storage {
    /// Updates rows of one stripe, whose lock is held.
    #[inline(always)]
    pub(super) fn update(&self, first: usize, delta: &[u8], context: &UpdateContext) {
        let shape = &self.layout.shape;
        if shape.planes == 0 {
            let values = self.extent.range(self.layout.values + first * shape.row_bytes, delta.len());
            // SAFETY: the rows are in a stripe whose lock is held, so the slice is exclusive.
            let values = unsafe { std::slice::from_raw_parts_mut(values, delta.len()) };
            return self.rule.update(values, &mut [], delta, context);
        }
        match shape.counts_stripes {
            true => self.update_unit(first / self.layout.stripe_rows, first, delta, context),
            false => {
                let rows = delta.chunks_exact(shape.row_bytes).enumerate();
                rows.for_each(|(row, delta)| self.update_unit(first + row, first + row, delta, context));
            }
        }
    }

    /// Updates the rows of one unit, with its state and its step count.
    fn update_unit(&self, unit: usize, first: usize, delta: &[u8], context: &UpdateContext) {
        let shape = &self.layout.shape;
        let rows = delta.len() / shape.row_bytes;
        let state = self.state(first, rows, context.worker);
        // SAFETY: the rows, their state and the unit's count are in a stripe whose lock is held; planes do not overlap.
        unsafe {
            let step = self.extent.range(self.layout.steps + 8 * unit, 8).cast::<u64>();
            *step += 1;
            let context = UpdateContext { step: *step, ..*context };
            let bytes = rows * shape.state_row_bytes;
            let values = std::slice::from_raw_parts_mut(self.row(first, rows), delta.len());
            // Short rows are common, and no built-in rule has more planes than this.
            let mut few: [&mut [u8]; INLINE_PLANES] = Default::default();
            let (mut count, mut more) = (0, Vec::new());
            for plane in state {
                let plane = std::slice::from_raw_parts_mut(plane, bytes);
                match few.get_mut(count) {
                    Some(place) => *place = plane,
                    None => more.push(plane),
                }
                count += 1;
            }
            if more.is_empty() {
                return self.rule.update(values, &mut few[..count], delta, &context);
            }
            let mut all: Vec<&mut [u8]> = few.into_iter().chain(more).collect();
            self.rule.update(values, &mut all, delta, &context);
        }
    }

    /// The columns of the state that an add of this worker needs, as offset of row 0 and bytes per row: planes, and the count of
    /// steps if each row has one.
    pub(super) fn state_columns(&self, worker: usize) -> Vec<(usize, usize)> {
        let shape = &self.layout.shape;
        let steps = (shape.planes > 0 && !shape.counts_stripes).then_some((self.layout.steps, 8));
        let planes = self.planes(worker).map(|plane| (plane, shape.state_row_bytes));
        steps.into_iter().chain(planes).collect()
    }

    /// Prefetches these columns of a row.
    #[inline(always)]
    pub(super) fn prefetch_state(&self, columns: &[(usize, usize)], row: usize) {
        for &(start, bytes) in columns {
            prefetch(self.extent.range(start + row * bytes, bytes), bytes);
        }
    }

    /// Offsets of the state planes that an add of this worker needs: the shared ones, then its own.
    fn planes(&self, worker: usize) -> impl Iterator<Item = usize> + '_ {
        self.shared_planes().chain(self.worker_planes(worker)).map(|plane| self.layout.plane(plane))
    }

    /// The state of some rows, in each of these planes.
    fn state(&self, first: usize, rows: usize, worker: usize) -> impl Iterator<Item = *mut u8> + '_ {
        let bytes = self.layout.shape.state_row_bytes;
        self.planes(worker).map(move |plane| self.extent.range(plane + first * bytes, rows * bytes))
    }

    /// The state planes shared by all workers.
    pub fn shared_planes(&self) -> Range<usize> {
        0..self.rule.shared_planes()
    }

    /// The state planes of one worker.
    pub fn worker_planes(&self, worker: usize) -> Range<usize> {
        let (shared, own) = (self.rule.shared_planes(), self.rule.worker_planes());
        shared + worker * own..shared + (worker + 1) * own
    }
}
