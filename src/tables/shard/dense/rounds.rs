//! Rounds of arrays and matrices.

use super::core::TableCore;
use super::row_batch::RowRef;
use crate::error::Result;
use crate::tables::engine::base::Base;
use crate::tables::engine::rounds::{RoundAdds, RoundProgress, RoundSum, SumByKey};
use crate::tables::engine::shard::Shard;
use crate::tables::updater::UpdateContext;
use crate::transport::Call;

/// The sums of the rows that the adds of a round have touched so far.
enum Touched {
    All(RoundSum),
    Some(SumByKey<u32>),
}

impl Shard for TableCore {
    fn base(&self) -> &Base {
        &self.base
    }

    fn step(&self, call: &Call, adds: &RoundAdds, progress: &RoundProgress) -> Result<()> {
        let (bytes, cols) = (self.description.row_bytes(), self.description.cols);
        let (rule, local_rows) = (&self.storage.rule, self.placement.rows_on(self.host()));
        let mut touched = Touched::Some(SumByKey::new(rule, cols));
        for add in adds.iter() {
            let add = add?;
            let mut row_refs = self.requested_rows(&add)?;
            let delta =
                add.delta(self.description.dtype, row_refs.as_ref().map_or(local_rows, Vec::len) * bytes)?;
            if row_refs.is_none() && self.storage.versions().is_some() {
                // Rows of zeroes have no effect on a sparse matrix.
                let filled = |row: &usize| delta[row * bytes..][..bytes].iter().any(|&byte| byte != 0);
                let row_ref = |row: usize| RowRef { row: row as u32, position: row as u32 };
                row_refs = Some((0..local_rows).filter(filled).map(row_ref).collect());
            }
            let Some(row_refs) = row_refs else {
                let mut sum = match touched {
                    Touched::All(sum) => sum,
                    Touched::Some(some) => some.spread(local_rows, |row| row as usize),
                };
                sum.add(0, &delta);
                touched = Touched::All(sum);
                continue;
            };
            for row_ref in row_refs {
                let row = &delta[row_ref.position as usize * bytes..][..bytes];
                match &mut touched {
                    Touched::All(sum) => sum.add(row_ref.row as usize, row),
                    Touched::Some(sum) => sum.add(row_ref.row, row),
                }
            }
        }
        let options = adds.options()?;
        // A round acts like one worker's add with a larger batch: of an updater's per-worker state it uses worker 0's.
        let context = UpdateContext { worker: 0, step: 0, options: &options };
        match touched {
            Touched::All(sum) => {
                let delta = sum.finish(adds.divisor());
                self.storage.step(call, None, &delta, &context, progress)
            }
            Touched::Some(sum) => {
                let (rows, sum) = sum.into_parts();
                let mut order: Vec<(u32, usize)> = rows.into_iter().zip(0..).collect();
                order.sort_unstable();
                let delta = sum.finish_ordered(adds.divisor(), order.iter().map(|(_, slot)| *slot));
                let rows: Vec<u32> = order.into_iter().map(|(row, _)| row).collect();
                self.storage.step(call, Some(&rows), &delta, &context, progress)
            }
        }
    }
}
