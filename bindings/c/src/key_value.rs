//! For C: key-value tables, maps from keys to rows of values that grow when new keys are added.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use unisono::tables::{KeyType, KeyValueTable, Keys, OwnedKeys, TableKind, TablesCall};
use unisono::{DType, Result};

use crate::errors::guard;
use crate::ffi_args::{FfiArgs, Pod};
use crate::options::OptionsHandle;
use crate::pending::{CallerBuffer, PendingHandle};
use crate::table::{NamedTable, TableHandle};
use crate::tables::parse;
use crate::{handles, session};

/// The keys of a call; a key may occur more than once. For a table whose keys are "int": numbers and count. For one
/// whose keys are "bytes": bytes, lengths and count. Fields that the table does not need may be NULL.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KeyList {
    /// The keys, if they are numbers.
    pub numbers: *const i64,
    /// The address of each key, if they are bytes.
    pub bytes: *const *const c_void,
    /// The length of each key in bytes.
    pub lengths: *const usize,
    /// The number of keys.
    pub count: usize,
}

impl Pod for KeyList {}

/// Keys in the form that the library takes.
enum BorrowedKeys<'a> {
    Numbers(&'a [i64]),
    Bytes(Vec<&'a [u8]>),
}

impl BorrowedKeys<'_> {
    fn keys(&self) -> Keys<'_> {
        match self {
            BorrowedKeys::Numbers(numbers) => Keys::Int(numbers),
            BorrowedKeys::Bytes(bytes) => Keys::Bytes(bytes),
        }
    }

    fn owned(&self) -> OwnedKeys {
        match self {
            BorrowedKeys::Numbers(numbers) => OwnedKeys::Int(numbers.to_vec()),
            BorrowedKeys::Bytes(bytes) => OwnedKeys::Bytes(bytes.iter().map(|key| key.to_vec()).collect()),
        }
    }
}

impl FfiArgs {
    fn keys(&self, keys: *const KeyList, table: &KeyValueTable) -> Result<BorrowedKeys<'_>> {
        let keys = self.read(keys, "keys")?;
        if table.key_type() == KeyType::Int {
            return Ok(BorrowedKeys::Numbers(self.list(keys.numbers, keys.count, "keys in `numbers`")?));
        }
        let starts = self.list(keys.bytes, keys.count, "keys in `bytes`")?;
        let lengths = self.list(keys.lengths, keys.count, "`lengths` of the keys")?;
        let key = |(&start, &length): (&*const c_void, &usize)| self.input(start, length, DType::U8);
        Ok(BorrowedKeys::Bytes(starts.iter().zip(lengths).map(key).collect::<Result<_>>()?))
    }
}

fn on_keys(
    operation: &'static str,
    table: TableHandle,
    keys: *const KeyList,
    work: impl FnOnce(&FfiArgs, &KeyValueTable, BorrowedKeys) -> Result<()>,
) -> i32 {
    guard(operation, |args| {
        let named: Arc<NamedTable> = args.object(table)?;
        let table = named.keys(args)?;
        work(args, table, args.keys(keys, table)?)
    })
}

/// Creates a key-value table: every key has `dim` values. Every rank calls it, in the same order relative to other tables.
///
/// keys: "int" for 64-bit integers, "bytes" for byte strings.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_key_value_new(
    keys: *const c_char,
    dim: usize,
    dtype: i32,
    options: OptionsHandle,
    table: *mut TableHandle,
) -> i32 {
    guard("table", |args| {
        let tables = session::tables("table")?;
        let call = TablesCall::Create { kind: TableKind::KeyValue, name: None };
        let (out, keys, dtype, options) = parse(&tables, call, || {
            let out = args.out_param(table, "a place for the handle")?;
            let keys = KeyType::from_name(args.text(keys, "\"int\" or \"bytes\"")?)?;
            Ok((out, keys, args.dtype(dtype)?, args.settings(options)?.for_table(args)?))
        })?;
        let made = KeyValueTable::create(&tables, keys, dim, dtype, options)?;
        out.write(handles::register(NamedTable::with_keys(made)));
        Ok(())
    })
}

