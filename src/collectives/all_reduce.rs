//! all_reduce: everybody gets the combined values.
//!
//! Over messages: reduce_scatter, then all_gather. Always folded in rank order, so the bits are those of shared memory.

use super::{Raw, even, ranges};
use crate::error::Result;
use crate::memory::{DType, Element, ReduceOp};
use crate::transport::{Call, Signature, Verb};
use crate::world::Group;

impl Group {
    /// Combines the members' values, in place.
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
        let counts = even(bytes.len() / dtype.size(), self.size());
        let mine = ranges(&counts, dtype.size())[self.rank()].start;
        let buffer = bytes.as_mut_ptr();
        // SAFETY: the output is this rank's part of the input, both inside `bytes`.
        unsafe {
            let output = buffer.add(mine);
            self.reduce_scatter_by_messages(call, signature, buffer, output, &counts, (dtype, operation))?;
        }
        self.all_gather_by_messages(call, signature, bytes, &counts, dtype.size())
    }
}

impl Raw<'_> {
    /// Combines the members' values, in place.
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
            if let Some(channel) = &group.core.channel {
                return channel.all_reduce(call, signature, bytes, dtype, operation);
            }
            // In two floors the order of the sum depends on who shares a host.
            if !group.is_deterministic()
                && let Some(floors) = group.hierarchy(call)?
            {
                let within = if operation == ReduceOp::Avg { ReduceOp::Sum } else { operation };
                group.step_of(call, &floors.local).raw().reduce(bytes, dtype, within, 0)?;
                if let Some(leaders) = &floors.leaders {
                    group.step_of(call, leaders).raw().all_reduce(bytes, dtype, within)?;
                    if operation == ReduceOp::Avg {
                        crate::memory::reduce::divide(bytes, dtype, group.size());
                    }
                }
                return group.step_of(call, &floors.local).raw().broadcast(bytes, dtype, 0);
            }
            let (transport, kind) = (&group.core.common.transport, (dtype, operation));
            transport
                .all_reduce(call, &group.slot(signature), group.members(), bytes, kind)
                .unwrap_or_else(|| group.all_reduce_by_messages(call, signature, bytes, kind))
        })
    }
}
