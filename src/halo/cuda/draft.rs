//! A draft: everything that ranks do for a plan, as programs over arrays and buffers wherever these may be.

use std::sync::Arc;

use super::super::plan::Parcel;
use super::cells::{Contribution, cells};
use super::passage::Lane;
use super::piece::{Origin, Piece};
use super::program::Program;
use crate::halo::Plan;
use crate::memory::DType;
use crate::memory::strided::{value_of, wide_size};

/// What programs depend on. They count arrays from zero: each field's input, each field's output, and sums that wait.
pub(super) struct Draft {
    pub plan: Arc<Plan>,
    pub dtype: DType,
    pub fields: usize,
    /// The ranks that send or receive, in order: each has a lane.
    pub members: Vec<usize>,
}

/// The parcel for a member, if there is one.
fn of(parcels: &[Parcel], member: usize) -> Option<&Parcel> {
    parcels.iter().find(|parcel| parcel.peer == member)
}

impl Draft {
    pub fn new(plan: Arc<Plan>, dtype: DType, fields: usize) -> Draft {
        let meets =
            |member: &usize| plan.sends.iter().chain(&plan.receives).any(|parcel| parcel.peer == *member);
        let members = (0..plan.inputs().grid().size()).filter(meets).collect();
        Draft { plan, dtype, fields, members }
    }

    /// The lanes for parcels of these lists. Members that get the same share its room.
    pub fn lanes(&self, sends: &[Parcel], receives: &[Parcel]) -> Vec<Lane> {
        let bytes = |parcel: Option<&Parcel>| {
            parcel.map_or(0, |parcel| parcel.elements * self.dtype.size() * self.fields)
        };
        let lane = |(at, &member): (usize, &usize)| {
            let mine = of(sends, member);
            let is_same = |&other: &usize| match (mine, of(sends, other)) {
                (Some(mine), Some(other)) => mine.boxes == other.boxes,
                _ => false,
            };
            let same = self.members[..at].iter().position(is_same).unwrap_or(at);
            Lane { member, to: bytes(mine), from: bytes(of(receives, member)), same }
        };
        self.members.iter().enumerate().map(lane).collect()
    }

    fn input(&self, field: usize) -> Origin {
        Origin::Array(field as u32)
    }

    fn output(&self, field: usize) -> Origin {
        Origin::Array((self.fields + field) as u32)
    }

    /// Packs parcels from the inputs to where `packed` says; lanes without a place share that of another.
    pub fn pack(&self, parcels: &[Parcel], packed: impl Fn(usize) -> Option<Origin>) -> Program {
        let (element, mut program) = (self.dtype.size(), Program::default());
        for (lane, &member) in self.members.iter().enumerate() {
            let (Some(parcel), Some(origin)) = (of(parcels, member), packed(lane)) else { continue };
            for field in 0..self.fields {
                let to = (origin, field * parcel.elements * element);
                let boxes = parcel.boxes.iter();
                program.pieces.extend(boxes.map(|common| Piece::out(common, element, self.input(field), to)));
            }
        }
        program
    }

    /// Copies what this rank has itself, and fills what is beyond the edges.
    pub fn own(&self) -> Program {
        let (element, mut program) = (self.dtype.size(), Program::default());
        for field in 0..self.fields {
            let (from, to) = (self.input(field), self.output(field));
            let copy = |common| Piece::out(common, element, from, (to, 0));
            program.pieces.extend(self.plan.local.iter().map(copy));
            let fill = |(common, value): &_| Piece::fill(common, element, to, &value_of(self.dtype, *value));
            program.pieces.extend(self.plan.fills.iter().map(fill));
        }
        program
    }

    /// The same for arrays that lie in their padded form, as inputs and as outputs.
    pub fn own_within(&self) -> Program {
        let (element, mut program) = (self.dtype.size(), Program::default());
        for field in 0..self.fields {
            let (from, to) = (self.input(field), (self.output(field), 0));
            let boxes = self.plan.within.iter().flat_map(|within| &within.local);
            program.pieces.extend(boxes.map(|common| Piece::out(common, element, from, to)));
        }
        program
    }

    /// Copies what others have sent to the padded arrays.
    pub fn unpack(&self, arrived: impl Fn(usize) -> Origin) -> Program {
        let (element, mut program) = (self.dtype.size(), Program::default());
        for (lane, &member) in self.members.iter().enumerate() {
            let Some(parcel) = of(&self.plan.receives, member) else { continue };
            for field in 0..self.fields {
                let from = (arrived(lane), field * parcel.elements * element);
                let boxes = parcel.boxes.iter();
                program
                    .pieces
                    .extend(boxes.map(|common| Piece::into(common, element, self.output(field), from)));
            }
        }
        program
    }

    /// What the adjoint sums from this rank's padded arrays alone, and what from parcels besides; and the bytes of sums that
    /// wait for these.
    pub fn sums(&self, arrived: impl Fn(usize) -> Origin) -> (Program, Program, usize) {
        let (element, wide) = (self.dtype.size(), wide_size(self.dtype));
        let (mut early, mut late, mut waiting) = (Program::default(), Program::default(), 0);
        let shape = self.plan.own().shape();
        let kept = Origin::Array(2 * self.fields as u32);
        for field in 0..self.fields {
            let local = |common| Contribution { common, origin: self.input(field), skip: 0 };
            let mut contributions: Vec<Contribution> = self.plan.local.iter().map(local).collect();
            // As on the processor: a box that has every element comes first, where sums are of the elements' own type.
            if let Some(whole) = self.plan.first_of_sums().filter(|_| wide == element) {
                contributions[..=whole].rotate_right(1);
            }
            for (lane, &member) in self.members.iter().enumerate() {
                let Some(parcel) = of(&self.plan.sends, member) else { continue };
                let (origin, skip) = (arrived(lane), field * parcel.elements * element);
                let boxes = parcel.boxes.iter();
                contributions.extend(boxes.map(|common| Contribution { common, origin, skip }));
            }
            for cell in cells(&shape, self.output(field), element, &contributions) {
                let (before, after) = cell.parted(wide, kept, &mut waiting);
                before.into_iter().for_each(|cell| early.add(cell));
                after.into_iter().for_each(|cell| late.add(cell));
            }
        }
        (early, late, waiting)
    }
}
