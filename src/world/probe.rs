//! Detects by trial which ranks share memory: containers on one machine share a kernel, yet may neither reach nor see
//! each other. Pairs without proof use MPI.

use std::time::Instant;

use super::log;
use crate::error::Result;
use crate::transport::Transport;
use crate::transport::mpi::MpiTransport;
use crate::transport::{process, shm};

/// Length in bytes of a token that only the first candidate can have written.
const TOKEN: usize = 32;

/// For each rank, the first of the ranks that it shares memory with, itself if there is no other. Collective: the first
/// candidate offers shared memory, the others try to map it, and each rank reports whether that succeeded and which
/// processes it can see.
pub(super) fn shared_memory(mpi: &MpiTransport, deadline: Instant) -> Result<Vec<usize>> {
    let (rank, size) = (mpi.rank(), mpi.size());
    let candidates = mpi.peers.candidates();
    log_namespaces(mpi);
    if (0..size).all(|other| candidates[other] == other) {
        return Ok(candidates);
    }
    let first = candidates[rank];
    let name = format!("{}-probe", mpi.peers.host_key(first));
    let mut token = [0; TOKEN];
    let mut offered = None;
    if first == rank && candidates[rank + 1..].contains(&rank) {
        token = fresh_token();
        offered = shm::serve_probe(&name, &token)
            .inspect_err(|error| log::debug(format_args!("rank {rank} cannot offer shared memory: {error}")))
            .ok();
    }
    let tokens = mpi.all_gather(&token, deadline)?;
    let mapped = first == rank || {
        let token = &tokens[first * TOKEN..][..TOKEN];
        let outcome = shm::probe(&name, token, deadline);
        if let Err(error) = &outcome {
            log::debug(format_args!("rank {rank} cannot map memory of rank {first}: {error}"));
        }
        outcome.is_ok()
    };
    let mut report = ProbeReport::new(size);
    report.set(size, mapped);
    (0..size).for_each(|other| report.set(other, mpi.peers.is_visible(other)));
    let reports = mpi.all_gather(&report.0, deadline)?;
    drop(offered);
    let reports: Vec<ProbeReport> =
        reports.chunks_exact(report.0.len()).map(|bytes| ProbeReport(bytes.to_vec())).collect();
    let hosts = group_by_host(&candidates, &reports);
    let host_ranks: Vec<usize> = (0..size).filter(|&other| hosts[other] == hosts[rank]).collect();
    log::debug(format_args!(
        "rank {rank} shares memory with the ranks {host_ranks:?}; the others are reached by MPI"
    ));
    Ok(hosts)
}

/// Logs why ranks of one machine use MPI.
fn log_namespaces(mpi: &MpiTransport) {
    let rank = mpi.rank();
    for other in 0..mpi.size() {
        if let Some(why) = mpi.peers.isolation_reason(other).filter(|_| other != rank) {
            log::debug(format_args!(
                "rank {rank} does not share memory with rank {other} of this machine: {why}"
            ));
        }
    }
}

fn fresh_token() -> [u8; TOKEN] {
    let time =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    let own = process::own_pid();
    let mut token = [0; TOKEN];
    token[..16].copy_from_slice(&time.to_ne_bytes());
    token[16..20].copy_from_slice(&own.to_ne_bytes());
    token[20..28].copy_from_slice(&process::start_time(own).unwrap_or(0).to_ne_bytes());
    token
}

/// One rank's findings: a bit for each rank whose process it sees, and one more if it mapped the memory.
struct ProbeReport(Vec<u8>);

impl ProbeReport {
    fn new(size: usize) -> ProbeReport {
        ProbeReport(vec![0; size / 8 + 1])
    }

    fn set(&mut self, bit: usize, value: bool) {
        self.0[bit / 8] |= u8::from(value) << (bit % 8);
    }

    fn has(&self, bit: usize) -> bool {
        self.0[bit / 8] >> (bit % 8) & 1 == 1
    }
}

/// For each rank, the first rank of its host: a rank joins its first candidate if it mapped that candidate's memory,
/// and it and all ranks that have already joined see each other. All ranks compute the same result.
fn group_by_host(candidates: &[usize], reports: &[ProbeReport]) -> Vec<usize> {
    let size = candidates.len();
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); size];
    let mut hosts: Vec<usize> = (0..size).collect();
    for rank in 0..size {
        let first = candidates[rank];
        let sees = |one: usize, other: usize| reports[one].has(other);
        let mutual = |&other: &usize| sees(rank, other) && sees(other, rank);
        if rank == first || reports[rank].has(size) && members[first].iter().all(mutual) {
            hosts[rank] = first;
            members[first].push(rank);
        }
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports of ranks that map and see everything, with these exceptions.
    fn reports(size: usize, unmapped: &[usize], unseen: &[(usize, usize)]) -> Vec<ProbeReport> {
        let report = |rank: usize| {
            let mut report = ProbeReport::new(size);
            report.set(size, !unmapped.contains(&rank));
            (0..size).for_each(|other| report.set(other, !unseen.contains(&(rank, other))));
            report
        };
        (0..size).map(report).collect()
    }

    #[test]
    fn only_ranks_that_map_and_see_each_other_share_a_host() {
        let one = [0; 4];
        assert_eq!(group_by_host(&one, &reports(4, &[], &[])), [0, 0, 0, 0]);
        assert_eq!(group_by_host(&one, &reports(4, &[2], &[])), [0, 0, 2, 0], "one that cannot map is alone");
        assert_eq!(group_by_host(&one, &reports(4, &[], &[(0, 3)])), [0, 0, 0, 3], "seeing is mutual");
        assert_eq!(
            group_by_host(&one, &reports(4, &[], &[(2, 1)])),
            [0, 0, 2, 0],
            "all members see each other"
        );
        assert_eq!(group_by_host(&[0, 0, 2, 2], &reports(4, &[], &[(0, 2), (2, 0)])), [0, 0, 2, 2]);
        assert_eq!(group_by_host(&[0, 1, 0], &reports(3, &[2], &[])), [0, 1, 2]);
        for size in [7, 8, 9, 16] {
            assert_eq!(group_by_host(&vec![0; size], &reports(size, &[], &[])), vec![0; size]);
        }
    }

    #[test]
    fn memory_that_is_offered_can_be_mapped_and_other_memory_is_told_apart() {
        let name = format!("probe-test-{}", process::own_pid());
        let deadline = Instant::now() + std::time::Duration::from_secs(60);
        assert!(
            shm::probe(&name, &[7; TOKEN], deadline).is_err(),
            "there is none yet, which is known at once"
        );
        let offered = shm::serve_probe(&name, &[7; TOKEN]).unwrap();
        shm::probe(&name, &[7; TOKEN], deadline).unwrap();
        assert!(shm::probe(&name, &[8; TOKEN], deadline).is_err());
        drop(offered);
    }
}
