//! What every MPI must carry: messages of all sizes, in any order, from several threads, and after failed calls.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::memory::{DType, ReduceOp};
use crate::transport::mpi::{MpiOptions, MpiTransport};
use crate::transport::{
    Call, CallTime, Incoming, MatchKey, NonblockingTransport, Outgoing, Signature, Transport, Verb,
};

pub fn start() -> MpiTransport {
    let timeout = Duration::from_secs(30);
    MpiTransport::init(MpiOptions { expected: None, timeout, describe: None }).expect("MPI starts")
}

pub fn call<'a>(transport: &MpiTransport, seconds: f64) -> Call<'a> {
    Call {
        rank: transport.rank(),
        operation: "test",
        number: 1,
        group: "world",
        members: &[],
        hosts: &[],
        time: CallTime::new(Duration::from_secs_f64(seconds)),
        interrupt: None,
    }
}

pub fn match_key(context: u32, tag: u32, count: u64) -> MatchKey {
    MatchKey { context, tag, signature: Signature::new(Verb::SEND, 1).of(DType::U8, count) }
}

/// Bytes that identify their sender and their position.
fn pattern(rank: usize, length: usize) -> Vec<u8> {
    (0..length).map(|index| (index.wrapping_mul(31) ^ (index >> 8) ^ (rank * 97)) as u8).collect()
}

/// Sends to the next rank and receives from the previous one.
pub fn ring(transport: &MpiTransport, length: usize, context: u32) -> Result<()> {
    let (rank, size) = (transport.rank(), transport.size());
    let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
    let sent = pattern(rank, length);
    let mut received = vec![0xff; length];
    transport.exchange(
        &call(transport, 30.0),
        &match_key(context, 0, length as u64),
        &[Outgoing { to: next, bytes: &sent }],
        &mut [Incoming { from: before, bytes: &mut received }],
    )?;
    assert!(received == pattern(before, length), "{length} bytes from rank {before} are wrong");
    Ok(())
}

fn send(transport: &MpiTransport, to: usize, tag: u32, bytes: &[u8], seconds: f64) -> Result<()> {
    let match_key = match_key(1, tag, bytes.len() as u64);
    transport.exchange(&call(transport, seconds), &match_key, &[Outgoing { to, bytes }], &mut [])
}

fn receive(transport: &MpiTransport, from: usize, tag: u32, bytes: &mut [u8], seconds: f64) -> Result<()> {
    let match_key = match_key(1, tag, bytes.len() as u64);
    transport.exchange(&call(transport, seconds), &match_key, &[], &mut [Incoming { from, bytes }])
}

pub fn messages() {
    let transport = start();
    println!("rank {} of {} over {}", transport.rank(), transport.size(), transport.version());
    for length in [0, 1, 1000, 16 << 10, (16 << 10) + 1, 1 << 20, (9 << 20) + 5] {
        ring(&transport, length, 0).expect("the ring");
    }
    to_oneself(&transport);
    out_of_order(&transport);
    several_threads(&transport);
    all_reduces(&transport);
    if transport.size() == 2 {
        large_posts(&transport);
    }
    if transport.size() > 1 {
        mismatches(&transport);
        timeouts(&transport);
        interrupts(&transport);
        half_way(&transport);
    }
    ring(&transport, 6 << 20, 0).expect("the ring after failed calls");
    transport.shutdown(Duration::from_secs(30)).expect("MPI ends");
    println!("all messages arrived");
}

fn to_oneself(transport: &MpiTransport) {
    let rank = transport.rank();
    for length in [0, 10, 100_000] {
        let sent = pattern(rank, length);
        send(transport, rank, 3, &sent, 10.0).expect("a message to oneself");
        let mut received = vec![0; length];
        receive(transport, rank, 3, &mut received, 10.0).expect("a message from oneself");
        assert!(sent == received);
    }
}

