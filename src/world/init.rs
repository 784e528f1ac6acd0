//! Joining the world: from what the launcher says to a transport and a group of everybody.

use std::env;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::join::{Joined, alone, on_one_host, over_mpi, seated};
use super::launcher::{self, OWN};
use super::locator::Locator;
use super::log;
use super::{Common, Group, World};
use crate::error::{Error, Result};
use crate::transport::arena::Arena;
use crate::transport::arena::channel::Channel;
use crate::transport::{Interrupt, local};

/// The deadline of a call when nobody says otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// How to join.
#[derive(Clone, Default)]
pub struct InitOptions {
    /// The deadline of every call, this one included; else `UNISONO_TIMEOUT` (seconds), else 300 seconds.
    pub timeout: Option<Duration>,
    /// Asked during waits whether to stop; the world's group keeps it.
    pub interrupt: Option<Arc<Interrupt>>,
}

/// The transports that a user can ask for with `UNISONO_TRANSPORT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Shm,
    Mpi,
}

impl World {
    /// What the launcher says of this process before it joins: its rank among those of its host, and how many there are, where
    /// the launcher says so. Nothing where it does not even tell a process its rank there.
    ///
    /// ```
    /// let placement = unisono::World::placement()?;
    /// assert_eq!(placement, Some((0, Some(1)))); // without a launcher
    /// # Ok::<(), unisono::Error>(())
    /// ```
    pub fn placement() -> Result<Option<(usize, Option<usize>)>> {
        let found = launcher::detect(|name| env::var(name).ok())?;
        Ok(found.local_rank.map(|rank| (rank, found.local_size)))
    }

