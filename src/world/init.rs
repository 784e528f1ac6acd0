//! Joining the world: from the launcher's environment to a transport and a group of all ranks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::group::MAX_TIMEOUT;
use super::join::{HostMapping, Joined, attach, over_mpi, over_shared_memory, single_process};
use super::launcher::{self, OWN};
use super::locator::Locator;
use super::log;
use super::settings::{self, DEFAULT_TIMEOUT, TransportChoice};
use super::{Group, World, WorldState};
use crate::error::{Error, Result};
use crate::transport::arena::Arena;
use crate::transport::arena::channel::Channel;
use crate::transport::{Interrupt, Verb, local};

/// Options for joining the world.
#[derive(Clone, Default)]
pub struct InitOptions {
    /// The timeout of every call, including this one; defaults to `UNISONO_TIMEOUT` (seconds), else 300 seconds.
    pub timeout: Option<Duration>,
    /// Polled during waits; returning true interrupts the call. The world's group keeps it.
    pub interrupt: Option<Arc<Interrupt>>,
}

impl World {
    /// The placement that the launcher gives this process before it joins: its local rank, and the number of ranks on
    /// its host if the launcher states it. `None` if the launcher does not even state the local rank.
    ///
    /// ```
    /// let placement = unisono::World::placement()?;
    /// assert_eq!(placement, Some((0, Some(1)))); // without a launcher
    /// # Ok::<(), unisono::Error>(())
    /// ```
    pub fn placement() -> Result<Option<(usize, Option<usize>)>> {
        let found = launcher::detect(settings::variable)?;
        Ok(found.local_rank.map(|rank| (rank, found.local_size)))
    }

    /// Joins the world that the launcher describes: a single process needs no transport, ranks of one host share
    /// memory, and ranks of several hosts use MPI between hosts. Blocks until all ranks have joined.
    ///
    /// `UNISONO_TRANSPORT=shm|mpi` forces a transport; `UNISONO_HOSTS=2` simulates two hosts by splitting the ranks
    /// between them; `UNISONO_TIMEOUT` is the default timeout in seconds.
    ///
    /// A rank restarted by `unisono run --restart` does not block: it continues with the call of the world's group that
    /// follows the last one completed by its previous process.
    pub fn init_with(options: InitOptions) -> Result<World> {
        let placement = launcher::detect(settings::variable)?;
        let timeout = timeout(&options)?;
        let simulated_hosts = settings::hosts(settings::variable)?;
        let choice = settings::transport(settings::variable)?;
        log::debug(format_args!(
            "joining as {placement:?}, deadline {timeout:?}, wish {choice:?}, {simulated_hosts} hosts"
        ));
        let (launcher, restarts) = (placement.launcher, placement.restarts);
        // Ranks that cannot see their launcher run in containers: whether they share memory is determined over MPI.
        let one_host =
            placement.local_size == Some(placement.size) && simulated_hosts <= 1 && placement.job.is_some();
        let deadline = Instant::now() + timeout;
        let joined = match choice {
            Some(TransportChoice::Mpi) => over_mpi(placement, timeout, HostMapping::OnePerRank)?,
            _ if placement.size == 1 => single_process()?,
            _ if one_host => over_shared_memory(placement, deadline, options.interrupt.as_deref())?,
            None => over_mpi(placement, timeout, HostMapping::Detected(simulated_hosts))?,
            Some(TransportChoice::Shm) => {
                return Err(Error::usage(
                    "init",
                    "all ranks on one host, for UNISONO_TRANSPORT=shm",
                    format!("{} ranks on more hosts than this one", placement.size),
                    "unset UNISONO_TRANSPORT",
                ));
            }
        };
        let mut world = World::new(joined, launcher, timeout);
        world.restarts = restarts;
        if let Some(interrupt) = options.interrupt {
            world.group = world.group.with_interrupt(interrupt);
        }
        world.initial_barrier(deadline)?;
        log::debug(format_args!(
            "rank {} of {} joined over {}",
            world.rank(),
            world.size(),
            world.transport()
        ));
        Ok(world)
    }

