//! For C: key-value tables, maps from keys to rows of values that grow as keys are added to.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use unisono::tables::{KeyType, KeyValueTable, Keys, OwnedKeys};
use unisono::{DType, Result};

use crate::ffi_args::{FfiArgs, Pod};
use crate::errors::guard;
use crate::group::CallGuard;
use crate::options::OptionsHandle;
use crate::pending::{CallerBuffer, PendingHandle};
use crate::table::{NamedTable, TableHandle};
use crate::{handles, session};

/// The keys of a call; a key may stand there more than once. For a table whose keys are "int": numbers and count. For one
/// whose keys are "bytes": bytes, lengths and count. What the table does not need may be NULL.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KeyList {
    /// The keys, if they are numbers.
    pub numbers: *const i64,
    /// Where each key begins, if they are bytes.
    pub bytes: *const *const c_void,
    /// How many bytes each key has.
    pub lengths: *const usize,
    /// How many keys there are.
    pub count: usize,
}

impl Pod for KeyList {}

/// Keys as the library takes them.
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

/// Makes a key-value table: every key has `dim` values. Every rank calls it, and in the same order as other tables.
///
/// keys: "int" for whole numbers of 64 bits, "bytes" for any bytes.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_key_value_new(
    keys: *const c_char,
    dim: usize,
    dtype: i32,
    options: OptionsHandle,
    table: *mut TableHandle,
) -> i32 {
    guard("table", |args| {
        let call_guard = CallGuard::new(session::current("table")?.group.clone());
        let out = args.out_param(table, "a place for the handle")?;
        let keys = KeyType::from_name(args.text(keys, "\"int\" or \"bytes\"")?)?;
        let (dtype, settings) = (args.dtype(dtype)?, args.settings(options)?);
        let options = settings.for_table(args)?;
        call_guard.disarm();
        let made = KeyValueTable::create(&session::tables("table")?, keys, dim, dtype, options)?;
        out.write(handles::register(NamedTable::with_keys(made)));
        Ok(())
    })
}

/// Copies the values of these keys into `values`, a row for each; it has room for `count` elements. An absent key has its
/// initial values, and stays absent.
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

/// Adds a row of `delta` to each of these keys, by the table's updater; returns when it is applied. A key that stands there
/// twice is added to twice.
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

/// As unisono_key_value_add, but what must wait does so in the background. Keys and `delta` may be used again at once;
/// unisono_flush, unisono_barrier or the next call on this table tells what went wrong.
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

/// A get in the background: `values` belongs to it until unisono_pending_wait has said that it is over.
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

/// An add in the background: `delta` belongs to it until unisono_pending_wait has said that it is over.
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

/// Whether anybody has added to each of these keys: present[i] becomes 1 or 0.
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
