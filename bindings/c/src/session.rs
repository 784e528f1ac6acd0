//! The default world of this process: created by init, used by every call, ended by shutdown.

use std::ffi::CString;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use unisono::tables::{Role, Tables};
use unisono::{ArenaBuffer, Error, Group, InitOptions, Result, World};

use crate::handles;

/// The properties of the world, and its group; calls keep it alive while they run.
pub(crate) struct WorldSession {
    pub(crate) group: Group,
    pub(crate) local_rank: usize,
    pub(crate) local_size: usize,
    pub(crate) restarts: usize,
    pub(crate) transport: CString,
    pub(crate) launcher: CString,
    pub(crate) hosts: Vec<CString>,
    /// This rank's membership in the tables, once it has joined them.
    tables: OnceLock<Tables>,
    /// The process that joined: a forked child has a different id.
    process: u32,
}

enum State {
    Uninitialized,
    Active(Arc<WorldSession>, Box<World>),
    /// A rank of a job joins once: other ranks may still be in their last call, and a new world in the same memory would
    /// interfere with it.
    Finalized,
}

static STATE: Mutex<State> = Mutex::new(State::Uninitialized);

/// This process's rank in its last world, for errors without a group.
static RANK: AtomicUsize = AtomicUsize::new(usize::MAX);

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The rank that errors report, once it is known.
pub(crate) fn rank() -> Option<usize> {
    Some(RANK.load(Ordering::Relaxed)).filter(|&rank| rank != usize::MAX)
}

/// The default world.
pub(crate) fn current(operation: &str) -> Result<Arc<WorldSession>> {
    match &*state() {
        State::Active(session, _) => Ok(session.clone()),
        State::Uninitialized => Err(uninitialized_error(operation)),
        State::Finalized => Err(finalized_error(operation)),
    }
}

/// Declares that this process continues where the previous incarnation of its rank stopped.
pub(crate) fn resume() -> Result<()> {
    match &*state() {
        State::Active(_, world) => {
            world.resume();
            Ok(())
        }
        State::Uninitialized => Err(uninitialized_error("resume")),
        State::Finalized => Err(finalized_error("resume")),
    }
}

fn finalized_error(operation: &str) -> Error {
    Error::usage(
        operation,
        "a call after init and before shutdown",
        "a call after shutdown",
        "a rank joins its job once: shut down only when all work is done",
    )
}

fn uninitialized_error(operation: &str) -> Error {
    Error::usage(
        operation,
        "a call after init and before shutdown",
        "a call without a world",
        "call unisono_init first",
    )
}

/// Joins the world; if it has been joined already, only sets the timeout.
pub(crate) fn join(timeout: Option<Duration>) -> Result<()> {
    let mut state = state();
    match &*state {
        State::Active(session, world) if session.is_current_process() => {
            timeout.into_iter().for_each(|timeout| world.set_timeout(timeout));
            return Ok(());
        }
        State::Active(session, _) if session.group.size() > 1 => {
            return Err(Error::usage(
                "init",
                "a process of its own for each rank",
                format!("a child that was forked from rank {}", session.group.rank()),
                "start ranks with a launcher: unisono run -n 4 -- program",
            ));
        }
        State::Finalized => {
            return Err(Error::usage(
                "init",
                "a process that has not joined its job before",
                "one that has left it",
                "shut down only when all work is done",
            ));
        }
        _ => {}
    }
    let world = World::init_with(InitOptions { timeout, interrupt: None })?;
    RANK.store(world.rank(), Ordering::Relaxed);
    let session = WorldSession::new(&world);
    if let State::Active(_, world) =
        std::mem::replace(&mut *state, State::Active(Arc::new(session), Box::new(world)))
    {
        // In a forked child this is the parent's world, which the child must not shut down.
        std::mem::forget(world);
    }
    Ok(())
}

/// The tables; the first call joins them, and is collective.
pub(crate) fn tables(operation: &str) -> Result<Tables> {
    let session = current(operation)?;
    if session.tables.get().is_none() {
        join_tables(Ok(Role::Both))?;
    }
    session.joined(operation)
}

/// Sets this rank's role and joins the tables.
pub(crate) fn join_tables(role: Result<Role>) -> Result<()> {
    let operation = "tables_join";
    match &*state() {
        State::Active(session, _) if session.tables.get().is_some() => Err(Error::usage(
            operation,
            "one call, before the first table",
            "a rank that has its role",
            "leave it out, or make it right after init",
        )),
        State::Active(session, world) => {
            let tables = Tables::join_as(world, role)?;
            session.tables.set(tables).map_err(|_| Error::internal(operation, "two joins at once"))
        }
        State::Uninitialized => Err(uninitialized_error(operation)),
        State::Finalized => Err(finalized_error(operation)),
    }
}

/// Leaves the world; does nothing without one. This rank's adds are applied first.
pub(crate) fn leave() -> Result<()> {
    let mut state = state();
    let after = match &*state {
        State::Active(session, _) if session.group.size() > 1 => State::Finalized,
        State::Active(..) | State::Uninitialized => State::Uninitialized,
        State::Finalized => State::Finalized,
    };
    if let State::Active(session, world) = std::mem::replace(&mut *state, after) {
        if !session.is_current_process() {
            std::mem::forget(world);
            return Ok(());
        }
        let finished = session.tables.get().map_or(Ok(()), Tables::close);
        // The tables must end before the world: their server thread uses it.
        handles::clear();
        drop(session);
        world.shutdown();
        return finished;
    }
    Ok(())
}

impl WorldSession {
    fn new(world: &World) -> WorldSession {
        // The names come from the system or from this library: none contains a zero byte.
        let text = |name: &str| CString::new(name).unwrap_or_default();
        WorldSession {
            group: world.group().clone(),
            local_rank: world.local_rank(),
            local_size: world.local_size(),
            restarts: world.restarts(),
            transport: text(world.transport()),
            launcher: text(world.launcher()),
            hosts: world.hosts().iter().map(|name| text(name)).collect(),
            tables: OnceLock::new(),
            process: std::process::id(),
        }
    }

    /// The tables, if this rank has joined them.
    pub(crate) fn joined(&self, operation: &str) -> Result<Tables> {
        self.tables.get().cloned().ok_or_else(|| {
            Error::usage(
                operation,
                "a rank with a role",
                "a call before the first table",
                "call unisono_tables_join, or make a table, on every rank first",
            )
        })
    }

    /// Waits until this rank's adds are applied.
    pub(crate) fn flush(&self) -> Result<()> {
        self.tables.get().map_or(Ok(()), Tables::flush)
    }

    fn is_current_process(&self) -> bool {
        self.process == std::process::id()
    }
}

/// Memory in the arena of the default world.
pub(crate) fn empty(operation: &str, bytes: usize) -> Result<ArenaBuffer> {
    match &*state() {
        State::Active(_, world) => world.empty(bytes),
        State::Uninitialized => Err(uninitialized_error(operation)),
        State::Finalized => Err(finalized_error(operation)),
    }
}
