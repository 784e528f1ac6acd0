//! The collectives that only move values.

use super::{Exact, assert_same, values, varied};
use crate::error::Result;
use crate::world::Group;

pub(super) fn broadcast<T: Exact>(group: &Group, count: usize) -> Result<()> {
    for root in 0..group.size() {
        let mut found = values::<T>(group.rank(), count);
        group.broadcast(&mut found, root)?;
        assert_same("broadcast", &found, &values(root, count));
    }
    Ok(())
}

/// The parts of all ranks, concatenated.
fn joined<T: Exact>(counts: &[usize]) -> Vec<T> {
    counts.iter().enumerate().flat_map(|(rank, &count)| values::<T>(rank, count)).collect()
}

/// Equal and unequal counts for a group.
fn both_counts(group: &Group, count: usize) -> [Vec<usize>; 2] {
    [vec![count; group.size()], (0..group.size()).map(|rank| varied(count, rank)).collect()]
}

pub(super) fn gather<T: Exact>(group: &Group, count: usize) -> Result<()> {
    let root = group.size() - 1;
    for counts in both_counts(group, count) {
        let expected = joined::<T>(&counts);
        let mut found = vec![T::small(9); expected.len()];
        let output = (group.rank() == root).then_some(&mut found[..]);
        group.gather_varied(&values::<T>(group.rank(), counts[group.rank()]), output, &counts, root)?;
        if group.rank() == root {
            assert_same("gather", &found, &expected);
        }
    }
    Ok(())
}

pub(super) fn all_gather<T: Exact>(group: &Group, count: usize) -> Result<()> {
    for counts in both_counts(group, count) {
        let expected = joined::<T>(&counts);
        let mut found = vec![T::small(9); expected.len()];
        group.all_gather_varied(&values::<T>(group.rank(), counts[group.rank()]), &mut found, &counts)?;
        assert_same("all_gather", &found, &expected);
        let mut found = vec![T::small(9); expected.len()];
        let (start, own) = (counts[..group.rank()].iter().sum::<usize>(), counts[group.rank()]);
        found[start..start + own].copy_from_slice(&values::<T>(group.rank(), own));
        group.raw().all_gather_in_place(bytemuck::cast_slice_mut(&mut found), &counts, T::DTYPE)?;
        assert_same("all_gather in place", &found, &expected);
    }
    Ok(())
}

pub(super) fn scatter<T: Exact>(group: &Group, count: usize) -> Result<()> {
    let root = group.size() / 2;
    for counts in both_counts(group, count) {
        let input = joined::<T>(&counts);
        let mut found = vec![T::small(9); counts[group.rank()]];
        group.scatter_varied((group.rank() == root).then_some(&input[..]), &counts, &mut found, root)?;
        assert_same("scatter", &found, &values(group.rank(), counts[group.rank()]));
    }
    Ok(())
}

pub(super) fn all_to_all<T: Exact>(group: &Group, count: usize) -> Result<()> {
    let (rank, size) = (group.rank(), group.size());
    for equal in [true, false] {
        // The length of the part that `from` sends to `to` depends on the sum of their ranks.
        let length = |from: usize, to: usize| if equal { count } else { varied(count, (from + to) % 4) };
        let part = |from: usize, to: usize| values::<T>(from * 3 + to, length(from, to));
        let input: Vec<T> = (0..size).flat_map(|to| part(rank, to)).collect();
        let expected: Vec<T> = (0..size).flat_map(|from| part(from, rank)).collect();
        let send_counts: Vec<usize> = (0..size).map(|to| length(rank, to)).collect();
        let receive_counts: Vec<usize> = (0..size).map(|from| length(from, rank)).collect();
        let mut found = vec![T::small(9); expected.len()];
        group.all_to_all_varied(&input, &send_counts, &mut found, &receive_counts)?;
        assert_same("all_to_all", &found, &expected);
    }
    Ok(())
}

/// Every rank sends to the next rank and receives from the previous one; a ring of one sends to itself.
pub(super) fn ring<T: Exact>(group: &Group, count: usize) -> Result<()> {
    let (rank, size) = (group.rank(), group.size());
    let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
    let bytes = bytemuck::cast_slice(&values::<T>(rank, count)).to_vec();
    let sending = group.raw().start_send(bytes, T::DTYPE, next, 3)?;
    let mut found = vec![T::small(9); count];
    group.recv(&mut found, before, 3)?;
    sending.wait()?;
    assert_same("send and recv", &found, &values(before, count));
    Ok(())
}

/// The last rank receives from all others, in any order; each rank's messages arrive in theirs.
pub(super) fn from_any<T: Exact>(group: &Group, count: usize) -> Result<()> {
    let (rank, last) = (group.rank(), group.size() - 1);
    if rank != last {
        group.send(&values::<T>(rank, count), last, 5)?;
        return group.send(&values::<T>(rank + 1, count), last, 5);
    }
    let mut messages = vec![0; last];
    for _ in 0..2 * last {
        let mut found = vec![T::small(9); count];
        let sender = group.raw().recv_any(bytemuck::cast_slice_mut(&mut found), T::DTYPE, 5)?;
        assert_same("recv_any", &found, &values(sender + messages[sender], count));
        messages[sender] += 1;
    }
    assert!(messages.iter().all(|&count| count == 2), "{messages:?}");
    Ok(())
}
