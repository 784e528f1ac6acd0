//! The plan reversed: what every rank has for the elements it needed goes back to their owners and is summed there.

use super::exchange::{Exchange, pack};
use super::neighbours::Begun;
use super::plan::Parcel;
use crate::error::Result;
use crate::memory::Element;
use crate::memory::strided::{narrow, wide_size};
use crate::transport::{Call, Verb};

impl Exchange {
    /// The adjoint of [`Exchange::forward`], as backpropagation needs it: `part` becomes, for each of this rank's elements,
    /// the sum over everywhere that forward puts it. A rank adds up its own first and then its neighbours' in rank order,
    /// so every run gives the same bits. What stands in the constant boundary goes nowhere.
    pub fn adjoint<T: Element>(&mut self, padded: &[T], part: &mut [T]) -> Result<()> {
        self.check_type::<T>()?;
        self.adjoint_fields(&[bytemuck::cast_slice(padded)], &mut [bytemuck::cast_slice_mut(part)])
    }

    /// The adjoint of [`Exchange::forward_fields`].
    pub fn adjoint_fields(&mut self, padded: &[&[u8]], parts: &mut [&mut [u8]]) -> Result<()> {
        self.check_adjoint(padded, parts)?;
        let group = self.group.clone();
        group.call(Verb::HaloAdjoint, |call| {
            let begun = self.send_padded(call, padded)?;
            self.sum_own(padded, parts);
            self.receive_sums(call, begun, parts)
        })
    }

    /// Begins the adjoint: sends what belongs to others, and sums what is known here. [`Exchange::end`] adds the rest.
    pub fn begin_adjoint(&mut self, padded: &[&[u8]], parts: &mut [&mut [u8]]) -> Result<()> {
        self.check_adjoint(padded, parts)?;
        let group = self.group.clone();
        let begun = group.call(Verb::HaloAdjoint, |call| {
            let begun = self.send_padded(call, padded)?;
            self.sum_own(padded, parts);
            Ok(begun)
        })?;
        self.under_way = Some(begun);
        Ok(())
    }

    fn check_adjoint(&self, padded: &[&[u8]], parts: &[&mut [u8]]) -> Result<()> {
        self.check_idle()?;
        self.check_lengths(padded.iter().map(|x| x.len()), self.plan.needed().elements(), "padded arrays")?;
        self.check_lengths(parts.iter().map(|x| x.len()), self.plan.own().elements(), "parts")
    }

    fn send_padded(&mut self, call: &Call, padded: &[&[u8]]) -> Result<Begun> {
        let begun = Begun { verb: Verb::HaloAdjoint, number: call.number };
        let fingerprint = self.fingerprint();
        let Exchange { plan, group, wire, sends, receives, dtype, fields, .. } = self;
        let (plan, element, fields) = (&*plan, dtype.size(), *fields);
        let bytes = |parcels: &[Parcel], at: Option<usize>| {
            at.map_or(0, |at| parcels[at].elements * element * fields)
        };
        let lengths = |lane: usize| (bytes(&plan.receives, receives[lane]), bytes(&plan.sends, sends[lane]));
        wire.send(group, call, (begun, *dtype, fingerprint), lengths, |lane, room| {
            if let Some(at) = receives[lane] {
                pack(&plan.receives[at], element, padded, room);
            }
        })?;
        Ok(begun)
    }

    /// Sums what this rank has for its own elements.
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
            // Where one box has every element, it need not be added to zeroes.
            let whole = self.plan.local.iter().position(|common| !halves && common.covers(elements));
            match whole {
                Some(at) => self.plan.local[at].copy_in(dtype.size(), sums, padded),
                None => sums.fill(0),
            }
            let rest = self.plan.local.iter().enumerate().filter(|(at, _)| Some(*at) != whole);
            rest.for_each(|(_, common)| common.add_in(dtype, sums, padded));
        }
    }

    pub(super) fn receive_sums(&mut self, call: &Call, begun: Begun, parts: &mut [&mut [u8]]) -> Result<()> {
        let Exchange { plan, group, wire, sends, dtype, fields, sums, .. } = self;
        let (dtype, element) = (*dtype, dtype.size());
        let parcel = |lane: usize| sends[lane].map(|at| &plan.sends[at]);
        let lengths = |lane: usize| parcel(lane).map_or(0, |parcel| parcel.elements * element * *fields);
        wire.receive(group, call, begun, (lengths, true), |lane, bytes| {
            let Some(parcel) = parcel(lane) else { return };
            let size = parcel.elements * element;
            for (field, bytes) in bytes.chunks_exact(size).enumerate() {
                let target = sums.get_mut(field).map_or(&mut parts[field][..], |sums| &mut sums[..]);
                parcel.boxes.iter().for_each(|common| common.add_in(dtype, target, bytes));
            }
        })?;
        for (sums, part) in sums.iter().zip(parts) {
            narrow(dtype, sums, part);
        }
        Ok(())
    }
}
