//! For C: who is worker and who is server, and what concerns all tables.

use std::ffi::c_char;

use unisono::Result;
use unisono::tables::{Role, Tables};

use crate::errors::guard;
use crate::group::CallGuard;
use crate::session;

/// Gives this rank its role for tables: "worker", "server", "both" or "none"; NULL is "both". Every rank calls it, once,
/// before it makes tables. It may be left out: then the first table makes everybody both.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_tables_join(role: *const c_char) -> i32 {
    guard("tables_join", |args| {
        let role = args.optional_text(role, "a role")?.unwrap_or("both");
        session::join_tables(Role::from_name(role)?)
    })
}

/// A fact about the roles; -1 is nobody.
fn query(operation: &'static str, out: *mut i32, read: impl FnOnce(&Tables) -> Option<usize>) -> i32 {
    guard(operation, |args| {
        let out = args.out_param(out, "a place for the result")?;
        let tables = session::current(operation)?.joined(operation)?;
        out.write(read(&tables).map_or(-1, |number| number as i32));
        Ok(())
    })
}

/// How many workers there are.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_workers(count: *mut i32) -> i32 {
    query("workers", count, |tables| Some(tables.workers()))
}

/// How many servers there are.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_servers(count: *mut i32) -> i32 {
    query("servers", count, |tables| Some(tables.servers()))
}

/// This rank's number among the workers, in the order of ranks; -1 if it is none.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_worker_id(id: *mut i32) -> i32 {
    query("worker_id", id, Tables::worker_id)
}

/// This rank's number among the servers, in the order of ranks; -1 if it is none.
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

/// Waits until all adds that this rank began are applied, and tells of the first that failed. unisono_barrier does it too.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_flush() -> i32 {
    on_all("flush", Tables::flush)
}

/// Says that this worker makes no more calls on its tables: with bsp and ssp the others go on without it. The shutdown
/// does it too; unisono_table_finish does it for one table.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_finish() -> i32 {
    on_all("finish", Tables::finish)
}

fn with_target(operation: &'static str, target: *const c_char, work: fn(&Tables, &str) -> Result<()>) -> i32 {
    guard(operation, |args| {
        let call_guard = CallGuard::new(session::current(operation)?.group.clone());
        let target = args.text(target, "a path or an address")?;
        let tables = session::current(operation)?.joined(operation)?;
        call_guard.disarm();
        work(&tables, target)
    })
}

/// Writes all tables, with what their updaters remember, to a folder, or where the library was built with the feature cloud to
/// an address such as s3://bucket/name. Every rank calls it. What was there before is replaced when the new is complete.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_save(target: *const c_char) -> i32 {
    with_target("save", target, Tables::save)
}

/// Reads all tables from what unisono_save wrote, on any number of ranks. Every rank calls it, when all tables are made.
/// If the file is damaged or of other tables, nothing changes.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_load(target: *const c_char) -> i32 {
    with_target("load", target, Tables::load)
}
