//! The collectives on buffers in the arena, on all ranks or only on some: other paths through memory, the same results.

use super::assert_same;
use crate::error::Result;
use crate::memory::{DType, ReduceOp};
use crate::world::Group;

/// Elements: more than a window, so that buffers are read in place and in several windows.
const COUNT: usize = 150_001;

fn value(rank: usize, index: usize) -> f32 {
    (rank * 5 + index % 11) as f32
}

pub(super) fn verbs(group: &Group) -> Result<()> {
    // All in the arena; only the even ranks; only rank 0.
    for in_arena in [|_| true, |rank| rank % 2 == 0, |rank| rank == 0] {
        let mut private = vec![0.0f32; COUNT];
        let mut shared = match group.endpoint() {
            Some(endpoint) => Some(endpoint.allocate(COUNT * size_of::<f32>())?),
            None => None,
        };
        let x: &mut [f32] = match &mut shared {
            Some(buffer) if in_arena(group.rank()) => bytemuck::cast_slice_mut(buffer),
            _ => &mut private,
        };
        one_round(group, x)?;
    }
    Ok(())
}

fn one_round(group: &Group, x: &mut [f32]) -> Result<()> {
    let (rank, size) = (group.rank(), group.size());
    let fill = |x: &mut [f32]| x.iter_mut().enumerate().for_each(|(index, x)| *x = value(rank, index));
    let sum: Vec<f32> = (0..COUNT).map(|index| (0..size).map(|rank| value(rank, index)).sum()).collect();
    let of = |rank: usize| (0..COUNT).map(move |index| value(rank, index)).collect::<Vec<_>>();

    fill(x);
    group.all_reduce(x, ReduceOp::Sum)?;
    assert_same("all_reduce in the arena", x, &sum);
    fill(x);
    group.scan(x, ReduceOp::Sum)?;
    let prefix = |index: usize| (0..=rank).map(|rank| value(rank, index)).sum();
    assert_same("scan in the arena", x, &(0..COUNT).map(prefix).collect::<Vec<f32>>());
    fill(x);
    let mut found = vec![0.0; COUNT];
    group.reduce_to(x, (rank == 0).then_some(&mut found[..]), ReduceOp::Sum, 0)?;
    assert_same("the input of reduce_to in the arena", x, &of(rank));
    if rank == 0 {
        assert_same("reduce_to in the arena", &found, &sum);
    }
    group.reduce(x, ReduceOp::Sum, size - 1)?;
    let expected = if rank == size - 1 { sum } else { of(rank) };
    assert_same("reduce in the arena", x, &expected);
    fill(x);
    group.broadcast(x, size / 2)?;
    assert_same("broadcast in the arena", x, &of(size / 2));

    fill(x);
    let mut all = vec![0.0; COUNT * size];
    group.all_gather(x, &mut all)?;
    let expected: Vec<f32> = (0..size).flat_map(of).collect();
    assert_same("all_gather in the arena", &all, &expected);
    let counts: Vec<usize> = (0..size).map(|rank| COUNT * (rank + 1) / size - COUNT * rank / size).collect();
    group.raw().all_gather_in_place(bytemuck::cast_slice_mut(x), &counts, DType::F32)?;
    let owners = counts.iter().enumerate().flat_map(|(rank, &count)| vec![rank; count]);
    let gathered: Vec<f32> = owners.enumerate().map(|(index, rank)| value(rank, index)).collect();
    assert_same("all_gather in place in the arena", x, &gathered);
    fill(x);
    let mut all = vec![0.0; COUNT * size];
    group.gather(x, Some(&mut all), 0)?;
    if rank == 0 {
        assert_same("gather in the arena", &all, &expected);
    }
    Ok(())
}
