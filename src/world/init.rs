//! Joining the world: from the launcher's environment to a transport and a group of all ranks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::group::MAX_TIMEOUT;
use super::join::{HostMapping, Joined, attach, by_name, over_mpi, over_shared_memory, single_process};
use super::launcher::{self, OWN};
use super::locator::Locator;
use super::log;
use super::settings::{self, DEFAULT_TIMEOUT, TransportChoice};
use super::verbs;
use super::{Group, World, WorldState};
use crate::error::{Error, Result};
use crate::transport::arena::Arena;
use crate::transport::arena::channel::Channel;
use crate::transport::{Interrupt, local};

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
            "joining as {placement:?}, timeout {timeout:?}, transport {choice:?}, {simulated_hosts} hosts"
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

    /// Joins a world of `size` ranks on this host as the given rank, without a launcher: every rank passes the same name,
    /// which no other job of the same user may use at that time. Blocks until all ranks have joined. For programs that
    /// start their processes themselves and can send them a name; a process may join any number of such worlds.
    ///
    /// ```
    /// use unisono::{InitOptions, ReduceOp, World};
    /// let name = format!("example-{}", std::process::id());
    /// let join = |rank| World::join(&name, rank, 2, InitOptions::default());
    /// std::thread::scope(|scope| {
    ///     let other = scope.spawn(|| join(1)?.group().barrier()); // usually another process
    ///     join(0)?.group().barrier()?;
    ///     other.join().unwrap()
    /// })?;
    /// # Ok::<(), unisono::Error>(())
    /// ```
    pub fn join(name: &str, rank: usize, size: usize, options: InitOptions) -> Result<World> {
        check_membership(name, rank, size)?;
        let timeout = timeout(&options)?;
        let deadline = Instant::now() + timeout;
        let joined = match size {
            1 => single_process()?,
            _ => by_name(&format!("join-{name}"), rank, size, deadline, options.interrupt.as_deref())?,
        };
        let mut world = World::new(joined, "none", timeout);
        if let Some(interrupt) = options.interrupt {
            world.group = world.group.with_interrupt(interrupt);
        }
        world.initial_barrier(deadline)?;
        // All ranks have the memory, and no launcher can restart one: the name is free again.
        world._host = None;
        Ok(world)
    }

    /// Joins, as the given rank, a job whose shared memory this process already holds.
    pub(crate) fn join_arena(arena: Arc<Arena>, rank: usize, options: InitOptions) -> Result<World> {
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
    pub(super) fn initial_barrier(&self, deadline: Instant) -> Result<()> {
        let process = self.state().endpoint.as_ref().map(|endpoint| &endpoint.own_slot().process);
        if process.is_some_and(|process| process.has_joined()) {
            return Ok(());
        }
        if let Some(process) = process {
            process.enter();
        }
        let group = self.group.uncounted().with_timeout(deadline.saturating_duration_since(Instant::now()));
        group.barrier()?;
        if let Some(endpoint) = &self.state().endpoint {
            endpoint.all_attached();
        }
        group.message_call(verbs::INIT, |call| group.hierarchy(call).map(drop))?;
        if let Some(endpoint) = &self.state().endpoint {
            endpoint.own_slot().clear_activity();
        }
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

    pub(super) fn new(joined: Joined, launcher: &'static str, timeout: Duration) -> World {
        let Joined { transport, endpoint, hosts, names, host_ranks, host } = joined;
        let rank = transport.rank();
        let local_rank = host_ranks.iter().position(|&other| other == rank).unwrap_or(0);
        let share_memory = hosts.iter().all(|&other| other == hosts[rank]);
        let channel = endpoint.as_ref().filter(|_| share_memory).map(Channel::host_wide);
        let members = (0..transport.size()).collect();
        let world = WorldState::new(transport, endpoint, hosts, names, timeout);
        World {
            group: Group::new(Arc::new(world), 0, "world".into(), members, channel, None),
            launcher,
            restarts: 0,
            local_rank,
            local_size: host_ranks.len(),
            locator: Locator::default(),
            _host: host,
        }
    }
}

/// The longest name of a world: names of sockets have little room.
const MAX_NAME: usize = 64;

fn check_membership(name: &str, rank: usize, size: usize) -> Result<()> {
    let wrong = |expected: String, received: String, advice: &str| {
        Err(Error::usage("join", expected, received, advice))
    };
    if name.is_empty() || name.len() > MAX_NAME {
        let expected = format!("a name of 1 to {MAX_NAME} bytes");
        return wrong(expected, format!("{} bytes", name.len()), "a random number in hexadecimal will do");
    }
    if size == 0 {
        return wrong("at least one rank".into(), "a size of 0".into(), "pass the number of ranks");
    }
    if rank >= size {
        return wrong(format!("a rank below {size}"), rank.to_string(), "ranks count from 0");
    }
    Ok(())
}

/// The timeout of every call: the program's option, else the environment's. Capped so that no clock overflows.
fn timeout(options: &InitOptions) -> Result<Duration> {
    let timeout = options.timeout.map_or_else(|| settings::timeout(settings::variable), Ok)?;
    Ok(timeout.min(MAX_TIMEOUT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::ReduceOp;

    const SOON: Duration = Duration::from_secs(30);

    fn options() -> InitOptions {
        InitOptions { timeout: Some(SOON), interrupt: None }
    }

    fn unique(name: &str) -> String {
        format!("{name}-{}", std::process::id())
    }

    #[test]
    fn a_process_may_be_a_rank_of_several_worlds_and_join_again_under_the_same_name() {
        let (first, second) = (unique("first"), unique("second"));
        std::thread::scope(|scope| {
            for rank in 0..3 {
                let (first, second) = (&first, &second);
                scope.spawn(move || {
                    let outer = World::join(first, rank, 3, options()).unwrap();
                    for round in 0..3 {
                        let inner = World::join(second, 2 - rank, 3, options()).unwrap();
                        assert_eq!((inner.rank(), inner.size(), inner.local_size()), (2 - rank, 3, 3));
                        let (mut one, mut other) = ([rank as i64], [10 * rank as i64 + round]);
                        inner.group().all_reduce(&mut other, ReduceOp::Sum).unwrap();
                        outer.group().all_reduce(&mut one, ReduceOp::Sum).unwrap();
                        assert_eq!((one, other), ([3], [30 + 3 * round]));
                    }
                });
            }
        });
    }

    #[test]
    fn ranks_that_cannot_be_are_rejected() {
        let wrong =
            |name: &str, rank, size| World::join(name, rank, size, options()).err().unwrap().to_string();
        assert!(wrong("", 0, 1).contains("a name of 1 to 64 bytes"));
        assert!(wrong(&"x".repeat(65), 0, 1).contains("65 bytes"));
        assert!(wrong("name", 2, 2).contains("a rank below 2"));
        assert!(wrong("name", 0, 0).contains("at least one rank"));
    }

    #[test]
    fn ranks_that_disagree_on_the_size_learn_it() {
        let name = unique("sizes");
        let short = InitOptions { timeout: Some(Duration::from_secs(2)), interrupt: None };
        std::thread::scope(|scope| {
            let first = scope.spawn(|| World::join(&name, 0, 3, short.clone()).err().unwrap());
            let error = World::join(&name, 1, 2, options()).err().unwrap().to_string();
            assert!(error.contains("a job of 2 ranks") && error.contains("memory for 3 ranks"), "{error}");
            assert_eq!(first.join().unwrap().kind(), crate::error::Kind::Timeout);
        });
    }
}
