//! Rounds of arrays and matrices.

use std::collections::HashMap;

use super::core::TableCore;
use super::row_batch::RowRef;
use crate::error::Result;
use crate::tables::AddOptions;
use crate::tables::Rows;
use crate::tables::engine::rounds::{RoundAdds, RoundProgress, RoundSum};
use crate::tables::remote::{RemoteRequest, RequestVerb};
use crate::tables::updater::UpdateContext;
use crate::transport::Call;

/// The rows that the adds of a round have touched so far, and their sums.
enum Named {
    All(RoundSum),
    /// Maps each row to its slot in the sum.
    Some(HashMap<u32, usize>, RoundSum),
}

impl TableCore {
    /// Applies the complete rounds.
    pub(crate) fn apply_complete_rounds(&self, call: &Call) -> Result<()> {
        match self.accumulates() {
            true => self.apply_rounds(call, &|adds, progress| self.step(call, adds, progress)),
            false => Ok(()),
        }
    }

    /// As [`Base::get_local`](crate::tables::engine::base::Base::get_local), after applying the complete rounds.
    pub(crate) fn get_local(
        &self,
        call: &Call,
        worker: usize,
        read: impl FnOnce() -> Result<()>,
    ) -> Result<u64> {
        self.base.get_local(call, worker, || {
            self.apply_complete_rounds(call)?;
            read()
        })
    }

    /// Puts an add to this host's rows into its round.
    pub(crate) fn join_round(&self, call: &Call, worker: usize, request: RemoteRequest) -> Result<()> {
        self.add_to_round(call, worker, request, &|adds, progress| self.step(call, adds, progress))
    }

    /// This host's part of an add.
    pub(crate) fn local_request(
        &self,
        worker: usize,
        rows: Rows,
        delta: &[u8],
        options: &AddOptions,
    ) -> RemoteRequest {
        let bytes = self.description.row_bytes();
        let (mut request, row_refs) = self.request_for(self.host(), worker, RequestVerb::Add, rows);
        request.options = options.to_bytes().to_vec();
        request.payload = match rows {
            Rows::All => self.part_of(self.host(), delta).into_owned(),
            Rows::List(_) => {
                let rows =
                    row_refs.iter().map(|row_ref| &delta[row_ref.position as usize * bytes..][..bytes]);
                rows.flatten().copied().collect()
            }
        };
        request
    }

    fn step(&self, call: &Call, adds: &RoundAdds, progress: &RoundProgress) -> Result<()> {
        let (bytes, cols) = (self.description.row_bytes(), self.description.cols);
        let (rule, local_rows) = (&self.storage.rule, self.placement.rows_on(self.host()));
        let mut named = Named::Some(HashMap::new(), RoundSum::new(rule, cols, 0));
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
            named = match (named, row_refs) {
                (Named::All(mut sum), None) => {
                    sum.add(0, &delta);
                    Named::All(sum)
                }
                (Named::Some(slots, some), None) => {
                    let mut sum = RoundSum::new(rule, cols, local_rows);
                    slots.iter().for_each(|(&row, &slot)| sum.add_row(row as usize, &some, slot));
                    sum.add(0, &delta);
                    Named::All(sum)
                }
                (Named::All(mut sum), Some(row_refs)) => {
                    for row_ref in row_refs {
                        sum.add(row_ref.row as usize, &delta[row_ref.position as usize * bytes..][..bytes]);
                    }
                    Named::All(sum)
                }
                (Named::Some(mut slots, mut sum), Some(row_refs)) => {
                    for row_ref in row_refs {
                        let next = sum.rows();
                        let slot = *slots.entry(row_ref.row).or_insert(next);
                        if slot == next {
                            sum.grow(1);
                        }
                        sum.add(slot, &delta[row_ref.position as usize * bytes..][..bytes]);
                    }
                    Named::Some(slots, sum)
                }
            };
        }
        let options = adds.options()?;
        // A round acts like one worker's add with a larger batch: of an updater's per-worker state it uses worker 0's.
        let context = UpdateContext { worker: 0, step: 0, options: &options };
        match named {
            Named::All(sum) => {
                let delta = sum.finish(adds.divisor(), 0..local_rows);
                self.storage.step(call, None, &delta, &context, progress)
            }
            Named::Some(slots, sum) => {
                let mut order: Vec<(u32, usize)> = slots.into_iter().collect();
                order.sort_unstable();
                let delta = sum.finish(adds.divisor(), order.iter().map(|(_, slot)| *slot));
                let rows: Vec<u32> = order.into_iter().map(|(row, _)| row).collect();
                self.storage.step(call, Some(&rows), &delta, &context, progress)
            }
        }
    }
}
