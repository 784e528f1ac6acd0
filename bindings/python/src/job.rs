//! A job that this process launches itself: it creates the shared memory, provides each worker's environment, and joins as a
//! rank.

use std::collections::HashMap;

use pyo3::prelude::*;
use unisono::InitOptions;

use crate::call::{Arg, seconds};
use crate::errors::{guard, raise};
use crate::fork::ProcessLocal;
use crate::interrupt;
use crate::world::World;

/// The shared memory of a job, held by the process that starts its ranks.
#[pyclass(frozen, module = "unisono._native")]
pub(crate) struct Job(ProcessLocal<unisono::launch::Job>);

#[pymethods]
impl Job {
    /// Creates the memory for `size` ranks.
    #[new]
    fn new(py: Python<'_>, size: usize) -> PyResult<Job> {
        let made = guard("fork", || unisono::launch::Job::create(size));
        Ok(Job(ProcessLocal::new(made.map_err(|error| raise(py, error))?)))
    }

    /// The environment variables that make a process the given rank.
    fn environment(&self, rank: usize) -> HashMap<String, String> {
        self.0.environment(rank).into_iter().collect()
    }

    /// Joins the job as a rank, and waits for the other ranks.
    fn join(&self, py: Python<'_>, rank: usize, timeout: Arg<'_, '_>) -> PyResult<World> {
        let timeout = seconds(timeout, "fork")?;
        let options = InitOptions { timeout, interrupt: Some(interrupt::hook()) };
        let made = py.detach(|| guard("fork", || self.0.join(rank, options)));
        Ok(World::new(made.map_err(|error| raise(py, error))?))
    }

    /// Records that a rank's process has exited and will not be restarted.
    fn rank_ended(&self, rank: usize) {
        self.0.rank_ended(rank);
    }
}
