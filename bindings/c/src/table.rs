//! For C: making arrays and matrices, and what is known of them.

use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;
use std::time::Duration;

use unisono::tables::{KeyValueTable, Table, TableKind, TableOptions, Tables};
use unisono::{DType, Result};

use crate::border::{Border, Plain};
use crate::errors::guard;
use crate::group::Unmade;
use crate::options::{OptionsHandle, Settings};
use crate::{handles, session};

/// An array, a matrix, a sparse matrix or a key-value table that the workers share.
pub type TableHandle = u64;

/// What a handle of a table stands for.
pub(crate) enum AnyTable {
    Rows(Table),
    Keys(KeyValueTable),
}

/// A table with its texts as C reads them.
pub(crate) struct Named {
    any: AnyTable,
    name: CString,
    kind: CString,
    updater: CString,
    consistency: CString,
}

impl Named {
    pub(crate) fn new(table: Table) -> Arc<Named> {
        let texts = (table.name(), table.kind().name(), table.updater(), table.consistency().to_string());
        Named::with(texts, AnyTable::Rows(table.clone()))
    }

    pub(crate) fn with_keys(table: KeyValueTable) -> Arc<Named> {
        let kind = TableKind::KeyValue.name();
        let texts = (table.name(), kind, table.updater(), table.consistency().to_string());
        Named::with(texts, AnyTable::Keys(table.clone()))
    }

    fn with((name, kind, updater, consistency): (&str, &str, &str, String), any: AnyTable) -> Arc<Named> {
        // A name came from C, or is ours: none has a zero inside.
        let text = |text: &str| CString::new(text).unwrap_or_default();
        let (name, kind, updater, consistency) = (text(name), text(kind), text(updater), text(&consistency));
        Arc::new(Named { any, name, kind, updater, consistency })
    }

    /// The table, if it has rows.
    pub(crate) fn rows(&self, border: &Border) -> Result<&Table> {
        match &self.any {
            AnyTable::Rows(table) => Ok(table),
            AnyTable::Keys(_) => Err(border.refuse(
                "an array or a matrix",
                "a key-value table",
                "use the functions unisono_key_value_*",
            )),
        }
    }

    /// The table, if it has keys.
    pub(crate) fn keys(&self, border: &Border) -> Result<&KeyValueTable> {
        match &self.any {
            AnyTable::Keys(table) => Ok(table),
            AnyTable::Rows(_) => Err(border.refuse(
                "a key-value table",
                format!("a table of kind {}", self.kind.to_string_lossy()),
                "use the functions unisono_table_*",
            )),
        }
    }

    pub(crate) fn tick(&self) -> Result<()> {
        match &self.any {
            AnyTable::Rows(table) => table.tick(),
            AnyTable::Keys(table) => table.tick(),
        }
    }

    pub(crate) fn flush(&self) -> Result<()> {
        match &self.any {
            AnyTable::Rows(table) => table.flush(),
            AnyTable::Keys(table) => table.flush(),
        }
    }

    pub(crate) fn finish(&self) -> Result<()> {
        match &self.any {
            AnyTable::Rows(table) => table.finish(),
            AnyTable::Keys(table) => table.finish(),
        }
    }

    fn dtype(&self) -> DType {
        match &self.any {
            AnyTable::Rows(table) => table.dtype(),
            AnyTable::Keys(table) => table.dtype(),
        }
    }

    fn with_timeout(&self, limit: Duration) -> Arc<Named> {
        match &self.any {
            AnyTable::Rows(table) => Named::new(table.with_timeout(limit)),
            AnyTable::Keys(table) => Named::with_keys(table.with_timeout(limit)),
        }
    }
}

/// How a table is made, once its arguments are fine.
struct Order<'a> {
    tables: &'a Tables,
    dtype: DType,
    master: Option<&'a [u8]>,
    options: TableOptions,
    settings: &'a Settings,
}

/// Makes a table of `shape`, rows and columns.
fn make(
    place: *mut TableHandle,
    shape: (usize, usize),
    (dtype, master): (i32, *const c_void),
    options: OptionsHandle,
    how: impl FnOnce(Order) -> Result<Table>,
) -> i32 {
    guard("table", |border| {
        let unmade = Unmade::new(session::current("table")?.group.clone());
        let place = border.place(place, "a place for the handle")?;
        let dtype = border.dtype(dtype)?;
        let count = shape.0.checked_mul(shape.1).ok_or_else(|| {
            border.refuse(
                "a size that fits into memory",
                format!("{} x {}", shape.0, shape.1),
                "is one negative?",
            )
        })?;
        let master = match master.is_null() {
            true => None,
            false => Some(border.input(master, count, dtype)?),
        };
        let settings = border.settings(options)?;
        let options = settings.for_table(border)?;
        unmade.made();
        let tables = session::tables("table")?;
        let table = how(Order { tables: &tables, dtype, master, options, settings: &settings })?;
        place.put(handles::keep(Named::new(table)));
        Ok(())
    })
}

/// Makes an array of `size` elements. Every rank calls it, and in the same order as other tables.
///
/// initial: as many values, of which those of worker 0 win; or NULL, then the options say what it holds at first.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_array_new(
    size: usize,
    dtype: i32,
    initial: *const c_void,
    options: OptionsHandle,
    table: *mut TableHandle,
) -> i32 {
    make(table, (size, 1), (dtype, initial), options, |order| {
        Table::array(order.tables, size, order.dtype, order.master, order.options)
    })
}

