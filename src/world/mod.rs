//! Layer 3: the world of ranks, how a process joins it, and groups of ranks.

mod accessors;
mod background;
mod call_order;
#[cfg(all(test, not(unisono_loom)))]
mod counted;
mod fork_guard;
mod group;
mod hierarchy;
mod init;
mod join;
mod launcher;
mod locator;
mod log;
mod pending;
mod probe;
mod resume;
mod settings;
mod steps;
mod subgroup;
mod usable;
pub(crate) mod verbs;
mod watchers;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(crate) use background::Background;
pub use group::Group;
use group::WorldState;
pub(crate) use hierarchy::Hierarchy;
pub use init::InitOptions;
pub use pending::Pending;
pub(crate) use pending::pending;
pub use resume::Series;
pub(crate) use watchers::Watcher;

use crate::error::{Error, Result};
use crate::transport::{ArenaBuffer, WholeArena, shm};

/// All ranks of a job, as seen from one of them.
///
/// ```
/// use unisono::{ReduceOp, World};
/// let world = World::init()?; // alone, unless a launcher started this process
/// let mut value = [1.0f32];
/// world.group().all_reduce(&mut value, ReduceOp::Sum)?;
/// assert_eq!(value, [world.size() as f32]);
/// # Ok::<(), unisono::Error>(())
/// ```
pub struct World {
    group: Group,
    launcher: &'static str,
    restarts: usize,
    local_rank: usize,
    local_size: usize,
    locator: locator::Locator,
    /// Serves the job's shared memory to the other ranks of this host, if our launcher does not.
    _host: Option<shm::FdServer>,
}

impl World {
    /// Detects the launcher and joins the world: see [`World::init_with`].
    pub fn init() -> Result<World> {
        World::init_with(InitOptions::default())
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.group.rank()
    }

    /// The number of ranks.
    pub fn size(&self) -> usize {
        self.group.size()
    }

    /// This rank's number among the ranks of its host.
    pub fn local_rank(&self) -> usize {
        self.local_rank
    }

    /// The number of ranks on this host.
    pub fn local_size(&self) -> usize {
        self.local_size
    }

    /// The host name of each rank.
    pub fn hosts(&self) -> &[String] {
        &self.state().host_names
    }

    /// The transport in use: "alone", "local", "shm", "mpi" or "shm+mpi".
    pub fn transport(&self) -> &'static str {
        self.state().transport.name()
    }

    /// The launcher that started this process: "unisono run", "torchrun", "Open MPI", "MPICH (PMI)", "Slurm", "PMIx" or
    /// "none".
    pub fn launcher(&self) -> &'static str {
        self.launcher
    }

    /// How often `unisono run --restart` has restarted this rank: 0 in its first process.
    pub fn restarts(&self) -> usize {
        self.restarts
    }

    /// The group of all ranks.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Sets the timeout of all later calls on this world, except through handles with a timeout of their own.
    pub fn set_timeout(&self, timeout: Duration) {
        self.state().set_timeout(timeout);
    }

    /// Allocates memory in this host's arena: collectives on it need no copy.
    pub fn empty(&self, bytes: usize) -> Result<ArenaBuffer> {
        self.group.check_usable("empty")?;
        match &self.state().endpoint {
            Some(endpoint) => endpoint.allocate(bytes),
            None => Err(Error::unsupported(
                "empty",
                "this rank shares no memory with others",
                "use ordinary memory",
            )),
        }
    }

    /// The entire memory shared by this host's ranks, for programs that exchange offsets into it.
    pub fn arena(&self) -> Result<WholeArena> {
        self.group.check_usable("arena")?;
        let not_shared =
            || Error::unsupported("arena", "this rank shares no memory with others", "send messages");
        self.state().endpoint.as_ref().map(WholeArena::new).ok_or_else(not_shared)
    }

    /// Lets other ranks query where this rank is in its program: `locate` is called on another thread when another rank
    /// times out waiting for this one.
    pub fn set_locator(&self, locate: impl Fn() -> Option<String> + Send + 'static) {
        if let Some(endpoint) = &self.state().endpoint {
            self.locator.start(endpoint, Box::new(locate));
        }
    }

    /// Leaves the world. Later calls on its groups are errors. Dropping the world does the same. A single process
    /// without a launcher may init again; a rank of a job joins it once.
    pub fn shutdown(self) {}

    fn state(&self) -> &Arc<WorldState> {
        &self.group.core.world
    }
}

/// How long to wait for the other ranks when leaving.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);
const LEAVE_TIMEOUT_BROKEN: Duration = Duration::from_secs(2);

impl Drop for World {
    fn drop(&mut self) {
        self.state().closed.store(true, Ordering::Release);
        self.locator.stop();
        if self.state().fork_guard.is_original_process() {
            // After an error the other ranks may never arrive.
            let limit = if self.group.is_broken() { LEAVE_TIMEOUT_BROKEN } else { LEAVE_TIMEOUT };
            let may_have_lost_rank = self.state().may_have_lost_rank.load(Ordering::Acquire);
            self.state().transport.leave(self.group.timeout().min(limit), may_have_lost_rank);
        }
        if let Some(endpoint) = &self.state().endpoint {
            endpoint.leave();
        }
    }
}