/// Rank 0 sends tags 0, 1, 2 at once; the others receive them in the order 2, 0, 1.
fn out_of_order(transport: &MpiTransport) {
    for length in [100, 200_000] {
        if transport.rank() == 0 {
            let sent = pattern(0, length);
            let call = call(transport, 30.0);
            for to in 1..transport.size() {
                let sends = [Outgoing { to, bytes: &sent }];
                // SAFETY: the buffer outlives the tickets, which are completed below.
                let tickets = [0, 1, 2].map(|tag| unsafe {
                    transport.begin(&match_key(1, tag, length as u64), &sends, &mut [])
                });
                for ticket in tickets {
                    transport.complete(&call, &ticket).expect("sends in flight together");
                }
            }
        } else {
            for tag in [2, 0, 1] {
                let mut received = vec![0; length];
                receive(transport, 0, tag, &mut received, 30.0).expect("a message out of order");
                assert!(received == pattern(0, length));
            }
        }
    }
}

fn several_threads(transport: &MpiTransport) {
    std::thread::scope(|scope| {
        for context in 10..14 {
            scope.spawn(move || {
                for length in [0, 5, 50_000, 5, 300_000] {
                    ring(transport, length, context).expect("the ring of a thread");
                }
            });
        }
    });
}

/// 100 MB from rank 0 to rank 1, then a small message that must not overtake it, while both wait for other messages.
fn large_posts(transport: &MpiTransport) {
    let (call, tag) = (call(transport, 60.0), MatchKey::REQUEST);
    if transport.rank() == 0 {
        for length in [100_000_000, 10] {
            transport.post(&call, 1, &match_key(60, tag, 0), pattern(length, length)).expect("posted");
        }
        assert!(transport.flush(&call, Duration::from_secs(60)).expect("no error"), "both have left");
    } else {
        for length in [100_000_000, 10] {
            let found = transport.receive_next(&call, 60, tag, Duration::from_secs(60)).expect("no error");
            assert!(found == Some((0, pattern(length, length))), "{length} bytes are wrong");
        }
    }
}

fn all_reduces(transport: &MpiTransport) {
    let (rank, size) = (transport.rank(), transport.size());
    let members: Vec<usize> = (0..size).collect();
    for count in [0usize, 1, 3, 1000, 70_001, 1_500_007] {
        let match_key = match_key(0, MatchKey::COLLECTIVE, count as u64);
        let mut values: Vec<f32> = (0..count).map(|index| (index % 1000) as f32 + rank as f32).collect();
        let bytes = bytemuck::cast_slice_mut(&mut values);
        let call = call(transport, 30.0);
        transport
            .all_reduce_pipelined(&call, &match_key, &members, bytes, (DType::F32, ReduceOp::Sum))
            .expect("all_reduce");
        let ranks = (size * (size - 1) / 2) as f32;
        for (index, value) in values.iter().enumerate() {
            assert_eq!(*value, (index % 1000) as f32 * size as f32 + ranks, "element {index} of {count}");
        }
    }
    // A group of one rank: a logical operation makes a truth value of each element.
    let mut values = [0i64, 5, -1];
    let (bytes, kind) = (bytemuck::cast_slice_mut(&mut values), (DType::I64, ReduceOp::Lor));
    let (alone, place) = (call(transport, 30.0), match_key(3, MatchKey::COLLECTIVE, 3));
    transport.all_reduce_pipelined(&alone, &place, &[rank], bytes, kind).expect("alone");
    assert_eq!(values, [0, 1, 1]);
    // A group of some ranks, in an order of its own.
    if size >= 3 && rank != 1 {
        let mut values = vec![1i64 << rank; 100_000];
        let bytes = bytemuck::cast_slice_mut(&mut values);
        let (call, match_key) = (call(transport, 30.0), match_key(2, MatchKey::COLLECTIVE, 100_000));
        transport
            .all_reduce_pipelined(&call, &match_key, &[2, 0], bytes, (DType::I64, ReduceOp::Max))
            .expect("in a group");
        let expected = if rank == 3 { 8 } else { 4 };
        assert!(values.iter().all(|value| *value == expected));
    }
}

