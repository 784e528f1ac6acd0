//! The key-value table handle, as programs and bindings use it: the element type is known only at run time.

use std::sync::Arc;

use super::common::{common_calls, updater_calls};
use crate::error::{Error, Result};
use crate::memory::{DType, contains_nan};
use crate::tables::AddOptions;
use crate::tables::engine::call;
use crate::tables::engine::registry::UseGuard;
use crate::tables::engine::repeats::{SummedRepeats, get_once};
use crate::tables::engine::rounds::apply_complete_rounds;
use crate::tables::engine::stats::TableStats;
use crate::tables::lifecycle::tables::ShutdownGuard;
use crate::tables::shard::key_value::calls::{KeysAdd, KeysGet};
use crate::tables::shard::key_value::core::KeyValueCore;
use crate::tables::shard::key_value::delete::EvictedKeys;
use crate::tables::shard::key_value::items::Items;
use crate::tables::shard::key_value::keys::{KeyType, Keys, OwnedKeys};
use crate::transport::Call;
use crate::world::{Group, Pending};

/// A map from keys to rows of values, shared by the workers. It grows as adds bring new keys. Values are passed as bytes of the
/// table's element type.
///
/// ```
/// use unisono::DType;
/// use unisono::tables::{AddOptions, KeyType, KeyValueTable, Keys, OwnedKeys, Role, TableOptions, Tables};
/// # let world = unisono::World::threads(1)?.remove(0);
/// let tables = Tables::join(&world, Role::Both)?;
/// let words = KeyValueTable::create(&tables, KeyType::Bytes, 1, DType::I64, TableOptions::default())?;
/// let seen: [&[u8]; 3] = [b"to", b"be", b"to"];
/// words.add(Keys::Bytes(&seen), bytemuck::cast_slice(&[1i64, 1, 1]), &AddOptions::default())?;
/// let mut counts = [0i64; 2];
/// words.get(Keys::Bytes(&[b"to", b"absent"]), bytemuck::cast_slice_mut(&mut counts))?;
/// assert_eq!(counts, [2, 0]);
/// assert_eq!(words.items()?.keys, OwnedKeys::Bytes(vec![b"be".to_vec(), b"to".to_vec()]));
/// # Ok::<(), unisono::Error>(())
/// ```
#[derive(Clone)]
pub struct KeyValueTable {
    pub(crate) core: Arc<KeyValueCore>,
    pub(crate) group: Group,
    pub(crate) _use_guard: Arc<UseGuard>,
    /// When the last of these is dropped, the world's tables shut down; background work holds none.
    pub(crate) _shutdown: Option<Arc<ShutdownGuard>>,
}

impl KeyValueTable {
    common_calls!();
    updater_calls!(rule);

    /// The type of its keys.
    pub fn key_type(&self) -> KeyType {
        self.core.layout.shape.keys
    }

    /// Number of values per key.
    pub fn dim(&self) -> usize {
        self.core.description.cols
    }

    /// The type of its values.
    pub fn dtype(&self) -> DType {
        self.core.description.dtype
    }

    /// Copies the values of these keys into `out`, one row per key. An absent key has its initial values and stays absent.
    pub fn get(&self, keys: Keys, out: &mut [u8]) -> Result<()> {
        let worker = self.validate("get", keys, out.len())?;
        let call = self.core.ordered_call(&self.group, "get")?;
        self.get_now(&call, worker, keys, out)
    }

    fn get_now(&self, call: &Call, worker: usize, keys: Keys, out: &mut [u8]) -> Result<()> {
        let get =
            |keys: Keys, out: &mut [u8]| call::get(&*self.core, call, worker, &mut KeysGet { keys, out });
        // In shared memory, finding repeats would cost more than copying them.
        let sends = self.core.inner.remote().is_some();
        match keys {
            Keys::Int(list) if sends => get_once(list, out, |list, out| get(Keys::Int(list), out)),
            Keys::Bytes(list) if sends => get_once(list, out, |list, out| get(Keys::Bytes(list), out)),
            _ => get(keys, out),
        }?;
        self.core.counts.read(keys.len());
        Ok(())
    }

    /// Adds a row of `delta` to each of these keys, by the table's updater; returns once it is applied on all hosts.
    /// [`TableOptions::repeats`](crate::tables::TableOptions::repeats) is what happens to a key that is listed more than once.
    pub fn add(&self, keys: Keys, delta: &[u8], options: &AddOptions) -> Result<()> {
        let worker = self.validate_add(keys, delta, options)?;
        let call = self.core.ordered_call(&self.group, "add")?;
        self.add_now(&call, worker, keys, delta, options, true)
    }

