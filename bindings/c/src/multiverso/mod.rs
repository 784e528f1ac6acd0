//! The C interface of Multiverso: the same functions and signatures, on the same world and tables.
//!
//! These functions return no status. An error is printed with the rank, and the program is aborted.

mod flags;

use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flags::Flags;
use unisono::tables::{AddOptions, Rows, Table, Tables};
use unisono::{DType, Error, Result};

use crate::errors::attempt;
use crate::ffi_args::FfiArgs;
use crate::table::NamedTable;
use crate::{handles, session};

/// A table of floats.
pub type TableHandler = *mut c_void;

/// The flags of the last MV_Init.
static FLAGS: Mutex<Flags> = Mutex::new(Flags::new());

fn flags() -> MutexGuard<'static, Flags> {
    FLAGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs one call. The functions cannot return an error: it ends the program.
fn run<R>(function: &'static str, work: impl FnOnce(&FfiArgs) -> Result<R>) -> R {
    attempt(function, work).unwrap_or_else(|error| {
        let rank = session::rank()
            .map_or_else(|| "a rank that has not joined".into(), |rank| format!("rank {rank}"));
        eprintln!("[{rank}] {function}: {error}");
        std::process::abort()
    })
}

/// Whether the world has no tables (model averaging only).
fn is_averaging() -> bool {
    flags().ma
}

fn tables(function: &str) -> Result<Tables> {
    if is_averaging() {
        let advice = "leave out -ma=true to have tables";
        return Err(Error::usage(function, "a world with tables", "one for model averages alone", advice));
    }
    session::current(function)?.joined(function)
}

impl FfiArgs {
    /// The table of a handler; these functions support float only.
    fn floats(&self, handler: TableHandler) -> Result<Table> {
        let named: Arc<NamedTable> = self.object(handler as usize as u64)?;
        let table = named.rows(self)?;
        match table.dtype() {
            DType::F32 => Ok(table.clone()),
            other => Err(self.usage_error(
                "a table of float32",
                other.to_string(),
                "use the functions unisono_table_*",
            )),
        }
    }

    fn count(&self, number: c_int) -> Result<usize> {
        usize::try_from(number)
            .map_err(|_| self.usage_error("a size from 0", number.to_string(), "pass its real size"))
    }

    fn row_ids(&self, row_ids: *const c_int, count: c_int) -> Result<Vec<i64>> {
        let row_ids = self.list(row_ids, self.count(count)?, "row ids")?;
        Ok(row_ids.iter().map(|&row| i64::from(row)).collect())
    }
}

/// Joins the world. Flags of the form -key=value in argv are applied and removed: sync (bsp instead of async),
/// updater_type, ps_role (worker, server, none, default), backup_worker_ratio (percent), ma (no tables). Others are kept.
#[unsafe(no_mangle)]
pub extern "C" fn MV_Init(argc: *mut c_int, argv: *mut *mut c_char) {
    run("MV_Init", |args| {
        let mut read = Flags::new();
        if !argc.is_null() && !argv.is_null() {
            args.take_arguments(argc, argv, |argument| read.take(argument))?;
        }
        read.check()?;
        let (role, without_tables) = (read.role()?, read.ma);
        *flags() = read;
        session::join(None)?;
        match without_tables || session::current("MV_Init")?.joined("MV_Init").is_ok() {
            true => Ok(()),
            false => session::join_tables(Ok(role)),
        }
    });
}

/// Waits for all processes and leaves the world.
#[unsafe(no_mangle)]
pub extern "C" fn MV_ShutDown() {
    run("MV_ShutDown", |_| {
        let Ok(session) = session::current("MV_ShutDown") else { return Ok(()) };
        if let Ok(tables) = session.joined("MV_ShutDown") {
            // Workers that still use synchronous tables must not wait for this rank.
            tables.finish()?;
        }
        session.group.barrier()?;
        drop(session);
        session::leave()
    });
}

/// Waits for all processes; afterwards, all of their earlier adds are applied.
#[unsafe(no_mangle)]
pub extern "C" fn MV_Barrier() {
    run("MV_Barrier", |_| {
        let session = session::current("MV_Barrier")?;
        session.flush()?;
        session.group.barrier()
    });
}

/// The number of workers.
#[unsafe(no_mangle)]
pub extern "C" fn MV_NumWorkers() -> c_int {
    run("MV_NumWorkers", |_| match is_averaging() {
        true => Ok(session::current("MV_NumWorkers")?.group.size() as c_int),
        false => Ok(tables("MV_NumWorkers")?.workers() as c_int),
    })
}

/// This process's worker id, from 0; -1 if it is not a worker.
#[unsafe(no_mangle)]
pub extern "C" fn MV_WorkerId() -> c_int {
    run("MV_WorkerId", |_| match is_averaging() {
        true => Ok(session::current("MV_WorkerId")?.group.rank() as c_int),
        false => Ok(tables("MV_WorkerId")?.worker_id().map_or(-1, |id| id as c_int)),
    })
}

/// This process's server id, from 0; -1 if it is not a server.
#[unsafe(no_mangle)]
pub extern "C" fn MV_ServerId() -> c_int {
    run("MV_ServerId", |_| match is_averaging() {
        true => Ok(-1),
        false => Ok(tables("MV_ServerId")?.server_id().map_or(-1, |id| id as c_int)),
    })
}

