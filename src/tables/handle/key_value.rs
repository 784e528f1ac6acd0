//! The key-value table handle, as programs and bindings use it: the element type is known only at run time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::memory::{DType, contains_nan};
use crate::tables::engine::registry::UseGuard;
use crate::tables::lifecycle::tables::ShutdownGuard;
use crate::tables::shard::key_value::core::KeyValueCore;
use crate::tables::shard::key_value::items::Items;
use crate::tables::shard::key_value::keys::{KeyType, Keys, OwnedKeys};
use crate::tables::{AddOptions, Consistency};
use crate::transport::{Call, Interrupt};
use crate::world::{Group, Pending, pending};

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
    pub(crate) use_guard: Arc<UseGuard>,
    /// When the last of these is dropped, the world's tables shut down; background work holds none.
    pub(crate) _shutdown: Option<Arc<ShutdownGuard>>,
}

impl KeyValueTable {
    /// The table's name.
    pub fn name(&self) -> &str {
        &self.core.description.name
    }

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

    /// The update rule of adds.
    pub fn updater(&self) -> &str {
        &self.core.description.updater
    }

    /// Rejects an option name that this table's updater does not use.
    pub fn check_option(&self, option: &str) -> Result<()> {
        self.core.rule.check_name(self.name(), option)
    }

    /// The consistency model: how far workers may drift apart.
    pub fn consistency(&self) -> Consistency {
        self.core.description.consistency
    }

    /// Number of times a lock was recovered from a process that died holding it, on this host.
    pub fn recovered(&self) -> u64 {
        self.core.header().recovered.load(Ordering::Relaxed)
    }