    /// As [`KeyValueTable::add`], but an add that must wait does so in the background: `keys` and `delta` may be reused
    /// immediately, and [`Tables::flush`](crate::tables::Tables::flush) or the next call on this table reports errors.
    pub fn add_soon(&self, keys: Keys, delta: &[u8], options: &AddOptions) -> Result<()> {
        let worker = self.validate_add(keys, delta, options)?;
        if self.core.may_add_now(worker) {
            let call = self.core.call(&self.group, "add");
            return self.add_now(&call, worker, keys, delta, options, false);
        }
        let (table, delta, options) = (self.in_background(), delta.to_vec(), *options);
        let keys = keys.to_owned();
        self.core.queue.run_detached(move || {
            let call = table.core.call(&table.group, "add");
            keys.with(|keys| table.add_now(&call, worker, keys, &delta, &options, true))
        });
        Ok(())
    }

    fn add_now(
        &self,
        call: &Call,
        worker: usize,
        keys: Keys,
        delta: &[u8],
        options: &AddOptions,
        wait: bool,
    ) -> Result<()> {
        let add = |keys: Keys, delta: &[u8]| {
            call::add(&*self.core, call, worker, wait, &mut KeysAdd { keys, delta, options })
        };
        let (rule, dim, sums) = (&self.core.rule, self.dim(), self.core.sums_repeats);
        match keys {
            Keys::Int(list) if sums => match SummedRepeats::of(rule, dim, list, delta) {
                Some(SummedRepeats { keys, delta }) => add(Keys::Int(&keys), &delta),
                None => add(keys, delta),
            },
            Keys::Bytes(list) if sums => match SummedRepeats::of(rule, dim, list, delta) {
                Some(SummedRepeats { keys, delta }) => add(Keys::Bytes(&keys), &delta),
                None => add(keys, delta),
            },
            _ => add(keys, delta),
        }?;
        self.core.counts.added(keys.len());
        Ok(())
    }