/// Rank 1 sends messages that rank 0 does not expect, small and large: rank 0 reports them; the message can still be
/// received.
fn mismatches(transport: &MpiTransport) {
    for (tag, length) in [(20, 100), (21, 1 << 20)] {
        match transport.rank() {
            0 => {
                let mut wrong = vec![0; 8];
                let error = receive(transport, 1, tag, &mut wrong, 30.0).expect_err("another length");
                assert!(matches!(error, Error::Mismatch { .. }), "{error}");
                assert!(
                    error.to_string().contains(&format!("rank 1 called send #1 of {length} x uint8")),
                    "{error}"
                );
                let mut right = vec![0; length];
                receive(transport, 1, tag, &mut right, 30.0).expect("the message stayed");
                assert!(right == pattern(1, length));
            }
            1 => send(transport, 0, tag, &pattern(1, length), 30.0).expect("it is received in the end"),
            _ => {}
        }
    }
    // In a collective, the sender of a large message is notified as well.
    let match_key = match_key(3, MatchKey::COLLECTIVE, if transport.rank() == 0 { 8 } else { 1 << 20 });
    let (mut small, large) = (vec![0; 8], vec![0; 1 << 20]);
    let outcome = match transport.rank() {
        0 => {
            let receives = &mut [Incoming { from: 1, bytes: &mut small }];
            transport.exchange(&call(transport, 30.0), &match_key, &[], receives)
        }
        1 => transport.exchange(
            &call(transport, 30.0),
            &match_key,
            &[Outgoing { to: 0, bytes: &large }],
            &mut [],
        ),
        _ => return,
    };
    let error = outcome.expect_err("the calls differ");
    assert!(matches!(error, Error::Mismatch { .. }), "{error}");
}

/// No rank sends, and no rank receives: both calls end at their deadline, name the rank, and leave nothing behind.
fn timeouts(transport: &MpiTransport) {
    let error = match transport.rank() {
        0 => receive(transport, 1, 30, &mut [0; 10], 0.2).expect_err("no rank sends"),
        1 => send(transport, 0, 31, &vec![1; 5 << 20], 0.2).expect_err("no rank receives"),
        _ => return,
    };
    let peer = 1 - transport.rank();
    assert!(matches!(&error, Error::Timeout { missing, .. } if missing[0].rank == peer), "{error}");
}

/// The caller's hook ends a wait long before its deadline.
fn interrupts(transport: &MpiTransport) {
    let peer = (transport.rank() + 1) % transport.size();
    let mut call = call(transport, 30.0);
    let stop = || true;
    call.interrupt = Some(&stop);
    let receives = &mut [Incoming { from: peer, bytes: &mut [0; 4] }];
    let error =
        transport.exchange(&call, &match_key(50, 0, 4), &[], receives).expect_err("the hook stops it");
    assert!(matches!(error, Error::Interrupted { .. }), "{error}");
}

/// Cancels large exchanges at many different moments; later messages must not be affected.
fn half_way(transport: &MpiTransport) {
    if transport.rank() > 1 {
        return;
    }
    let peer = 1 - transport.rank();
    for round in 0..40 {
        let sent = pattern(round, 12 << 20);
        let mut received = vec![0; 12 << 20];
        let (call, match_key) = (call(transport, 30.0), match_key(40, 0, 12 << 20));
        let sends = [Outgoing { to: peer, bytes: &sent }];
        let mut receives = [Incoming { from: peer, bytes: &mut received }];
        // SAFETY: the buffers outlive the ticket, which is cancelled below.
        let ticket = unsafe { transport.begin(&match_key, &sends, &mut receives) };
        let polls = if transport.rank() == 0 { round * 7 } else { (39 - round) * 5 };
        for _ in 0..polls {
            // Complete, or cancelled by the peer: both are correct.
            if transport.poll(&call, &ticket).unwrap_or(true) {
                break;
            }
        }
        transport.cancel(ticket);
        drop((sent, received));
        let mut echo = [0; 8];
        let sends = [Outgoing { to: peer, bytes: &[round as u8; 8] }];
        let mut receives = [Incoming { from: peer, bytes: &mut echo }];
        let match_key = self::match_key(41, 0, 8);
        transport.exchange(&call, &match_key, &sends, &mut receives).expect("the next message");
        assert_eq!(echo, [round as u8; 8]);
    }
}