fn make(
    function: &'static str,
    out: *mut TableHandler,
    how: impl FnOnce(&FfiArgs, &Tables) -> Result<Table>,
) {
    run(function, |args| {
        let out = args.out_param(out, "a place for the handler")?;
        let table = how(args, &tables(function)?)?;
        out.write(handles::register(NamedTable::new(table)) as usize as TableHandler);
        Ok(())
    });
}

fn get(
    function: &'static str,
    handler: TableHandler,
    data: *mut f32,
    size: c_int,
    rows: Option<(*mut c_int, c_int)>,
) {
    run(function, |args| {
        let table = args.floats(handler)?;
        let ids = rows.map(|(row_ids, count)| args.row_ids(row_ids, count)).transpose()?;
        let values = args.output(data.cast(), args.count(size)?, DType::F32)?;
        table.get(ids.as_deref().map_or(Rows::All, Rows::List), values)
    });
}

fn add(
    function: &'static str,
    how: fn(&Table, Rows, &[u8], &AddOptions) -> Result<()>,
    handler: TableHandler,
    (data, size): (*mut f32, c_int),
    rows: Option<(*mut c_int, c_int)>,
) {
    run(function, |args| {
        let table = args.floats(handler)?;
        let ids = rows.map(|(row_ids, count)| args.row_ids(row_ids, count)).transpose()?;
        let delta = args.input(data.cast(), args.count(size)?, DType::F32)?;
        how(&table, ids.as_deref().map_or(Rows::All, Rows::List), delta, &AddOptions::default())
    });
}

/// Creates an array of zeros. Every process calls it.
#[unsafe(no_mangle)]
pub extern "C" fn MV_NewArrayTable(size: c_int, out: *mut TableHandler) {
    make("MV_NewArrayTable", out, |args, tables| {
        let options = flags().options(tables.workers())?;
        Table::array(tables, args.count(size)?, DType::F32, None, options)
    });
}

/// Copies the full array into data.
#[unsafe(no_mangle)]
pub extern "C" fn MV_GetArrayTable(handler: TableHandler, data: *mut f32, size: c_int) {
    get("MV_GetArrayTable", handler, data, size, None);
}

/// Adds data to the full array; returns when the add is applied.
#[unsafe(no_mangle)]
pub extern "C" fn MV_AddArrayTable(handler: TableHandler, data: *mut f32, size: c_int) {
    add("MV_AddArrayTable", Table::add, handler, (data, size), None);
}

/// Adds data to the full array in the background; data may be reused at once.
#[unsafe(no_mangle)]
pub extern "C" fn MV_AddAsyncArrayTable(handler: TableHandler, data: *mut f32, size: c_int) {
    add("MV_AddAsyncArrayTable", Table::add_soon, handler, (data, size), None);
}

/// Creates a matrix of zeros. Every process calls it.
#[unsafe(no_mangle)]
pub extern "C" fn MV_NewMatrixTable(num_row: c_int, num_col: c_int, out: *mut TableHandler) {
    make("MV_NewMatrixTable", out, |args, tables| {
        let options = flags().options(tables.workers())?;
        Table::matrix(tables, (args.count(num_row)?, args.count(num_col)?), DType::F32, None, options)
    });
}

/// Copies the full matrix into data.
#[unsafe(no_mangle)]
pub extern "C" fn MV_GetMatrixTableAll(handler: TableHandler, data: *mut f32, size: c_int) {
    get("MV_GetMatrixTableAll", handler, data, size, None);
}

/// Adds data to the full matrix; returns when the add is applied.
#[unsafe(no_mangle)]
pub extern "C" fn MV_AddMatrixTableAll(handler: TableHandler, data: *mut f32, size: c_int) {
    add("MV_AddMatrixTableAll", Table::add, handler, (data, size), None);
}

/// Adds data to the full matrix in the background; data may be reused at once.
#[unsafe(no_mangle)]
pub extern "C" fn MV_AddAsyncMatrixTableAll(handler: TableHandler, data: *mut f32, size: c_int) {
    add("MV_AddAsyncMatrixTableAll", Table::add_soon, handler, (data, size), None);
}

/// Copies these rows into data, in order.
#[unsafe(no_mangle)]
pub extern "C" fn MV_GetMatrixTableByRows(
    handler: TableHandler,
    data: *mut f32,
    size: c_int,
    row_ids: *mut c_int,
    row_ids_n: c_int,
) {
    get("MV_GetMatrixTableByRows", handler, data, size, Some((row_ids, row_ids_n)));
}

/// Adds data to these rows; returns when the add is applied.
#[unsafe(no_mangle)]
pub extern "C" fn MV_AddMatrixTableByRows(
    handler: TableHandler,
    data: *mut f32,
    size: c_int,
    row_ids: *mut c_int,
    row_ids_n: c_int,
) {
    add("MV_AddMatrixTableByRows", Table::add, handler, (data, size), Some((row_ids, row_ids_n)));
}

/// Adds data to these rows in the background; data and row_ids may be reused at once.
#[unsafe(no_mangle)]
pub extern "C" fn MV_AddAsyncMatrixTableByRows(
    handler: TableHandler,
    data: *mut f32,
    size: c_int,
    row_ids: *mut c_int,
    row_ids_n: c_int,
) {
    add("MV_AddAsyncMatrixTableByRows", Table::add_soon, handler, (data, size), Some((row_ids, row_ids_n)));
}