    /// Joins, as the given rank, a job whose shared memory this process already holds.
    pub(crate) fn join(arena: Arc<Arena>, rank: usize, options: InitOptions) -> Result<World> {
        let timeout = timeout(&options)?;
        let mut world = World::new(attach(arena, rank, 0)?, OWN, timeout);
        if let Some(interrupt) = options.interrupt {
            world.group = world.group.with_interrupt(interrupt);
        }
        world.initial_barrier(Instant::now() + timeout)?;
        Ok(world)
    }

    /// Blocks until all ranks have joined. A restarted rank resumes after this barrier, which the other ranks have
    /// already left.
    fn initial_barrier(&self, deadline: Instant) -> Result<()> {
        let process = self.state().endpoint.as_ref().map(|endpoint| &endpoint.own_slot().process);
        if process.is_some_and(|process| process.has_joined()) {
            return Ok(());
        }
        if let Some(process) = process {
            process.enter();
        }
        let group = self.group.uncounted().with_timeout(deadline.saturating_duration_since(Instant::now()));
        group.barrier()?;
        group.message_call(Verb::Group, |call| group.hierarchy(call).map(drop))?;
        if let Some(process) = process {
            process.leave(0);
        }
        Ok(())
    }

    /// A world of `size` threads in this process, one rank each.
    pub fn threads(size: usize) -> Result<Vec<World>> {
        if size == 0 {
            return Err(Error::usage("threads", "at least one rank", "none", "ask for one or more"));
        }
        let world = |transport| World::new(Joined::local(transport), "none", DEFAULT_TIMEOUT);
        Ok(local::create(size)?.into_iter().map(world).collect())
    }

    /// A world of threads that simulates several hosts, with ranks distributed as evenly as possible: no two hosts
    /// share memory.
    pub(crate) fn threads_on_hosts(size: usize, hosts: usize) -> Result<Vec<World>> {
        World::threads_placed(&(0..size).map(|rank| rank * hosts / size).collect::<Vec<usize>>())
    }

    /// A world of threads that simulates these hosts.
    pub(crate) fn threads_placed(hosts: &[usize]) -> Result<Vec<World>> {
        let world = |transport| {
            let joined = Joined::local(transport);
            let me = hosts[joined.transport.rank()];
            let host_ranks = (0..hosts.len()).filter(|&rank| hosts[rank] == me).collect();
            World::new(Joined { hosts: hosts.to_vec(), host_ranks, ..joined }, "none", DEFAULT_TIMEOUT)
        };
        Ok(local::create(hosts.len())?.into_iter().map(world).collect())
    }

    fn new(joined: Joined, launcher: &'static str, timeout: Duration) -> World {
        let Joined { transport, endpoint, hosts, names, host_ranks, host } = joined;
        let rank = transport.rank();
        let local_rank = host_ranks.iter().position(|&other| other == rank).unwrap_or(0);
        let share_memory = hosts.iter().all(|&other| other == hosts[rank]);
        let channel = endpoint.as_ref().filter(|_| share_memory).map(Channel::host_wide);
        let members = (0..transport.size()).collect();
        let world = WorldState::new(transport, endpoint, hosts, timeout);
        World {
            group: Group::new(Arc::new(world), 0, "world".into(), members, channel, None),
            launcher,
            restarts: 0,
            hosts: names,
            local_rank,
            local_size: host_ranks.len(),
            locator: Locator::default(),
            _host: host,
        }
    }
}

/// The timeout of every call: the program's option, else the environment's. Capped so that no clock overflows.
fn timeout(options: &InitOptions) -> Result<Duration> {
    let timeout = options.timeout.map_or_else(|| settings::timeout(settings::variable), Ok)?;
    Ok(timeout.min(MAX_TIMEOUT))
}
