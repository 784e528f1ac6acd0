//! Rounds of arrays and matrices.

use std::collections::HashMap;

use super::{Progress, RoundAdds, Sum};
use crate::error::Result;
use crate::tables::AddOptions;
use crate::tables::Rows;
use crate::tables::core::Core;
use crate::tables::picks::Pick;
use crate::tables::remote::{Request, Verb};
use crate::tables::updater::UpdateContext;
use crate::transport::Call;

/// The rows that the adds of a round have named so far, and their sums.
enum Named {
    All(Sum),
    /// Where the sum of each row is.
    Some(HashMap<u32, usize>, Sum),
}

impl Core {
    /// Applies the rounds that are complete.
    pub(in crate::tables) fn settle(&self, call: &Call) -> Result<()> {
        match self.accumulates() {
            true => self.apply_rounds(call, &|adds, progress| self.step(call, adds, progress)),
            false => Ok(()),
        }
    }

    /// As [`Base::get_here`](crate::tables::base::Base::get_here), on a table whose complete rounds are applied.
    pub(in crate::tables) fn get_here(
        &self,
        call: &Call,
        worker: usize,
        read: impl FnOnce() -> Result<()>,
    ) -> Result<u64> {
        self.base.get_here(call, worker, || {
            self.settle(call)?;
            read()
        })
    }

    /// Puts an add of this host's rows into its round.
    pub(in crate::tables) fn join_round(&self, call: &Call, worker: usize, request: Request) -> Result<()> {
        self.add_to_round(call, worker, request, &|adds, progress| self.step(call, adds, progress))
    }

    /// The part of an add that this host holds.
    pub(in crate::tables) fn request_here(
        &self,
        worker: usize,
        rows: Rows,
        delta: &[u8],
        options: &AddOptions,
    ) -> Request {
        let bytes = self.description.row_bytes();
        let (mut request, picks) = self.request_for(self.host(), worker, Verb::Add, rows);
        request.options = options.to_bytes().to_vec();
        request.payload = match rows {
            Rows::All => self.part_of(self.host(), delta).into_owned(),
            Rows::List(_) => {
                let rows = picks.iter().map(|pick| &delta[pick.position as usize * bytes..][..bytes]);
                rows.flatten().copied().collect()
            }
        };
        request
    }

    fn step(&self, call: &Call, adds: &RoundAdds, progress: &Progress) -> Result<()> {
        let (bytes, cols) = (self.description.row_bytes(), self.description.cols);
        let (rule, here) = (&self.storage.rule, self.placement.rows_on(self.host()));
        let mut named = Named::Some(HashMap::new(), Sum::new(rule, cols, 0));
        for add in adds.iter() {
            let add = add?;
            let mut picks = self.asked_for(&add)?;
            let delta = add.delta(self.description.dtype, picks.as_ref().map_or(here, Vec::len) * bytes)?;
            if picks.is_none() && self.storage.versions().is_some() {
                // Rows of zeroes change nothing in a sparse matrix.
                let filled = |row: &usize| delta[row * bytes..][..bytes].iter().any(|&byte| byte != 0);
                let pick = |row: usize| Pick { row: row as u32, position: row as u32 };
                picks = Some((0..here).filter(filled).map(pick).collect());
            }
            named = match (named, picks) {
                (Named::All(mut sum), None) => {
                    sum.add(0, &delta);
                    Named::All(sum)
                }
                (Named::Some(places, some), None) => {
                    let mut sum = Sum::new(rule, cols, here);
                    places.iter().for_each(|(&row, &place)| sum.add_row(row as usize, &some, place));
                    sum.add(0, &delta);
                    Named::All(sum)
                }
                (Named::All(mut sum), Some(picks)) => {
                    for pick in picks {
                        sum.add(pick.row as usize, &delta[pick.position as usize * bytes..][..bytes]);
                    }
                    Named::All(sum)
                }
                (Named::Some(mut places, mut sum), Some(picks)) => {
                    for pick in picks {
                        let next = sum.rows();
                        let place = *places.entry(pick.row).or_insert(next);
                        if place == next {
                            sum.grow(1);
                        }
                        sum.add(place, &delta[pick.position as usize * bytes..][..bytes]);
                    }
                    Named::Some(places, sum)
                }
            };
        }
        let options = adds.options()?;
        // A round is the add of one worker with a larger batch: of what an updater keeps for each worker, it has the first one's.
        let context = UpdateContext { worker: 0, step: 0, options: &options };
        match named {
            Named::All(sum) => {
                let delta = sum.finish(adds.divisor(), 0..here);
                self.storage.step(call, None, &delta, &context, progress)
            }
            Named::Some(places, sum) => {
                let mut order: Vec<(u32, usize)> = places.into_iter().collect();
                order.sort_unstable();
                let delta = sum.finish(adds.divisor(), order.iter().map(|(_, place)| *place));
                let rows: Vec<u32> = order.into_iter().map(|(row, _)| row).collect();
                self.storage.step(call, Some(&rows), &delta, &context, progress)
            }
        }
    }
}