    /// A handle whose calls have a different timeout.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> KeyValueTable {
        KeyValueTable { group: self.group.with_timeout(timeout), ..self.clone() }
    }

    /// A handle whose waits periodically call this hook, which can interrupt them.
    #[must_use]
    pub fn with_interrupt(&self, interrupt: Arc<Interrupt>) -> KeyValueTable {
        KeyValueTable { group: self.group.with_interrupt(interrupt), ..self.clone() }
    }

    /// Copies the values of these keys into `out`, one row per key. An absent key has its initial values and stays absent.
    pub fn get(&self, keys: Keys, out: &mut [u8]) -> Result<()> {
        let worker = self.check("get", keys, out.len())?;
        let call = self.core.call(&self.group, "get");
        self.core.queue.drain(&call)?;
        self.get_now(&call, worker, keys, out)
    }

    fn get_now(&self, call: &Call, worker: usize, keys: Keys, out: &mut [u8]) -> Result<()> {
        if self.core.has_servers() {
            let staleness = self.core.get_local(call, worker, || self.core.read(call, worker, keys, out))?;
            self.core.staleness.count(staleness);
        }
        self.core.get_remote(call, worker, keys, out)?;
        self.core.count_get(call, worker, || self.core.has_servers(), self.core.other_server_hosts())
    }

    /// Adds a row of `delta` to each of these keys, by the table's updater; returns once it is applied on all hosts. A key that
    /// is listed twice is updated twice.
    pub fn add(&self, keys: Keys, delta: &[u8], options: &AddOptions) -> Result<()> {
        let worker = self.check_add(keys, delta, options)?;
        let call = self.core.call(&self.group, "add");
        self.core.queue.drain(&call)?;
        self.add_now(&call, worker, keys, delta, options, true)
    }

    /// As [`KeyValueTable::add`], but an add that must wait does so in the background: `keys` and `delta` may be reused
    /// immediately, and [`Tables::flush`](crate::tables::Tables::flush) or the next call on this table reports errors.
    pub fn add_soon(&self, keys: Keys, delta: &[u8], options: &AddOptions) -> Result<()> {
        let worker = self.check_add(keys, delta, options)?;
        if self.core.queue.is_empty() && self.core.may_add(worker) && !self.core.clock.has_backup_workers() {
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
        self.core.add(call, worker, keys, delta, options, wait)
    }

    /// Starts a get in the background.
    pub fn start_get<B: AsMut<[u8]> + Send + 'static>(&self, keys: OwnedKeys, out: B) -> Pending<B> {
        let (promise, result) = pending();
        let (table, mut out) = (self.in_background(), out);
        let worker = keys.with(|keys| self.check("get", keys, out.as_mut().len()));
        self.core.queue.run(move || {
            promise.fulfil(|| {
                let call = table.core.call(&table.group, "get");
                let worker = worker?;
                keys.with(|keys| table.get_now(&call, worker, keys, out.as_mut()))?;
                Ok(out)
            });
        });
        result
    }

    /// Starts an add in the background.
    pub fn start_add<B: AsRef<[u8]> + Send + 'static>(
        &self,
        keys: OwnedKeys,
        delta: B,
        options: AddOptions,
    ) -> Pending<B> {
        let (promise, result) = pending();
        let table = self.in_background();
        let worker = keys.with(|keys| self.check_add(keys, delta.as_ref(), &options));
        self.core.queue.run(move || {
            promise.fulfil(|| {
                let call = table.core.call(&table.group, "add");
                let worker = worker?;
                keys.with(|keys| table.add_now(&call, worker, keys, delta.as_ref(), &options, true))?;
                Ok(delta)
            });
        });
        result
    }

    /// Whether each of these keys has been added to by any worker. Does not wait for other workers; any rank may call it.
    pub fn contains(&self, keys: Keys) -> Result<Vec<bool>> {
        self.core.check_open(&self.group, "contains")?;
        self.check_keys("contains", keys)?;
        let call = self.core.call(&self.group, "contains");
        self.core.queue.drain(&call)?;
        self.core.apply_complete_rounds(&call)?;
        let mut found = self.core.contains(&call, self.core.requester_id(), keys)?;
        self.core.contains_remote(&call, keys, &mut found)?;
        Ok(found)
    }

    /// Number of keys. Does not wait for other workers; any rank may call it.
    pub fn len(&self) -> Result<usize> {
        self.core.check_open(&self.group, "len")?;
        let call = self.core.call(&self.group, "len");
        self.core.queue.drain(&call)?;
        self.core.apply_complete_rounds(&call)?;
        Ok(self.core.len() + self.core.remote_len(&call)?)
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// All keys and their values, sorted by key. Any rank may call it; concurrent adds may or may not be included.
    pub fn items(&self) -> Result<Items> {
        self.core.check_open(&self.group, "items")?;
        let call = self.core.call(&self.group, "items");
        self.core.queue.drain(&call)?;
        self.core.apply_complete_rounds(&call)?;
        let mut items = self.core.local_items(&call)?;
        self.core.append_remote_items(&call, &mut items)?;
        Ok(items.sorted(self.core.layout.shape.row_bytes))
    }

    /// Begins this worker's next step, which the bound of `ssp` counts.
    pub fn tick(&self) -> Result<()> {
        self.core.tick(&self.group)
    }

    /// Number of steps this worker has made; see [`Table::clock`](crate::tables::Table::clock).
    pub fn clock(&self) -> Result<u64> {
        self.core.steps(&self.group)
    }

    /// Waits until all adds that this rank started on this table are applied; returns the first error that was not reported to a
    /// caller.
    pub fn flush(&self) -> Result<()> {
        self.core.flush_all_hosts(&self.group)
    }

    /// Declares that this worker makes no more calls on this table; see [`Table::finish`](crate::tables::Table::finish).
    pub fn finish(&self) -> Result<()> {
        self.core.flush_and_finish(&self.group)
    }

    /// Staleness of the values that this rank's gets returned; see [`Table::staleness`](crate::tables::Table::staleness).
    pub fn staleness(&self) -> Vec<u64> {
        self.core.staleness.histogram()
    }

    /// A handle for background work, which the caller's interrupt hook does not interrupt.
    fn in_background(&self) -> KeyValueTable {
        let (core, group, use_guard) =
            (self.core.clone(), self.group.without_interrupt(), self.use_guard.clone());
        KeyValueTable { core, group, use_guard, _shutdown: None }
    }

    fn reject(&self, operation: &str, expected: String, received: String, advice: &str) -> Result<()> {
        Err(Error::usage(operation, expected, received, advice).at_rank(self.core.inner.rank))
    }

    fn check_keys(&self, operation: &str, keys: Keys) -> Result<()> {
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
    fn check(&self, operation: &str, keys: Keys, bytes: usize) -> Result<usize> {
        let worker = self.core.worker(&self.group, operation)?;
        self.check_keys(operation, keys)?;
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

    fn check_add(&self, keys: Keys, delta: &[u8], options: &AddOptions) -> Result<usize> {
        let worker = self.check("add", keys, delta.len())?;
        if *options != AddOptions::default() {
            let rule = &self.core.rule;
            let used = rule.check_used(self.name(), options);
            used.and_then(|()| rule.options(&options.or(&self.core.add)))
                .map_err(|error| error.at_rank(self.core.inner.rank).about_table(self.name()))?;
        }
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