/// Makes a matrix, distributed by rows. Every rank calls it. See unisono_array_new.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_matrix_new(
    rows: usize,
    cols: usize,
    dtype: i32,
    initial: *const c_void,
    options: OptionsHandle,
    table: *mut TableHandle,
) -> i32 {
    make(table, (rows, cols), (dtype, initial), options, |order| {
        Table::matrix(order.tables, (rows, cols), order.dtype, order.master, order.options)
    })
}

/// Makes a matrix that remembers what each worker has seen, for unisono_table_get_changed. Every rank calls it. See
/// unisono_array_new.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_sparse_matrix_new(
    rows: usize,
    cols: usize,
    dtype: i32,
    initial: *const c_void,
    options: OptionsHandle,
    table: *mut TableHandle,
) -> i32 {
    make(table, (rows, cols), (dtype, initial), options, |order| {
        let Order { tables, dtype, master, options, settings } = order;
        Table::sparse_matrix(tables, (rows, cols), dtype, master, settings.pipelined, options)
    })
}

/// Makes a handle of the same table whose calls wait so many seconds before they give up.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_with_timeout(
    table: TableHandle,
    seconds: f64,
    changed: *mut TableHandle,
) -> i32 {
    guard("table_with_timeout", |border| {
        let place = border.place(changed, "a place for the handle")?;
        let table: Arc<Named> = border.held(table)?;
        place.put(handles::keep(table.with_timeout(border.seconds(seconds)?)));
        Ok(())
    })
}

/// Frees the handle of a table. The table's memory is free when all ranks have done so.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_free(table: TableHandle) -> i32 {
    guard("table_free", |border| border.free::<Arc<Named>>(table))
}

fn fact<T: Plain>(
    operation: &'static str,
    table: TableHandle,
    place: *mut T,
    look: impl FnOnce(&Named) -> Result<T>,
) -> i32 {
    guard(operation, |border: &Border| {
        let place = border.place(place, "a place for the result")?;
        let table: Arc<Named> = border.held(table)?;
        place.put(look(&table)?);
        Ok(())
    })
}

/// How many rows the table has; for an array, how many elements; for a key-value table, how many keys are there by now.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_rows(table: TableHandle, rows: *mut usize) -> i32 {
    fact("table_rows", table, rows, |table| match &table.any {
        AnyTable::Rows(table) => Ok(table.rows()),
        AnyTable::Keys(table) => table.len(),
    })
}

/// How many columns the table has; an array has one; for a key-value table, how many values each key has.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_cols(table: TableHandle, cols: *mut usize) -> i32 {
    fact("table_cols", table, cols, |table| match &table.any {
        AnyTable::Rows(table) => Ok(table.cols()),
        AnyTable::Keys(table) => Ok(table.dim()),
    })
}

/// The type of its elements.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_dtype(table: TableHandle, dtype: *mut i32) -> i32 {
    fact("table_dtype", table, dtype, |table| Ok(table.dtype() as i32))
}

/// Its name. The text stays until the handle is freed.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_name(table: TableHandle, name: *mut *const c_char) -> i32 {
    fact("table_name", table, name, |table| Ok(table.name.as_ptr()))
}

/// What it is: "array", "matrix", "sparse-matrix" or "key-value". The text stays until the handle is freed.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_kind(table: TableHandle, kind: *mut *const c_char) -> i32 {
    fact("table_kind", table, kind, |table| Ok(table.kind.as_ptr()))
}

/// What an add does. The text stays until the handle is freed.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_updater(table: TableHandle, updater: *mut *const c_char) -> i32 {
    fact("table_updater", table, updater, |table| Ok(table.updater.as_ptr()))
}

/// How far workers may drift apart. The text stays until the handle is freed.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_consistency(table: TableHandle, consistency: *mut *const c_char) -> i32 {
    fact("table_consistency", table, consistency, |table| Ok(table.consistency.as_ptr()))
}

/// How many steps this worker has made: its own ticks, those of the process before it if it was started again, and those that the
/// others made without it. A loop that goes on at this step can be started again.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_clock(table: TableHandle, steps: *mut u64) -> i32 {
    fact("table_clock", table, steps, |table| match &table.any {
        AnyTable::Rows(table) => table.clock(),
        AnyTable::Keys(table) => table.clock(),
    })
}

/// How old the values were that this rank's gets returned: histogram[i] counts the gets at which the slowest other worker
/// was i steps behind. Steps are ticks with ssp, adds otherwise.
///
/// capacity: how many numbers fit into histogram, which may be NULL if 0; count: how many there are.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_staleness(
    table: TableHandle,
    histogram: *mut u64,
    capacity: usize,
    count: *mut usize,
) -> i32 {
    guard("table_staleness", |border| {
        let place = border.place(count, "a place for the count")?;
        let table: Arc<Named> = border.held(table)?;
        let counts = match &table.any {
            AnyTable::Rows(table) => table.staleness(),
            AnyTable::Keys(table) => table.staleness(),
        };
        let room = border.output(histogram.cast(), capacity, DType::I64)?;
        let bytes = counts.iter().flat_map(|count| count.to_ne_bytes());
        room.iter_mut().zip(bytes).for_each(|(room, byte)| *room = byte);
        place.put(counts.len());
        Ok(())
    })
}
