//! Servers that fail, panic, never reply, or die.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::toy::{FAIL, FREE, NEVER, PANIC, Toy, bytes, numbers};
use super::{call, start};
use crate::error::{Error, Kind, Lost, Missing};
use crate::tables::remote::{Remote, RemoteRequest, RequestVerb, RowList};
use crate::transport::{Transport, local};

/// One error of each kind.
pub fn failure(sort: u8) -> Error {
    let texts = || ("get".to_string(), 3u64, "tables".to_string());
    let (operation, number, group) = texts();
    match sort {
        0 => Error::usage("get", "rows below 10", "row 12", "pass smaller rows"),
        1 => {
            let calls = vec![(0, "get".into()), (1, "add".into())];
            Error::Mismatch { rank: 1, group, number, calls, advice: "make the same calls".into() }
        }
        2 => {
            let location = Some("a.py:3".into());
            let missing = vec![Missing { location, ..Missing::new(2, Some(77), "computing") }];
            Error::Timeout { rank: 1, operation, number, group, waited: Duration::from_millis(1500), missing }
        }
        3 => {
            let lost = vec![Lost::new(2, None, "its process ended")];
            Error::PeerLost { rank: 1, operation, number, group, lost }
        }
        4 => Error::io("save", "the file", std::io::Error::other("the disk is full"), "delete something"),
        5 => Error::unsupported("get", "keys here", "use rows"),
        6 => Error::Interrupted { rank: 1, operation, number, group },
        _ => Error::internal("get", "two and two are five"),
    }
}

pub fn errors_come_back(transport: &Arc<dyn Transport>, remote: &Remote) {
    let server = transport.size() - 1;
    let ask = |table, verb, payload| {
        let request = RemoteRequest { payload, ..RemoteRequest::new(table, 0, verb) };
        remote.call(&call(transport, 60.0), server, request).unwrap_err()
    };
    let error = ask(9, RequestVerb::Get, Vec::new());
    assert_eq!(error.kind(), Kind::Usage);
    let text = format!(
        "rank {}: get on rank {server}: expected a table below 6, received table 9; create it first",
        transport.rank()
    );
    assert_eq!(error.to_string(), text);
    for sort in 0..8 {
        let (found, expected) = (ask(FREE, FAIL, vec![sort]), failure(sort));
        assert_eq!(found.kind(), expected.kind());
        let (found, expected) = (found.to_string(), expected.to_string());
        let found = found.replace(&format!(" on rank {server}"), "");
        let found = found.replacen(&format!("rank {}: get: expected", transport.rank()), "get: expected", 1);
        assert_eq!(found, expected);
    }
    let error = ask(FREE, PANIC, Vec::new());
    assert!(error.to_string().contains(&format!("on rank {server}")), "{error}");
    // An error of one server does not keep the others from replying.
    let requests = [(9, server), (FREE, 0), (9, 0), (FREE, server)].map(|(table, server)| {
        (server, RemoteRequest::new(table, transport.rank() as u32, RequestVerb::Get))
    });
    let (call_context, mut answers) = (call(transport, 60.0), Vec::new());
    let outstanding = remote.send(&call_context, requests.to_vec()).unwrap();
    let take = |index: usize, answer| {
        assert_eq!(index, answers.len());
        answers.push(answer);
        Ok(())
    };
    outstanding.collect_whole(take).unwrap();
    let failed: Vec<bool> = answers.iter().map(|answer| answer.is_err()).collect();
    assert_eq!(failed, [true, false, true, false]);
    assert_eq!(answers[0].as_ref().unwrap_err().to_string(), text);
    // The error of a posted request is reported by the next flush, once.
    remote.post(&call(transport, 60.0), server, RemoteRequest::new(9, 0, RequestVerb::Add)).unwrap();
    let error = remote.flush(&call(transport, 60.0)).unwrap_err();
    assert!(error.to_string().contains("table 9"), "{error}");
    remote.flush(&call(transport, 60.0)).unwrap();
}

/// A request that is never ready ends at its deadline or when its caller interrupts it; other requests of the worker proceed.
pub fn waits_end(transport: &Arc<dyn Transport>, remote: &Remote) {
    let server = 0;
    let (never, worker) = (2, transport.rank() as u32);
    let error =
        remote.call(&call(transport, 0.3), server, RemoteRequest::new(never, worker, NEVER)).unwrap_err();
    assert!(matches!(&error, Error::Timeout { missing, .. } if missing[0].rank == server), "{error}");
    let stop = || true;
    let interrupted = crate::transport::Call { interrupt: Some(&stop), ..call(transport, 60.0) };
    let error = remote.call(&interrupted, server, RemoteRequest::new(never, worker, NEVER)).unwrap_err();
    assert_eq!(error.kind(), Kind::Interrupted);
    remote.call(&call(transport, 60.0), server, RemoteRequest::new(FREE, worker, RequestVerb::Get)).unwrap();
    // A cancelled request does not block later requests to the same table.
    remote.call(&call(transport, 60.0), server, RemoteRequest::new(never, worker, RequestVerb::Get)).unwrap();
}

