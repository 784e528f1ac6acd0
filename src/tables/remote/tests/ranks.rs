//! What each rank of a job with toy tables does, over any transport.

use std::sync::Arc;
use std::time::Duration;

use super::toy::{ECHO, FREE, LENGTH, LOCK_STEP, Toy, bytes, numbers};
use super::{call, failures, start};
use crate::memory::DType;
use crate::tables::remote::compress::{Compression, Packer, RowIds};
use crate::tables::remote::{Remote, RemoteRequest, RequestVerb, RowList};
use crate::transport::{Incoming, MatchKey, Outgoing, Signature, Transport};

/// First the calls that succeed, then those that fail, then an orderly shutdown.
pub(crate) fn every_rank(transport: &Arc<dyn Transport>) {
    let handler = Arc::new(Toy::new(transport.size()));
    let remote = start(transport, handler.clone()).unwrap();
    in_step(transport, &remote);
    at_once(transport, &remote);
    of_all_sizes(transport, &remote);
    failures::errors_come_back(transport, &remote);
    failures::waits_end(transport, &remote);
    failures::all_or_none(transport, &remote);
    // A rank that sends more requests than others is still served while they wait to close.
    if transport.rank() == 0 {
        std::thread::sleep(Duration::from_millis(100));
        at_once_alone(transport, &remote);
    }
    remote.close(&call(transport, 60.0)).unwrap();
    assert_eq!(Arc::strong_count(&handler), 1, "the thread has ended");
    barrier(transport);
}

/// Sleeps a few milliseconds or not at all, differently on each rank and at each step.
fn jitter(rank: usize, step: usize) {
    let mixed = (rank * 7919 + step * 104_729 + 31) % 97;
    if mixed < 20 {
        std::thread::sleep(Duration::from_millis(mixed as u64 / 4));
    }
}

/// Adds and gets in lock-step; each worker has its own number of rounds.
fn in_step(transport: &Arc<dyn Transport>, remote: &Remote) {
    let (rank, size) = (transport.rank(), transport.size());
    let rounds = |worker: usize| 20 + 3 * worker;
    let delta = |worker: usize, round: usize| (worker * 1000 + round) as i64;
    let request = |verb| RemoteRequest::new(LOCK_STEP, rank as u32, verb);
    for round in 0..rounds(rank) {
        jitter(rank, round);
        let add =
            RemoteRequest { payload: bytes(&[delta(rank, round); LENGTH]), ..request(RequestVerb::Add) };
        if round % 3 == 0 {
            remote.call_all(&call(transport, 60.0), (0..size).map(|to| (to, add.clone())).collect()).unwrap();
        } else {
            (0..size).for_each(|to| remote.post(&call(transport, 60.0), to, add.clone()).unwrap());
        }
        let gets = (0..size).map(|to| (to, request(RequestVerb::Get))).collect();
        let found = remote.call_all(&call(transport, 60.0), gets).unwrap();
        let expected: i64 = (0..size)
            .flat_map(|worker| (0..rounds(worker).min(round + 1)).map(move |round| delta(worker, round)))
            .sum();
        for (server, found) in found.iter().enumerate() {
            assert_eq!(numbers(found), [expected; LENGTH], "round {round} on server {server}");
        }
    }
    remote.flush(&call(transport, 60.0)).unwrap();
    let finish = (0..size).map(|to| (to, request(RequestVerb::Finish))).collect();
    remote.call_all(&call(transport, 60.0), finish).unwrap();
}

