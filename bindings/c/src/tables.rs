//! For C: roles of workers and servers, and operations on all tables.

use std::ffi::c_char;

use unisono::Result;
use unisono::tables::{Role, Tables, TablesCall};

use crate::errors::guard;
use crate::session;

/// Sets this rank's role for tables: "worker", "server", "both" or "none"; NULL is "both". Every rank calls it once, before
/// it creates tables. Optional: otherwise the first table makes every rank both.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_tables_join(role: *const c_char) -> i32 {
    guard("tables_join", |args| {
        let role = args.optional_text(role, "a role").map(|role| role.unwrap_or("both"));
        session::join_tables(role.and_then(Role::from_name))
    })
}

/// Queries the roles; -1 means none.
fn query(operation: &'static str, out: *mut i32, read: impl FnOnce(&Tables) -> Option<usize>) -> i32 {
    guard(operation, |args| {
        let out = args.out_param(out, "a place for the result")?;
        let tables = session::current(operation)?.joined(operation)?;
        out.write(read(&tables).map_or(-1, |number| number as i32));
        Ok(())
    })
}

/// The number of workers.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_workers(count: *mut i32) -> i32 {
    query("workers", count, |tables| Some(tables.workers()))
}

/// The number of servers.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_servers(count: *mut i32) -> i32 {
    query("servers", count, |tables| Some(tables.servers()))
}

/// This rank's worker id, in rank order; -1 if it is not a worker.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_worker_id(id: *mut i32) -> i32 {
    query("worker_id", id, Tables::worker_id)
}

/// This rank's server id, in rank order; -1 if it is not a server.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_server_id(id: *mut i32) -> i32 {
    query("server_id", id, Tables::server_id)
}

/// The rank of a worker; -1 if there is no such worker.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_worker_rank(id: i32, rank: *mut i32) -> i32 {
    query("worker_rank", rank, |tables| tables.worker_rank(usize::try_from(id).ok()?))
}

/// The rank of a server; -1 if there is no such server.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_server_rank(id: i32, rank: *mut i32) -> i32 {
    query("server_rank", rank, |tables| tables.server_rank(usize::try_from(id).ok()?))
}

fn on_all(operation: &'static str, work: impl FnOnce(&Tables) -> Result<()>) -> i32 {
    guard(operation, |_| work(&session::current(operation)?.joined(operation)?))
}

/// Waits until all adds that this rank has started are applied, and reports the first error. unisono_barrier does the same.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_flush() -> i32 {
    on_all("flush", Tables::flush)
}

/// Declares that this worker makes no more calls on its tables: with bsp and ssp the others continue without it. Shutdown
/// does the same; unisono_table_finish does it for one table.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_finish() -> i32 {
    on_all("finish", Tables::finish)
}

/// Parses the arguments of a collective call. If they are rejected, the other ranks, which make the call, fail with the same
/// error.
pub(crate) fn parse<A>(
    tables: &Tables,
    call: TablesCall,
    arguments: impl FnOnce() -> Result<A>,
) -> Result<A> {
    arguments().inspect_err(|error| {
        // If the other ranks cannot be told, this rank's error is still the one that explains the failure.
        let _ = tables.reject(call, error);
    })
}

fn with_target(
    (operation, call): (&'static str, TablesCall),
    target: *const c_char,
    work: fn(&Tables, &str) -> Result<()>,
) -> i32 {
    guard(operation, |args| {
        let tables = session::current(operation)?.joined(operation)?;
        let target = parse(&tables, call, || args.text(target, "a path or an address"))?;
        work(&tables, target)
    })
}

/// Saves all tables, including the state of their updaters, to a folder or, if the library was built with the feature cloud,
/// to a URL such as s3://bucket/name. Every rank calls it. An existing checkpoint is replaced when the new one is complete.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_save(target: *const c_char) -> i32 {
    with_target(("save", TablesCall::Save), target, Tables::save)
}

/// Loads all tables from a checkpoint of unisono_save, on any number of ranks. Every rank calls it, after all tables are
/// created. If the checkpoint is damaged or belongs to other tables, nothing changes.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_load(target: *const c_char) -> i32 {
    with_target(("load", TablesCall::Load), target, Tables::load)
}