/// Prepared requests all run once they are confirmed, and never run if they are not.
pub fn all_or_none(transport: &Arc<dyn Transport>, remote: &Remote) {
    let (table, worker) = (4, transport.rank() as u32);
    let row = RowList::List(vec![i64::from(worker)]);
    let add = RemoteRequest {
        rows: row.clone(),
        payload: bytes(&[1]),
        ..RemoteRequest::new(table, worker, RequestVerb::Add)
    };
    let all = || (0..transport.size()).map(|server| (server, add.clone())).collect::<Vec<_>>();
    let seen = || {
        let get = RemoteRequest { rows: row.clone(), ..RemoteRequest::new(table, worker, RequestVerb::Get) };
        let gets = (0..transport.size()).map(|server| (server, get.clone())).collect();
        let found = remote.call_all(&call(transport, 60.0), gets).unwrap();
        found.iter().map(|found| numbers(found)[0]).collect::<Vec<_>>()
    };
    drop(remote.prepare(&call(transport, 60.0), all()).unwrap());
    let mut with_one_that_never_runs = all();
    with_one_that_never_runs.push((0, RemoteRequest::new(table, worker, NEVER)));
    for _ in 0..3 {
        let error = remote.prepare(&call(transport, 0.1), with_one_that_never_runs.clone()).err().unwrap();
        assert_eq!(error.kind(), Kind::Timeout, "{error}");
    }
    assert!(seen().iter().all(|count| *count == 0), "{:?}", seen());
    for count in 1..=3 {
        let deadline = call(transport, 60.0);
        remote.prepare(&deadline, all()).unwrap().confirm().unwrap().unwrap();
        assert!(seen().iter().all(|found| *found == count), "{:?}", seen());
    }
}

/// Sends a request to rank 1, which dies meanwhile; returns the error and the time waited.
pub(crate) fn a_server_dies(transport: &Arc<dyn Transport>, die: impl FnOnce()) -> (Error, Duration) {
    let remote = start(transport, Arc::new(Toy::new(transport.size()))).unwrap();
    for to in 0..transport.size() {
        remote.call(&call(transport, 60.0), to, RemoteRequest::new(FREE, 0, RequestVerb::Get)).unwrap();
    }
    super::ranks::barrier(transport);
    if transport.rank() == 1 {
        // Long enough for the others to wait for a reply that never comes.
        std::thread::sleep(Duration::from_millis(200));
        die();
    }
    let started = Instant::now();
    let error = remote.call(&call(transport, 30.0), 1, RemoteRequest::new(2, 0, NEVER)).unwrap_err();
    let took = started.elapsed();
    let again = remote.call(&call(transport, 30.0), 1, RemoteRequest::new(2, 0, NEVER)).unwrap_err();
    assert_eq!(again.kind(), Kind::PeerLost, "{again}");
    (error, took)
}

#[test]
fn a_server_that_leaves_is_lost() {
    let transports: Vec<_> = local::create(3).unwrap().into_iter().map(Arc::new).collect();
    std::thread::scope(|scope| {
        for own in &transports {
            scope.spawn(move || {
                let transport: Arc<dyn Transport> = own.clone();
                if transport.rank() == 1 {
                    let remote = start(&transport, Arc::new(Toy::new(3))).unwrap();
                    super::ranks::barrier(&transport);
                    drop(remote);
                    return own.endpoint.leave();
                }
                let remote = start(&transport, Arc::new(Toy::new(3))).unwrap();
                super::ranks::barrier(&transport);
                let error =
                    remote.call(&call(&transport, 30.0), 1, RemoteRequest::new(FREE, 0, NEVER)).unwrap_err();
                assert!(matches!(&error, Error::PeerLost { lost, .. } if lost[0].rank == 1), "{error}");
                // Posted requests are lost with their server, too, and are reported once.
                remote
                    .post(&call(&transport, 30.0), 1, RemoteRequest::new(FREE, 0, RequestVerb::Add))
                    .unwrap();
                let error = remote.flush(&call(&transport, 30.0)).unwrap_err();
                assert_eq!(error.kind(), Kind::PeerLost);
                remote.flush(&call(&transport, 30.0)).unwrap();
                super::ranks::barrier_without(&transport, 1);
                remote.close(&call(&transport, 30.0)).unwrap();
            });
        }
    });
}

#[test]
fn a_close_that_nobody_joins_ends_at_its_deadline() {
    let transports = local::create(2).unwrap();
    let all: Vec<Arc<dyn Transport>> =
        transports.into_iter().map(|transport| Arc::new(transport) as Arc<dyn Transport>).collect();
    let handler = Arc::new(Toy::new(2));
    let remotes: Vec<_> = all.iter().map(|transport| start(transport, handler.clone()).unwrap()).collect();
    let error = remotes[0].close(&call(&all[0], 0.3)).unwrap_err();
    assert!(matches!(&error, Error::Timeout { missing, .. } if missing[0].rank == 1), "{error}");
    drop(remotes);
    assert_eq!(Arc::strong_count(&handler), 1, "no thread is left");
}

/// The interrupt hook of a close waits for another thread that closes the same tables, like a hook that needs an interpreter lock
/// held by that thread.
#[test]
fn an_interrupt_hook_runs_while_no_lock_is_held() {
    let transports = local::create(2).unwrap();
    let all: Vec<Arc<dyn Transport>> =
        transports.into_iter().map(|transport| Arc::new(transport) as Arc<dyn Transport>).collect();
    let remote = Arc::new(start(&all[0], Arc::new(Toy::new(2))).unwrap());
    let (other, transport) = (remote.clone(), all[0].clone());
    let stop = move || {
        let (other, transport, (sender, closed)) = (other.clone(), transport.clone(), channel());
        std::thread::spawn(move || sender.send(other.close(&call(&transport, 0.1)).unwrap_err().kind()));
        let closed = closed.recv_timeout(Duration::from_secs(60));
        closed.expect("the other thread waits for this one") == Kind::Timeout
    };
    let interrupted = crate::transport::Call { interrupt: Some(&stop), ..call(&all[0], 600.0) };
    assert_eq!(remote.close(&interrupted).unwrap_err().kind(), Kind::Interrupted);
}
