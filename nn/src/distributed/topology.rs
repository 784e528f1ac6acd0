//! The process topology of a run: the groups of ranks that this rank belongs to.

use std::borrow::Cow;
use std::ops::Range;
use std::time::Duration;

use unisono::error::Lost;
use unisono::halo::{Grid, Partition};
use unisono::{Error, Group, ReduceOp, Result};

use super::arrangement::{Arrangement, Mode};
use super::comm_timer::CommTimer;
use super::failure::Failure;
use super::sums::GroupSum;
use crate::experiment::Experiment;
use crate::layers::Sums;
use crate::memory;
use crate::models::Network;
use crate::number::Number;
use crate::weight::{Weight, WeightShard, WeightSharding};

/// Gradients with more elements than this are reduced on their own: copying them into the fused buffer does not pay off.
const FUSION_LIMIT: usize = 1 << 15;

/// The ranks that train one model together. The ranks of a spatial group hold parts of the same samples; different groups
/// have different samples.
pub(crate) struct Topology {
    pub(crate) world: GroupSum,
    /// The ranks that hold parts of the same samples.
    pub(crate) spatial: GroupSum,
    /// The ranks that hold the same part of different samples.
    pub(crate) data: GroupSum,
    pub(crate) grid: Grid,
    pub(crate) mode: Mode,
    pub(crate) comm: CommTimer,
    /// The number of ranks on this machine; at least 1, if the machine cannot be identified.
    pub(crate) local_size: usize,
}

impl Topology {
    /// Arranges the ranks of a group. All of them must call this.
    pub(crate) fn new(group: &Group, experiment: &Experiment) -> Result<Topology> {
        let arrangement = Arrangement::new(experiment, group.size())?;
        let (data_index, spatial_index) = arrangement.position(group.rank());
        let comm = CommTimer::default();
        let group_sum = |group: Group| GroupSum { group, comm: comm.clone() };
        let split = |color: usize| -> Result<GroupSum> {
            Ok(group_sum(
                group.split(Some(color as u64), group.rank() as i64)?.expect("every rank has a color"),
            ))
        };
        let machine = memory::boot_id();
        let mut machines = vec![0; group.size()];
        group.all_gather(&[machine.unwrap_or(0)], &mut machines)?;
        let local_size = machines.iter().filter(|other| Some(**other) == machine).count().max(1);
        Ok(Topology {
            spatial: split(data_index)?,
            data: split(spatial_index)?,
            local_size,
            world: group_sum(group.clone()),
            grid: arrangement.spatial_grid,
            mode: arrangement.mode,
            comm,
        })
    }

    /// Whether this rank is the root, which writes files and shows progress.
    pub(crate) fn is_root(&self) -> bool {
        self.world.group.rank() == 0
    }

    /// The range of this rank's samples in a batch.
    pub(crate) fn local_samples(&self, batch: usize) -> Range<usize> {
        Partition::balanced(batch, self.data.group.size()).range(self.data.group.rank())
    }

    /// Gathers a weight that is partitioned within a spatial group, on the root. Other ranks take part and get `None`.
    pub(crate) fn gather_weight<T: Number>(
        &self,
        shard: &WeightShard,
        values: &[T],
        size: usize,
    ) -> Result<Option<Vec<T>>> {
        // All spatial groups have the same weights: one of them is enough.
        if self.data.group.rank() != 0 {
            return Ok(None);
        }
        // The neutral element of addition is −0: adding +0 would turn −0 into +0.
        let mut whole = vec![-T::ZERO; size];
        shard.put(values, &mut whole);
        if self.spatial.group.size() > 1 {
            self.comm.collective(|| self.spatial.group.reduce(&mut whole, ReduceOp::Sum, 0))?;
        }
        Ok(self.is_root().then_some(whole))
    }

