//! A job that this process starts itself: it makes the memory, tells each worker who it is, and joins as a rank.

use std::collections::HashMap;

use pyo3::prelude::*;
use unisono::InitOptions;

use crate::call::seconds;
use crate::errors::{guard, raise};
use crate::fork::ProcessLocal;
use crate::interrupt;
use crate::world::World;

/// The memory of a job, held by whoever starts its ranks.
#[pyclass(frozen, module = "unisono._native")]
pub(crate) struct Job(ProcessLocal<unisono::launch::Job>);

#[pymethods]
impl Job {
    /// Makes the memory for so many ranks.
    #[new]
    fn new(py: Python<'_>, size: usize) -> PyResult<Job> {
        let made = guard("fork", || unisono::launch::Job::create(size));
        Ok(Job(ProcessLocal::new(made.map_err(|error| raise(py, error))?)))
    }

    /// The variables that make a process the given rank.
    fn environment(&self, rank: usize) -> HashMap<String, String> {
        self.0.environment(rank).into_iter().collect()
    }

    /// Makes this process a rank, and waits for the others.
    fn join(&self, py: Python<'_>, rank: usize, timeout: Option<f64>) -> PyResult<World> {
        let timeout = seconds(timeout, "fork").map_err(|error| raise(py, error))?;
        let options = InitOptions { timeout, interrupt: Some(interrupt::hook()) };
        let made = py.detach(|| guard("fork", || self.0.join(rank, options)));
        Ok(World::new(made.map_err(|error| raise(py, error))?))
    }

    /// Says that a rank's process has ended and that no other will take its place.
    fn rank_ended(&self, rank: usize) {
        self.0.rank_ended(rank);
    }
}
