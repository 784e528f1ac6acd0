//! For C: gets and adds on tables, and the steps of a worker.

use std::ffi::c_void;
use std::sync::Arc;

use unisono::Result;
use unisono::tables::{KeyValueTable, Rows, Table};

use crate::errors::guard;
use crate::ffi_args::FfiArgs;
use crate::options::OptionsHandle;
use crate::pending::{CallerBuffer, PendingHandle};
use crate::table::{NamedTable, TableHandle};

impl FfiArgs {
    /// The rows of a call.
    fn rows(&self, rows: *const i64, count: usize) -> Result<Rows<'_>> {
        match rows.is_null() && count == 0 {
            true => Ok(Rows::All),
            false => Ok(Rows::List(self.list(rows, count, "row ids")?)),
        }
    }
}

fn on_table(
    operation: &'static str,
    table: TableHandle,
    work: impl FnOnce(&FfiArgs, &Table) -> Result<()>,
) -> i32 {
    guard(operation, |args| {
        let table: Arc<NamedTable> = args.object(table)?;
        work(args, table.rows(args)?)
    })
}

/// Copies rows into `values`, which has space for `count` elements: exactly the elements of the rows.
///
/// rows: row ids of a matrix, from 0, in any order; NULL for the full table, and always NULL for an array.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_get(
    table: TableHandle,
    rows: *const i64,
    row_count: usize,
    values: *mut c_void,
    count: usize,
) -> i32 {
    on_table("get", table, |args, table| {
        let rows = args.rows(rows, row_count)?;
        table.get(rows, args.output(values, count, table.dtype())?)
    })
}

/// Adds `delta` to rows, through the table's updater; returns when the add is applied. A row that is listed twice is added
/// to twice.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_add(
    table: TableHandle,
    rows: *const i64,
    row_count: usize,
    delta: *const c_void,
    count: usize,
    options: OptionsHandle,
) -> i32 {
    on_table("add", table, |args, table| {
        let (rows, options) = (args.rows(rows, row_count)?, args.add_options(options)?);
        table.add(rows, args.input(delta, count, table.dtype())?, &options)
    })
}

/// As unisono_table_add, but waits in the background if it must wait. `delta` may be reused at once; unisono_flush,
/// unisono_barrier or the next call on this table reports an error.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_add_soon(
    table: TableHandle,
    rows: *const i64,
    row_count: usize,
    delta: *const c_void,
    count: usize,
    options: OptionsHandle,
) -> i32 {
    on_table("add", table, |args, table| {
        let (rows, options) = (args.rows(rows, row_count)?, args.add_options(options)?);
        table.add_soon(rows, args.input(delta, count, table.dtype())?, &options)
    })
}

/// Copies rows into separate buffers: values[i] has space for one row.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_get_separate(
    table: TableHandle,
    rows: *const i64,
    row_count: usize,
    values: *const *mut c_void,
) -> i32 {
    on_table("get", table, |args, table| {
        let rows = args.list(rows, row_count, "row ids")?;
        let places = args.list(values, row_count, "a buffer for each row")?;
        let (dtype, cols) = (table.dtype(), table.cols());
        places.iter().try_for_each(|&out| args.output(out, cols, dtype).map(drop))?;
        let width = cols * dtype.size();
        let mut together = vec![0; rows.len() * width];
        table.get(Rows::List(rows), &mut together)?;
        // Sequentially: two buffers may be the same.
        for (&out, row) in places.iter().zip(together.chunks_exact(width)) {
            args.output(out, cols, dtype)?.copy_from_slice(row);
        }
        Ok(())
    })
}

/// Adds separate buffers to rows: delta[i] holds one row.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_add_separate(
    table: TableHandle,
    rows: *const i64,
    row_count: usize,
    delta: *const *const c_void,
    options: OptionsHandle,
) -> i32 {
    on_table("add", table, |args, table| {
        let rows = args.list(rows, row_count, "row ids")?;
        let parts = args.list(delta, row_count, "a buffer for each row")?;
        let parts = parts.iter().map(|&part| args.input(part, table.cols(), table.dtype()));
        let together = parts.collect::<Result<Vec<_>>>()?.concat();
        table.add(Rows::List(rows), &together, &args.add_options(options)?)
    })
}

