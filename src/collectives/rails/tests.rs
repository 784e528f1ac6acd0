//! Every verb on more hosts than exchange messages all at once.

use half::{bf16, f16};

use crate::memory::ReduceOp;
use crate::testing::{self, conformance};

/// The host of each rank. One rank per host; rails of ranks that follow each other or do not; hosts of different sizes.
fn layouts() -> Vec<Vec<usize>> {
    vec![
        (0..9).collect(),
        (0..16).collect(),
        (0..18).map(|rank| rank / 2).collect(),
        (0..20).map(|rank| rank % 10).collect(),
        (0..12).map(|rank| rank % 11).collect(),
        vec![0, 0, 0, 1, 2, 2, 3, 4, 5, 6, 6, 7, 8],
    ]
}

#[test]
fn every_verb_works_on_many_hosts() {
    for layout in layouts() {
        testing::spawn_placed(&layout, |world| {
            conformance::verbs::<f32>(world.group(), &[0, 1, 1000, 5003]).unwrap();
            conformance::verbs::<i32>(world.group(), &[0, 7, 2003]).unwrap();
            conformance::verbs::<bf16>(world.group(), &[513]).unwrap();
        });
    }
    // Broadcast in parts.
    for layout in [0, 5].map(|index| layouts().remove(index)) {
        testing::spawn_placed(&layout, |world| conformance::verbs::<u8>(world.group(), &[70_001]).unwrap());
    }
}

/// Buffers that go through the levels in two windows.
#[test]
fn long_buffers_are_reduced_in_windows() {
    let (ranks, count) = (18, (16 << 20) + 1008);
    let value = |rank: usize, index: usize| ((rank * 31 + index * 7 + index / 1000) % 251) as u8;
    let largest = |ranks: usize| -> Vec<u8> {
        (0..count).map(|index| (0..ranks).map(|rank| value(rank, index)).max().unwrap_or(0)).collect()
    };
    let (all, up_to_seven, part) = (largest(ranks), largest(7), count / ranks);
    testing::spawn_placed(&(0..ranks).map(|rank| rank / 2).collect::<Vec<_>>(), |world| {
        let (group, rank) = (world.group(), world.rank());
        let input = || -> Vec<u8> { (0..count).map(|index| value(rank, index)).collect() };
        let mut own = vec![0; part];
        group.reduce_scatter(&input()[..part * ranks], &mut own, ReduceOp::Max).unwrap();
        assert!(own == all[part * rank..part * (rank + 1)], "rank {rank}");
        let mut values = input();
        group.scan(&mut values, ReduceOp::Max).unwrap();
        assert!(rank != 6 || values == up_to_seven);
        values = input();
        group.all_reduce(&mut values, ReduceOp::Max).unwrap();
        assert!(values == all, "rank {rank}");
    });
}

/// Hosts whose arenas have no room for a channel: the local steps are messages, too.
#[test]
fn every_verb_works_on_many_hosts_with_full_arenas() {
    for layout in [(0..18).map(|rank| rank / 2).collect(), layouts().remove(5)] {
        testing::spawn_without_channels(&layout, |world| {
            conformance::verbs::<i32>(world.group(), &[0, 7, 5003]).unwrap();
        });
    }
}

/// Partial sums exceed the range of the type, and the mean is rounded once.
#[test]
fn means_of_half_types_are_those_of_one_host() {
    for layout in layouts() {
        testing::spawn_placed(&layout, |world| {
            let (group, ranks) = (world.group(), layout.len());
            for each in [2, 5000] {
                let mut values = vec![f16::from_f32(30000.0 + 32.0 * world.rank() as f32); each * ranks];
                let mean = f16::from_f32(30000.0 + 16.0 * (ranks - 1) as f32);
                let mut part = vec![f16::ZERO; each];
                group.reduce_scatter(&values, &mut part, ReduceOp::Avg).unwrap();
                assert_eq!(part, vec![mean; each], "{layout:?}");
                let mut at_root = vec![f16::ZERO; each * ranks];
                group.reduce_to(&values, Some(&mut at_root), ReduceOp::Avg, 3).unwrap();
                assert!(world.rank() != 3 || at_root == vec![mean; each * ranks], "{layout:?}");
                let mut up_to_mine = values.clone();
                group.scan(&mut up_to_mine, ReduceOp::Avg).unwrap();
                let mean_up_to_mine = f16::from_f32(30000.0 + 16.0 * world.rank() as f32);
                assert_eq!(up_to_mine, vec![mean_up_to_mine; each * ranks], "{layout:?}");
                group.all_reduce(&mut values, ReduceOp::Avg).unwrap();
                assert_eq!(values, vec![mean; each * ranks], "{layout:?}");
            }
        });
    }
}

/// Sums that depend on their order: scan and a deterministic group have that of ranks, and every group the same one on all ranks, every time.
#[test]
fn the_order_of_a_sum_is_fixed() {
    for layout in layouts() {
        for count in [5, 700, 30_011] {
            let input = |rank: usize| -> Vec<f32> {
                (0..count).map(|index| 1.0 / (1.0 + rank as f32 * 7.7 + index as f32 * 0.37)).collect()
            };
            let sums = || {
                testing::spawn_placed(&layout, |world| {
                    let (mut any, mut in_order) = (input(world.rank()), input(world.rank()));
                    world.group().all_reduce(&mut any, ReduceOp::Sum).unwrap();
                    let group = world.group().deterministic(true);
                    group.all_reduce(&mut in_order, ReduceOp::Sum).unwrap();
                    let mut scan = input(world.rank());
                    world.group().scan(&mut scan, ReduceOp::Sum).unwrap();
                    (any, in_order, scan)
                })
            };
            let mut expected = vec![input(0)];
            for rank in 1..layout.len() {
                let sum =
                    expected[rank - 1].iter().zip(input(rank)).map(|(sum, value)| sum + value).collect();
                expected.push(sum);
            }
            let (first, second) = (sums(), sums());
            for (rank, (any, in_order, scan)) in first.iter().enumerate() {
                let what = format!("{layout:?}, {count}: rank {rank}");
                assert!(Some(in_order) == expected.last() && *scan == expected[rank], "{what}");
                assert!(*any == first[0].0 && *any == second[rank].0, "{what}");
            }
        }
    }
}
