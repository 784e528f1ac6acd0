//! all_reduce: every rank gets the reduced values.
//!
//! Over messages: reduce_scatter, then all_gather, folded in rank order, so the bits equal those over shared memory. Over several
//! hosts in two levels, through the hosts' leaders.

use super::cuda::{BufferOffset, DeviceJob};
use super::levels::windows_of;
use super::*;
use crate::memory::{half_floats, reduce};
use crate::world::Hierarchy;

/// Parts of a fold that several devices share begin at multiples of this many bytes: no two touch the same cache line.
const GRAIN: usize = 4096;

pub(super) const ALL_REDUCE: CollectiveVerb = CollectiveVerb {
    descriptor: VerbDescriptor::new(7, "all_reduce"),
    lengths: Lengths::Equal,
    execute: |call, buffers| call.all_reduce(buffers.single()?),
    jobs: Some(|plan| {
        let share = plan.bytes.div_ceil(plan.workers.all.len()).next_multiple_of(GRAIN);
        let part = |(at, &worker): (usize, &usize)| {
            let offset = (at * share).min(plan.bytes);
            let to = (0..plan.size).map(|rank| BufferOffset { rank, offset }).collect();
            DeviceJob::Fold { worker, offset, bytes: share.min(plan.bytes - offset), to }
        };
        plan.workers.all.iter().enumerate().map(part).collect()
    }),
};

impl Group {
    /// Reduces the members' values, in place.
    pub fn all_reduce<T: Element>(&self, values: &mut [T], operation: ReduceOp) -> Result<()> {
        self.raw().all_reduce(bytemuck::cast_slice_mut::<T, u8>(values), T::DTYPE, operation)
    }
}

impl Raw<'_> {
    /// Reduces the members' values, in place.
    #[inline]
    pub fn all_reduce<'b>(
        &self,
        values: impl Into<BufferMut<'b>>,
        dtype: DType,
        operation: ReduceOp,
    ) -> Result<()> {
        let spec = CollectiveSpec::new(&ALL_REDUCE, dtype).operation(operation);
        self.execute(&spec, Buffers::in_place(values.into()))
    }
}

impl HostCall<'_> {
    #[inline]
    fn all_reduce(&self, bytes: &mut [u8]) -> Result<()> {
        let (group, call) = (self.group, self.call);
        let (dtype, operation) = self.spec.reduction();
        if let Some(channel) = group.channel() {
            return channel.all_reduce(call, self.signature, bytes, dtype, operation);
        }
        // With two levels, the order of the sum depends on which ranks share a host.
        let levels = group.hierarchy(call)?;
        if let Some(levels) = levels.filter(|_| !group.is_deterministic()) {
            if rails::may_all_reduce_over_rails(levels, bytes.len()) {
                return self.all_reduce_over_rails(levels, bytes);
            }
            return windows_of(levels, bytes.len())
                .try_for_each(|window| self.all_reduce_in_levels(levels, &mut bytes[window]));
        }
        if let Some(result) = self.all_reduce_flat(levels, bytes) {
            return result;
        }
        let transport = group.transport();
        transport
            .all_reduce(call, &self.match_key(), group.members(), bytes, (dtype, operation))
            .unwrap_or_else(|| self.all_reduce_across(bytes))
    }

    fn all_reduce_across(&self, bytes: &mut [u8]) -> Result<()> {
        let counts = balanced_counts(bytes.len() / self.spec.dtype.size(), self.group.size());
        let spec = CollectiveSpec { counts: &counts, ..*self.spec };
        let in_parts = HostCall { spec: &spec, ..*self };
        let mine = spec.part_ranges()[self.group.rank()].start;
        let buffer = bytes.as_mut_ptr();
        // SAFETY: the output is this rank's part of the input, both inside `bytes`.
        unsafe { in_parts.reduce_scatter_across(buffer, buffer.add(mine))? };
        in_parts.all_gather_across(bytes)
    }

    /// Each host reduces its members' values, the leaders reduce those of the hosts, and each host broadcasts the result.
    /// Half types travel as f32 until then: a partial sum may exceed the range of a half type, and is rounded once.
    fn all_reduce_in_levels(&self, levels: &Hierarchy, bytes: &mut [u8]) -> Result<()> {
        let (dtype, operation) = self.spec.reduction();
        let (local, leaders) = (self.group.step_of(self.call, &levels.local), &levels.leaders);
        let combine = |values: &mut [u8], dtype: DType| -> Result<()> {
            let within = if operation == ReduceOp::Avg { ReduceOp::Sum } else { operation };
            local.raw().steps_of(self.signature).reduce(&mut *values, dtype, within, 0)?;
            if let Some(leaders) = leaders {
                let leaders = self.group.step_of(self.call, leaders);
                leaders.raw().steps_of(self.signature).all_reduce(&mut *values, dtype, within)?;
                if operation == ReduceOp::Avg {
                    reduce::divide(values, dtype, self.group.size());
                }
            }
            Ok(())
        };
        match half_floats::to_single(bytes, dtype) {
            Some(mut wide) => {
                combine(bytemuck::cast_slice_mut(&mut wide), DType::F32)?;
                if leaders.is_some() {
                    half_floats::from_single(&wide, bytes, dtype);
                }
            }
            None => combine(bytes, dtype)?,
        }
        local.raw().steps_of(self.signature).broadcast(bytes, dtype, 0)
    }
}
