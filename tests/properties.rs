//! Properties of the collectives for any number of ranks, any lengths and any values: they equal a serial computation.

use proptest::prelude::*;
use unisono::testing::spawn;
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
            // Bit for bit: the order of the sum is part of the promise.
            assert!(values.iter().zip(&total).all(|(a, b)| a.to_bits() == b.to_bits()));
        });
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
    fn gathering_scattered_parts_gives_the_whole(counts in prop::collection::vec(0usize..60_000, 1..=6), seed: u64) {
        let whole = inputs(1, counts.iter().sum(), seed).remove(0);
        let root = seed as usize % counts.len();
        spawn(counts.len(), |group| {
            let mut part = vec![0; counts[group.rank()]];
            let input = (group.rank() == root).then_some(&whole[..]);
            group.scatter_varied(input, &counts, &mut part, root).unwrap();
            assert!(part == parts(&whole, &counts)[group.rank()]);
            let mut again = vec![0; whole.len()];
            group.all_gather_varied(&part, &mut again, &counts).unwrap();
            assert!(again == whole);
            let mut at_root = vec![0; whole.len()];
            group.gather_varied(&part, Some(&mut at_root), &counts, root).unwrap();
            assert!(group.rank() != root || at_root == whole);
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
