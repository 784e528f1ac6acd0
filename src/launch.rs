//! For launchers: the job's shared memory, the environment of each rank, and the ranks' current activity.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};
use crate::transport::arena::{Arena, LossCause, MAX_LOCAL_RANKS, PeerStatus};
use crate::transport::shm;
use crate::world::{InitOptions, World};

/// The most ranks that a job may have on one host.
pub const MAX_RANKS: usize = MAX_LOCAL_RANKS;

/// A job of ranks on this host. It holds the job's shared memory, so no memory is lost with a rank that dies.
///
/// ```
/// let job = unisono::launch::Job::create(2)?;
/// assert!(job.environment(1).contains(&("UNISONO_RANK".into(), "1".into())));
/// assert_eq!(job.activity(0), "it has not called init yet");
/// # Ok::<(), unisono::Error>(())
/// ```
pub struct Job {
    name: String,
    size: usize,
    arena: Arc<Arena>,
    _host: shm::FdServer,
}

impl Job {
    /// Creates the shared memory for a job of `size` ranks and serves it to them in the background.
    pub fn create(size: usize) -> Result<Job> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        let name = format!("{}-{time:x}", std::process::id());
        let (arena, file) = shm::create(size)?;
        let host = shm::FdServer::start(&name, file)?;
        Ok(Job { name, size, arena, _host: host })
    }

    /// The environment variables that make a process the given rank of this job.
    pub fn environment(&self, rank: usize) -> Vec<(String, String)> {
        let restarts = self.arena.peer_slot(rank).process.restarts();
        [
            ("RANK", rank.to_string()),
            ("SIZE", self.size.to_string()),
            ("JOB", self.name.clone()),
            ("RESTARTS", restarts.to_string()),
        ]
        .map(|(name, value)| (format!("UNISONO_{name}"), value))
        .to_vec()
    }

    /// Makes the calling process a rank of the job, for programs that drive workers which they have started themselves.
    /// Blocks until the other ranks have joined.
    ///
    /// ```
    /// let job = unisono::launch::Job::create(1)?;
    /// let world = job.join(0, unisono::InitOptions::default())?;
    /// assert_eq!((world.rank(), world.size()), (0, 1));
    /// # Ok::<(), unisono::Error>(())
    /// ```
    pub fn join(&self, rank: usize, options: InitOptions) -> Result<World> {
        if rank >= self.size {
            let (expected, received) = (format!("a rank below {}", self.size), rank.to_string());
            return Err(Error::usage("join", expected, received, "the job has no more ranks"));
        }
        World::join_arena(self.arena.clone(), rank, options)
    }

    /// Announces to the other ranks that this one would be restarted up to `more` times if it failed: while it
    /// restarts, they wait for it. Call it before the rank starts, and again whenever the number changes.
    pub fn allow_restarts(&self, rank: usize, more: usize) {
        self.arena.peer_slot(rank).process.allow_restarts(u32::try_from(more).unwrap_or(u32::MAX));
    }

    /// Prepares the restart of a rank whose process has ended and been waited for; then start it with its new
    /// [`Job::environment`]. Fails if no process could continue where it stopped: then the rank has ended for good, and
    /// [`Job::rank_ended`] announces that to the others.
    ///
    /// ```
    /// let job = unisono::launch::Job::create(2)?;
    /// job.allow_restarts(1, 3);
    /// // … the process of rank 1 has failed …
    /// job.restart(1)?;
    /// job.allow_restarts(1, 2);
    /// assert!(job.environment(1).contains(&("UNISONO_RESTARTS".into(), "1".into())));
    /// # Ok::<(), unisono::Error>(())
    /// ```
    pub fn restart(&self, rank: usize) -> Result<()> {
        let process = &self.arena.peer_slot(rank).process;
        let running = process.pid().filter(|_| !process.process_ended());
        let running = running.map(|pid| format!("its process {pid} still runs"));
        if let Some(obstacle) = running.or_else(|| process.restart_obstacle().map(Into::into)) {
            let what = format!("rank {rank} cannot be started again, because {obstacle}");
            let advice = "start the entire job again, from a checkpoint if there is one";
            return Err(Error::unsupported("restart", what, advice));
        }
        process.count_restart();
        Ok(())
    }

    /// Announces to the other ranks that this one's process has ended and will not be restarted.
    pub fn rank_ended(&self, rank: usize) {
        self.arena.peer_slot(rank).process.forbid_incarnations();
    }

    /// As [`Job::rank_ended`], for a process that exited successfully: ranks that still need it report that it left
    /// early.
    pub fn rank_succeeded(&self, rank: usize) {
        self.arena.peer_slot(rank).process.mark_exited_cleanly();
        self.rank_ended(rank);
    }

    /// Describes a rank's current activity.
    pub fn activity(&self, rank: usize) -> String {
        let slot = self.arena.peer_slot(rank);
        match slot.process.status() {
            // Whether other ranks still needed it does not concern the launcher.
            PeerStatus::Unrecoverable(LossCause::Left) => "it has ended, or left the world".into(),
            PeerStatus::Unrecoverable(cause) => cause.text().into(),
            PeerStatus::Alive | PeerStatus::Restarting => slot.describe().0,
        }
    }
}
