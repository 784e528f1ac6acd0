//! For C: all keys and values of a key-value table, as they were at one moment.

use std::ffi::c_void;
use std::sync::Arc;

use unisono::Result;
use unisono::tables::{Items, OwnedKeys};

use crate::border::{Border, Plain};
use crate::errors::guard;
use crate::handles;
use crate::table::{Named, TableHandle};

/// All keys and values of a key-value table, sorted by key.
pub type ItemsHandle = u64;

/// What was there.
pub(crate) struct Snapshot {
    items: Items,
}

/// Copies all keys and values of a key-value table. What others add meanwhile may be there or not.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_key_value_items(table: TableHandle, items: *mut ItemsHandle) -> i32 {
    guard("items", |border| {
        let place = border.place(items, "a place for the handle")?;
        let named: Arc<Named> = border.held(table)?;
        let items = named.keys(border)?.items()?;
        place.put(handles::keep(Arc::new(Snapshot { items })));
        Ok(())
    })
}

fn look<T: Plain>(
    operation: &'static str,
    items: ItemsHandle,
    place: *mut T,
    look: impl FnOnce(&Border, &Items) -> Result<T>,
) -> i32 {
    guard(operation, |border| {
        let place = border.place(place, "a place for the result")?;
        let snapshot: Arc<Snapshot> = border.held(items)?;
        place.put(look(border, &snapshot.items)?);
        Ok(())
    })
}

/// How many keys there are.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_items_count(items: ItemsHandle, count: *mut usize) -> i32 {
    look("items_count", items, count, |_, items| Ok(items.keys.len()))
}

/// The keys, if they are numbers. They stay until the items are freed.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_items_numbers(items: ItemsHandle, numbers: *mut *const i64) -> i32 {
    look("items_numbers", items, numbers, |border, items| match &items.keys {
        OwnedKeys::Int(numbers) => Ok(numbers.as_ptr()),
        OwnedKeys::Bytes(_) => {
            Err(border.refuse("keys that are numbers", "keys that are bytes", "use unisono_items_bytes"))
        }
    })
}

/// One of the keys, if they are bytes. They stay until the items are freed.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_items_bytes(
    items: ItemsHandle,
    index: usize,
    bytes: *mut *const c_void,
    length: *mut usize,
) -> i32 {
    look("items_bytes", items, bytes, |border, items| {
        let place = border.place(length, "a place for the length")?;
        let OwnedKeys::Bytes(keys) = &items.keys else {
            let advice = "use unisono_items_numbers";
            return Err(border.refuse("keys that are bytes", "keys that are numbers", advice));
        };
        let key = keys.get(index).ok_or_else(|| {
            let expected = format!("an index below {}", keys.len());
            border.refuse(&expected, index.to_string(), "ask unisono_items_count")
        })?;
        place.put(key.len());
        Ok(key.as_ptr().cast())
    })
}

/// The values: a row for each key, in the order of the keys. They stay until the items are freed.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_items_values(items: ItemsHandle, values: *mut *const c_void) -> i32 {
    look("items_values", items, values, |_, items| Ok(items.values.as_ptr().cast()))
}

/// Frees items.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_items_free(items: ItemsHandle) -> i32 {
    guard("items_free", |border| border.free::<Arc<Snapshot>>(items))
}