    /// Gathers the state of a weight whose update the ranks have divided. All ranks must call this.
    pub(crate) fn gather_shards<'a, T: Number>(
        &self,
        weight: &Weight<T>,
        state: &'a [T],
    ) -> Result<Cow<'a, [T]>> {
        match &weight.update_shards {
            Some(shards) => {
                let length = weight.values.len();
                let mut all = vec![T::ZERO; length];
                self.data.gather(state, &mut all, &shards.counts(length))?;
                Ok(all.into())
            }
            None => Ok(state.into()),
        }
    }

    /// Fails on all ranks if it failed on one. All ranks must call this. The rank with the root cause reports it; a rank
    /// that only timed out waiting for others reports its error if there is no root cause.
    pub(crate) fn agree<R>(&self, result: Result<R>) -> Result<R, Failure> {
        agree(&self.world.group, result)
    }

    /// [`Topology::agree`] after a long operation of one rank: the others wait without a deadline, as long as that rank
    /// lives. They must not leave earlier, since with MPI as the transport that would end the job.
    pub(crate) fn agree_without_timeout<R>(&self, result: Result<R>) -> Result<R, Failure> {
        agree(&self.world.group.with_timeout(Duration::MAX), result)
    }

    /// Sums the counts of one rank per spatial group over all groups; fails on all ranks if one could not read its samples.
    /// All ranks must call this after the batch with this number.
    pub(crate) fn sum_counts<const N: usize>(
        &self,
        counted: [f64; N],
        read: Result<()>,
        batch: u64,
    ) -> Result<[f64; N]> {
        // The ranks of a spatial group have the same samples.
        let counts_here = self.spatial.group.rank() == 0;
        let mut sums: Vec<f64> = counted.iter().map(|count| if counts_here { *count } else { 0.0 }).collect();
        sums.push(f64::from(u8::from(read.is_err())));
        if let Err(broken) = Sums::<f64>::sum_f64(&self.world, &mut sums) {
            // A read error of this rank is more likely the cause.
            return Err(read.err().unwrap_or(broken));
        }
        if sums[N] > 0.0 {
            let all = Sums::<f64>::gather_whole(&self.world, &[i64::from(read.is_err())]);
            read?;
            return Err(self.read_failure(&all?, batch));
        }
        Ok(std::array::from_fn(|index| sums[index]))
    }

    /// The error on ranks that are not the cause: it names the ranks that could not read their samples. Those report the
    /// reason.
    fn read_failure(&self, failed: &[i64], batch: u64) -> Error {
        let ranks = (0..failed.len()).filter(|rank| failed[*rank] != 0);
        let how = "it could not read its samples";
        Error::PeerLost {
            rank: self.world.group.rank(),
            operation: "batch".into(),
            number: batch,
            group: self.world.group.name().into(),
            lost: ranks.map(|rank| Lost::new(rank, None, how)).collect(),
        }
    }

    /// Sums the gradients of layers from `lowest` on over the global batch. Small gradients are fused into one reduction in
    /// `all`, a buffer that is reused for the next batch.
    pub(crate) fn sum_gradients<T: Number>(
        &self,
        network: &mut Network<T>,
        lowest: usize,
        all: &mut Vec<T>,
    ) -> Result<()> {
        for (replicated, group_sum) in [(true, &self.world), (false, &self.data)] {
            if group_sum.group.size() == 1 {
                continue;
            }
            all.clear();
            for gradient in gradients(network, lowest, replicated) {
                match gradient.len() > FUSION_LIMIT {
                    true => group_sum.sum(gradient)?,
                    false => all.extend_from_slice(gradient),
                }
            }
            group_sum.sum(all)?;
            let mut rest = &all[..];
            let fused =
                gradients(network, lowest, replicated).filter(|gradient| gradient.len() <= FUSION_LIMIT);
            for gradient in fused {
                let (own, others) = rest.split_at(gradient.len());
                gradient.copy_from_slice(own);
                rest = others;
            }
        }
        Ok(())
    }

    /// Gathers the rows of weights whose update the ranks have divided, in layers from `lowest` on.
    pub(crate) fn gather_updates<T: Number>(&self, network: &mut Network<T>, lowest: usize) -> Result<()> {
        let weights = network.layers()[lowest..].iter_mut().flat_map(|layer| layer.weights());
        for weight in weights {
            let Some(shards) = &weight.update_shards else { continue };
            let counts = shards.counts(weight.values.len());
            let bytes = bytemuck::cast_slice_mut(&mut weight.values);
            self.comm.collective(|| self.data.group.raw().all_gather_in_place(bytes, &counts, T::DTYPE))?;
        }
        Ok(())
    }

    /// Ends the waits of ranks that need a collective of this rank, after an error that keeps it from making that call.
    /// The group of all ranks remains usable, to agree on the error.
    pub(crate) fn revoke_subgroups(&self) {
        self.spatial.group.revoke();
        self.data.group.revoke();
    }
}