/// For a sparse matrix: copies the rows that changed since this worker's last call with the same `buffer` (0, or 1 if the
/// table is pipelined) to their positions in `values`; the rest of `values` is not modified.
///
/// changed: space for the ids of these rows, as many as were requested, or NULL; changed_count: their number.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub extern "C" fn unisono_table_get_changed(
    table: TableHandle,
    buffer: i32,
    rows: *const i64,
    row_count: usize,
    values: *mut c_void,
    count: usize,
    changed: *mut i64,
    changed_count: *mut usize,
) -> i32 {
    on_table("get_changed", table, |args, table| {
        let number = args.out_param(changed_count, "a place for the number of rows that changed")?;
        let rows = args.rows(rows, row_count)?;
        let most = if let Rows::List(list) = rows { list.len() } else { table.rows() };
        let ids = match changed.is_null() {
            true => &mut [],
            false => args.output(changed.cast(), most, unisono::DType::I64)?,
        };
        let buffer = usize::try_from(buffer)
            .map_err(|_| args.usage_error("buffer 0 or 1", buffer.to_string(), "most tables have only 0"))?;
        let found = table.get_changed(buffer, rows, args.output(values, count, table.dtype())?)?;
        let bytes = found.iter().flat_map(|id| id.to_ne_bytes());
        ids.iter_mut().zip(bytes).for_each(|(out, byte)| *out = byte);
        number.write(found.len());
        Ok(())
    })
}

/// Starts a get in the background: `values` must not be accessed until unisono_pending_wait reports that the get has ended.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_start_get(
    table: TableHandle,
    rows: *const i64,
    row_count: usize,
    values: *mut c_void,
    count: usize,
    pending: *mut PendingHandle,
) -> i32 {
    on_table("get", table, |args, table| {
        let out = args.out_param(pending, "a place for the handle")?;
        let rows = owned(args.rows(rows, row_count)?);
        let values = CallerBuffer::output(args.output(values, count, table.dtype())?);
        out.write(args.register_pending(table.start_get(rows, values)));
        Ok(())
    })
}

/// Starts an add in the background: `delta` must not be accessed until unisono_pending_wait reports that the add has ended.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub extern "C" fn unisono_table_start_add(
    table: TableHandle,
    rows: *const i64,
    row_count: usize,
    delta: *const c_void,
    count: usize,
    options: OptionsHandle,
    pending: *mut PendingHandle,
) -> i32 {
    on_table("add", table, |args, table| {
        let out = args.out_param(pending, "a place for the handle")?;
        let (rows, options) = (owned(args.rows(rows, row_count)?), args.add_options(options)?);
        let delta = CallerBuffer::input(args.input(delta, count, table.dtype())?);
        out.write(args.register_pending(table.start_add(rows, delta, options)));
        Ok(())
    })
}

fn owned(rows: Rows) -> Option<Vec<i64>> {
    match rows {
        Rows::All => None,
        Rows::List(list) => Some(list.to_vec()),
    }
}

fn on_any_table(
    operation: &'static str,
    table: TableHandle,
    on_rows: impl FnOnce(&Table) -> Result<()>,
    on_keys: impl FnOnce(&KeyValueTable) -> Result<()>,
) -> i32 {
    guard(operation, |args| args.object::<Arc<NamedTable>>(table)?.call(on_rows, on_keys))
}

/// Begins this worker's next step; the staleness bound of ssp counts steps. With average, all workers call it, and their
/// copies become the average of all copies.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_tick(table: TableHandle) -> i32 {
    on_any_table("tick", table, Table::tick, KeyValueTable::tick)
}

/// Waits until all adds that this rank has started on this table are applied, and reports the first error. unisono_flush
/// does the same for all tables.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_flush(table: TableHandle) -> i32 {
    on_any_table("flush", table, Table::flush, KeyValueTable::flush)
}

/// Declares that this worker makes no more calls on this table: with bsp and ssp the others continue without it. Its adds
/// are applied first. unisono_finish does the same for all tables.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_finish(table: TableHandle) -> i32 {
    on_any_table("finish", table, Table::finish, KeyValueTable::finish)
}
