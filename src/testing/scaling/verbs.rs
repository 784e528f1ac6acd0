//! Every verb as one call on bytes that take no memory.

use crate::memory::{DType, ReduceOp};
use crate::testing::counting::buffer;
use crate::world::Group;

/// Bytes of an element.
const F32: usize = 4;

/// A verb, and what it does with a buffer of this length in bytes: the longest that a rank passes.
pub(super) type NamedVerb = (&'static str, fn(&Group, usize));

pub(super) const VERBS: [NamedVerb; 9] = [
    ("all_reduce", all_reduce),
    ("reduce", reduce),
    ("reduce_scatter", reduce_scatter),
    ("all_gather", all_gather),
    ("broadcast", broadcast),
    ("gather", gather),
    ("scatter", scatter),
    ("scan", scan),
    ("all_to_all", all_to_all),
];

/// The part of each rank, in elements; as even as possible.
fn counts(group: &Group, bytes: usize) -> Vec<usize> {
    let (count, size) = (bytes / F32, group.size());
    (0..size).map(|rank| count / size + usize::from(rank < count % size)).collect()
}

pub(super) fn all_reduce(group: &Group, bytes: usize) {
    group.raw().all_reduce(&mut buffer(bytes)[..bytes], DType::F32, ReduceOp::Sum).unwrap();
}

fn reduce(group: &Group, bytes: usize) {
    group.raw().reduce(&mut buffer(bytes)[..bytes], DType::F32, ReduceOp::Sum, 0).unwrap();
}

fn reduce_scatter(group: &Group, bytes: usize) {
    let counts = counts(group, bytes);
    let part = counts[group.rank()] * F32;
    let (input, mut output) = (buffer(bytes), buffer(part));
    let raw = group.raw();
    raw.reduce_scatter(&input[..bytes], &mut output[..part], &counts, DType::F32, ReduceOp::Sum).unwrap();
}

fn all_gather(group: &Group, bytes: usize) {
    let counts = counts(group, bytes);
    let part = counts[group.rank()] * F32;
    let (input, mut output) = (buffer(part), buffer(bytes));
    group.raw().all_gather(&input[..part], &mut output[..bytes], &counts, DType::F32).unwrap();
}

fn broadcast(group: &Group, bytes: usize) {
    group.raw().broadcast(&mut buffer(bytes)[..bytes], DType::F32, 0).unwrap();
}

fn gather(group: &Group, bytes: usize) {
    let counts = counts(group, bytes);
    let part = counts[group.rank()] * F32;
    let (input, mut output) = (buffer(part), buffer(bytes));
    group.raw().gather(&input[..part], Some(&mut output[..bytes]), &counts, DType::F32, 0).unwrap();
}

fn scatter(group: &Group, bytes: usize) {
    let counts = counts(group, bytes);
    let part = counts[group.rank()] * F32;
    let (input, mut output) = (buffer(bytes), buffer(part));
    group.raw().scatter(Some(&input[..bytes]), &counts, &mut output[..part], DType::F32, 0).unwrap();
}

fn scan(group: &Group, bytes: usize) {
    group.raw().scan(&mut buffer(bytes)[..bytes], DType::I32, ReduceOp::Sum).unwrap();
}

/// A scan whose bits depend on the order of ranks.
pub(super) fn float_scan(group: &Group, bytes: usize) {
    group.raw().scan(&mut buffer(bytes)[..bytes], DType::F32, ReduceOp::Sum).unwrap();
}

fn all_to_all(group: &Group, bytes: usize) {
    let each = bytes / F32 / group.size();
    let counts = vec![each; group.size()];
    let bytes = each * F32 * group.size();
    let (input, mut output) = (buffer(bytes), buffer(bytes));
    let raw = group.raw();
    raw.all_to_all(&input[..bytes], &counts, &mut output[..bytes], &counts, DType::F32).unwrap();
}

/// The same call on a group whose sums have the order of ranks.
pub(super) fn deterministic_all_reduce(group: &Group, bytes: usize) {
    all_reduce(&group.deterministic(true), bytes);
}

pub(super) fn barrier(group: &Group, _bytes: usize) {
    group.barrier().unwrap();
}