/// The gradients that are summed over all ranks, or the others.
fn gradients<T: Number>(
    network: &mut Network<T>,
    lowest: usize,
    replicated: bool,
) -> impl Iterator<Item = &mut [T]> {
    let weights = network.layers()[lowest..].iter_mut().flat_map(|layer| layer.weights());
    let chosen = weights.filter(move |weight| (weight.sharding == WeightSharding::Replicated) == replicated);
    chosen.map(|weight| &mut weight.gradient[..])
}

fn agree<R>(group: &Group, result: Result<R>) -> Result<R, Failure> {
    match (group.find_failure(result.as_ref().err()), result) {
        (Ok(None), result) => Ok(result?),
        (Ok(Some(failure)), Err(error)) if failure.rank == group.rank() => Err(error.into()),
        (Ok(Some(failure)), _) => Err(Failure::on_other_rank(failure.rank, failure.kind)),
        // An error of this rank is more likely the cause than the failure to reach the others.
        (Err(broken), result) => Err(result.err().unwrap_or(broken).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono::testing::spawn;

    fn topology(group: &Group) -> Topology {
        let text = "{epochs: 1, batch_size: 9, data: iris, model: {type: network, cost: sum_of_squares, \
                    layers: [{type: fully_connected, outputs: 3}]}}";
        let experiment = Experiment::parse("x.yaml", text, &[]).expect("it is right");
        Topology::new(group, &experiment).expect("ranks are arranged")
    }

    #[test]
    fn who_found_the_cause_speaks() {
        let usage = || Error::usage("read", "a file", "none", "write it");
        for (errors, reporter) in [
            ([Some(Error::internal("wait", "no rank arrived")), None, Some(usage())], 2),
            ([None, Some(Error::internal("wait", "no rank arrived")), None], 1),
            ([None, Some(usage()), Some(usage())], 1),
        ] {
            let failures = spawn(3, |group| {
                let own = errors[group.rank()].clone().map_or(Ok(()), Err);
                topology(&group).agree(own).expect_err("one failed")
            });
            for (rank, failure) in failures.iter().enumerate() {
                assert_eq!(failure.own, rank == reporter, "{rank}: {}", failure.error);
                let expected = errors[reporter].as_ref().expect("it failed").kind();
                assert_eq!(failure.error.kind(), expected, "{rank}: {}", failure.error);
            }
        }
        assert!(spawn(3, |group| topology(&group).agree(Ok(7))).into_iter().all(|result| result.is_ok()));
    }

    #[test]
    fn ranks_wait_for_the_long_work_of_one() {
        let results = spawn(2, |group| {
            let mut topology = topology(&group);
            topology.world.group = group.with_timeout(Duration::from_millis(50));
            if group.rank() == 0 {
                std::thread::sleep(Duration::from_millis(400));
            }
            topology.agree_without_timeout(Ok(()))
        });
        assert!(results.iter().all(|result| result.is_ok()), "{results:?}");
    }
}
