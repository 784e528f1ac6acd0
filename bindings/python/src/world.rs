//! The native world: created by `init`, queried for its properties, ended by `shutdown`.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use unisono::tables::{self, Role};
use unisono::{DType, Error, InitOptions, Result, Series};

use crate::call::{Arg, repr_of, seconds};
use crate::errors::{OrRaise, guard, raise, remember_rank};
use crate::fork::{ProcessLocal, WorldLiveness};
use crate::group::Group;
use crate::memory::Memory;
use crate::tables::Tables;
use crate::{interrupt, locate};

/// A world, and the properties that remain valid after its end.
#[pyclass(frozen, module = "unisono._native")]
pub(crate) struct World {
    /// Taken out by `shutdown`. The lock is never held while a thread waits for the GIL.
    world: Mutex<Option<ProcessLocal<Arc<unisono::World>>>>,
    liveness: Arc<WorldLiveness>,
    /// Series of uncounted collectives that have begun and not ended: see `begin_series`.
    series: Mutex<Vec<ProcessLocal<Series>>>,
    #[pyo3(get)]
    rank: usize,
    #[pyo3(get)]
    size: usize,
    #[pyo3(get)]
    local_rank: usize,
    #[pyo3(get)]
    local_size: usize,
    #[pyo3(get)]
    hosts: Vec<String>,
    #[pyo3(get)]
    transport: &'static str,
    #[pyo3(get)]
    launcher: String,
    #[pyo3(get)]
    restarts: usize,
}

impl World {
    /// A world whose rank is a thread of this process.
    fn of(world: unisono::World) -> World {
        World {
            liveness: Arc::new(WorldLiveness::new(world.rank(), world.size() == 1)),
            series: Mutex::default(),
            rank: world.rank(),
            size: world.size(),
            local_rank: world.local_rank(),
            local_size: world.local_size(),
            hosts: world.hosts().to_vec(),
            transport: world.transport(),
            launcher: world.launcher().to_owned(),
            restarts: world.restarts(),
            world: Mutex::new(Some(ProcessLocal::new(Arc::new(world)))),
        }
    }

    /// A world whose rank is this process: it reports the position of its program to other ranks.
    pub(crate) fn new(world: unisono::World) -> World {
        world.set_locator(locate::main_location);
        World::of(world)
    }

    /// Runs `job` on the world with the GIL released. If another thread shuts the world down meanwhile, the world is dropped
    /// here.
    fn with<R: Send>(
        &self,
        py: Python<'_>,
        operation: &'static str,
        job: impl FnOnce(&unisono::World) -> Result<R> + Send,
    ) -> PyResult<R> {
        self.liveness.check(operation).map_err(|error| raise(py, error))?;
        let world = self.world.lock().unwrap_or_else(PoisonError::into_inner).as_deref().cloned();
        let done = py.detach(|| {
            let world = world.ok_or_else(|| Error::internal(operation, "a world that is alive and gone"))?;
            guard(operation, || job(&world))
        });
        done.map_err(|error| raise(py, error))
    }
}

/// The local rank of this process and the local size, as its launcher states them; callable before joining.
#[pyfunction]
pub(crate) fn placement(py: Python<'_>) -> PyResult<Option<(usize, Option<usize>)>> {
    guard("pick_device", unisono::World::placement).map_err(|error| raise(py, error))
}

#[pymethods]
impl World {
    /// Detects the launcher and joins its world.
    #[staticmethod]
    fn init(py: Python<'_>, timeout: Arg<'_, '_>) -> PyResult<World> {
        let timeout = seconds(timeout, "init")?;
        let options = InitOptions { timeout, interrupt: Some(interrupt::hook()) };
        let made = py.detach(|| guard("init", || unisono::World::init_with(options)));
        let world = made.map_err(|error| raise(py, error))?;
        remember_rank(world.rank());
        Ok(World::new(world))
    }

    /// Joins a world by its name, without a launcher.
    #[staticmethod]
    fn join(py: Python<'_>, name: &str, rank: usize, size: usize, timeout: Arg<'_, '_>) -> PyResult<World> {
        let options = InitOptions { timeout: seconds(timeout, "join")?, interrupt: Some(interrupt::hook()) };
        let made = py.detach(|| guard("join", || unisono::World::join(name, rank, size, options)));
        made.map(World::new).or_raise(py)
    }

