//! Properties of the collectives for any number of ranks, any lengths and any values: they equal a serial computation.

use half::{bf16, f16};
use proptest::prelude::*;
use unisono::testing::{spawn, spawn_on_hosts};
use unisono::{Element, ReduceOp};

/// Values for each rank: any bits for integers, so that wrap-around is covered too.
fn inputs(ranks: usize, count: usize, seed: u64) -> Vec<Vec<i32>> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as i32
    };
    (0..ranks).map(|_| (0..count).map(|_| next()).collect()).collect()
}

fn floats(rows: &[Vec<i32>]) -> Vec<Vec<f32>> {
    rows.iter().map(|row| row.iter().map(|&value| value as f32 / 7919.0).collect()).collect()
}

/// The fold in rank order, element by element.
fn fold<T: Element>(rows: &[Vec<T>], combine: impl Fn(T, T) -> T) -> Vec<T> {
    let mut result = rows[0].clone();
    for row in &rows[1..] {
        result.iter_mut().zip(row).for_each(|(sum, &value)| *sum = combine(*sum, value));
    }
    result
}

/// A half type, and the expected results for values of it: partial results in f32, rounded once.
trait Half: Element {
    fn wide(self) -> f32;
    fn rounded(wide: f32) -> Self;
}

impl Half for f16 {
    fn wide(self) -> f32 {
        self.to_f32()
    }
    fn rounded(wide: f32) -> f16 {
        f16::from_f32(wide)
    }
}

impl Half for bf16 {
    fn wide(self) -> f32 {
        self.to_f32()
    }
    fn rounded(wide: f32) -> bf16 {
        bf16::from_f32(wide)
    }
}

/// Reduces half types on ranks that simulate several hosts, and compares all bits with a naive computation in f32. With
/// these values most sums exceed the type's largest number.
fn check_halves<T: Half>(ranks: usize, hosts: usize, count: usize, seed: u64) {
    let largest = if T::DTYPE == f16::DTYPE { f16::MAX.to_f32() } else { bf16::MAX.to_f32() };
    let scale = |&value: &i32| T::rounded(value as f32 / i32::MAX as f32 * largest);
    let rows: Vec<Vec<T>> =
        inputs(ranks, count, seed).iter().map(|row| row.iter().map(scale).collect()).collect();
    let wide: Vec<Vec<f32>> = rows.iter().map(|row| row.iter().map(|value| value.wide()).collect()).collect();
    let flat = fold(&wide, |a, b| a + b);
    // Two levels: the ranks of each host in order, then the hosts. A host with a single rank is a level by itself.
    let host = |rank: usize| rank * hosts / ranks;
    let by_host: Vec<Vec<f32>> = (0..hosts)
        .map(|at| {
            fold(
                &(0..ranks)
                    .filter(|&rank| host(rank) == at)
                    .map(|rank| wide[rank].clone())
                    .collect::<Vec<_>>(),
                |a, b| a + b,
            )
        })
        .collect();
    let levels = fold(&by_host, |a, b| a + b);
    let narrow = |wide: &[f32], divisor: usize| -> Vec<T> {
        wide.iter().map(|value| T::rounded(value / divisor as f32)).collect()
    };
    let same = |what: &str, found: &[T], expected: &[T]| {
        let equal = |(a, b): (&T, &T)| {
            bytemuck::bytes_of(a) == bytemuck::bytes_of(b) || a.wide().is_nan() && b.wide().is_nan()
        };
        assert!(
            found.len() == expected.len() && found.iter().zip(expected).all(equal),
            "{what}, {ranks} on {hosts} hosts"
        );
    };
    spawn_on_hosts(ranks, hosts, |world| {
        let (group, rank) = (world.group(), world.rank());
        for (operation, divisor) in [(ReduceOp::Avg, ranks), (ReduceOp::Sum, 1)] {
            for (deterministic, wide) in [(false, &levels), (true, &flat)] {
                let (group, combined) = (group.deterministic(deterministic), narrow(wide, divisor));
                let mut values = rows[rank].clone();
                group.all_reduce(&mut values, operation).unwrap();
                same("all_reduce", &values, &combined);
                let mut values = rows[rank].clone();
                group.reduce(&mut values, operation, ranks - 1).unwrap();
                same("reduce", &values, if rank == ranks - 1 { &combined } else { &rows[rank] });
                let counts: Vec<usize> = (0..ranks).map(|rank| if rank == 0 { count } else { 0 }).collect();
                let mut part = vec![T::rounded(0.0); counts[rank]];
                group.reduce_scatter_varied(&rows[rank], &mut part, &counts, operation).unwrap();
                same("reduce_scatter", &part, &combined[..part.len()]);
            }
        }
    });
}

