//! Ranks are killed at random moments, repeatedly: no rank may hang, and nothing may be left behind.

use std::fs;
use std::time::Duration;

use unisono::{Kind, ReduceOp, World};

use crate::harness::Job;

/// The number of rounds; `UNISONO_SOAK` overrides it.
fn rounds() -> usize {
    std::env::var("UNISONO_SOAK").ok().and_then(|text| text.parse().ok()).unwrap_or(250)
}

/// Makes all kinds of calls until one fails because a rank is lost.
pub fn rank(world: &World) {
    let group = world.group();
    let members: Vec<usize> = (0..world.size()).rev().collect();
    eprintln!("running");
    let work = || -> unisono::Result<()> {
        let mut small = [1.0f32; 100];
        let mut large = vec![1.0f32; 100_000];
        let mut all = vec![0.0; 100 * world.size()];
        loop {
            group.all_reduce(&mut small, ReduceOp::Avg)?;
            group.all_reduce(&mut large, ReduceOp::Avg)?;
            group.all_gather(&small, &mut all)?;
            let pending = group.start(|group| group.barrier());
            let again = group.subgroup(&members)?.expect("every rank is a member");
            again.broadcast(&mut large, 0)?;
            pending.wait()?;
            let next = (world.rank() + 1) % world.size();
            let before = (world.rank() + world.size() - 1) % world.size();
            let sending = group.raw().start_send(vec![1u8; 300_000], unisono::DType::U8, next, 0)?;
            group.recv(&mut vec![0u8; 300_000], before, 0)?;
            sending.wait()?;
        }
    };
    let error = work().unwrap_err();
    assert_eq!(error.kind(), Kind::PeerLost, "{error}");
}

#[test]
fn killing_ranks_at_random_times_never_hangs_and_leaves_nothing() {
    let mut random = u64::from(std::process::id()) | 1;
    let mut draw = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    for round in 0..rounds() {
        let size = 2 + draw(3) as usize;
        let mut job = Job::start(size, "soak");
        let victim = draw(size as u64) as usize;
        // Some die before they have joined, most in the middle of a call.
        if draw(8) > 0 {
            (0..size).for_each(|rank| drop(job.wait_for_output(rank, "running")));
        }
        std::thread::sleep(Duration::from_micros(draw(20_000)));
        job.kill(victim);
        for rank in (0..size).filter(|&rank| rank != victim) {
            let ending = job.end_of(rank);
            let died_joining = ending.output.contains("World::init") || ending.output.contains("PeerLost");
            assert!(ending.status.success() || died_joining, "round {round}, rank {rank}: {}", ending.output);
        }
    }
    let ours = format!("unisono-{}-{}-", rustix::process::getuid().as_raw(), std::process::id());
    let sockets = fs::read_to_string("/proc/net/unix").unwrap();
    assert!(!sockets.contains(&ours), "a socket is left behind: {sockets}");
    let left = fs::read_dir("/dev/shm")
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().contains("unisono"));
    assert_eq!(left.count(), 0, "shared memory is left behind");
}
