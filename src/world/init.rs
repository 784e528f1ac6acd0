//! Joining the world: from what the launcher says to a transport and a group of everybody.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::{Duration, Instant};

use super::launcher::{self, OWN, Placement};
use super::locator::Locator;
use super::{Common, Group, World};
use crate::error::{Error, Result};
use crate::transport::arena::channel::Channel;
use crate::transport::arena::{ArenaTransport, Seat, process};
use crate::transport::{Interrupt, local, shm};

/// The deadline of a call when nobody says otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// How to join.
#[derive(Clone, Default)]
pub struct InitOptions {
    /// The deadline of every call, this one included; else `UNISONO_TIMEOUT` (seconds), else 300 seconds.
    pub timeout: Option<Duration>,
    /// Asked during waits whether to stop.
    pub interrupt: Option<Arc<Interrupt>>,
}

/// The transports that a user can ask for with `UNISONO_TRANSPORT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Shm,
    Mpi,
}

impl World {
    /// Joins the world that the launcher describes: one process is alone, ranks of one host share memory, ranks of
    /// several hosts use MPI between them. Waits until everybody is there.
    ///
    /// `UNISONO_TRANSPORT=shm|mpi` forces a transport; `UNISONO_HOSTS=2` pretends that the ranks are spread over two
    /// hosts; `UNISONO_TIMEOUT` is the default deadline in seconds.
    pub fn init_with(options: InitOptions) -> Result<World> {
        let placement = launcher::detect(|name| env::var(name).ok())?;
        let timeout = match options.timeout {
            Some(timeout) => timeout,
            None => timeout_from_environment()?,
        };
        let pretended = number_from_environment("UNISONO_HOSTS")?.unwrap_or(1);
        tracing::debug!(?placement, ?timeout, pretended, "joining the world");
        let one_host = placement.local_size == Some(placement.size) && pretended <= 1;
        let world = match wish()? {
            Some(Wish::Mpi) => return Err(Error::unsupported("init", "mpi", "")),
            None if placement.size == 1 => alone(placement, timeout)?,
            _ if one_host => on_one_host(placement, timeout)?,
            Some(Wish::Shm) => {
                return Err(Error::usage(
                    "init",
                    "all ranks on one host, for UNISONO_TRANSPORT=shm",
                    format!("{:?} of {} ranks on this one", placement.local_size, placement.size),
                    "unset UNISONO_TRANSPORT",
                ));
            }
            None => return Err(Error::unsupported("init", "mpi", "")),
        };
        let joining = match options.interrupt {
            Some(interrupt) => world.group.with_interrupt(interrupt),
            None => world.group.clone(),
        };
        joining.barrier()?;
        tracing::debug!(rank = world.rank(), size = world.size(), transport = world.transport(), "joined");
        Ok(world)
    }

    /// A world of `size` threads in this process; each thread takes one of the ranks.
    pub fn threads(size: usize) -> Result<Vec<World>> {
        let transports = local::create(size)?;
        let world = |transport| {
            World::new(transport, "none", vec![0; size], vec![host_name(); size], DEFAULT_TIMEOUT)
        };
        Ok(transports.into_iter().map(world).collect())
    }

    fn new(
        transport: ArenaTransport,
        launcher: &'static str,
        hosts: Vec<usize>,
        names: Vec<String>,
        timeout: Duration,
    ) -> World {
        let seat = transport.seat.clone();
        let rank = seat.ranks[seat.index];
        let neighbours = || (0..hosts.len()).filter(|&other| hosts[other] == hosts[rank]);
        let (local_rank, local_size) = (neighbours().position(|other| other == rank), neighbours().count());
        let channel = Channel::of_all(&seat);
        let common = Common {
            transport: Arc::new(transport),
            seat: Some(seat),
            hosts,
            closed: AtomicBool::new(false),
            pid: process::own(),
            contexts: AtomicU32::new(0),
        };
        let members = (0..common.hosts.len()).collect();
        World {
            group: Group::new(Arc::new(common), 0, "world".into(), members, Some(channel), timeout),
            launcher,
            hosts: names,
            local_rank: local_rank.unwrap_or(0),
            local_size,
            locator: Locator::default(),
            _host: None,
        }
    }
}

fn alone(placement: Placement, timeout: Duration) -> Result<World> {
    let transport = local::create(1)?.remove(0);
    Ok(World::new(transport, placement.launcher, vec![0], vec![host_name()], timeout))
}

fn on_one_host(placement: Placement, timeout: Duration) -> Result<World> {
    let Placement { launcher, rank, size, job, .. } = placement;
    let mut host = None;
    let arena = if launcher != OWN && rank == 0 {
        let (arena, file) = shm::create(size)?;
        host = Some(shm::Host::start(&job, file)?);
        arena
    } else {
        shm::join(&job, Instant::now() + timeout)?
    };
    if arena.seats() != size {
        return Err(Error::usage(
            "init",
            format!("a job of {size} ranks"),
            format!("shared memory for {} ranks", arena.seats()),
            "do not change UNISONO_SIZE or UNISONO_JOB by hand",
        ));
    }
    let seat = Seat::take(arena, rank, (0..size).collect())?;
    let transport = ArenaTransport::new("shm", size, seat);
    let mut world = World::new(transport, launcher, vec![0; size], vec![host_name(); size], timeout);
    world._host = host;
    Ok(world)
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

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