/// Several threads of each rank add and get concurrently; read-your-writes, and no add is lost.
fn at_once(transport: &Arc<dyn Transport>, remote: &Remote) {
    let (rank, size) = (transport.rank(), transport.size());
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || {
                let worker = (rank * 3 + thread) as u32;
                let own = vec![worker as i64 % 40, 45 + thread as i64];
                let mut packer = Packer::new(DType::I64, 1, Compression::None);
                for step in 0..40 {
                    jitter(rank + thread, step);
                    let to = (rank + step) % size;
                    let (payload, packed) = packer.pack(RowIds::List(&own), bytes(&[1, 1]));
                    let request = RemoteRequest {
                        rows: RowList::List(own.clone()),
                        ..RemoteRequest::new(FREE, worker, RequestVerb::Get)
                    };
                    let before = numbers(&remote.call(&call(transport, 60.0), to, request.clone()).unwrap());
                    let payload = payload.into_owned();
                    let add = RemoteRequest { verb: RequestVerb::Add, payload, packed, ..request.clone() };
                    remote.post(&call(transport, 60.0), to, add).unwrap();
                    let after = numbers(&remote.call(&call(transport, 60.0), to, request).unwrap());
                    assert_eq!(after[0], before[0] + 1, "only this worker writes there");
                    assert!(after[1] > before[1]);
                }
            });
        }
    });
    remote.flush(&call(transport, 60.0)).unwrap();
    barrier(transport);
    let gets = (0..size).map(|to| (to, RemoteRequest::new(FREE, 0, RequestVerb::Get))).collect();
    let found = remote.call_all(&call(transport, 60.0), gets).unwrap();
    let total = |position: usize| found.iter().map(|found| numbers(found)[position]).sum::<i64>();
    (45..48).for_each(|position| assert_eq!(total(position), 40 * size as i64));
    barrier(transport);
}

/// Requests and replies of any length, with and without compression; several threads concurrently.
fn of_all_sizes(transport: &Arc<dyn Transport>, remote: &Remote) {
    let (rank, size) = (transport.rank(), transport.size());
    let compressions = [Compression::None, Compression::F16, Compression::Int8, Compression::TopK(0.01)];
    let echo = |count: usize, compression: Compression| {
        let sent: Vec<f32> = (0..count).map(|index| ((index + rank) % 201) as f32 - 100.0).collect();
        let mut packer = Packer::new(DType::F32, 100, compression);
        let (payload, packed) = packer.pack(RowIds::From(0), bytemuck::cast_slice::<f32, u8>(&sent));
        let payload = payload.into_owned();
        let request = RemoteRequest {
            rows: RowList::List(vec![count as i64]),
            reply: Some((DType::F32, compression)),
            payload,
            packed,
            ..RemoteRequest::new(FREE, rank as u32, ECHO)
        };
        let asked = (0..size).map(|to| (to, request.clone())).collect();
        for found in remote.call_all(&call(transport, 60.0), asked).unwrap() {
            assert_eq!(found.len(), 4 * count);
            let found = found.as_chunks::<4>().0.iter().map(|bytes| f32::from_ne_bytes(*bytes));
            let near = |(found, sent): (f32, &f32)| (found - sent).abs() <= 1.0;
            assert!(matches!(compression, Compression::TopK(_)) || found.zip(&sent).all(near));
        }
    };
    std::thread::scope(|scope| {
        for compression in compressions {
            scope
                .spawn(move || [0, 1, 4095, 5000, 300_001, 700_001, 7].map(|count| echo(count, compression)));
        }
    });
}

/// More requests from one rank than may be in flight.
fn at_once_alone(transport: &Arc<dyn Transport>, remote: &Remote) {
    let table = 3;
    let delta = bytes(&(0..LENGTH as i64).collect::<Vec<_>>());
    let last = transport.size() - 1;
    for _ in 0..3000 {
        let add = RemoteRequest { payload: delta.clone(), ..RemoteRequest::new(table, 0, RequestVerb::Add) };
        remote.post(&call(transport, 60.0), last, add).unwrap();
    }
    remote.flush(&call(transport, 60.0)).unwrap();
    let found =
        remote.call(&call(transport, 60.0), last, RemoteRequest::new(table, 0, RequestVerb::Get)).unwrap();
    assert_eq!(numbers(&found), (0..LENGTH as i64).map(|value| 3000 * value).collect::<Vec<_>>());
}

/// A barrier of all ranks, independent of the tables.
pub(super) fn barrier(transport: &Arc<dyn Transport>) {
    barrier_without(transport, usize::MAX);
}

pub(super) fn barrier_without(transport: &Arc<dyn Transport>, absent: usize) {
    let match_key = MatchKey { context: 1, tag: 5, signature: Signature::default() };
    let others: Vec<usize> =
        (0..transport.size()).filter(|&rank| rank != transport.rank() && rank != absent).collect();
    let sends: Vec<_> = others.iter().map(|&to| Outgoing { to, bytes: &[] }).collect();
    let mut nothing = vec![[]; others.len()];
    let mut receives: Vec<_> =
        others.iter().zip(&mut nothing).map(|(&from, bytes)| Incoming { from, bytes }).collect();
    transport.exchange(&call(transport, 60.0), &match_key, &sends, &mut receives).unwrap();
}
