//! Programs without a device: the host executes the kernels' job tables, and the results are compared with the host
//! exchange.

use std::sync::Arc;

use half::f16;

use super::box_copy::MemoryBase;
use super::builder::ProgramBuilder;
use super::device_transport::NeighbourParcels;
use super::job::{BoxAddress, CopyJob, Frame, Jobs, SumJob, SumSource};
use super::program::{DeviceProgram, JobLists};
use crate::halo::{Exchange, ExchangeOptions, Plan};
use crate::memory::{DType, Element};
use crate::testing::spawn;
use crate::world::Group;

#[path = "../../../tests/halo/cases.rs"]
mod cases;

use cases::{Case, Random, case};

/// Sums of a type as the kernels compute them: narrow or wide in memory.
trait Sums: Element + PartialEq {
    type Wide: std::ops::Add<Output = Self::Wide> + std::marker::Copy;
    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
    fn of(value: f64) -> Self;
}

impl Sums for f32 {
    type Wide = f32;
    fn widen(self) -> f32 {
        self
    }
    fn narrow(wide: f32) -> f32 {
        wide
    }
    fn of(value: f64) -> f32 {
        value as f32
    }
}

impl Sums for f16 {
    type Wide = f32;
    fn widen(self) -> f32 {
        self.to_f32()
    }
    fn narrow(wide: f32) -> f16 {
        f16::from_f32(wide)
    }
    fn of(value: f64) -> f16 {
        f16::from_f64(value)
    }
}

fn start(place: &BoxAddress, arrays: &[u64], parity: u32) -> u64 {
    match place.array {
        0 => place.address + u64::from(parity) * place.flip,
        array => arrays[array as usize - 1] + place.address,
    }
}

fn offset(frame: &Frame, mut row: u32, place: &BoxAddress) -> i64 {
    (0..frame.outer as usize).fold(0, |offset, at| {
        let index = row % frame.extents[at];
        row /= frame.extents[at];
        offset + i64::from(index) * place.strides[at]
    })
}

fn copy(job: &CopyJob, arrays: &[u64], parity: u32) {
    let frame = &job.frame;
    let (from, to) = (start(&job.from, arrays, parity), start(&job.to, arrays, parity));
    for row in 0..frame.rows {
        for at in 0..i64::from(frame.length) {
            let to = to.wrapping_add_signed(offset(frame, row, &job.to) + at * job.to.step);
            let from = match frame.flags & 1 {
                1 => job.pattern.as_ptr().addr() as u64,
                _ => from.wrapping_add_signed(offset(frame, row, &job.from) + at * job.from.step),
            };
            assert!(to.is_multiple_of(u64::from(frame.unit)), "an unaligned write");
            assert!(from.is_multiple_of(u64::from(frame.unit).min(4)), "an unaligned read");
            // SAFETY: the boxes of a job table lie inside the arrays, which the test keeps alive.
            unsafe {
                std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, frame.unit as usize);
            }
        }
    }
}

fn sum<T: Sums>(job: &SumJob, sources: &[SumSource], arrays: &[u64], parity: u32) {
    let frame = &job.frame;
    for row in 0..frame.rows {
        for at in 0..i64::from(frame.length) {
            let mut sum: Option<T::Wide> = None;
            for source in &sources[job.source as usize..(job.source + job.sources) as usize] {
                let from = start(&source.from, arrays, parity)
                    .wrapping_add_signed(offset(frame, row, &source.from) + at * source.from.step);
                let counts = source.repeats.map(i64::from);
                for each in 0..counts.iter().product() {
                    let (mut rest, mut place) = (each, from);
                    for (count, stride) in counts.iter().zip(source.strides).rev() {
                        place = place.wrapping_add_signed(rest % count * stride);
                        rest /= count;
                    }
                    // SAFETY: as in `copy`.
                    let next = unsafe {
                        match source.flags {
                            0 => (place as *const T).read().widen(),
                            _ => (place as *const T::Wide).read(),
                        }
                    };
                    sum = Some(sum.map_or(next, |sum| sum + next));
                }
            }
            let to = start(&job.to, arrays, parity)
                .wrapping_add_signed(offset(frame, row, &job.to) + at * job.to.step);
            let sum = sum.expect("a cell has a source");
            // SAFETY: as in `copy`.
            unsafe {
                match frame.flags & 4 {
                    0 => (to as *mut T).write(T::narrow(sum)),
                    _ => (to as *mut T::Wide).write(sum),
                }
            }
        }
    }
}

