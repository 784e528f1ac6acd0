//! For C: a snapshot of all keys and values of a key-value table.

use std::ffi::c_void;
use std::sync::Arc;

use unisono::Result;
use unisono::tables::{Items, OwnedKeys};

use crate::errors::guard;
use crate::ffi_args::{FfiArgs, Pod};
use crate::handles;
use crate::table::{NamedTable, TableHandle};

/// All keys and values of a key-value table, sorted by key.
pub type ItemsHandle = u64;

/// The snapshot of a table.
pub(crate) struct Snapshot {
    items: Items,
}

/// Copies all keys and values of a key-value table. Concurrent adds by other workers may or may not be included.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_key_value_items(table: TableHandle, items: *mut ItemsHandle) -> i32 {
    guard("items", |args| {
        let out = args.out_param(items, "a place for the handle")?;
        let named: Arc<NamedTable> = args.object(table)?;
        let items = named.keys(args)?.items()?;
        out.write(handles::register(Arc::new(Snapshot { items })));
        Ok(())
    })
}

/// The keys that a key-value table with the option max_rows has evicted since the last report to any rank, without values, and
/// the number of keys that were evicted too long ago to be listed.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_key_value_evicted(
    table: TableHandle,
    items: *mut ItemsHandle,
    missed: *mut u64,
) -> i32 {
    guard("evicted", |args| {
        let out = args.out_param(items, "a place for the handle")?;
        let count = args.out_param(missed, "a place for the number")?;
        let named: Arc<NamedTable> = args.object(table)?;
        let evicted = named.keys(args)?.evicted()?;
        count.write(evicted.missed);
        let items = Items { keys: evicted.keys, values: Vec::new() };
        out.write(handles::register(Arc::new(Snapshot { items })));
        Ok(())
    })
}

fn query<T: Pod>(
    operation: &'static str,
    items: ItemsHandle,
    out: *mut T,
    query: impl FnOnce(&FfiArgs, &Items) -> Result<T>,
) -> i32 {
    guard(operation, |args| {
        let out = args.out_param(out, "a place for the result")?;
        let snapshot: Arc<Snapshot> = args.object(items)?;
        out.write(query(args, &snapshot.items)?);
        Ok(())
    })
}

/// The number of keys.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_items_count(items: ItemsHandle, count: *mut usize) -> i32 {
    query("items_count", items, count, |_, items| Ok(items.keys.len()))
}

/// The keys, if they are numbers. Valid until the items are freed.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_items_numbers(items: ItemsHandle, numbers: *mut *const i64) -> i32 {
    query("items_numbers", items, numbers, |args, items| match &items.keys {
        OwnedKeys::Int(numbers) => Ok(numbers.as_ptr()),
        OwnedKeys::Bytes(_) => {
            Err(args.usage_error("keys that are numbers", "keys that are bytes", "use unisono_items_bytes"))
        }
    })
}

/// One of the keys, if they are bytes. Valid until the items are freed.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_items_bytes(
    items: ItemsHandle,
    index: usize,
    bytes: *mut *const c_void,
    length: *mut usize,
) -> i32 {
    query("items_bytes", items, bytes, |args, items| {
        let out = args.out_param(length, "a place for the length")?;
        let OwnedKeys::Bytes(keys) = &items.keys else {
            let advice = "use unisono_items_numbers";
            return Err(args.usage_error("keys that are bytes", "keys that are numbers", advice));
        };
        let key = keys.get(index).ok_or_else(|| {
            let expected = format!("an index below {}", keys.len());
            args.usage_error(&expected, index.to_string(), "ask unisono_items_count")
        })?;
        out.write(key.len());
        Ok(key.as_ptr().cast())
    })
}

/// The values: one row per key, in the order of the keys. Valid until the items are freed.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_items_values(items: ItemsHandle, values: *mut *const c_void) -> i32 {
    query("items_values", items, values, |_, items| Ok(items.values.as_ptr().cast()))
}

/// Frees items.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_items_free(items: ItemsHandle) -> i32 {
    guard("items_free", |args| args.free::<Arc<Snapshot>>(items))
}
