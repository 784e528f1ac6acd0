//! The three ways to join a world: as a single process, over shared memory on one host, over MPI.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::launcher::{OWN, RankPlacement, TORCHRUN};
use super::probe;
use crate::error::{Error, Result};
use crate::transport::arena::{Arena, ArenaTransport, LocalEndpoint};
use crate::transport::hosts::HostsTransport;
use crate::transport::mpi::{MpiOptions, MpiTransport};
use crate::transport::{Interrupt, Transport, local, shm};

/// How long a rank tries to connect to the launcher that started it.
const LAUNCHER_CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The result of joining.
pub(super) struct Joined {
    pub transport: Arc<dyn Transport>,
    pub endpoint: Option<Arc<LocalEndpoint>>,
    /// The host number of each rank; ranks with equal numbers share memory.
    pub hosts: Vec<usize>,
    /// The host name of each rank.
    pub names: Vec<String>,
    /// The ranks on this rank's host.
    pub host_ranks: Vec<usize>,
    /// Serves the shared memory to the other ranks of this host.
    pub host: Option<shm::FdServer>,
}

impl Joined {
    /// All ranks share the arena.
    pub fn local(transport: ArenaTransport) -> Joined {
        let (endpoint, size) = (transport.endpoint.clone(), transport.size());
        Joined {
            transport: Arc::new(transport),
            endpoint: Some(endpoint),
            hosts: vec![0; size],
            names: vec![host_name(); size],
            host_ranks: (0..size).collect(),
            host: None,
        }
    }
}

/// A world of one rank.
pub(super) fn single_process() -> Result<Joined> {
    Ok(Joined::local(local::create(1)?.remove(0)))
}

/// Joins a world whose ranks are all on this host.
pub(super) fn over_shared_memory(
    placement: RankPlacement,
    deadline: Instant,
    interrupt: Option<&Interrupt>,
) -> Result<Joined> {
    let RankPlacement { launcher, rank, size, job, restarts, .. } = placement;
    let job = job.unwrap_or_default();
    if launcher != OWN {
        return by_name(&job, rank, size, deadline, interrupt);
    }
    // The launcher listens before it starts any rank: if connecting does not succeed soon, it never will.
    let arena = shm::join(&job, deadline.min(Instant::now() + LAUNCHER_CONNECT_TIMEOUT), interrupt)?;
    check_size(&arena, size, "do not change UNISONO_SIZE or UNISONO_JOB by hand")?;
    attach(arena, rank, restarts)
}

/// Joins a world on this host whose ranks share only its name: rank 0 creates the memory for the others.
pub(super) fn by_name(
    name: &str,
    rank: usize,
    size: usize,
    deadline: Instant,
    interrupt: Option<&Interrupt>,
) -> Result<Joined> {
    let (arena, host) = share_arena(name, size, rank == 0, deadline, interrupt)?;
    check_size(&arena, size, "give all ranks the same size, and every job a name of its own")?;
    Ok(Joined { host, ..attach(arena, rank, 0)? })
}

fn check_size(arena: &Arena, size: usize, advice: &str) -> Result<()> {
    if arena.local_size() == size {
        return Ok(());
    }
    let received = format!("shared memory for {} ranks", arena.local_size());
    Err(Error::usage("init", format!("a job of {size} ranks"), received, advice))
}

/// Attaches to a rank's slot in an arena that this process has mapped.
pub(super) fn attach(arena: Arc<Arena>, rank: usize, restarts: usize) -> Result<Joined> {
    let size = arena.local_size();
    let endpoint = LocalEndpoint::reattach(arena, rank, (0..size).collect(), restarts as u32)?;
    Ok(Joined::local(ArenaTransport::new("shm", size, endpoint)))
}

/// How ranks that use MPI map to hosts.
pub(super) enum HostMapping {
    /// Every rank is a host of its own: no shared memory is used.
    OnePerRank,
    /// Ranks that can share memory form one host, which simulates this many.
    Detected(usize),
}

/// Joins a world of ranks on several (or simulated) hosts.
pub(super) fn over_mpi(placement: RankPlacement, timeout: Duration, mapping: HostMapping) -> Result<Joined> {
    if placement.size > 1 && matches!(placement.launcher, OWN | TORCHRUN) {
        let what = format!("ranks that {} started cannot use MPI", placement.launcher);
        let advice = "start them with an MPI launcher instead: mpiexec -n 4 python script.py";
        return Err(Error::unsupported("init", what, advice));
    }
    let deadline = Instant::now() + timeout;
    let known = placement.launcher != "none" && placement.size > 0;
    let expected = known.then_some((placement.rank, placement.size));
    let mpi = Arc::new(MpiTransport::init(MpiOptions { expected, timeout, describe: None })?);
    let (rank, size) = (mpi.rank(), mpi.size());
    let first = match mapping {
        HostMapping::OnePerRank => (0..size).collect(),
        HostMapping::Detected(_) => probe::shared_memory(&mpi, deadline)?,
    };
    let sharing: Vec<usize> = (0..size).filter(|&other| first[other] == first[rank]).collect();
    let (arena, server) = match sharing.len() {
        1 => (shm::create(1)?.0, None),
        local_size => {
            share_arena(&mpi.peers.host_key(first[rank]), local_size, first[rank] == rank, deadline, None)?
        }
    };
    let index = sharing.iter().position(|&other| other == rank).unwrap_or(0);
    let arena_transport =
        ArenaTransport::new("shm", size, LocalEndpoint::attach(arena, index, sharing.clone())?);
    let endpoint = arena_transport.endpoint.clone();
    let describe = endpoint.clone();
    mpi.peers.describe_with(Box::new(move |rank, location_timeout| {
        let local_rank = describe.local_rank_of(rank);
        local_rank.map(|_| describe.missing(rank, Instant::now() + location_timeout))
    }));

    let simulated_hosts = match mapping {
        HostMapping::OnePerRank => 1,
        // At most one simulated host per rank.
        HostMapping::Detected(simulated_hosts) => simulated_hosts.clamp(1, size),
    };
    let key = |other: usize| (first[other], other * simulated_hosts / size);
    let number = |other: usize| (0..size).position(|before| key(before) == key(other)).unwrap_or(other);
    let hosts: Vec<usize> = (0..size).map(number).collect();
    let all_apart = (0..size).all(|other| hosts[other] == other);
    let (names, host_ranks) =
        (mpi.peers.hosts(), (0..size).filter(|&other| hosts[other] == hosts[rank]).collect());
    let transport: Arc<dyn Transport> = match all_apart {
        true => mpi,
        false => {
            let both: Arc<dyn Transport> =
                Arc::new(HostsTransport::new(Arc::new(arena_transport), mpi, hosts.clone()));
            endpoint.backoff.set_progress_transport(Arc::downgrade(&both));
            both
        }
    };
    Ok(Joined { transport, endpoint: Some(endpoint), hosts, names, host_ranks, host: server })
}

/// The arena of this host under a third-party launcher: the first rank creates it for the others.
fn share_arena(
    name: &str,
    local_size: usize,
    creates: bool,
    deadline: Instant,
    interrupt: Option<&Interrupt>,
) -> Result<(Arc<Arena>, Option<shm::FdServer>)> {
    if !creates {
        return Ok((shm::join(name, deadline, interrupt)?, None));
    }
    let (arena, file) = shm::create(local_size)?;
    Ok((arena, Some(shm::FdServer::start(name, file)?)))
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
