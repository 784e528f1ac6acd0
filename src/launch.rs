//! For launchers: the job's shared memory, what to tell each rank, and what each rank is doing.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{Error, LEFT_EARLY, Result};
use crate::transport::arena::{Arena, Fate, MOST_SEATS};
use crate::transport::shm;
use crate::world::{InitOptions, World};

/// The most ranks that a job may have on one host.
pub const MAX_RANKS: usize = MOST_SEATS;

/// A job of ranks on this host. It holds the job's memory, so that a rank that dies takes nothing with it.
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
    _host: shm::Host,
}

impl Job {
    /// Makes the memory for a job of `size` ranks and waits for them in the background.
    pub fn create(size: usize) -> Result<Job> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        let name = format!("{}-{time:x}", std::process::id());
        let (arena, file) = shm::create(size)?;
        let host = shm::Host::start(&name, file)?;
        Ok(Job { name, size, arena, _host: host })
    }

    /// The variables that make a process the given rank of this job.
    pub fn environment(&self, rank: usize) -> Vec<(String, String)> {
        let restarts = self.arena.place(rank).stay.restarts();
        [
            ("RANK", rank.to_string()),
            ("SIZE", self.size.to_string()),
            ("JOB", self.name.clone()),
            ("RESTARTS", restarts.to_string()),
        ]
        .map(|(name, value)| (format!("UNISONO_{name}"), value))
        .to_vec()
    }

    /// Makes this very process a rank of the job; whoever drives workers that it has started itself does so. Waits until
    /// the others have come.
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
        World::join(self.arena.clone(), rank, options)
    }

    /// Tells the other ranks that this one would be started again so many more times if it failed: while it is away they
    /// wait for it. Say so before it starts, and again when the number changes.
    pub fn allow_restarts(&self, rank: usize, more: usize) {
        self.arena.place(rank).stay.allow(u32::try_from(more).unwrap_or(u32::MAX));
    }

    /// Prepares another start of a rank whose process has ended and was waited for; then start it with its new
    /// [`Job::environment`]. Fails if nobody could take up where it stopped: then it has ended for good, and
    /// [`Job::rank_ended`] tells the others.
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
        let stay = &self.arena.place(rank).stay;
        let running = stay.pid().filter(|_| !stay.process_ended());
        let running = running.map(|pid| format!("its process {pid} still runs"));
        if let Some(obstacle) = running.or_else(|| stay.obstacle().map(str::to_owned)) {
            let what = format!("rank {rank} cannot be started again, because {obstacle}");
            let advice = "start the whole job again, from a checkpoint if there is one";
            return Err(Error::unsupported("restart", what, advice));
        }
        stay.restart();
        Ok(())
    }

    /// Tells the other ranks that this one's process has ended and that no other will take its place.
    pub fn rank_ended(&self, rank: usize) {
        self.arena.place(rank).stay.nobody_comes();
    }

    /// As [`Job::rank_ended`], of a process that ended with success: others that still need it hear that it left early.
    pub fn rank_succeeded(&self, rank: usize) {
        self.arena.place(rank).stay.ended_well();
        self.rank_ended(rank);
    }

    /// What a rank is doing, in words.
    pub fn activity(&self, rank: usize) -> String {
        let place = self.arena.place(rank);
        match place.stay.fate() {
            // Whether anybody still needed it is not the launcher's business.
            Fate::Lost(LEFT_EARLY) => "it has ended, or called shutdown".into(),
            Fate::Lost(how) => how.into(),
            Fate::Here | Fate::Returning => place.in_words(),
        }
    }
}
