//! Calls on a table with arrays in CUDA device memory.

use crate::cuda::{Device, Event, Span};
use crate::error::{Error, Result};
use crate::tables::engine::base::Turn;
use crate::tables::engine::call;
use crate::tables::engine::checkpointable::TableSection;
use crate::tables::engine::key_index::index_of_repeats;
use crate::tables::engine::stats::CallCounts;
use crate::tables::shard::cuda::launch::DeviceRowIds;
use crate::tables::shard::cuda::scratch::KernelFaults;
use crate::tables::shard::cuda::shard::DeviceShard;
use crate::tables::spec::description::TableKind;
use crate::tables::updater::UpdateContext;
use crate::tables::{AddOptions, Rows, Table};
use crate::transport::Call;
use crate::world::Pending;

/// The rows of a call with arrays on a device.
#[derive(Debug, Clone, Copy)]
pub enum CudaRows<'a> {
    /// All rows.
    All,
    /// These rows, in this order; a row may be listed more than once.
    List(&'a [i64]),
    /// The same, with 64-bit row ids in device memory.
    Device(Span),
}

impl<'a> CudaRows<'a> {
    fn of(rows: &'a Option<Vec<i64>>) -> CudaRows<'a> {
        rows.as_deref().map_or(CudaRows::All, CudaRows::List)
    }

    /// The number of listed rows.
    fn listed(&self) -> Option<usize> {
        match self {
            CudaRows::All => None,
            CudaRows::List(list) => Some(list.len()),
            CudaRows::Device(ids) => Some(ids.bytes() / size_of::<i64>()),
        }
    }
}

/// A table's calls with arrays on a device; see [`Table::cuda`].
#[derive(Clone, Copy)]
pub struct CudaTable<'a> {
    table: &'a Table,
}

/// How a call accesses the rows.
enum AccessPath<'a> {
    /// By kernels: the rows are in device memory.
    Kernels(&'a DeviceShard),
    /// Through pinned memory: the rows are in this host's memory.
    Pinned,
    /// As a call with an array in host memory.
    Host,
}

impl Table {
    /// The same calls with arrays on a CUDA device, whether the table is in host or device memory. They are synchronous: their
    /// work is complete when they return.
    ///
    /// ```
    /// # fn main() -> unisono::Result<()> {
    /// use unisono::cuda::{Device, DeviceMemory};
    /// use unisono::tables::{AddOptions, ArrayTable, CudaRows, Role, TableOptions, Tables};
    /// # let world = unisono::World::threads(1)?.remove(0);
    /// let tables = Tables::join(&world, Role::Both)?;
    /// let table = ArrayTable::<f32>::create(&tables, 4, Some(&[1.0; 4]), TableOptions::default())?;
    /// if let Ok(device) = Device::get(0) {
    ///     let memory = DeviceMemory::new(&device, 16)?;
    ///     // SAFETY: the memory outlives the calls.
    ///     let span = unsafe { memory.span() };
    ///     table.table().cuda().get(CudaRows::All, span)?;
    ///     table.table().cuda().add(CudaRows::All, span, &AddOptions::default())?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn cuda(&self) -> CudaTable<'_> {
        CudaTable { table: self }
    }

    /// The device that holds the table's rows, by its ordinal in this process; `None` if they are in host memory.
    pub fn device(&self) -> Option<u32> {
        self.core.device
    }
}

impl<'a> CudaTable<'a> {
    /// Copies rows into `out`.
    pub fn get(&self, rows: CudaRows, out: Span) -> Result<()> {
        let worker = self.validate("get", rows, out)?;
        let call = self.table.core.ordered_call(&self.table.group, "get")?;
        ready_event(out)?.wait(&|| call.check_wait())?;
        self.get_now(&call, worker, rows, out)
    }

    /// Adds `delta` to rows with the table's updater; returns when it is applied everywhere.
    pub fn add(&self, rows: CudaRows, delta: Span, options: &AddOptions) -> Result<()> {
        let worker = self.validate("add", rows, delta)?;
        self.table.validate_options(options)?;
        let call = self.table.core.ordered_call(&self.table.group, "add")?;
        ready_event(delta)?.wait(&|| call.check_wait())?;
        self.add_now(&call, worker, rows, delta, options)
    }

    /// As [`CudaTable::add`], but any wait takes place in the background: `delta` may be reused immediately.
    pub fn add_soon(&self, rows: CudaRows, delta: Span, options: &AddOptions) -> Result<()> {
        let worker = self.validate("add", rows, delta)?;
        self.table.validate_options(options)?;
        let core = &self.table.core;
        let call = core.call(&self.table.group, "add");
        ready_event(delta)?.wait(&|| call.check_wait())?;
        if core.may_add_now(worker) {
            return self.add_now(&call, worker, rows, delta, options);
        }
        let list = self.download_ids("add", rows)?;
        self.table.add_soon(host_rows(rows, &list), &self.download(delta)?, options)
    }

