//! Messages from any rank: posted, and received in the order of each sender, while other threads make their own calls.

use std::time::{Duration, Instant};

use super::moves;
use crate::error::Result;
use crate::transport::{Call, CallTime, MatchKey, Signature, Verb};
use crate::world::Group;

/// Lengths around those at which transports switch protocols, large and small in turns, and several large ones in a row.
const LENGTHS: [usize; 12] =
    [3, 200_003, 0, 16 << 10, (16 << 10) + 1, 1, 5_000_011, 70_001, 300_000, 70_003, 0, 70_000];

fn call(group: &Group) -> Call<'_> {
    Call {
        rank: group.transport().rank(),
        operation: "post",
        number: 1,
        group: group.name(),
        members: &[],
        hosts: &[],
        time: CallTime::new(Duration::from_secs(60)),
        interrupt: None,
    }
}

fn match_key(group: &Group, tag: u32) -> MatchKey {
    MatchKey { context: group.context(), tag, signature: Signature::new(Verb::SEND, 0) }
}

fn message(from: usize, number: usize, length: usize) -> Vec<u8> {
    (0..length)
        .map(|index| (index.wrapping_mul(31) ^ (index >> 8) ^ (from * 97) ^ (number * 13)) as u8)
        .collect()
}

/// Every rank posts to every rank, while another thread of each rank exchanges messages and the group synchronises.
pub(super) fn arrive_in_order(group: &Group) -> Result<()> {
    let beside = group.clone();
    std::thread::scope(|scope| {
        let exchanges = scope.spawn(move || {
            for count in [10, 60_000, 0, 1000, 400_000] {
                moves::ring::<i32>(&beside, count)?;
            }
            Ok(())
        });
        let transport = group.transport();
        for (number, &length) in LENGTHS.iter().enumerate() {
            for &to in group.members() {
                let mut bytes = transport.buffer(length);
                bytes.copy_from_slice(&message(group.rank(), number, length));
                transport.post(&call(group), to, &match_key(group, MatchKey::REQUEST), bytes)?;
            }
        }
        receive(group, MatchKey::REQUEST)?;
        for &to in group.members() {
            assert!(transport.drain(&call(group), to, 0, Duration::from_secs(60))?, "rank {to} received all");
        }
        assert!(transport.flush(&call(group), Duration::from_secs(60))?, "everything posted was received");
        exchanges.join().expect("no panic beside")
    })?;
    group.barrier()
}

fn receive(group: &Group, tag: u32) -> Result<()> {
    let transport = group.transport();
    let mut received = vec![0; group.size()];
    let started = Instant::now();
    while received.iter().sum::<usize>() < group.size() * LENGTHS.len() {
        assert!(started.elapsed() < Duration::from_secs(60), "only {received:?} came");
        let limit = Duration::from_millis(100);
        let Some((from, bytes)) = transport.receive_next(&call(group), group.context(), tag, limit)? else {
            continue;
        };
        let from = group.members().iter().position(|&rank| rank == from).expect("a member sent it");
        let number = received[from];
        assert!(
            bytes == message(from, number, LENGTHS[number]),
            "message {number} of rank {from} is wrong: {} bytes",
            bytes.len()
        );
        received[from] += 1;
        transport.recycle(bytes);
    }
    Ok(())
}

/// An idle server uses no CPU time, and gets its message as soon as it arrives.
pub(super) fn idle_is_idle(group: &Group) -> Result<()> {
    let transport = group.transport();
    group.barrier()?;
    let (before, limit) = (processor_time(), Duration::from_millis(300));
    let none = transport.receive_next(&call(group), group.context(), MatchKey::REPLY, limit)?;
    assert!(none.is_none(), "no rank has sent anything");
    let used = processor_time() - before;
    assert!(used < limit / 2, "{used:?} of the processor for an idle wait of {limit:?}");
    group.barrier()?;
    let next = group.members()[(group.rank() + 1) % group.size()];
    transport.post(&call(group), next, &match_key(group, MatchKey::REPLY), vec![7; 5])?;
    let limit = Duration::from_secs(60);
    let found = transport.receive_next(&call(group), group.context(), MatchKey::REPLY, limit)?;
    assert_eq!(found.map(|(_, bytes)| bytes), Some(vec![7; 5]));
    group.barrier()
}

/// The CPU time that this thread has used.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
