//! For launchers: the job's shared memory, what to tell each rank, and what each rank is doing.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::Result;
use crate::transport::arena::Arena;
use crate::transport::shm;

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
        [("RANK", rank.to_string()), ("SIZE", self.size.to_string()), ("JOB", self.name.clone())]
            .map(|(name, value)| (format!("UNISONO_{name}"), value))
            .to_vec()
    }

    /// Tells the other ranks that this one's process has ended, in case it never joined them.
    pub fn rank_ended(&self, rank: usize) {
        self.arena.place(rank).nobody_comes();
    }

    /// What a rank is doing, in words.
    pub fn activity(&self, rank: usize) -> String {
        let place = self.arena.place(rank);
        place.lost().map_or_else(|| place.in_words(), str::to_owned)
    }
}
