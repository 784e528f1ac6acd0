//! Four ranks on two simulated hosts: shared memory within each host, MPI between them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cases::{call, match_key, start};
use crate::error::Error;
use crate::memory::{DType, ReduceOp};
use crate::transport::arena::{ArenaTransport, LocalEndpoint};
use crate::transport::hosts::HostsTransport;
use crate::transport::{Incoming, MatchKey, Outgoing, Transport, shm};

pub fn two_pretended_hosts() {
    let mpi = Arc::new(start());
    let (rank, size) = (mpi.rank(), mpi.size());
    let first = rank / 2 * 2;
    let leader = mpi.peers.pid(first);
    let job = format!("mpi-test-{leader}");
    let mut host = None;
    let arena = if rank == first {
        let (arena, file) = shm::create(2).expect("shared memory");
        host = Some(shm::FdServer::start(&job, file).expect("a meeting place"));
        arena
    } else {
        shm::join(&job, Instant::now() + Duration::from_secs(20), None).expect("the host's memory")
    };
    let endpoint = LocalEndpoint::attach(arena, rank - first, vec![first, first + 1]).expect("an endpoint");
    let local = Arc::new(ArenaTransport::new("shm", size, endpoint));
    let hosts = (0..size).map(|other| other / 2).collect();
    let both = HostsTransport::new(local, mpi.clone(), hosts);
    for length in [0, 1, 5000, 100_000, 3 << 20] {
        all_to_all(&both, &mpi, length);
    }
    timeouts_name_all(&both, &mpi);
    between_leaders(&both, &mpi);
    all_to_all(&both, &mpi, 70_000);
    mpi.shutdown(Duration::from_secs(30)).expect("MPI ends");
    drop(host);
    println!("both ways arrived");
}

fn all_to_all(both: &HostsTransport, mpi: &super::super::MpiTransport, length: usize) {
    let size = both.size();
    let bytes = |from: usize, to: usize| vec![(from * 16 + to) as u8; length];
    let sent: Vec<_> = (0..size).map(|to| bytes(both.rank(), to)).collect();
    let mut received = vec![vec![0; length]; size];
    let sends: Vec<_> = sent.iter().enumerate().map(|(to, bytes)| Outgoing { to, bytes }).collect();
    let mut receives: Vec<_> =
        received.iter_mut().enumerate().map(|(from, bytes)| Incoming { from, bytes }).collect();
    both.exchange(&call(mpi, 30.0), &match_key(1, 0, length as u64), &sends, &mut receives)
        .expect("all at once");
    for (from, received) in received.iter().enumerate() {
        assert!(*received == bytes(from, both.rank()), "{length} bytes from rank {from} are wrong");
    }
}

/// A timeout names the missing ranks of both transports.
fn timeouts_name_all(both: &HostsTransport, mpi: &super::super::MpiTransport) {
    if both.rank() != 0 {
        return;
    }
    let mut buffers = [[0; 4]; 3];
    let mut receives: Vec<_> =
        buffers.iter_mut().enumerate().map(|(index, bytes)| Incoming { from: index + 1, bytes }).collect();
    let error =
        both.exchange(&call(mpi, 0.2), &match_key(2, 0, 4), &[], &mut receives).expect_err("no rank sends");
    let Error::Timeout { missing, .. } = &error else { panic!("{error}") };
    assert_eq!(missing.iter().map(|missing| missing.rank).collect::<Vec<_>>(), [1, 2, 3]);
}

/// The hosts' leaders reduce over MPI alone.
fn between_leaders(both: &HostsTransport, mpi: &super::super::MpiTransport) {
    let match_key = match_key(3, MatchKey::COLLECTIVE, 100_000);
    let mut values = vec![both.rank() as f64; 100_000];
    let bytes = bytemuck::cast_slice_mut(&mut values);
    let kind = (DType::F64, ReduceOp::Sum);
    let mixed = both.all_reduce(&call(mpi, 30.0), &match_key, &[0, 1, 2, 3], bytes, kind);
    assert!(mixed.is_none(), "some members share a host");
    if both.rank().is_multiple_of(2) {
        let remote = both.all_reduce(&call(mpi, 30.0), &match_key, &[0, 2], bytes, kind);
        remote.expect("all others are on other hosts").expect("all_reduce");
        assert!(values.iter().all(|value| *value == 2.0));
    }
}