    /// A get in the background. `None` means all rows. The owner of the memory, `out`, is returned with the result.
    pub fn start_get<B: AsRef<Span> + Send + 'static>(&self, rows: Option<Vec<i64>>, out: B) -> Pending<B> {
        let worker = self.validate("get", CudaRows::of(&rows), *out.as_ref());
        let ready = ready_event(*out.as_ref());
        self.table.start("get", worker, move |table, call, worker| {
            ready?.wait(&|| call.check_wait())?;
            table.cuda().get_now(call, worker, CudaRows::of(&rows), *out.as_ref())?;
            Ok(out)
        })
    }

    fn access_path(&self, adds: bool) -> AccessPath<'a> {
        let core = &self.table.core;
        // In a sparse matrix, rows of zeros change nothing; the host checks for them.
        let sparse = adds && core.description.kind == TableKind::SparseMatrix;
        // The adds of a round are summed on the host.
        let summed = adds && core.accumulates();
        if core.replica.is_some() || core.inner.remote().is_some() || sparse || summed {
            return AccessPath::Host;
        }
        match &core.storage.device_shard {
            Some(shard) => AccessPath::Kernels(shard),
            // The entire delta is checked for NaN before anything changes.
            None if adds && core.reject_nan => AccessPath::Host,
            None => AccessPath::Pinned,
        }
    }

    fn get_now(&self, call: &Call, worker: usize, rows: CudaRows, out: Span) -> Result<()> {
        let core = &self.table.core;
        let staleness = match self.access_path(false) {
            AccessPath::Kernels(shard) => {
                call::get_local(&**core, call, worker, Turn::Wait, || self.gather(call, shard, rows, out))?
            }
            AccessPath::Pinned => {
                let list = self.download_ids("get", rows)?;
                let rows = host_rows(rows, &list);
                call::get_local(&**core, call, worker, Turn::Wait, || {
                    core.staged_get(call, worker, rows, out)
                })?
            }
            AccessPath::Host => {
                let list = self.download_ids("get", rows)?;
                let mut bytes = vec![0; out.bytes()];
                self.table.get_now(call, worker, host_rows(rows, &list), &mut bytes)?;
                let mut guard = core.storage.scratch.take(out.device())?;
                // SAFETY: the span is borrowed for the call.
                return unsafe { guard.scratch().transfer.upload(out.address(), &bytes) };
            }
        };
        core.staleness.count(staleness);
        self.table.count(rows.listed(), CallCounts::read);
        core.count_get(call, worker, &[])
    }

    fn add_now(
        &self,
        call: &Call,
        worker: usize,
        rows: CudaRows,
        delta: Span,
        options: &AddOptions,
    ) -> Result<()> {
        let core = &self.table.core;
        let listed = rows.listed();
        match self.access_path(true) {
            AccessPath::Kernels(shard) => core.add_local(call, worker, Turn::Wait, || {
                self.update(call, shard, worker, rows, delta, options)
            }),
            AccessPath::Pinned => {
                let list = self.download_ids("add", rows)?;
                let rows = host_rows(rows, &list);
                // A row may be repeated in several of the chunks in which the delta arrives.
                if let Rows::List(list) = rows
                    && core.sums_repeats
                    && index_of_repeats(list).is_some()
                {
                    return self.add_downloaded(call, worker, rows, delta, options);
                }
                core.add_local(call, worker, Turn::Wait, || {
                    core.staged_add(call, worker, rows, delta, options)
                })
            }
            AccessPath::Host => {
                let list = self.download_ids("add", rows)?;
                return self.add_downloaded(call, worker, host_rows(rows, &list), delta, options);
            }
        }?;
        self.table.count(listed, CallCounts::added);
        Ok(())
    }

    /// Adds a delta on the device as if it were in host memory.
    fn add_downloaded(
        &self,
        call: &Call,
        worker: usize,
        rows: Rows,
        delta: Span,
        options: &AddOptions,
    ) -> Result<()> {
        let delta = self.download(delta)?;
        self.table.validate_add(rows, &delta, options)?;
        self.table.add_now(call, worker, rows, &delta, options, true)
    }

    /// Copies rows of a shard.
    fn gather(&self, call: &Call, shard: &DeviceShard, rows: CudaRows, out: Span) -> Result<()> {
        let storage = &self.table.core.storage;
        let faults = storage.with_shard(call, shard, |scratch| match rows {
            CudaRows::All => {
                let values = shard.section(TableSection::Values);
                // SAFETY: both have as many bytes as all rows, which was checked; the lock is held.
                unsafe { scratch.stream().copy(out.address(), values, out.bytes())? };
                scratch.finish(false)
            }
            CudaRows::List(list) => {
                let list =
                    DeviceRowIds { address: scratch.upload_ids(list)?, count: list.len(), unchecked: false };
                shard.gather(scratch, list, out.address())
            }
            CudaRows::Device(ids) => shard.gather(scratch, device_row_ids(ids), out.address()),
        })?;
        self.check_faults("get", faults, rows)
    }

    /// Updates rows of a shard.
    fn update(
        &self,
        call: &Call,
        shard: &DeviceShard,
        worker: usize,
        rows: CudaRows,
        delta: Span,
        options: &AddOptions,
    ) -> Result<()> {
        let core = &self.table.core;
        let all = options.or(&core.add);
        let context = UpdateContext { worker, step: 0, options: &all };
        let args = core.storage.update_args(shard, &context, core.reject_nan).summing(core.sums_repeats);
        let faults = core.storage.with_shard(call, shard, |scratch| match rows {
            CudaRows::All => shard.update_all(scratch, &args, delta.address()),
            CudaRows::List(list) => {
                let list =
                    DeviceRowIds { address: scratch.upload_ids(list)?, count: list.len(), unchecked: false };
                shard.update_rows(scratch, &args, list, delta.address())
            }
            CudaRows::Device(ids) => shard.update_rows(scratch, &args, device_row_ids(ids), delta.address()),
        })?;
        self.check_faults("add", faults, rows)
    }

    /// The error for faults that kernels reported, in which case they have changed nothing.
    fn check_faults(&self, operation: &'static str, faults: KernelFaults, rows: CudaRows) -> Result<()> {
        match (faults, rows) {
            (KernelFaults::NONE, _) => Ok(()),
            (KernelFaults { row: u64::MAX, nan }, _) => Err(self.table.found_nan(nan as usize)),
            (KernelFaults { row, .. }, CudaRows::Device(ids)) => {
                let id = self.download(ids.part(row as usize * 8, 8)?)?;
                Err(self.table.row_out_of_range(operation, bytemuck::pod_read_unaligned(&id), row as usize))
            }
            _ => Err(Error::internal(operation, "a fault in a list that was checked")),
        }
    }

    fn download(&self, span: Span) -> Result<Vec<u8>> {
        let mut bytes = vec![0; span.bytes()];
        let mut guard = self.table.core.storage.scratch.take(span.device())?;
        // SAFETY: the span is borrowed for the call.
        unsafe { guard.scratch().transfer.download(span.address(), &mut bytes)? };
        Ok(bytes)
    }

    /// Copies row ids to host memory if they are on the device.
    fn download_ids(&self, operation: &str, rows: CudaRows) -> Result<Vec<i64>> {
        let CudaRows::Device(ids) = rows else { return Ok(Vec::new()) };
        let list: Vec<i64> = self.download(ids)?.chunks_exact(8).map(bytemuck::pod_read_unaligned).collect();
        self.table.validate_rows(operation, &list)?;
        Ok(list)
    }

    /// Validates a call before it has any effect; returns the caller's worker id.
    fn validate(&self, operation: &'static str, rows: CudaRows, span: Span) -> Result<usize> {
        let reject = |expected: String, received: String, advice: &str| {
            Err(Error::usage(operation, expected, received, advice).at_rank(self.table.core.inner.rank))
        };
        let worker = match rows {
            CudaRows::All => self.table.validate(operation, Rows::All, span.bytes())?,
            CudaRows::List(list) => self.table.validate(operation, Rows::List(list), span.bytes())?,
            CudaRows::Device(ids) => {
                self.table.validate_counted(operation, ids.bytes() / size_of::<i64>(), span.bytes())?
            }
        };
        let device = self.table.device().unwrap_or(span.device());
        let others =
            [Some(span.device()), if let CudaRows::Device(ids) = rows { Some(ids.device()) } else { None }];
        if let Some(other) = others.into_iter().flatten().find(|&other| other != device) {
            let expected = format!("arrays on device {device} for {}", self.table.core.description);
            return reject(expected, format!("one on device {other}"), "move it there first");
        }
        let size = self.table.dtype().size() as u64;
        if !span.address().is_multiple_of(size) {
            return reject("an aligned array".into(), "one at an odd address".into(), "pass a copy");
        }
        Ok(worker)
    }
}

/// An event after which memory borrowed now is ready: a call never waits for user work under a table's lock, nor for work that
/// users enqueue later.
fn ready_event(span: Span) -> Result<Event> {
    Device::get(span.device())?.stream().mark()
}

fn device_row_ids(ids: Span) -> DeviceRowIds {
    DeviceRowIds { address: ids.address(), count: ids.bytes() / size_of::<i64>(), unchecked: true }
}

/// The rows of a call for the host, with ids downloaded from a device.
fn host_rows<'b>(rows: CudaRows<'b>, downloaded: &'b [i64]) -> Rows<'b> {
    match rows {
        CudaRows::All => Rows::All,
        CudaRows::List(list) => Rows::List(list),
        CudaRows::Device(_) => Rows::List(downloaded),
    }
}
