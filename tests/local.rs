//! The conformance suite on ranks that are threads, for several numbers of ranks.

use unisono::testing::{conformance, spawn};

#[test]
fn every_verb_works_on_one_to_six_ranks() {
    for size in [1, 2, 3, 4, 6] {
        spawn(size, |group| conformance::run(&group).unwrap());
    }
}

#[test]
fn every_verb_works_on_a_subgroup() {
    spawn(5, |group| {
        if let Some(odd) = group.subgroup(&[4, 2, 1]).unwrap() {
            conformance::run(&odd).unwrap();
        }
    });
}

#[test]
fn split_creates_a_group_per_color_ordered_by_key() {
    spawn(6, |group| {
        let rank = group.rank();
        let color = (rank != 5).then_some(rank as u64 % 2);
        let part = group.split(color, -(rank as i64)).unwrap();
        match rank {
            5 => assert!(part.is_none()),
            _ if rank % 2 == 0 => assert_eq!(part.unwrap().members(), [4, 2, 0]),
            _ => assert_eq!(part.unwrap().members(), [3, 1]),
        }
    });
}

#[test]
fn dropped_groups_free_their_memory() {
    spawn(2, |group| {
        for _ in 0..3000 {
            let pair = group.subgroup(&[1, 0]).unwrap().unwrap();
            pair.barrier().unwrap();
        }
    });
}

#[test]
fn different_operations_on_several_hosts_are_detected() {
    use unisono::{Error, ReduceOp, testing};
    let hosts = testing::spawn_on_hosts(4, 2, |world| {
        let group = world.group().with_timeout(std::time::Duration::from_secs(60));
        // The ranks of each host agree, so only the exchange between hosts can detect the mismatch.
        let operation = if world.rank() < 2 { ReduceOp::Sum } else { ReduceOp::Avg };
        group.all_reduce(&mut [1.0f32], operation).unwrap_err()
    });
    assert!(hosts.iter().any(|error| matches!(error, Error::Mismatch { .. })), "{hosts:?}");
    let text = hosts.iter().map(ToString::to_string).collect::<String>();
    assert!(text.contains("all_reduce #1 (avg) of 1 x float32"), "{text}");
}