fn blocks_follow_each_other<Job>(jobs: &Jobs<Job>, first: impl Fn(&Job) -> u32) {
    let firsts: Vec<u32> = jobs.list.iter().map(first).chain([jobs.blocks]).collect();
    assert!(firsts.windows(2).all(|pair| pair[0] < pair[1]), "{firsts:?}");
}

fn run<T: Sums>(program: &DeviceProgram, arrays: &[u64], parity: u32) {
    let aligned = arrays.iter().all(|address| address.is_multiple_of(16));
    let alignment = if aligned { 16 } else { size_of::<T>() };
    let JobLists { copies, sums, sources } = program.lists(size_of::<T>(), alignment).unwrap();
    blocks_follow_each_other(&copies, |job| job.frame.first);
    blocks_follow_each_other(&sums, |job| job.frame.first);
    copies.list.iter().for_each(|job| copy(job, arrays, parity));
    sums.list.iter().for_each(|job| sum::<T>(job, &sources, arrays, parity));
}

/// A buffer with space for all neighbours, twice, and the neighbours' buffers.
struct Buffers {
    memory: Vec<u128>,
    places: Vec<usize>,
    flip: usize,
    same: Vec<usize>,
    theirs: Vec<(u64, u64)>,
}

impl Buffers {
    fn new(group: &Group, neighbours: &[NeighbourParcels]) -> Buffers {
        let mut flip = 0;
        let places: Vec<usize> = neighbours
            .iter()
            .map(|one| {
                let place = flip;
                flip += one.to.next_multiple_of(16);
                place
            })
            .collect();
        let memory = vec![0u128; flip / 8];
        let mut mine = vec![0i64; 2 * group.size()];
        for one in neighbours {
            let at = memory.as_ptr().addr() + places[one.same];
            mine[2 * one.member..][..2].copy_from_slice(&[at as i64, flip as i64]);
        }
        let mut theirs = vec![0i64; mine.len()];
        group.all_to_all(&mine, &mut theirs).unwrap();
        let pair =
            |one: &NeighbourParcels| (theirs[2 * one.member] as u64, theirs[2 * one.member + 1] as u64);
        let (theirs, same) =
            (neighbours.iter().map(pair).collect(), neighbours.iter().map(|one| one.same).collect());
        Buffers { memory, places, flip, same, theirs }
    }

    fn packed(&self, neighbour: usize) -> Option<MemoryBase> {
        let address = (self.memory.as_ptr().addr() + self.places[neighbour]) as u64;
        (self.same[neighbour] == neighbour).then_some(MemoryBase::Buffer { address, flip: self.flip as u64 })
    }

    fn arrived(&self, neighbour: usize) -> MemoryBase {
        let (address, flip) = self.theirs[neighbour];
        MemoryBase::Buffer { address, flip }
    }
}

fn check<T: Sums>(group: &Group, case: &Case, misaligned: usize, name: &str) {
    let Case { input, outputs, windows, edges } = case;
    let plan = Arc::new(Plan::window(input, windows, edges, Some(outputs), group.rank()).unwrap());
    compare::<T>(group, plan, misaligned, name);
}