/// Every rank's part when `counts[from][to]` elements of its row go from rank to rank.
fn parts<'a>(row: &'a [i32], counts: &[usize]) -> Vec<&'a [i32]> {
    let mut rest = row;
    let mut part = |&count: &usize| {
        let (part, after) = rest.split_at(count);
        rest = after;
        part
    };
    counts.iter().map(&mut part).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_reduce_is_the_fold_in_rank_order(ranks in 1usize..=6, count in 0usize..200_000, seed: u64) {
        let rows = inputs(ranks, count, seed);
        let wide = floats(&rows);
        let (sum, product) = (fold(&rows, i32::wrapping_add), fold(&rows, i32::wrapping_mul));
        let (least, total) = (fold(&rows, i32::min), fold(&wide, |a, b| a + b));
        spawn(ranks, |group| {
            for (operation, expected) in [(ReduceOp::Sum, &sum), (ReduceOp::Prod, &product), (ReduceOp::Min, &least)] {
                let mut values = rows[group.rank()].clone();
                group.all_reduce(&mut values, operation).unwrap();
                assert!(values == *expected, "{operation}");
            }
            let mut values = wide[group.rank()].clone();
            group.all_reduce(&mut values, ReduceOp::Sum).unwrap();
            // Bit for bit: the order of summation is part of the contract.
            assert!(values.iter().zip(&total).all(|(a, b)| a.to_bits() == b.to_bits()));
        });
    }

    #[test]
    fn scan_is_the_fold_of_the_ranks_up_to_each(
        ranks in 1usize..=6, hosts in 1usize..=3, count in 0usize..20_000, seed: u64,
    ) {
        let rows = inputs(ranks, count, seed);
        let wide = floats(&rows);
        let check = |group: &unisono::Group| {
            let rank = group.rank();
            let mut values = rows[rank].clone();
            group.scan(&mut values, ReduceOp::Prod).unwrap();
            assert!(values == fold(&rows[..=rank], i32::wrapping_mul));
            let mut values = wide[rank].clone();
            group.scan(&mut values, ReduceOp::Sum).unwrap();
            let expected = fold(&wide[..=rank], |a, b| a + b);
            assert!(values.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits()));
        };
        // Through shared memory, and over messages.
        spawn(ranks, |group| check(&group));
        spawn_on_hosts(ranks, hosts.min(ranks), |world| check(world.group()));
    }

    #[test]
    fn halves_are_combined_in_single_precision_between_hosts(
        ranks in 2usize..=7, hosts in 1usize..=4, count in 0usize..3000, seed: u64,
    ) {
        check_halves::<f16>(ranks, hosts.min(ranks), count, seed);
        check_halves::<bf16>(ranks, hosts.min(ranks), count, seed);
    }

    #[test]
    fn reduce_scatter_is_a_part_of_the_fold(counts in prop::collection::vec(0usize..40_000, 1..=6), seed: u64) {
        let rows = inputs(counts.len(), counts.iter().sum(), seed);
        let sum = fold(&rows, i32::wrapping_add);
        spawn(counts.len(), |group| {
            let mut part = vec![0; counts[group.rank()]];
            group.reduce_scatter_varied(&rows[group.rank()], &mut part, &counts, ReduceOp::Sum).unwrap();
            assert!(part == parts(&sum, &counts)[group.rank()]);
        });
    }

    #[test]
    fn gathering_scattered_parts_gives_the_full_array(counts in prop::collection::vec(0usize..60_000, 1..=6), seed: u64) {
        let full = inputs(1, counts.iter().sum(), seed).remove(0);
        let root = seed as usize % counts.len();
        spawn(counts.len(), |group| {
            let mut part = vec![0; counts[group.rank()]];
            let input = (group.rank() == root).then_some(&full[..]);
            group.scatter_varied(input, &counts, &mut part, root).unwrap();
            assert!(part == parts(&full, &counts)[group.rank()]);
            let mut again = vec![0; full.len()];
            group.all_gather_varied(&part, &mut again, &counts).unwrap();
            assert!(again == full);
            let mut at_root = vec![0; full.len()];
            group.gather_varied(&part, Some(&mut at_root), &counts, root).unwrap();
            assert!(group.rank() != root || at_root == full);
        });
    }

    #[test]
    fn all_to_all_transposes(
        counts in (1usize..=5).prop_flat_map(|ranks| {
            prop::collection::vec(prop::collection::vec(0usize..30_000, ranks), ranks)
        }),
        seed: u64,
    ) {
        let rows: Vec<Vec<i32>> =
            counts.iter().map(|row| inputs(1, row.iter().sum(), seed ^ row.len() as u64).remove(0)).collect();
        spawn(counts.len(), |group| {
            let me = group.rank();
            let receive_counts: Vec<usize> = counts.iter().map(|row| row[me]).collect();
            let mut received = vec![0; receive_counts.iter().sum()];
            group.all_to_all_varied(&rows[me], &counts[me], &mut received, &receive_counts).unwrap();
            let expected: Vec<i32> = (0..counts.len()).flat_map(|from| parts(&rows[from], &counts[from])[me].to_vec()).collect();
            assert!(received == expected);
        });
    }
}