    /// Removes these keys; returns once they are removed on all hosts. Keys that are absent, or listed twice, are no error.
    ///
    /// A removed key is absent: a get returns its initial values, and the next add inserts it anew, with fresh updater state. Its
    /// memory is used for other keys. Any rank may call it. A deletion follows this rank's earlier calls, but no clock counts it: it
    /// does not wait for other workers and is no part of a round, so a worker's concurrent add to a key may come before it or after
    /// it. Adds of a round that is not complete yet come after it.
    ///
    /// ```
    /// use unisono::DType;
    /// use unisono::tables::{AddOptions, KeyType, KeyValueTable, Keys, Role, TableOptions, Tables};
    /// # let world = unisono::World::threads(1)?.remove(0);
    /// let tables = Tables::join(&world, Role::Both)?;
    /// let counts = KeyValueTable::create(&tables, KeyType::Int, 1, DType::I64, TableOptions::default())?;
    /// counts.add(Keys::Int(&[3, 4]), bytemuck::cast_slice(&[1i64, 1]), &AddOptions::default())?;
    /// counts.delete(Keys::Int(&[3, 5]))?;
    /// assert_eq!(counts.contains(Keys::Int(&[3, 4]))?, [false, true]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    pub fn delete(&self, keys: Keys) -> Result<()> {
        self.core.check_open(&self.group, "delete")?;
        self.validate_keys("delete", keys)?;
        self.core.delete(&self.query("delete")?, keys, true)
    }

    /// As [`KeyValueTable::delete`], but in the background: `keys` may be reused immediately, this rank's later calls see the
    /// deletion, and [`Tables::flush`](crate::tables::Tables::flush) or the next call on this table reports errors.
    pub fn delete_soon(&self, keys: Keys) -> Result<()> {
        self.core.check_open(&self.group, "delete")?;
        self.validate_keys("delete", keys)?;
        if self.core.queue.is_empty() {
            return self.core.delete(&self.query("delete")?, keys, false);
        }
        let (table, keys) = (self.in_background(), keys.to_owned());
        self.core.queue.run_detached(move || {
            let call = table.core.call(&table.group, "delete");
            apply_complete_rounds(&*table.core, &call)?;
            keys.with(|keys| table.core.delete(&call, keys, true))
        });
        Ok(())
    }

    /// The keys that the table has evicted since the last report to any rank, because it has [`TableOptions::max_rows`]; none
    /// without. Any rank may call it. Every eviction is reported once, to one rank: a call that fails may lose some.
    ///
    /// Rows are not reported: to keep them would cost every eviction another copy, and as much memory as they had.
    ///
    /// [`TableOptions::max_rows`]: crate::tables::TableOptions::max_rows
    pub fn evicted(&self) -> Result<EvictedKeys> {
        self.core.take_evicted_anywhere(&self.query("evicted")?)
    }

    /// The maximum number of rows, if there is one.
    pub fn max_rows(&self) -> Option<usize> {
        self.core.layout.limit.as_ref().map(|limit| limit.max_rows)
    }

    /// Starts a get in the background.
    pub fn start_get<B: AsMut<[u8]> + Send + 'static>(&self, keys: OwnedKeys, mut out: B) -> Pending<B> {
        let worker = keys.with(|keys| self.validate("get", keys, out.as_mut().len()));
        self.start("get", worker, move |table, call, worker| {
            keys.with(|keys| table.get_now(call, worker, keys, out.as_mut()))?;
            Ok(out)
        })
    }

    /// Starts an add in the background.
    pub fn start_add<B: AsRef<[u8]> + Send + 'static>(
        &self,
        keys: OwnedKeys,
        delta: B,
        options: AddOptions,
    ) -> Pending<B> {
        let worker = keys.with(|keys| self.validate_add(keys, delta.as_ref(), &options));
        self.start("add", worker, move |table, call, worker| {
            keys.with(|keys| table.add_now(call, worker, keys, delta.as_ref(), &options, true))?;
            Ok(delta)
        })
    }

    /// Begins a call of any rank, after the rounds that are complete.
    fn query(&self, operation: &'static str) -> Result<Call<'_>> {
        self.core.check_open(&self.group, operation)?;
        let call = self.core.ordered_call(&self.group, operation)?;
        apply_complete_rounds(&*self.core, &call)?;
        Ok(call)
    }

    /// Whether each of these keys has been added to by any worker. Does not wait for other workers; any rank may call it.
    pub fn contains(&self, keys: Keys) -> Result<Vec<bool>> {
        self.core.check_open(&self.group, "contains")?;
        self.validate_keys("contains", keys)?;
        self.core.contains_anywhere(&self.query("contains")?, keys)
    }

    /// Sizes of the table, and this worker's calls. Does not wait for other workers; any rank may call it.
    pub fn stats(&self) -> Result<TableStats> {
        let shape = &self.core.layout.shape;
        Ok(self.core.stats(self.len()?, shape.planes, shape.state_row_bytes))
    }

    /// Number of keys. Does not wait for other workers; any rank may call it.
    pub fn len(&self) -> Result<usize> {
        let call = self.query("len")?;
        Ok(self.core.len() + self.core.remote_len(&call)?)
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// All keys and their values, sorted by key. Any rank may call it; concurrent adds may or may not be included.
    pub fn items(&self) -> Result<Items> {
        let call = self.query("items")?;
        let mut items = self.core.local_items(&call)?;
        self.core.append_remote_items(&call, &mut items)?;
        Ok(items.sorted(self.core.layout.shape.row_bytes))
    }

    /// Begins this worker's next step, which the bound of `ssp` counts.
    pub fn tick(&self) -> Result<()> {
        self.core.tick(&self.group)
    }

    fn reject(&self, operation: &str, expected: String, received: String, advice: &str) -> Result<()> {
        Err(Error::usage(operation, expected, received, advice).at_rank(self.core.inner.rank))
    }

    fn validate_keys(&self, operation: &str, keys: Keys) -> Result<()> {
        let (wanted, given) = (self.key_type(), keys.key_type());
        if wanted != given {
            let expected = format!("{} keys in {}", wanted.name(), self.core.description);
            let advice = "a table has one type of keys, chosen when it is made";
            return self.reject(operation, expected, format!("{} keys", given.name()), advice);
        }
        if u32::try_from(keys.len()).is_err() {
            let expected = format!("at most {} keys at a time", u32::MAX);
            return self.reject(operation, expected, keys.len().to_string(), "make several calls");
        }
        Ok(())
    }

    /// Validates a call before it has any effect; returns the caller's worker id.
    fn validate(&self, operation: &str, keys: Keys, bytes: usize) -> Result<usize> {
        let worker = self.core.worker(&self.group, operation)?;
        self.validate_keys(operation, keys)?;
        let (description, count) = (&self.core.description, keys.len());
        if count.checked_mul(description.row_bytes()) != Some(bytes) {
            let (dim, dtype) = (self.dim(), self.dtype());
            let elements = count.saturating_mul(dim);
            let expected = format!("{elements} elements ({count} x {dim}) of {dtype} for {description}");
            let received = format!("{} ({bytes} bytes)", bytes / dtype.size());
            self.reject(operation, expected, received, "pass one row of values for each key")?;
        }
        Ok(worker)
    }

    fn validate_add(&self, keys: Keys, delta: &[u8], options: &AddOptions) -> Result<usize> {
        let worker = self.validate("add", keys, delta.len())?;
        self.validate_options(options)?;
        if self.core.reject_nan
            && let Some(index) = contains_nan(delta, self.dtype())
        {
            let (row, column) = (index / self.dim(), index % self.dim());
            let received = format!("NaN at key {row} of the call, column {column}");
            let advice = "look for the cause in your gradients; nothing was added";
            self.reject("add", "numbers (reject_nan is set)".into(), received, advice)?;
        }
        Ok(worker)
    }
}
