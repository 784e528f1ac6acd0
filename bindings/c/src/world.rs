//! For C: joining the world, its properties, leaving it.

use std::ffi::c_char;
use std::sync::Arc;
use std::time::Duration;

use unisono::Result;

use crate::errors::guard;
use crate::ffi_args::{FfiArgs, Pod};
use crate::session::{self, WorldSession};

impl FfiArgs {
    /// A timeout in seconds.
    pub(crate) fn seconds(&self, seconds: f64) -> Result<Duration> {
        /// About 30 years: longer than any wait, and short enough that no clock overflows.
        const FOREVER: f64 = 1e9;
        match seconds > 0.0 {
            true => Ok(Duration::from_secs_f64(seconds.min(FOREVER))),
            false => Err(self.usage_error(
                "a timeout above 0 seconds",
                seconds.to_string(),
                "write for example 60.0",
            )),
        }
    }
}

fn query<T: Pod>(operation: &'static str, out: *mut T, read: impl FnOnce(&Arc<WorldSession>) -> T) -> i32 {
    guard(operation, |args| {
        let out = args.out_param(out, "a place for the result")?;
        out.write(read(&session::current(operation)?));
        Ok(())
    })
}

/// Joins the world of this process's launcher; a world of one rank without a launcher. Waits until all ranks have joined.
/// A second call only sets the timeout, unless that is 0.
///
/// timeout: seconds after which a waiting call fails; 0 for the default: UNISONO_TIMEOUT, or 300.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_init(timeout: f64) -> i32 {
    guard("init", |args| {
        let timeout = if timeout == 0.0 { None } else { Some(args.seconds(timeout)?) };
        session::join(timeout)
    })
}

/// Leaves the world, which frees all its handles; does nothing without a world. This rank's adds to tables are applied
/// first, and the status reports whether that failed. Call it once, when all work is done: a rank of a job cannot join
/// again.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_shutdown() -> i32 {
    guard("shutdown", |_| session::leave())
}

/// This process's rank.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_rank(rank: *mut i32) -> i32 {
    query("rank", rank, |session| session.group.rank() as i32)
}

/// The number of ranks.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_size(size: *mut i32) -> i32 {
    query("size", size, |session| session.group.size() as i32)
}

/// This process's rank among those of its host.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_local_rank(rank: *mut i32) -> i32 {
    query("local_rank", rank, |session| session.local_rank as i32)
}

/// The number of ranks on this host.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_local_size(size: *mut i32) -> i32 {
    query("local_size", size, |session| session.local_size as i32)
}

/// How often `unisono run --restart` has restarted this rank: 0 in its first process.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_restarts(restarts: *mut i32) -> i32 {
    query("restarts", restarts, |session| session.restarts as i32)
}

/// Declares that this process continues where the previous incarnation of its rank stopped: its next collective on the world
/// is the one that the others make next. A restarted rank calls it once its state is restored, before its first collective,
/// which otherwise is an error on all ranks; in a rank's first process it does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_resume() -> i32 {
    guard("resume", |_| session::resume())
}

/// The transport: "alone", "shm", "mpi" or "shm+mpi". Valid until shutdown.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_transport(name: *mut *const c_char) -> i32 {
    query("transport", name, |session| session.transport.as_ptr())
}

/// The launcher of the ranks, such as "unisono run", "Open MPI" or "none". Valid until shutdown.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_launcher(name: *mut *const c_char) -> i32 {
    query("launcher", name, |session| session.launcher.as_ptr())
}

/// The host name of a rank. Valid until shutdown.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_host(rank: i32, name: *mut *const c_char) -> i32 {
    guard("host", |args| {
        let out = args.out_param(name, "a place for the result")?;
        let session = session::current("host")?;
        let host = usize::try_from(rank).ok().and_then(|rank| session.hosts.get(rank));
        let size = session.group.size();
        let host = host.ok_or_else(|| {
            args.usage_error(&format!("a rank below {size}"), rank.to_string(), "ranks count from 0")
        })?;
        out.write(host.as_ptr());
        Ok(())
    })
}

/// The version of this library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn unisono_version(version: *mut *const c_char) -> i32 {
    guard("version", |args| {
        const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
        args.out_param(version, "a place for the result")?.write(VERSION.as_ptr().cast());
        Ok(())
    })
}
