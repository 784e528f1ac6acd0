//! Rounds of key-value tables.

use std::collections::HashMap;

use super::core::KeyValueCore;
use super::keys::{Keys, OwnedKeys};
use crate::error::Result;
use crate::tables::AddOptions;
use crate::tables::engine::rounds::{RoundAdds, RoundProgress, RoundSum};
use crate::tables::remote::{RemoteRequest, RequestVerb, RowList};
use crate::tables::updater::UpdateContext;
use crate::transport::Call;

impl KeyValueCore {
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

    /// Puts an add to this host's keys into its round.
    pub(crate) fn join_round(&self, call: &Call, worker: usize, request: RemoteRequest) -> Result<()> {
        self.add_to_round(call, worker, request, &|adds, progress| self.step(call, adds, progress))
    }

    /// This host's part of an add.
    pub(crate) fn local_request(
        &self,
        worker: usize,
        keys: Keys,
        delta: &[u8],
        options: &AddOptions,
    ) -> RemoteRequest {
        let bytes = self.layout.shape.row_bytes;
        let local: Vec<usize> =
            self.local_keys(keys).iter().map(|local_key| local_key.position as usize).collect();
        let mut request = RemoteRequest::new(self.number, worker as u32, RequestVerb::KeyAdd);
        request.rows = match keys {
            Keys::Int(keys) => RowList::List(local.iter().map(|&at| keys[at]).collect()),
            Keys::Bytes(keys) => RowList::Keys(local.iter().map(|&at| keys[at].to_vec()).collect()),
        };
        request.options = options.to_bytes().to_vec();
        request.payload = local.iter().flat_map(|&at| &delta[at * bytes..][..bytes]).copied().collect();
        request
    }

    fn step(&self, call: &Call, adds: &RoundAdds, progress: &RoundProgress) -> Result<()> {
        let bytes = self.layout.shape.row_bytes;
        let mut sum = RoundSum::new(&self.rule, self.description.cols, 0);
        let (mut numbers, mut texts) = (HashMap::new(), HashMap::new());
        let mut all = self.owned(match self.layout.shape.keys {
            crate::tables::shard::key_value::KeyType::Int => RowList::List(Vec::new()),
            crate::tables::shard::key_value::KeyType::Bytes => RowList::Keys(Vec::new()),
        })?;
        for add in adds.iter() {
            let mut add = add?;
            let keys = self.owned(std::mem::replace(&mut add.rows, RowList::All))?;
            let delta = add.delta(self.description.dtype, keys.len() * bytes)?;
            let mut rows = delta.chunks_exact(bytes);
            let mut take = |slot: usize| {
                if slot == sum.rows() {
                    sum.grow(1);
                }
                rows.next().into_iter().for_each(|row| sum.add(slot, row));
            };
            match (keys, &mut all) {
                (OwnedKeys::Int(keys), OwnedKeys::Int(all)) => keys.into_iter().for_each(|key| {
                    take(*numbers.entry(key).or_insert_with(|| {
                        all.push(key);
                        all.len() - 1
                    }));
                }),
                (OwnedKeys::Bytes(keys), OwnedKeys::Bytes(all)) => keys.into_iter().for_each(|key| {
                    take(*texts.entry(key.clone()).or_insert_with(|| {
                        all.push(key);
                        all.len() - 1
                    }));
                }),
                _ => unreachable!("all keys of a table have one type"),
            }
        }
        let options = adds.options()?;
        let rows = sum.rows();
        let delta = sum.finish(adds.divisor(), 0..rows);
        // A round acts like one worker's add with a larger batch: of an updater's per-worker state it uses worker 0's.
        let context = UpdateContext { worker: 0, step: 0, options: &options };
        all.with(|keys| self.step_keys(call, keys, &delta, &context, progress))
    }
}
