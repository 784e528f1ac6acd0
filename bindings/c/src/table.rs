//! For C: creation of arrays and matrices, and their properties.

use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;
use std::time::Duration;

use unisono::tables::{KeyValueTable, Table, TableKind, TablesCall};
use unisono::{DType, Result};

use crate::errors::guard;
use crate::ffi_args::{FfiArgs, Pod};
use crate::options::OptionsHandle;
use crate::tables::parse;
use crate::{handles, session};

/// An array, a matrix, a sparse matrix or a key-value table that the workers share.
pub type TableHandle = u64;

/// The table of a handle.
pub(crate) enum AnyTable {
    Rows(Table),
    Keys(KeyValueTable),
}

/// A table with its names as C strings.
pub(crate) struct NamedTable {
    any: AnyTable,
    name: CString,
    kind: CString,
    updater: CString,
    consistency: CString,
}

impl NamedTable {
    pub(crate) fn new(table: Table) -> Arc<NamedTable> {
        let texts = (table.name(), table.kind().name(), table.updater(), table.consistency().to_string());
        NamedTable::with(texts, AnyTable::Rows(table.clone()))
    }

    pub(crate) fn with_keys(table: KeyValueTable) -> Arc<NamedTable> {
        let kind = TableKind::KeyValue.name();
        let texts = (table.name(), kind, table.updater(), table.consistency().to_string());
        NamedTable::with(texts, AnyTable::Keys(table.clone()))
    }

    fn with(
        (name, kind, updater, consistency): (&str, &str, &str, String),
        any: AnyTable,
    ) -> Arc<NamedTable> {
        // The name comes from C or from this library: it contains no zero byte.
        let text = |text: &str| CString::new(text).unwrap_or_default();
        let (name, kind, updater, consistency) = (text(name), text(kind), text(updater), text(&consistency));
        Arc::new(NamedTable { any, name, kind, updater, consistency })
    }

    /// The table, if it is addressed by rows.
    pub(crate) fn rows(&self, args: &FfiArgs) -> Result<&Table> {
        match &self.any {
            AnyTable::Rows(table) => Ok(table),
            AnyTable::Keys(_) => Err(args.usage_error(
                "an array or a matrix",
                "a key-value table",
                "use the functions unisono_key_value_*",
            )),
        }
    }

    /// The table, if it is addressed by keys.
    pub(crate) fn keys(&self, args: &FfiArgs) -> Result<&KeyValueTable> {
        match &self.any {
            AnyTable::Keys(table) => Ok(table),
            AnyTable::Rows(_) => Err(args.usage_error(
                "a key-value table",
                format!("a table of kind {}", self.kind.to_string_lossy()),
                "use the functions unisono_table_*",
            )),
        }
    }

    /// Calls the function for the table's kind.
    pub(crate) fn call<R>(
        &self,
        on_rows: impl FnOnce(&Table) -> R,
        on_keys: impl FnOnce(&KeyValueTable) -> R,
    ) -> R {
        match &self.any {
            AnyTable::Rows(table) => on_rows(table),
            AnyTable::Keys(table) => on_keys(table),
        }
    }

    fn with_timeout(&self, limit: Duration) -> Arc<NamedTable> {
        self.call(
            |table| NamedTable::new(table.with_timeout(limit)),
            |table| NamedTable::with_keys(table.with_timeout(limit)),
        )
    }
}

/// Creates a table of `shape` (rows, columns).
fn make(
    out: *mut TableHandle,
    (kind, shape): (TableKind, (usize, usize)),
    (dtype, initial): (i32, *const c_void),
    options: OptionsHandle,
) -> i32 {
    guard("table", |args| {
        let tables = session::tables("table")?;
        let (out, dtype, initial, settings, options) =
            parse(&tables, TablesCall::Create { kind, name: None }, || {
                let out = args.out_param(out, "a place for the handle")?;
                let dtype = args.dtype(dtype)?;
                let count = shape.0.checked_mul(shape.1).ok_or_else(|| {
                    args.usage_error(
                        "a size that fits into memory",
                        format!("{} x {}", shape.0, shape.1),
                        "is one negative?",
                    )
                })?;
                let initial = match initial.is_null() {
                    true => None,
                    false => Some(args.input(initial, count, dtype)?),
                };
                let settings = args.settings(options)?;
                let options = settings.for_table(args)?;
                Ok((out, dtype, initial, settings, options))
            })?;
        let table = match kind {
            TableKind::Array => Table::array(&tables, shape.0, dtype, initial, options),
            TableKind::SparseMatrix => {
                Table::sparse_matrix(&tables, shape, dtype, initial, settings.pipelined, options)
            }
            _ => Table::matrix(&tables, shape, dtype, initial, options),
        };
        out.write(handles::register(NamedTable::new(table?)));
        Ok(())
    })
}

