//! The reversed plan: every rank's contributions to elements that it received are sent back to the owners and summed there.

use super::exchange::Exchange;
use super::neighbours::StartedCall;
use super::packing::{PackArrays, PackUnpack, Transfers};
use super::verbs;
use crate::error::Result;
use crate::memory::strided::{narrow, wide_size};
use crate::memory::{DType, Element};
use crate::transport::Call;

impl Exchange {
    /// The adjoint of [`Exchange::forward`], as backpropagation needs it: each element of `part` becomes the sum over all
    /// positions to which forward copies it. A rank adds its own contributions first and then its neighbours' in rank order,
    /// so every run gives the same bits. Values in the constant boundary are dropped.
    pub fn adjoint<T: Element>(&mut self, padded: &[T], part: &mut [T]) -> Result<()> {
        self.check_type::<T>()?;
        self.adjoint_fields(&[bytemuck::cast_slice(padded)], &mut [bytemuck::cast_slice_mut(part)])
    }

    /// The adjoint of [`Exchange::forward_fields`].
    pub fn adjoint_fields(&mut self, padded: &[&[u8]], parts: &mut [&mut [u8]]) -> Result<()> {
        self.check_adjoint(padded, parts)?;
        let group = self.group.clone();
        group.call(verbs::ADJOINT, |call| {
            let started = self.send_padded(call, padded)?;
            self.sum_own(padded, parts);
            self.receive_sums(call, started, parts)
        })
    }

    /// Begins the adjoint: sends contributions to elements of other ranks, and sums the local ones. [`Exchange::end`] adds
    /// the rest.
    pub fn begin_adjoint(&mut self, padded: &[&[u8]], parts: &mut [&mut [u8]]) -> Result<()> {
        self.check_adjoint(padded, parts)?;
        let group = self.group.clone();
        let started = group.call(verbs::ADJOINT, |call| {
            let started = self.send_padded(call, padded)?;
            self.sum_own(padded, parts);
            Ok(started)
        })?;
        self.in_flight = Some(started);
        Ok(())
    }

    fn check_adjoint(&self, padded: &[&[u8]], parts: &[&mut [u8]]) -> Result<()> {
        self.check_idle()?;
        self.check_padded(padded)?;
        self.check_parts(parts)
    }

    pub(super) fn send_padded(&mut self, call: &Call, padded: &[impl AsRef<[u8]>]) -> Result<StartedCall> {
        let started = StartedCall { verb: verbs::ADJOINT, number: call.number };
        let fingerprint = self.fingerprint();
        let Exchange { plan, group, wire, sends, receives, dtype, fields, .. } = self;
        let transfers = Transfers::forward(plan, (sends, receives), (dtype.size(), *fields)).reversed();
        let mut packer = PackArrays { transfers, arrays: padded };
        wire.send(group, call, (started, *dtype, fingerprint), &mut packer, false)?;
        Ok(started)
    }

    /// Sums this rank's own contributions to its elements.
    fn sum_own(&mut self, padded: &[&[u8]], parts: &mut [&mut [u8]]) {
        let (dtype, elements) = (self.dtype, self.plan.own().elements());
        let halves = wide_size(dtype) != dtype.size();
        for (field, (padded, part)) in padded.iter().zip(parts).enumerate() {
            let sums = match self.sums.get_mut(field) {
                Some(sums) => {
                    sums.resize(elements * wide_size(dtype), 0);
                    &mut sums[..]
                }
                None => &mut part[..],
            };
            // If one box covers every element, it is copied instead of added to zeroes.
            let whole = self.plan.first_of_sums().filter(|_| !halves);
            match whole {
                Some(at) => self.plan.local[at].copy_in(dtype.size(), sums, padded),
                None => sums.fill(0),
            }
            let rest = self.plan.local.iter().enumerate().filter(|(at, _)| Some(*at) != whole);
            rest.for_each(|(_, pair)| pair.add_in(dtype, sums, padded));
        }
    }

    pub(super) fn receive_sums(
        &mut self,
        call: &Call,
        started: StartedCall,
        parts: &mut [&mut [u8]],
    ) -> Result<()> {
        let Exchange { plan, group, wire, sends, receives, dtype, fields, sums, .. } = self;
        let (dtype, transfers) =
            (*dtype, Transfers::forward(plan, (sends, receives), (dtype.size(), *fields)).reversed());
        wire.receive(group, call, started, &mut SumArrays { transfers, dtype, sums, parts }, true)?;
        for (sums, part) in sums.iter().zip(parts) {
            narrow(dtype, sums, part);
        }
        Ok(())
    }
}

/// Parts to which parcels are added, or sums in a wider type that are narrowed to parts at the end.
pub(super) struct SumArrays<'a, 'b> {
    pub transfers: Transfers<'a>,
    pub dtype: DType,
    pub sums: &'a mut [Vec<u8>],
    pub parts: &'a mut [&'b mut [u8]],
}

impl PackUnpack for SumArrays<'_, '_> {
    fn lengths(&self, neighbour: usize) -> (usize, usize) {
        self.transfers.lengths(neighbour)
    }

    /// Only complete parcels are added: the order of summation is fixed.
    fn unpack(&mut self, neighbour: usize, done: usize, bytes: &[u8]) -> usize {
        let Some(parcel) = self.transfers.from.get(neighbour) else { return done };
        for (field, bytes) in bytes.chunks_exact(parcel.bytes(self.dtype.size(), 1)).enumerate() {
            let part = &mut self.parts[field][..];
            let target = self.sums.get_mut(field).map_or(part, |sums| &mut sums[..]);
            parcel.boxes.iter().for_each(|pair| pair.add_in(self.dtype, target, bytes));
        }
        bytes.len()
    }
}
