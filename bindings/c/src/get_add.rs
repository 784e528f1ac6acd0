//! For C: getting from tables and adding to them, step by step until a worker is done.

use std::ffi::c_void;
use std::sync::Arc;

use unisono::Result;
use unisono::tables::{Rows, Table};

use crate::border::Border;
use crate::errors::guard;
use crate::options::OptionsHandle;
use crate::pending::{Lent, PendingHandle};
use crate::table::{Named, TableHandle};

impl Border {
    /// The rows that a call names.
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
    work: impl FnOnce(&Border, &Table) -> Result<()>,
) -> i32 {
    guard(operation, |border| {
        let table: Arc<Named> = border.held(table)?;
        work(border, table.rows(border)?)
    })
}

/// Copies rows into `values`, which has room for `count` elements: as many as the rows have.
///
/// rows: row ids of a matrix, which count from 0, in any order; NULL for the whole table, and always for an array.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_get(
    table: TableHandle,
    rows: *const i64,
    row_count: usize,
    values: *mut c_void,
    count: usize,
) -> i32 {
    on_table("get", table, |border, table| {
        let rows = border.rows(rows, row_count)?;
        table.get(rows, border.output(values, count, table.dtype())?)
    })
}

/// Adds `delta` to rows, by the table's updater; returns when it is applied. Rows that stand there twice are added to twice.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_add(
    table: TableHandle,
    rows: *const i64,
    row_count: usize,
    delta: *const c_void,
    count: usize,
    options: OptionsHandle,
) -> i32 {
    on_table("add", table, |border, table| {
        let (rows, options) = (border.rows(rows, row_count)?, border.add_options(options)?);
        table.add(rows, border.input(delta, count, table.dtype())?, &options)
    })
}

/// As unisono_table_add, but what must wait does so in the background. `delta` may be used again at once; unisono_flush,
/// unisono_barrier or the next call on this table tells what went wrong.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_add_soon(
    table: TableHandle,
    rows: *const i64,
    row_count: usize,
    delta: *const c_void,
    count: usize,
    options: OptionsHandle,
) -> i32 {
    on_table("add", table, |border, table| {
        let (rows, options) = (border.rows(rows, row_count)?, border.add_options(options)?);
        table.add_soon(rows, border.input(delta, count, table.dtype())?, &options)
    })
}

/// Copies rows into buffers of their own: values[i] has room for one row.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_get_separate(
    table: TableHandle,
    rows: *const i64,
    row_count: usize,
    values: *const *mut c_void,
) -> i32 {
    on_table("get", table, |border, table| {
        let rows = border.list(rows, row_count, "row ids")?;
        let places = border.list(values, row_count, "a buffer for each row")?;
        let (dtype, cols) = (table.dtype(), table.cols());
        places.iter().try_for_each(|&place| border.output(place, cols, dtype).map(drop))?;
        let width = cols * dtype.size();
        let mut together = vec![0; rows.len() * width];
        table.get(Rows::List(rows), &mut together)?;
        // One after the other: two places may be the same.
        for (&place, row) in places.iter().zip(together.chunks_exact(width)) {
            border.output(place, cols, dtype)?.copy_from_slice(row);
        }
        Ok(())
    })
}

/// Adds buffers of their own to rows: delta[i] holds one row.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_add_separate(
    table: TableHandle,
    rows: *const i64,
    row_count: usize,
    delta: *const *const c_void,
    options: OptionsHandle,
) -> i32 {
    on_table("add", table, |border, table| {
        let rows = border.list(rows, row_count, "row ids")?;
        let parts = border.list(delta, row_count, "a buffer for each row")?;
        let parts = parts.iter().map(|&part| border.input(part, table.cols(), table.dtype()));
        let together = parts.collect::<Result<Vec<_>>>()?.concat();
        table.add(Rows::List(rows), &together, &border.add_options(options)?)
    })
}

/// For a sparse matrix: copies those of the rows that changed since this worker's last call with the same `buffer` (0, or 1
/// if the table is pipelined) to their places in `values`; the rest of `values` stays as it is.
///
/// changed: room for the ids of these rows, as many as were asked for, or NULL; changed_count: how many they are.
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
    on_table("get_changed", table, |border, table| {
        let number = border.place(changed_count, "a place for the number of rows that changed")?;
        let rows = border.rows(rows, row_count)?;
        let most = if let Rows::List(list) = rows { list.len() } else { table.rows() };
        let ids = match changed.is_null() {
            true => &mut [],
            false => border.output(changed.cast(), most, unisono::DType::I64)?,
        };
        let buffer = usize::try_from(buffer)
            .map_err(|_| border.refuse("buffer 0 or 1", buffer.to_string(), "most tables have only 0"))?;
        let found = table.get_changed(buffer, rows, border.output(values, count, table.dtype())?)?;
        let bytes = found.iter().flat_map(|id| id.to_ne_bytes());
        ids.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
        number.put(found.len());
        Ok(())
    })
}

/// A get in the background: `values` belongs to it until unisono_pending_wait has said that it is over.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_start_get(
    table: TableHandle,
    rows: *const i64,
    row_count: usize,
    values: *mut c_void,
    count: usize,
    pending: *mut PendingHandle,
) -> i32 {
    on_table("get", table, |border, table| {
        let place = border.place(pending, "a place for the handle")?;
        let rows = owned(border.rows(rows, row_count)?);
        let values = Lent::output(border.output(values, count, table.dtype())?);
        place.put(border.keep_pending(table.start_get(rows, values)));
        Ok(())
    })
}

/// An add in the background: `delta` belongs to it until unisono_pending_wait has said that it is over.
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
    on_table("add", table, |border, table| {
        let place = border.place(pending, "a place for the handle")?;
        let (rows, options) = (owned(border.rows(rows, row_count)?), border.add_options(options)?);
        let delta = Lent::input(border.input(delta, count, table.dtype())?);
        place.put(border.keep_pending(table.start_add(rows, delta, options)));
        Ok(())
    })
}

fn owned(rows: Rows) -> Option<Vec<i64>> {
    match rows {
        Rows::All => None,
        Rows::List(list) => Some(list.to_vec()),
    }
}

/// Says that this worker begins its next step: the bound of ssp counts these. With average, all workers call it and their
/// copies become the average of them all.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_tick(table: TableHandle) -> i32 {
    guard("tick", |border| border.held::<Arc<Named>>(table)?.tick())
}

/// Waits until all adds that this rank began on this table are applied, and tells of the first that failed. unisono_flush does
/// it for all tables.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_flush(table: TableHandle) -> i32 {
    guard("flush", |border| border.held::<Arc<Named>>(table)?.flush())
}

/// Says that this worker makes no more calls on this table: with bsp and ssp the others go on without it. What it added is
/// applied first. unisono_finish does it for all tables.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_finish(table: TableHandle) -> i32 {
    guard("finish", |border| border.held::<Arc<Named>>(table)?.finish())
}
