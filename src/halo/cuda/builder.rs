//! Builds the programs of a plan, over arrays and buffers at any address.

use std::sync::Arc;

use super::super::plan::HaloParcel;
use super::box_copy::{BoxCopy, MemoryBase};
use super::cells::{Contribution, cells};
use super::device_transport::NeighbourParcels;
use super::program::DeviceProgram;
use crate::halo::Plan;
use crate::memory::DType;
use crate::memory::strided::{value_of, wide_size};

/// What programs depend on. They number arrays from zero: each field's input, each field's output, and the partial sums.
pub(super) struct ProgramBuilder {
    pub plan: Arc<Plan>,
    pub dtype: DType,
    pub fields: usize,
    /// The ranks that send or receive, in order; a neighbour is an index into this list.
    pub members: Vec<usize>,
}

/// The parcel for a member, if there is one.
fn of(parcels: &[HaloParcel], member: usize) -> Option<&HaloParcel> {
    parcels.iter().find(|parcel| parcel.peer == member)
}

impl ProgramBuilder {
    pub fn new(plan: Arc<Plan>, dtype: DType, fields: usize) -> ProgramBuilder {
        let meets =
            |member: &usize| plan.sends.iter().chain(&plan.receives).any(|parcel| parcel.peer == *member);
        let members = (0..plan.inputs().grid().size()).filter(meets).collect();
        ProgramBuilder { plan, dtype, fields, members }
    }

    /// The parcels of each neighbour. Members that get the same parcel share its space.
    pub fn neighbours(&self, sends: &[HaloParcel], receives: &[HaloParcel]) -> Vec<NeighbourParcels> {
        let bytes = |parcel: Option<&HaloParcel>| {
            parcel.map_or(0, |parcel| parcel.elements * self.dtype.size() * self.fields)
        };
        let parcels_of = |(at, &member): (usize, &usize)| {
            let mine = of(sends, member);
            let is_same = |&other: &usize| match (mine, of(sends, other)) {
                (Some(mine), Some(other)) => mine.boxes == other.boxes,
                _ => false,
            };
            let same = self.members[..at].iter().position(is_same).unwrap_or(at);
            NeighbourParcels { member, to: bytes(mine), from: bytes(of(receives, member)), same }
        };
        self.members.iter().enumerate().map(parcels_of).collect()
    }

    fn input(&self, field: usize) -> MemoryBase {
        MemoryBase::Array(field as u32)
    }

    fn output(&self, field: usize) -> MemoryBase {
        MemoryBase::Array((self.fields + field) as u32)
    }

    /// Packs parcels from the inputs into the memory that `packed` returns; a neighbour without any shares that of another one.
    pub fn pack(
        &self,
        parcels: &[HaloParcel],
        packed: impl Fn(usize) -> Option<MemoryBase>,
    ) -> DeviceProgram {
        let (element, mut program) = (self.dtype.size(), DeviceProgram::default());
        for (neighbour, &member) in self.members.iter().enumerate() {
            let (Some(parcel), Some(base)) = (of(parcels, member), packed(neighbour)) else { continue };
            for field in 0..self.fields {
                let to = (base, field * parcel.elements * element);
                let boxes = parcel.boxes.iter();
                program
                    .box_copies
                    .extend(boxes.map(|pair| BoxCopy::out(pair, element, self.input(field), to)));
            }
        }
        program
    }

    /// Copies this rank's own elements, and fills the constants beyond the edges.
    pub fn own(&self) -> DeviceProgram {
        let (element, mut program) = (self.dtype.size(), DeviceProgram::default());
        for field in 0..self.fields {
            let (from, to) = (self.input(field), self.output(field));
            let copy = |pair| BoxCopy::out(pair, element, from, (to, 0));
            program.box_copies.extend(self.plan.local.iter().map(copy));
            let fill = |(pair, value): &_| BoxCopy::fill(pair, element, to, &value_of(self.dtype, *value));
            program.box_copies.extend(self.plan.fills.iter().map(fill));
        }
        program
    }

    /// The same for arrays in their padded form, as inputs and as outputs.
    pub fn own_in_place(&self) -> DeviceProgram {
        let (element, mut program) = (self.dtype.size(), DeviceProgram::default());
        for field in 0..self.fields {
            let (from, to) = (self.input(field), (self.output(field), 0));
            let boxes = self.plan.in_place.iter().flat_map(|in_place| &in_place.local);
            program.box_copies.extend(boxes.map(|pair| BoxCopy::out(pair, element, from, to)));
        }
        program
    }

    /// Copies received parcels to the padded arrays.
    pub fn unpack(&self, arrived: impl Fn(usize) -> MemoryBase) -> DeviceProgram {
        let (element, mut program) = (self.dtype.size(), DeviceProgram::default());
        for (neighbour, &member) in self.members.iter().enumerate() {
            let Some(parcel) = of(&self.plan.receives, member) else { continue };
            for field in 0..self.fields {
                let from = (arrived(neighbour), field * parcel.elements * element);
                let boxes = parcel.boxes.iter();
                program
                    .box_copies
                    .extend(boxes.map(|pair| BoxCopy::into(pair, element, self.output(field), from)));
            }
        }
        program
    }

    /// The adjoint's sums that need this rank's padded arrays alone, the sums that need parcels too, and the bytes of the
    /// partial sums between the two.
    pub fn sums(&self, arrived: impl Fn(usize) -> MemoryBase) -> (DeviceProgram, DeviceProgram, usize) {
        let (element, wide) = (self.dtype.size(), wide_size(self.dtype));
        let (mut early, mut late, mut partial_bytes) =
            (DeviceProgram::default(), DeviceProgram::default(), 0);
        let shape = self.plan.own().shape();
        let partial_sums = MemoryBase::Array(2 * self.fields as u32);
        for field in 0..self.fields {
            let local = |pair| Contribution { pair, base: self.input(field), skip: 0 };
            let mut contributions: Vec<Contribution> = self.plan.local.iter().map(local).collect();
            // As on the host: a box that covers every element comes first, if sums have the elements' own type.
            if let Some(whole) = self.plan.first_of_sums().filter(|_| wide == element) {
                contributions[..=whole].rotate_right(1);
            }
            for (neighbour, &member) in self.members.iter().enumerate() {
                let Some(parcel) = of(&self.plan.sends, member) else { continue };
                let (base, skip) = (arrived(neighbour), field * parcel.elements * element);
                let boxes = parcel.boxes.iter();
                contributions.extend(boxes.map(|pair| Contribution { pair, base, skip }));
            }
            for cell in cells(&shape, self.output(field), element, &contributions) {
                let (before, after) = cell.split_by_arrival(wide, partial_sums, &mut partial_bytes);
                before.into_iter().for_each(|cell| early.add(cell));
                after.into_iter().for_each(|cell| late.add(cell));
            }
        }
        (early, late, partial_bytes)
    }
}