fn compare<T: Sums>(group: &Group, plan: Arc<Plan>, misaligned: usize, name: &str) {
    let options = ExchangeOptions { fields: 2, ..ExchangeOptions::of(T::DTYPE) };
    let mut exchange = Exchange::new(group, plan.clone(), options).unwrap();
    let builder = ProgramBuilder::new(plan.clone(), T::DTYPE, 2);
    let mut random = Random::new(group.rank() as u64 + 7);
    let mut values =
        |count: usize| -> Vec<T> { (0..count + misaligned).map(|_| T::of(random.value())).collect() };
    let (own, needed) = (plan.own().elements(), plan.needed().elements());
    let address = |array: &Vec<T>| (array.as_ptr().addr() + misaligned * size_of::<T>()) as u64;
    let bytes = |array: &Vec<T>| bytemuck::cast_slice::<T, u8>(&array[misaligned..]).to_vec();
    let parity = (misaligned % 2) as u32;

    let parts = [values(own), values(own)];
    let results = [values(needed), values(needed)];
    let buffers = Buffers::new(group, &builder.neighbours(&plan.sends, &plan.receives));
    let arrays: Vec<u64> = parts.iter().chain(&results).map(address).collect();
    run::<T>(&builder.pack(&plan.sends, |neighbour| buffers.packed(neighbour)), &arrays, parity);
    run::<T>(&builder.own(), &arrays, parity);
    group.barrier().unwrap();
    run::<T>(&builder.unpack(|neighbour| buffers.arrived(neighbour)), &arrays, parity);
    group.barrier().unwrap();
    let inputs = parts.each_ref().map(bytes);
    let mut expected = [vec![0; needed * size_of::<T>()], vec![0; needed * size_of::<T>()]];
    let [one, other] = &mut expected;
    exchange.forward_fields(&[&inputs[0], &inputs[1]], &mut [one, other]).unwrap();
    assert!(expected == results.each_ref().map(bytes), "{name}: forward of {own} to {needed}");

    let gradients = [values(needed), values(needed)];
    let sums = [values(own), values(own)];
    let buffers = Buffers::new(group, &builder.neighbours(&plan.receives, &plan.sends));
    let (early, late, partial_bytes) = builder.sums(|neighbour| buffers.arrived(neighbour));
    let partial_sums = vec![0u128; partial_bytes.div_ceil(16)];
    let mut arrays: Vec<u64> = gradients.iter().chain(&sums).map(address).collect();
    arrays.push(partial_sums.as_ptr().addr() as u64);
    run::<T>(&builder.pack(&plan.receives, |neighbour| buffers.packed(neighbour)), &arrays, parity);
    run::<T>(&early, &arrays, parity);
    group.barrier().unwrap();
    // What was summed early is not read again.
    arrays[..2].fill(0);
    run::<T>(&late, &arrays, parity);
    group.barrier().unwrap();
    let inputs = gradients.each_ref().map(bytes);
    let mut expected = [vec![0; own * size_of::<T>()], vec![0; own * size_of::<T>()]];
    let [one, other] = &mut expected;
    exchange.adjoint_fields(&[&inputs[0], &inputs[1]], &mut [one, other]).unwrap();
    let typed = |bytes: &Vec<u8>| -> Vec<T> {
        bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
    };
    for (expected, sums) in expected.iter().zip(&sums) {
        // Zeroes of either sign compare equal.
        assert!(typed(expected) == sums[misaligned..], "{name}: adjoint of {needed} to {own}");
    }
}

#[test]
fn programs_do_what_the_exchange_does() {
    for ranks in [1, 2, 3, 4, 6] {
        spawn(ranks, |group| {
            for number in 0..60 {
                let Some(case) = case(ranks, number) else { continue };
                check::<f32>(&group, &case, number as usize % 2, &format!("{ranks} ranks, case {number}"));
                if number % 3 == 0 {
                    check::<f16>(&group, &case, 0, &format!("{ranks} ranks, case {number}, halves"));
                }
            }
        });
    }
}