/// Copies the values of these keys into `values`, one row per key; it has space for `count` elements. An absent key reads
/// as its initial values, and stays absent.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_key_value_get(
    table: TableHandle,
    keys: *const KeyList,
    values: *mut c_void,
    count: usize,
) -> i32 {
    on_keys("get", table, keys, |args, table, keys| {
        table.get(keys.keys(), args.output(values, count, table.dtype())?)
    })
}

/// Adds one row of `delta` to each of these keys, through the table's updater; returns when the add is applied. A key
/// that occurs twice is added to twice.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_key_value_add(
    table: TableHandle,
    keys: *const KeyList,
    delta: *const c_void,
    count: usize,
    options: OptionsHandle,
) -> i32 {
    on_keys("add", table, keys, |args, table, keys| {
        let options = args.add_options(options)?;
        table.add(keys.keys(), args.input(delta, count, table.dtype())?, &options)
    })
}

/// As unisono_key_value_add, but waits in the background if it must wait. Keys and `delta` may be reused at once;
/// unisono_flush, unisono_barrier or the next call on this table reports an error.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_key_value_add_soon(
    table: TableHandle,
    keys: *const KeyList,
    delta: *const c_void,
    count: usize,
    options: OptionsHandle,
) -> i32 {
    on_keys("add", table, keys, |args, table, keys| {
        let options = args.add_options(options)?;
        table.add_soon(keys.keys(), args.input(delta, count, table.dtype())?, &options)
    })
}

/// Starts a get in the background: `values` must not be accessed until unisono_pending_wait reports that the get has ended.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_key_value_start_get(
    table: TableHandle,
    keys: *const KeyList,
    values: *mut c_void,
    count: usize,
    pending: *mut PendingHandle,
) -> i32 {
    on_keys("get", table, keys, |args, table, keys| {
        let out = args.out_param(pending, "a place for the handle")?;
        let values = CallerBuffer::output(args.output(values, count, table.dtype())?);
        out.write(args.register_pending(table.start_get(keys.owned(), values)));
        Ok(())
    })
}

/// Starts an add in the background: `delta` must not be accessed until unisono_pending_wait reports that the add has ended.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_key_value_start_add(
    table: TableHandle,
    keys: *const KeyList,
    delta: *const c_void,
    count: usize,
    options: OptionsHandle,
    pending: *mut PendingHandle,
) -> i32 {
    on_keys("add", table, keys, |args, table, keys| {
        let out = args.out_param(pending, "a place for the handle")?;
        let options = args.add_options(options)?;
        let delta = CallerBuffer::input(args.input(delta, count, table.dtype())?);
        out.write(args.register_pending(table.start_add(keys.owned(), delta, options)));
        Ok(())
    })
}

/// Removes these keys from all hosts, with the updater's state; returns when they are removed. Keys that are absent are
/// ignored. Any rank may call it; it waits for no other worker.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_key_value_delete(table: TableHandle, keys: *const KeyList) -> i32 {
    on_keys("delete", table, keys, |_, table, keys| table.delete(keys.keys()))
}

/// As unisono_key_value_delete, but in the background. Keys may be reused at once; unisono_flush, unisono_barrier or the
/// next call on this table reports an error.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_key_value_delete_soon(table: TableHandle, keys: *const KeyList) -> i32 {
    on_keys("delete", table, keys, |_, table, keys| table.delete_soon(keys.keys()))
}

/// Whether each of these keys is present, that is, a worker has added to it: present[i] becomes 1 or 0.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_key_value_contains(
    table: TableHandle,
    keys: *const KeyList,
    present: *mut u8,
) -> i32 {
    on_keys("contains", table, keys, |args, table, keys| {
        let out = args.output(present.cast(), keys.keys().len(), DType::U8)?;
        let found = table.contains(keys.keys())?;
        out.iter_mut().zip(found).for_each(|(out, found)| *out = found.into());
        Ok(())
    })
}