    /// Worlds whose ranks are threads of this process, one world per rank.
    #[staticmethod]
    fn threads(py: Python<'_>, size: usize) -> PyResult<Vec<World>> {
        let made = py.detach(|| guard("threads", || unisono::World::threads(size)));
        Ok(made.map_err(|error| raise(py, error))?.into_iter().map(World::of).collect())
    }

    /// The group of all ranks.
    fn group(&self, py: Python<'_>) -> PyResult<Group> {
        self.with(py, "init", |world| Ok(Group::new(world.group(), self.liveness.clone())))
    }

    /// Sets this rank's role for tables; every rank calls it.
    fn tables(&self, py: Python<'_>, role: Arg<'_, '_>) -> PyResult<Tables> {
        let role = Role::from_name(&role.extract().unwrap_or_else(|_| repr_of(role)));
        let tables = self.with(py, "tables", |world| tables::Tables::join_as(world, role))?;
        Ok(Tables::new(tables, self.liveness.clone()))
    }

    /// Sets the default timeout of calls.
    fn set_timeout(&self, py: Python<'_>, timeout: Arg<'_, '_>) -> PyResult<()> {
        let timeout = seconds(timeout, "init")?;
        self.with(py, "init", |world| {
            timeout.into_iter().for_each(|timeout| world.set_timeout(timeout));
            Ok(())
        })
    }

    /// Declares that this process continues where the previous incarnation of its rank stopped.
    fn resume(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, "resume", |world| {
            world.resume();
            Ok(())
        })
    }

    /// Collectives until `end_series` are not counted: a restarted rank does not repeat them.
    fn begin_series(&self, py: Python<'_>) -> PyResult<()> {
        let series = self.with(py, "series", |world| Ok(ProcessLocal::new(world.series())))?;
        self.series.lock().unwrap_or_else(PoisonError::into_inner).push(series);
        Ok(())
    }

    fn end_series(&self) {
        self.series.lock().unwrap_or_else(PoisonError::into_inner).pop();
    }

    /// Whether this process is a forked child of the process that joined the world.
    #[getter]
    fn is_forked(&self) -> bool {
        self.liveness.is_forked()
    }

    /// Memory in the job's arena.
    fn empty(&self, py: Python<'_>, shape: Vec<usize>, dtype: &str) -> PyResult<Memory> {
        self.liveness.check("empty").map_err(|error| raise(py, error))?;
        let dtype = DType::from_name(dtype).ok_or_else(|| {
            let supported = DType::ALL.map(DType::name).join(", ");
            raise(py, Error::usage("empty", supported, dtype, "choose one of these"))
        })?;
        let bytes = shape.iter().try_fold(dtype.size(), |bytes, &extent| bytes.checked_mul(extent));
        let bytes = bytes.filter(|&bytes| isize::try_from(bytes).is_ok()).ok_or_else(|| {
            raise(
                py,
                Error::usage("empty", "a shape that fits in memory", format!("{shape:?}"), "make it smaller"),
            )
        })?;
        let buffer = self.with(py, "empty", |world| world.empty(bytes))?;
        Ok(Memory::in_arena(buffer, dtype, shape))
    }

    /// The full arena of the job, as bytes.
    fn arena(&self, py: Python<'_>) -> PyResult<Memory> {
        self.with(py, "arena", |world| world.arena()).map(Memory::whole_arena)
    }

    /// Leaves the world; a second call does nothing, and a forked child leaves its parent's world untouched.
    fn shutdown(&self, py: Python<'_>) -> PyResult<()> {
        self.liveness.close();
        let taken = self.world.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(world) = taken.and_then(ProcessLocal::into_inner) else { return Ok(()) };
        let leave_timeout = self.liveness.leave_timeout();
        let ended = py.detach(|| {
            guard("shutdown", || {
                leave_timeout.into_iter().for_each(|limit| world.set_timeout(limit));
                drop(world);
                Ok(())
            })
        });
        ended.map_err(|error| raise(py, error))
    }
}
