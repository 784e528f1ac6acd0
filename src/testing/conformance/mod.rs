//! The suite that every transport must pass: each collective against a naive computation that knows all ranks' inputs.

mod arena;
mod exact;
mod moves;
mod order;
mod posts;
mod reductions;

pub use exact::Exact;

use crate::error::Result;
use crate::memory::Element;
use crate::world::Group;
use half::{bf16, f16};

/// Lengths that matter: zero, one, odd, and around the sizes at which the algorithms change.
const COUNTS: [usize; 5] = [0, 1, 7, 1000, 20_011];

/// Runs everything on this group; collective. Panics at the first wrong result.
///
/// ```
/// unisono::testing::spawn(2, |group| unisono::testing::conformance::run(&group).unwrap());
/// ```
pub fn run(group: &Group) -> Result<()> {
    verbs::<f32>(group, &COUNTS)?;
    verbs::<f32>(group, &[300_001])?;
    verbs::<f64>(group, &COUNTS)?;
    verbs::<f16>(group, &[0, 513])?;
    verbs::<bf16>(group, &[0, 513])?;
    verbs::<i8>(group, &[1, 513])?;
    verbs::<u8>(group, &[1, 100_003])?;
    verbs::<i32>(group, &COUNTS)?;
    verbs::<i64>(group, &[3, 9000])?;
    verbs::<i16>(group, &[1, 517])?;
    verbs::<u16>(group, &[2049])?;
    verbs::<u32>(group, &[0, 9001])?;
    verbs::<u64>(group, &[5])?;
    arena::verbs(group)?;
    order::same_bits_everywhere(group)?;
    order::background_keeps_order(group)?;
    order::messages_keep_order_per_tag(group)?;
    posts::arrive_in_order(group)?;
    posts::idle_is_idle(group)?;
    Ok(())
}

/// Every collective with elements of one type.
pub(crate) fn verbs<T: Exact>(group: &Group, counts: &[usize]) -> Result<()> {
    for &count in counts {
        group.barrier()?;
        moves::broadcast::<T>(group, count)?;
        moves::gather::<T>(group, count)?;
        moves::scatter::<T>(group, count)?;
        moves::all_gather::<T>(group, count)?;
        moves::all_to_all::<T>(group, count)?;
        moves::ring::<T>(group, count)?;
        moves::from_any::<T>(group, count)?;
        reductions::all::<T>(group, count)?;
    }
    Ok(())
}

/// `count` values that differ between ranks and positions, small enough that sums are exact in every type.
fn values<T: Exact>(rank: usize, count: usize) -> Vec<T> {
    (0..count).map(|index| T::small((rank * 5 + index * 3) % 7)).collect()
}

/// The number of elements that the varied forms give this rank: some get none.
fn varied(count: usize, rank: usize) -> usize {
    if rank % 3 == 1 { 0 } else { count / (rank + 1) }
}

fn assert_same<T: Element>(verb: &str, found: &[T], expected: &[T]) {
    assert_eq!(found.len(), expected.len(), "{verb} of {}: length", T::DTYPE);
    if let Some(index) = (0..found.len()).find(|&index| found[index] != expected[index]) {
        let (found, expected) = (found[index], expected[index]);
        panic!("{verb} of {}: element {index} is {found:?}, expected {expected:?}", T::DTYPE);
    }
}
