//! The default world of this process: made by init, used by every call, ended by shutdown.

use std::ffi::CString;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use unisono::{ArenaBuffer, Error, Group, InitOptions, Result, World};

use crate::handles;

/// The facts of a world, and its group; calls hold it while they run.
pub(crate) struct Session {
    pub(crate) group: Group,
    pub(crate) local_rank: usize,
    pub(crate) local_size: usize,
    pub(crate) transport: CString,
    pub(crate) launcher: CString,
    pub(crate) hosts: Vec<CString>,
    /// The process that joined: a forked child is another one.
    process: u32,
}

enum State {
    Outside,
    Inside(Arc<Session>, Box<World>),
    /// A rank of a job joins once: others may still be in their last call, and a new world in the same memory would
    /// meddle.
    Left,
}

static STATE: Mutex<State> = Mutex::new(State::Outside);

/// This process's rank in its last world, for errors that know no group.
static RANK: AtomicUsize = AtomicUsize::new(usize::MAX);

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The rank that errors name, once it is known.
pub(crate) fn rank() -> Option<usize> {
    Some(RANK.load(Ordering::Relaxed)).filter(|&rank| rank != usize::MAX)
}

/// The default world.
pub(crate) fn current(operation: &str) -> Result<Arc<Session>> {
    match &*state() {
        State::Inside(session, _) => Ok(session.clone()),
        State::Outside | State::Left => Err(no_world(operation)),
    }
}

fn no_world(operation: &str) -> Error {
    Error::usage(
        operation,
        "a call after init and before shutdown",
        "a call without a world",
        "call unisono_init first",
    )
}

/// Joins the world; in one that was joined already it does nothing.
pub(crate) fn join(timeout: Option<Duration>) -> Result<()> {
    let mut state = state();
    match &*state {
        State::Inside(session, _) if session.is_ours() => return Ok(()),
        State::Inside(session, _) if session.group.size() > 1 => {
            return Err(Error::usage(
                "init",
                "a process of its own for each rank",
                format!("a child that was forked from rank {}", session.group.rank()),
                "start ranks with a launcher: unisono run -n 4 -- program",
            ));
        }
        State::Left => {
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
    let session = Session::new(&world);
    if let State::Inside(_, world) =
        std::mem::replace(&mut *state, State::Inside(Arc::new(session), Box::new(world)))
    {
        // The parent's, seen from a forked child: not this process's to end.
        std::mem::forget(world);
    }
    Ok(())
}

/// Leaves the world; without one it does nothing.
pub(crate) fn leave() {
    let mut state = state();
    let after = match &*state {
        State::Inside(session, _) if session.group.size() > 1 => State::Left,
        State::Inside(..) | State::Outside => State::Outside,
        State::Left => State::Left,
    };
    if let State::Inside(session, world) = std::mem::replace(&mut *state, after) {
        if session.is_ours() {
            handles::clear();
            world.shutdown();
        } else {
            std::mem::forget(world);
        }
    }
}

impl Session {
    fn new(world: &World) -> Session {
        // The names are the system's and ours: none has a zero inside.
        let text = |name: &str| CString::new(name).unwrap_or_default();
        Session {
            group: world.group().clone(),
            local_rank: world.local_rank(),
            local_size: world.local_size(),
            transport: text(world.transport()),
            launcher: text(world.launcher()),
            hosts: world.hosts().iter().map(|name| text(name)).collect(),
            process: std::process::id(),
        }
    }

    fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }
}

/// Memory in the arena of the default world.
pub(crate) fn empty(operation: &str, bytes: usize) -> Result<ArenaBuffer> {
    match &*state() {
        State::Inside(_, world) => world.empty(bytes),
        State::Outside | State::Left => Err(no_world(operation)),
    }
}
