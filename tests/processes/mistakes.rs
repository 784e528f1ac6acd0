//! Invalid calls: each gives one clear error and changes nothing.

use unisono::{Error, Kind, ReduceOp, World};

use crate::harness::Job;

/// Rank 0 sums ten floats while rank 1 broadcasts twenty integers.
pub fn mismatch(world: &World) {
    let group = world.group();
    let mut floats = [1.5f32; 10];
    let mut integers = [7i32; 20];
    let error = match world.rank() {
        0 => group.all_reduce(&mut floats, ReduceOp::Sum).unwrap_err(),
        _ => group.broadcast(&mut integers, 0).unwrap_err(),
    };
    assert_eq!(error.kind(), Kind::Usage);
    assert!(matches!(error, Error::Mismatch { .. }));
    let text = error.to_string();
    for part in
        ["rank 0 called all_reduce #1 (sum) of 10 x float32", "rank 1 called broadcast #1 of 20 x int32"]
    {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!((floats, integers), ([1.5; 10], [7; 20]), "nothing was changed");
    // All ranks detected the mistake in the same step, so the group remains usable.
    group.all_reduce(&mut floats, ReduceOp::Sum).unwrap();
    assert_eq!(floats[0], 1.5 * world.size() as f32);
}

#[test]
fn different_calls_are_named_and_change_nothing() {
    Job::start(2, "mismatch").all_succeed();
    Job::start(4, "mismatch").all_succeed();
}

/// A child process inherits its rank's environment variables; it must not become that rank.
pub fn second_init(world: &World) {
    let error = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "rank", "--nocapture"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&error.stderr).into_owned();
    assert!(!error.status.success());
    assert!(text.contains(&format!("process {} that has this rank already", std::process::id())), "{text}");
    world.group().barrier().unwrap();
}

#[test]
fn a_rank_has_only_one_process() {
    Job::start(2, "second init").all_succeed();
}

pub fn arena_limits(world: &World) {
    let error = world.empty(usize::MAX / 2).map(drop).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage, "{error}");
    let mut buffer = world.empty(8_000_000).unwrap();
    let values: &mut [f64] = bytemuck::cast_slice_mut(&mut buffer);
    values.fill(world.rank() as f64 + 1.0);
    // One member's buffer is private: both paths must work together.
    let mut private = vec![world.rank() as f64 + 1.0; 1_000_000];
    let chosen = if world.rank() == 1 { &mut private[..] } else { values };
    world.group().all_reduce(chosen, ReduceOp::Sum).unwrap();
    let expected = (1..=world.size()).sum::<usize>() as f64;
    assert!(chosen.iter().all(|&value| value == expected));
}

#[test]
fn arena_and_private_buffers_mix() {
    Job::start(3, "arena").all_succeed();
}

#[test]
fn wrong_arguments_are_rejected_before_any_communication() {
    unisono::testing::spawn(2, |group| {
        let usage = |result: unisono::Result<()>, words: &str| {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), Kind::Usage);
            assert!(error.to_string().contains(words), "{error}");
        };
        usage(group.broadcast(&mut [1f32], 2), "expected a root below 2, received 2");
        usage(group.all_reduce(&mut [1i64], ReduceOp::Avg), "a floating or complex type for avg");
        usage(group.send(&[1f32], 5, 0), "a rank below 2");
        usage(group.send(&[1f32], 1, u32::MAX), "a tag below");
        usage(group.all_gather(&[1f32], &mut [0.0; 3]), "an output of 2 x float32");
        usage(group.all_to_all(&[1f32; 3], &mut [0.0; 3]), "share equally");
        usage(group.subgroup(&[0, 0]).map(drop), "rank 0 twice");
        usage(group.subgroup(&[0, 9]).map(drop), "rank 9");
        usage(
            group.raw().all_reduce(&mut [0; 7], unisono::DType::F32, ReduceOp::Sum),
            "whole elements of float32",
        );
        // None of that disturbed the group.
        group.barrier().unwrap();
    });
}

#[test]
fn a_call_that_one_rank_rejected_is_not_mistaken_for_its_next() {
    unisono::testing::spawn(3, |group| {
        let mut values = [group.rank() as f32 + 1.0];
        if group.rank() == 1 {
            // This rank's first call is rejected; its second looks just like the first of the others.
            group.broadcast(&mut values, 7).unwrap_err();
        }
        let error = group.all_reduce(&mut values, ReduceOp::Sum).unwrap_err();
        assert!(matches!(error, Error::Mismatch { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("all_reduce #1") && text.contains("rank 1 called all_reduce #2"), "{text}");
        assert_eq!(values, [group.rank() as f32 + 1.0]);
        // Once all ranks have had the same number of calls rejected, they are in step again.
        if group.rank() != 1 {
            group.broadcast(&mut values, 7).unwrap_err();
        }
        group.all_reduce(&mut values, ReduceOp::Sum).unwrap();
        assert_eq!(values, [6.0]);
    });
}

#[test]
fn a_message_of_another_type_waits_for_the_matching_receive() {
    unisono::testing::spawn(2, |group| {
        if group.rank() == 0 {
            group.send(&[1i32, 2, 3], 1, 4).unwrap();
        } else {
            let error = group.recv(&mut [0f32; 3], 0, 4).unwrap_err().to_string();
            assert!(error.contains("rank 0 called send of 3 x int32"), "{error}");
            assert!(error.contains("rank 1 called recv of 3 x float32"), "{error}");
            assert!(error.contains("the number and type of elements that were sent"), "{error}");
            let error = group.recv(&mut [0i32; 3], 0, 1 << 31).unwrap_err().to_string();
            assert!(error.contains("rank 1: recv: expected a tag below"), "{error}");
            let mut values = [0i32; 3];
            group.recv(&mut values, 0, 4).unwrap();
            assert_eq!(values, [1, 2, 3]);
        }
    });
}

#[test]
fn calls_after_shutdown_are_rejected() {
    let world = World::threads(1).unwrap().remove(0);
    let group = world.group().clone();
    world.shutdown();
    let error = group.barrier().unwrap_err();
    assert!(error.to_string().contains("one that was shut down"), "{error}");
}
