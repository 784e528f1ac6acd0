//! The collectives that reduce values, with every operation.

use super::{Exact, assert_same, values, varied};
use crate::error::Result;
use crate::memory::ReduceOp;
use crate::world::Group;

/// The reduction of the first ranks' values, computed naively.
fn combined<T: Exact>(ranks: usize, count: usize, operation: ReduceOp) -> Vec<T> {
    let all: Vec<Vec<T>> = (0..ranks).map(|rank| input(rank, count, operation)).collect();
    let fold = |index: usize| {
        let column = || all.iter().map(|row: &Vec<T>| row[index].whole());
        T::small(match operation {
            ReduceOp::Sum => column().sum::<i64>(),
            ReduceOp::Avg => column().sum::<i64>() / ranks as i64,
            ReduceOp::Prod => column().product(),
            ReduceOp::Min => column().min().unwrap_or(0),
            ReduceOp::Max => column().max().unwrap_or(0),
            ReduceOp::Band => column().fold(-1, |all, value| all & value),
            ReduceOp::Bor => column().fold(0, |all, value| all | value),
            ReduceOp::Bxor => column().fold(0, |all, value| all ^ value),
            ReduceOp::Land => column().all(|value| value != 0).into(),
            ReduceOp::Lor => column().any(|value| value != 0).into(),
        } as usize)
    };
    (0..count).map(fold).collect()
}

/// A rank's input, such that the result of the operation is exact in every type.
fn input<T: Exact>(rank: usize, count: usize, operation: ReduceOp) -> Vec<T> {
    match operation {
        // Equal values have an exact mean.
        ReduceOp::Avg => values(0, count),
        // Products of many small numbers overflow: ones and, at the first rank, twos.
        ReduceOp::Prod => {
            (0..count).map(|index| T::small(1 + usize::from(rank == 0 && index % 2 == 0))).collect()
        }
        _ => values(rank, count),
    }
}

pub(super) fn all<T: Exact>(group: &Group, count: usize) -> Result<()> {
    for operation in ReduceOp::ALL {
        if !operation.takes(T::DTYPE) {
            let rejected = group.all_reduce(&mut values::<T>(0, count), operation);
            assert!(rejected.is_err(), "{operation} of {} must be rejected", T::DTYPE);
            continue;
        }
        let expected = combined::<T>(group.size(), count, operation);
        let mine = input::<T>(group.rank(), count, operation);

        let mut found = mine.clone();
        group.all_reduce(&mut found, operation)?;
        assert_same("all_reduce", &found, &expected);

        let mut found = mine.clone();
        group.scan(&mut found, operation)?;
        assert_same("scan", &found, &combined(group.rank() + 1, count, operation));

        for root in [0, group.size() - 1] {
            let mut found = mine.clone();
            group.reduce(&mut found, operation, root)?;
            assert_same("reduce", &found, if group.rank() == root { &expected } else { &mine });
            let (input, mut found) = (mine.clone(), vec![T::small(9); count]);
            let output = (group.rank() == root).then_some(&mut found[..]);
            group.reduce_to(&input, output, operation, root)?;
            assert_same("the input of reduce_to", &input, &mine);
            let untouched = vec![T::small(9); count];
            assert_same("reduce_to", &found, if group.rank() == root { &expected } else { &untouched });
        }
        reduce_scatter(group, &mine, &expected, operation)?;
    }
    Ok(())
}

fn reduce_scatter<T: Exact>(group: &Group, mine: &[T], expected: &[T], operation: ReduceOp) -> Result<()> {
    // Unequal parts; the last rank takes the rest.
    let mut counts: Vec<usize> =
        (0..group.size()).map(|rank| varied(mine.len() / group.size(), rank)).collect();
    let last = group.size() - 1;
    counts[last] = mine.len() - counts[..last].iter().sum::<usize>();
    let start: usize = counts[..group.rank()].iter().sum();
    let mut found = vec![T::small(9); counts[group.rank()]];
    group.reduce_scatter_varied(mine, &mut found, &counts, operation)?;
    assert_same("reduce_scatter", &found, &expected[start..start + counts[group.rank()]]);
    Ok(())
}