/// Creates an array of `size` elements. Every rank calls it, in the same order relative to other tables.
///
/// initial: as many values, of which those of worker 0 are used; or NULL for the initial values of the options.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_array_new(
    size: usize,
    dtype: i32,
    initial: *const c_void,
    options: OptionsHandle,
    table: *mut TableHandle,
) -> i32 {
    make(table, (TableKind::Array, (size, 1)), (dtype, initial), options)
}

/// Creates a matrix, distributed by rows. Every rank calls it. See unisono_array_new.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_matrix_new(
    rows: usize,
    cols: usize,
    dtype: i32,
    initial: *const c_void,
    options: OptionsHandle,
    table: *mut TableHandle,
) -> i32 {
    make(table, (TableKind::Matrix, (rows, cols)), (dtype, initial), options)
}

/// Creates a matrix that records what each worker has seen, for unisono_table_get_changed. Every rank calls it. See
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
    make(table, (TableKind::SparseMatrix, (rows, cols)), (dtype, initial), options)
}

/// Creates a handle of the same table whose calls time out after `seconds`.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_with_timeout(
    table: TableHandle,
    seconds: f64,
    changed: *mut TableHandle,
) -> i32 {
    guard("table_with_timeout", |args| {
        let out = args.out_param(changed, "a place for the handle")?;
        let table: Arc<NamedTable> = args.object(table)?;
        out.write(handles::register(table.with_timeout(args.seconds(seconds)?)));
        Ok(())
    })
}

/// Frees the handle of a table. The table's memory is freed when all ranks have done so.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_free(table: TableHandle) -> i32 {
    guard("table_free", |args| args.free::<Arc<NamedTable>>(table))
}

fn query<T: Pod>(
    operation: &'static str,
    table: TableHandle,
    out: *mut T,
    read: impl FnOnce(&NamedTable) -> Result<T>,
) -> i32 {
    guard(operation, |args: &FfiArgs| {
        let out = args.out_param(out, "a place for the result")?;
        let table: Arc<NamedTable> = args.object(table)?;
        out.write(read(&table)?);
        Ok(())
    })
}

/// The number of rows; for an array, the number of elements; for a key-value table, the current number of keys.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_rows(table: TableHandle, rows: *mut usize) -> i32 {
    query("table_rows", table, rows, |table| table.call(|table| Ok(table.rows()), KeyValueTable::len))
}

/// The number of columns; 1 for an array; for a key-value table, the number of values per key.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_cols(table: TableHandle, cols: *mut usize) -> i32 {
    query("table_cols", table, cols, |table| Ok(table.call(Table::cols, KeyValueTable::dim)))
}

/// The element type.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_dtype(table: TableHandle, dtype: *mut i32) -> i32 {
    query("table_dtype", table, dtype, |table| Ok(table.call(Table::dtype, KeyValueTable::dtype) as i32))
}

/// The name. Valid until the handle is freed.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_name(table: TableHandle, name: *mut *const c_char) -> i32 {
    query("table_name", table, name, |table| Ok(table.name.as_ptr()))
}

/// The kind: "array", "matrix", "sparse-matrix" or "key-value". Valid until the handle is freed.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_kind(table: TableHandle, kind: *mut *const c_char) -> i32 {
    query("table_kind", table, kind, |table| Ok(table.kind.as_ptr()))
}

/// The updater, which defines the effect of an add. Valid until the handle is freed.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_updater(table: TableHandle, updater: *mut *const c_char) -> i32 {
    query("table_updater", table, updater, |table| Ok(table.updater.as_ptr()))
}

/// The consistency, which bounds how far workers may drift apart. Valid until the handle is freed.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_consistency(table: TableHandle, consistency: *mut *const c_char) -> i32 {
    query("table_consistency", table, consistency, |table| Ok(table.consistency.as_ptr()))
}

/// The number of steps of this worker: its own ticks, those of its previous incarnation if it was restarted, and those that
/// the others made without it. A loop that continues at this step can be restarted.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_clock(table: TableHandle, steps: *mut u64) -> i32 {
    query("table_clock", table, steps, |table| table.call(Table::clock, KeyValueTable::clock))
}

/// Staleness of the values that this rank's gets returned: histogram[i] counts the gets at which the slowest other worker
/// was i steps behind. Steps are ticks with ssp, adds otherwise.
///
/// capacity: the length of histogram, which may be NULL if 0; count: the number of entries available.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_table_staleness(
    table: TableHandle,
    histogram: *mut u64,
    capacity: usize,
    count: *mut usize,
) -> i32 {
    guard("table_staleness", |args| {
        let out = args.out_param(count, "a place for the count")?;
        let table: Arc<NamedTable> = args.object(table)?;
        let counts = table.call(Table::staleness, KeyValueTable::staleness);
        let room = args.output(histogram.cast(), capacity, DType::I64)?;
        let bytes = counts.iter().flat_map(|count| count.to_ne_bytes());
        room.iter_mut().zip(bytes).for_each(|(room, byte)| *room = byte);
        out.write(counts.len());
        Ok(())
    })
}