#[test]
fn long_rows_of_images_and_moves_of_whole_arrays() {
    use crate::halo::{Edges, Grid, Layout, Window};
    spawn(4, |group| {
        let grid = Grid::parse("h=2,w=2", 4).unwrap();
        let layout = Layout::new(&grid, &[2, 70, 136], &[("h", 1), ("w", 2)]).unwrap();
        let around = Window { kernel: 7, padding: (3, 3), ..Window::IDENTITY };
        let windows = [Window::IDENTITY, around, around];
        let plan = Plan::window(&layout, &windows, &[Edges::default(); 3], None, group.rank()).unwrap();
        compare::<f32>(&group, Arc::new(plan), 0, "an image");
        let moves = [
            Plan::gather(&layout, None, group.rank()).unwrap(),
            Plan::gather(&layout, Some(1), group.rank()).unwrap(),
            Plan::scatter(&layout, 2, group.rank()).unwrap(),
        ];
        for plan in moves {
            compare::<f32>(&group, Arc::new(plan), 0, "a move");
        }
        let builder =
            ProgramBuilder::new(Arc::new(Plan::gather(&layout, None, group.rank()).unwrap()), DType::F32, 1);
        let neighbours = builder.neighbours(&builder.plan.sends, &builder.plan.receives);
        assert!(neighbours.iter().all(|one| one.same == 0), "one packed part serves all ranks");
    });
}

#[test]
fn rows_are_as_wide_as_alignment_allows() {
    use super::box_copy::{BoxCopy, BoxSide, BoxSource};
    let end =
        |offset, strides: &[i64]| BoxSide { base: MemoryBase::Array(0), offset, strides: strides.to_vec() };
    let unit = |extents: &[usize], from: BoxSide, to: BoxSide, alignment| {
        let box_copy = BoxCopy { extents: extents.to_vec(), from: BoxSource::Side(from), to };
        let mut jobs = Jobs::default();
        Jobs::<CopyJob>::push(&mut jobs, &box_copy, 4, alignment).unwrap();
        (jobs.list[0].frame.unit, jobs.list[0].frame.length)
    };
    assert_eq!(unit(&[8, 64], end(0, &[256, 4]), end(512, &[1024, 4]), 16), (16, 16));
    assert_eq!(unit(&[8, 64], end(0, &[256, 4]), end(512, &[1024, 4]), 4), (4, 64));
    assert_eq!(unit(&[8, 64], end(8, &[256, 4]), end(512, &[1024, 4]), 16), (8, 32));
    assert_eq!(unit(&[8, 64], end(0, &[260, 4]), end(512, &[1024, 4]), 16), (4, 64));
    assert_eq!(unit(&[8, 64], end(0, &[256, -4]), end(512, &[1024, 4]), 16), (4, 64));
}

#[test]
fn boxes_that_are_too_large_to_count_are_cut() {
    use super::box_copy::{BoxCopy, BoxSide, BoxSource};
    let end = BoxSide { base: MemoryBase::Array(0), offset: 0, strides: vec![1 << 33, 1] };
    let box_copy = BoxCopy { extents: vec![3, 1 << 32], from: BoxSource::Pattern([0; 16]), to: end };
    let mut jobs = Jobs::default();
    Jobs::<CopyJob>::push(&mut jobs, &box_copy, 1, 16).unwrap();
    let bytes = jobs
        .list
        .iter()
        .map(|job| u64::from(job.frame.rows) * u64::from(job.frame.length) * u64::from(job.frame.unit));
    assert_eq!(bytes.sum::<u64>(), 3 << 32);
    assert!(jobs.list.len() >= 6);
}

#[test]
fn kernels_compile_for_every_type() {
    use super::program::{BOXES, kernel_type};
    if crate::cuda::compiler::compiles(&BOXES, &[]) {
        let types: std::collections::BTreeSet<&str> = DType::KERNELS.map(kernel_type).into();
        types.into_iter().for_each(|one| assert!(crate::cuda::compiler::compiles(&BOXES, &[one])));
    }
}
