//! Ranks that are killed, stopped, late, or leave early.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use unisono::{Error, Group, Kind, ReduceOp, World};

use crate::harness::{Job, LIMIT};

/// Calls all_reduce until it fails, then prints the error and exits successfully.
pub fn endless(world: &World) {
    until_it_fails(world.group());
}

/// The same with a short timeout, once all ranks have joined.
pub fn impatient(world: &World) {
    world.group().barrier().unwrap();
    until_it_fails(&world.group().with_timeout(Duration::from_secs(3)));
}

fn until_it_fails(group: &Group) {
    let mut values = vec![1.0f32; 300_000];
    eprintln!("running");
    loop {
        if let Err(error) = group.all_reduce(&mut values, ReduceOp::Avg) {
            eprintln!("{:?}: {error}", error.kind());
            let again = group.barrier().unwrap_err();
            assert_eq!(again.kind(), error.kind(), "a broken group stays broken");
            return;
        }
    }
}

#[test]
fn a_killed_rank_is_named_long_before_the_deadline() {
    for size in [2, 4] {
        let mut job = Job::start(size, "endless");
        (0..size).for_each(|rank| drop(job.wait_for_output(rank, "running")));
        std::thread::sleep(Duration::from_millis(50));
        let (victim, pid) = (size - 1, job.pid(size - 1));
        let killed = Instant::now();
        job.signal(victim, Signal::KILL);
        for rank in 0..victim {
            let ending = job.end_of(rank);
            assert!(
                killed.elapsed() < Duration::from_secs(20),
                "rank {rank} noticed after {:?}",
                killed.elapsed()
            );
            assert!(ending.status.success(), "{}", ending.output);
            assert!(ending.output.contains("PeerLost"), "{}", ending.output);
            // Another survivor may have given up first; at least one must name the victim.
            let names_victim = ending.output.contains(&format!("rank {victim} (process {pid}"));
            assert!(names_victim || ending.output.contains("gave up"), "{}", ending.output);
        }
    }
}

#[test]
fn a_stopped_rank_is_named_at_the_deadline() {
    let mut job = Job::start(3, "impatient");
    (0..3).for_each(|rank| drop(job.wait_for_output(rank, "running")));
    let pid = job.pid(1);
    job.signal(1, Signal::STOP);
    let endings = [job.end_of(0), job.end_of(2)];
    let named = format!("rank 1 (process {pid}, stopped by a signal");
    assert!(endings.iter().any(|ending| ending.output.contains(&named)), "{}", endings[0].output);
    for ending in endings {
        assert!(ending.output.contains("Timeout") || ending.output.contains("PeerLost"), "{}", ending.output);
    }
}

/// Rank 1 computes while the others wait for it.
pub fn absent(world: &World) {
    world.group().barrier().unwrap();
    if world.rank() == 1 {
        world.set_locator(|| Some("train.py:31 in step".into()));
        std::thread::sleep(LIMIT);
        return;
    }
    let impatient = world.group().with_timeout(Duration::from_secs(1));
    let error = impatient.all_reduce(&mut [1i32], ReduceOp::Sum).unwrap_err();
    assert_eq!(error.kind(), Kind::Timeout);
    let Error::Timeout { operation, number, missing, .. } = &error else { panic!("{error}") };
    assert_eq!((operation.as_str(), *number), ("all_reduce", 2));
    assert_eq!(missing.iter().map(|missing| missing.rank).collect::<Vec<_>>(), [1]);
    let text = error.to_string();
    assert!(text.contains("computing for") && text.contains("since barrier #1"), "{text}");
    assert!(text.contains("at train.py:31 in step"), "{text}");
}

#[test]
fn a_late_rank_is_named_with_its_activity() {
    let mut job = Job::start(3, "absent");
    for rank in [0, 2] {
        let ending = job.end_of(rank);
        assert!(ending.status.success(), "rank {rank} failed: {}", ending.output);
    }
}

/// Rank 1 has made no call yet.
pub fn silent(world: &World) {
    if world.rank() == 1 {
        std::thread::sleep(LIMIT);
        return;
    }
    let impatient = world.group().with_timeout(Duration::from_millis(300));
    let error = impatient.barrier().unwrap_err().to_string();
    assert!(error.contains("computing for") && error.contains(" s since init"), "{error}");
}

#[test]
fn a_rank_that_has_made_no_call_computes_since_init() {
    let mut job = Job::start(2, "silent");
    let ending = job.end_of(0);
    assert!(ending.status.success(), "{}", ending.output);
}

/// Rank 0 leaves; the other rank detects it.
pub fn early(world: &World) {
    if world.rank() == 1 {
        let error = world.group().all_reduce(&mut [1u8], ReduceOp::Max).unwrap_err();
        assert_eq!(error.kind(), Kind::PeerLost, "{error}");
        let text = error.to_string();
        assert!(text.contains("rank 0") && text.contains("while others still needed it"), "{text}");
        assert!(text.contains("let every rank make the same calls"), "{text}");
    }
}

#[test]
fn a_rank_that_leaves_early_is_detected_and_its_last_message_arrives() {
    Job::start(2, "early").all_succeed();
    let received = unisono::testing::spawn(2, |group| {
        let mut value = [0u8; 100];
        match group.rank() {
            0 => group.send(&[7u8; 100], 1, 0).unwrap(),
            _ => {
                std::thread::sleep(Duration::from_millis(200));
                group.recv(&mut value, 0, 0).unwrap();
            }
        }
        value[99]
    });
    assert_eq!(received[1], 7);
}
