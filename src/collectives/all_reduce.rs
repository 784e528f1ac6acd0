//! all_reduce: every rank gets the reduced values.
//!
//! Over messages: reduce_scatter, then all_gather. Always folded in rank order, so the bits equal those over shared memory.

use super::{Raw, balanced_counts, byte_ranges};
use crate::error::Result;
use crate::memory::{DType, Element, ReduceOp, half_floats, reduce};
use crate::transport::{Call, Signature, Verb};
use crate::world::{Group, Hierarchy};

impl Group {
    /// Reduces the members' values, in place.
    pub fn all_reduce<T: Element>(&self, values: &mut [T], operation: ReduceOp) -> Result<()> {
        self.raw().all_reduce(bytemuck::cast_slice_mut(values), T::DTYPE, operation)
    }

    fn all_reduce_by_messages(
        &self,
        call: &Call,
        signature: Signature,
        bytes: &mut [u8],
        (dtype, operation): (DType, ReduceOp),
    ) -> Result<()> {
        let counts = balanced_counts(bytes.len() / dtype.size(), self.size());
        let mine = byte_ranges(&counts, dtype.size())[self.rank()].start;
        let buffer = bytes.as_mut_ptr();
        // SAFETY: the output is this rank's part of the input, both inside `bytes`.
        unsafe {
            let output = buffer.add(mine);
            self.reduce_scatter_by_messages(call, signature, buffer, output, &counts, (dtype, operation))?;
        }
        self.all_gather_by_messages(call, signature, bytes, &counts, dtype.size())
    }

    /// Each host reduces its members' values, the leaders reduce those of the hosts, and each host broadcasts the result.
    /// Half types travel as f32 until then: a partial sum may exceed the range of a half type, and is rounded once.
    fn all_reduce_in_levels(
        &self,
        call: &Call,
        levels: &Hierarchy,
        signature: Signature,
        bytes: &mut [u8],
        (dtype, operation): (DType, ReduceOp),
    ) -> Result<()> {
        let (local, leaders) = (self.step_of(call, &levels.local), &levels.leaders);
        let combine = |values: &mut [u8], dtype: DType| -> Result<()> {
            let within = if operation == ReduceOp::Avg { ReduceOp::Sum } else { operation };
            local.raw().steps_of(signature).reduce(values, dtype, within, 0)?;
            if let Some(leaders) = leaders {
                let leaders = self.step_of(call, leaders);
                leaders.raw().steps_of(signature).all_reduce(values, dtype, within)?;
                if operation == ReduceOp::Avg {
                    reduce::divide(values, dtype, self.size());
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
        local.raw().steps_of(signature).broadcast(bytes, dtype, 0)
    }
}

impl Raw<'_> {
    /// Reduces the members' values, in place.
    pub fn all_reduce(&self, bytes: &mut [u8], dtype: DType, operation: ReduceOp) -> Result<()> {
        let group = self.group;
        let count = self.elements(Verb::AllReduce, bytes.len(), dtype)?;
        self.check_operation(Verb::AllReduce, dtype, operation)?;
        group.call(Verb::AllReduce, |call| {
            let signature = self
                .signature(Verb::AllReduce, call)
                .of(dtype, count as u64)
                .operation(operation)
                .deterministic(group.is_deterministic());
            let signature = self.enclosing.unwrap_or(signature);
            if let Some(channel) = group.channel() {
                return channel.all_reduce(call, signature, bytes, dtype, operation);
            }
            // With two levels, the order of the sum depends on which ranks share a host.
            if !group.is_deterministic()
                && let Some(levels) = group.hierarchy(call)?
            {
                return group.all_reduce_in_levels(call, levels, signature, bytes, (dtype, operation));
            }
            let (transport, kind) = (group.transport(), (dtype, operation));
            transport
                .all_reduce(call, &group.slot(signature), group.members(), bytes, kind)
                .unwrap_or_else(|| group.all_reduce_by_messages(call, signature, bytes, kind))
        })
    }
}