    /// Joins the world that the launcher describes: one process is alone, ranks of one host share memory, ranks of
    /// several hosts use MPI between them. Waits until everybody is there.
    ///
    /// `UNISONO_TRANSPORT=shm|mpi` forces a transport; `UNISONO_HOSTS=2` pretends that the ranks are spread over two
    /// hosts; `UNISONO_TIMEOUT` is the default deadline in seconds.
    ///
    /// A rank that `unisono run --restart` started again does not wait: it goes on with the next call of the world's
    /// group after those that its process had finished.
    pub fn init_with(options: InitOptions) -> Result<World> {
        let placement = launcher::detect(|name| env::var(name).ok())?;
        let timeout = match options.timeout {
            Some(timeout) => timeout,
            None => timeout_from_environment()?,
        };
        let pretended = number_from_environment("UNISONO_HOSTS")?.unwrap_or(1);
        let wish = wish()?;
        log::tell(format_args!(
            "joining as {placement:?}, deadline {timeout:?}, wish {wish:?}, {pretended} hosts"
        ));
        let (launcher, restarts) = (placement.launcher, placement.restarts);
        let one_host = placement.local_size == Some(placement.size) && pretended <= 1;
        let deadline = Instant::now() + timeout;
        let joined = match wish {
            Some(Wish::Mpi) => over_mpi(placement, timeout, apart)?,
            _ if placement.size == 1 => alone()?,
            _ if one_host => on_one_host(placement, deadline, options.interrupt.as_deref())?,
            None => {
                over_mpi(placement, timeout, |first, rank, size| (first, rank * pretended.max(1) / size))?
            }
            Some(Wish::Shm) => {
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
        world.meet(deadline)?;
        log::tell(format_args!(
            "rank {} of {} joined over {}",
            world.rank(),
            world.size(),
            world.transport()
        ));
        Ok(world)
    }

    /// Joins a job whose memory this process holds already, as the given rank.
    pub(crate) fn join(arena: Arc<Arena>, rank: usize, options: InitOptions) -> Result<World> {
        let timeout = match options.timeout {
            Some(timeout) => timeout,
            None => timeout_from_environment()?,
        };
        let mut world = World::new(seated(arena, rank, 0)?, OWN, timeout);
        if let Some(interrupt) = options.interrupt {
            world.group = world.group.with_interrupt(interrupt);
        }
        world.meet(Instant::now() + timeout)?;
        Ok(world)
    }

    /// Waits until everybody is there. A rank that was started again goes on where its process had stopped, which is after
    /// this, and the others are elsewhere.
    fn meet(&self, deadline: Instant) -> Result<()> {
        let stay = self.common().seat.as_ref().map(|seat| &seat.place().stay);
        if stay.is_some_and(|stay| stay.has_joined()) {
            return Ok(());
        }
        if let Some(stay) = stay {
            stay.enter();
        }
        self.group.uncounted().with_timeout(deadline.saturating_duration_since(Instant::now())).barrier()?;
        if let Some(stay) = stay {
            stay.leave(0);
        }
        Ok(())
    }

    /// A world of `size` threads in this process; each thread takes one of the ranks.
    pub fn threads(size: usize) -> Result<Vec<World>> {
        if size == 0 {
            return Err(Error::usage("threads", "at least one rank", "none", "ask for one or more"));
        }
        let world = |transport| World::new(Joined::local(transport), "none", DEFAULT_TIMEOUT);
        Ok(local::create(size)?.into_iter().map(world).collect())
    }

    /// A world of threads that pretend to be on several hosts, as evenly as possible: no two hosts share memory.
    pub(crate) fn threads_on_hosts(size: usize, hosts: usize) -> Result<Vec<World>> {
        World::threads_placed(&(0..size).map(|rank| rank * hosts / size).collect::<Vec<usize>>())
    }

    /// A world of threads that pretend to be on these hosts.
    pub(crate) fn threads_placed(hosts: &[usize]) -> Result<Vec<World>> {
        let world = |transport| {
            let joined = Joined::local(transport);
            let me = hosts[joined.transport.rank()];
            let neighbours = (0..hosts.len()).filter(|&rank| hosts[rank] == me).collect();
            World::new(Joined { hosts: hosts.to_vec(), neighbours, ..joined }, "none", DEFAULT_TIMEOUT)
        };
        Ok(local::create(hosts.len())?.into_iter().map(world).collect())
    }

    fn new(joined: Joined, launcher: &'static str, timeout: Duration) -> World {
        let Joined { transport, seat, hosts, names, neighbours, host } = joined;
        let rank = transport.rank();
        let local_rank = neighbours.iter().position(|&other| other == rank).unwrap_or(0);
        let share_memory = hosts.iter().all(|&other| other == hosts[rank]);
        let channel = seat.as_ref().filter(|_| share_memory).map(Channel::of_all);
        let members = (0..transport.size()).collect();
        let common = Common::new(transport, seat, hosts);
        World {
            group: Group::new(Arc::new(common), 0, "world".into(), members, channel, timeout),
            launcher,
            restarts: 0,
            hosts: names,
            local_rank,
            local_size: neighbours.len(),
            locator: Locator::default(),
            _host: host,
        }
    }
}

/// With MPI by wish, every rank is a host of its own: nothing goes through shared memory.
fn apart(first: usize, rank: usize, _size: usize) -> (usize, usize) {
    (first, rank)
}

fn wish() -> Result<Option<Wish>> {
    match env::var("UNISONO_TRANSPORT").as_deref() {
        Err(_) | Ok("") => Ok(None),
        Ok("shm") => Ok(Some(Wish::Shm)),
        Ok("mpi") => Ok(Some(Wish::Mpi)),
        Ok(other) => Err(Error::usage(
            "init",
            "UNISONO_TRANSPORT to be shm or mpi",
            format!("{other:?}"),
            "unset it to let unisono choose",
        )),
    }
}

fn timeout_from_environment() -> Result<Duration> {
    let Ok(text) = env::var("UNISONO_TIMEOUT") else { return Ok(DEFAULT_TIMEOUT) };
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.filter(|seconds| !seconds.is_zero()).ok_or_else(|| {
        Error::usage(
            "init",
            "seconds above zero in UNISONO_TIMEOUT",
            format!("{text:?}"),
            "write for example 60",
        )
    })
}

fn number_from_environment(name: &str) -> Result<Option<usize>> {
    let Ok(text) = env::var(name) else { return Ok(None) };
    let wrong =
        || Error::usage("init", format!("a number in {name}"), format!("{text:?}"), "write for example 2");
    text.parse().map(Some).map_err(|_| wrong())
}
