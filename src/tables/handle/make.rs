//! Creation of arrays and matrices: checks, memory, initial values.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::memory::DType;
use crate::tables::engine::base::Base;
use crate::tables::lifecycle::creation::{self, Purpose, TableCreation};
use crate::tables::shard::cuda::{self, DeviceShard, ScratchByDevice};
use crate::tables::shard::dense::core::TableCore;
use crate::tables::shard::dense::layout::TableLayout;
use crate::tables::shard::dense::placement::RowPlacement;
use crate::tables::shard::dense::replica::Replica;
use crate::tables::shard::dense::row_batch::BatchBuffer;
use crate::tables::shard::dense::storage::Storage;
use crate::tables::shard::dense::views::Views;
use crate::tables::shard::shape::TableShape;
use crate::tables::spec::description::{Description, TableKind};
use crate::tables::updater::UpdateRule;
use crate::tables::{AddOptions, Compression, Consistency, Init, Repeats, Table, TableOptions, Tables};

/// Bytes filled or sent at a time when a table is initialized.
const CHUNK: usize = 4 << 20;

/// Row numbers are 32-bit.
const MAX_ROWS: usize = u32::MAX as usize;

/// The parameters of a table to create.
pub(crate) struct TableDefinition {
    pub kind: TableKind,
    pub rows: usize,
    pub cols: usize,
    pub dtype: DType,
    /// For a sparse matrix: whether each worker has a second view.
    pub pipelined: bool,
}

impl TableDefinition {
    fn validate(&self, options: &TableOptions, workers: usize) -> Result<()> {
        let reject = |expected: &str, received: String, advice: &str| {
            Err(Error::usage("table", expected, received, advice))
        };
        if !self.dtype.has_kernels() || matches!(self.dtype, DType::I8 | DType::U8) {
            let types = "float32, float64, float16, bfloat16, int32 or int64";
            return reject(types, self.dtype.to_string(), "choose one of these");
        }
        if self.rows == 0 || self.cols == 0 {
            let received = format!("{} x {}", self.rows, self.cols);
            return reject("at least one element", received, "leave the table out");
        }
        let bytes = self.rows.checked_mul(self.cols).and_then(|len| len.checked_mul(self.dtype.size()));
        if bytes.is_none_or(|bytes| bytes > isize::MAX as usize / 64) {
            let received = format!("{} x {}", self.rows, self.cols);
            return reject("a size that fits into memory", received, "make it smaller");
        }
        if self.rows > MAX_ROWS && self.kind != TableKind::Array {
            let expected = format!("at most {MAX_ROWS} rows");
            return reject(&expected, self.rows.to_string(), "use a key-value table for huge index spaces");
        }
        if self.kind != TableKind::KeyValue && (options.max_rows.is_some() || options.eviction.is_some()) {
            let expected = format!("no max_rows and no eviction for a {} table", self.kind.name());
            return reject(&expected, "some".into(), "only key-value tables grow");
        }
        options.init.validate(self.dtype)?;
        check_consistency(options.consistency, self.kind, self.dtype, workers)?;
        cuda::validate(self.kind, options)
    }
}

/// Rejects consistency models that a table of this kind does not support.
pub(crate) fn check_consistency(
    consistency: Consistency,
    kind: TableKind,
    dtype: DType,
    workers: usize,
) -> Result<()> {
    let reject = |expected: &str, received: String, advice: &str| {
        Err(Error::usage("table", expected, received, advice))
    };
    match consistency {
        Consistency::Bsp { backup, .. } if backup >= workers => {
            let expected = format!("fewer backup workers than the {workers} workers");
            reject(&expected, backup.to_string(), "leave at least one worker that is needed")
        }
        Consistency::Bsp { mean: true, .. } if kind == TableKind::Custom => {
            let expected = format!("another consistency for a {} table", kind.name());
            reject(&expected, consistency.to_string(), "a table of your own combines adds itself")
        }
        Consistency::Bsp { mean: true, .. } if !dtype.is_float() => {
            reject("a float type for means", dtype.to_string(), "use bsp, whose rounds are sums")
        }
        Consistency::Average if !matches!(kind, TableKind::Array | TableKind::Matrix) => {
            let expected = format!("another consistency for a {} table", kind.name());
            reject(&expected, "average".into(), "use a plain array or matrix")
        }
        Consistency::Average if !dtype.is_float() => {
            reject("a float type for averages", dtype.to_string(), "use another consistency")
        }
        _ => Ok(()),
    }
}

/// The checked inputs of table creation. All ranks accept them; whether all ranks want the same is checked later.
pub(crate) struct TablePlan {
    pub description: Description,
    pub rule: Arc<dyn UpdateRule>,
    /// Default options of adds.
    pub add: AddOptions,
}

impl TablePlan {
    pub fn new(
        creation: &TableCreation,
        definition: &TableDefinition,
        options: &TableOptions,
        more: &str,
    ) -> Result<TablePlan> {
        let tables = creation.tables;
        let checked = definition
            .validate(options, tables.workers())
            .and_then(|()| options.updater.rule(definition.dtype))
            .and_then(|rule| {
                rule.check_used(&creation.name, &options.add)?;
                Ok((rule.options(&options.add)?, rule))
            })
            .map_err(|error| error.about_table(&creation.name));
        let (add, rule) = creation.agree_on(checked)?;
        let &TableDefinition { kind, rows, cols, dtype, .. } = definition;
        let mut more = format!(", {} workers, {} servers{more}", tables.workers(), tables.servers());
        let usual = rule.defaults();
        for (name, value) in add.iter().filter(|(name, value)| usual.get(name) != Some(*value)) {
            more.push_str(&format!(", {name} {value}"));
        }
        // An array has no rows to repeat, so the option makes no difference there.
        if kind != TableKind::Array
            && let Some(repeats) = options.repeats
            && repeats != Repeats::default_for(rule.is_linear())
        {
            more.push_str(&format!(", repeats {repeats}"));
        }
        more.push_str(if options.reject_nan { ", rejects NaN" } else { "" });
        if options.compression != Compression::None {
            more.push_str(&format!(", compressed to {}", options.compression));
        }
        let description = Description {
            name: creation.name.clone(),
            kind,
            dtype,
            rows,
            cols,
            updater: rule.name().to_string(),
            consistency: options.consistency,
            more,
        };
        Ok(TablePlan { description, rule, add })
    }
}

impl Table {
    pub(crate) fn make(
        tables: &Tables,
        definition: TableDefinition,
        master: Option<&[u8]>,
        options: TableOptions,
    ) -> Result<Table> {
        tables.group.check_open("table")?;
        let mut more = String::from(if definition.pipelined { ", pipelined" } else { "" });
        if options.init != Init::Zero {
            more.push_str(&format!(", at first {:?}", options.init));
        }
        more.push_str(if options.device.is_some() { ", in CUDA memory" } else { "" });
        let creation = TableCreation::begin(tables, options.name.as_deref(), definition.kind);
        let TablePlan { description, rule, add } = TablePlan::new(&creation, &definition, &options, &more)?;
        let options = TableOptions { add, ..options };
        let TableDefinition { kind, rows, cols, dtype, pipelined } = definition;
        let placement = RowPlacement::new(rows, &tables.inner.roles, &tables.inner.hosts);
        let averages = options.consistency == Consistency::Average;
        if averages && !creation.is_new() {
            return Err(Error::unsupported(
                "table",
                format!("{description} after a restart: this rank's copy ended with its process"),
                "start the whole job again from a checkpoint, or use another consistency",
            ));
        }
        let (row_bytes, state_row_bytes) = (description.row_bytes(), cols * rule.state_dtype().size());
        let layout = TableLayout::new(TableShape {
            rows: if averages { 0 } else { placement.rows_on(tables.inner.host()) },
            row_bytes,
            state_row_bytes,
            planes: rule.shared_planes() + rule.worker_planes() * tables.workers(),
            counts_stripes: kind == TableKind::Array,
            workers: tables.workers(),
            readers: match kind {
                TableKind::SparseMatrix => tables.workers() * if pipelined { 2 } else { 1 },
                _ => 0,
            },
            on_device: options.device.is_some(),
        });
        let endpoint = tables.inner.endpoint.clone();
        let device = options.device.filter(|_| layout.shape.rows > 0);
        let parked = &tables.parked;
        let allocates = |_: &u32| creation.is_new() && tables.inner.is_host_leader();
        let memory =
            device.filter(allocates).map(|device| DeviceShard::allocate(device, &layout.shape, parked));
        let memory = creation.agree_on(memory.transpose())?;
        let extent = creation.allocate(&description, layout.total, |extent| {
            if let (Some(memory), Some(device)) = (&memory, device) {
                DeviceShard::publish(memory, device, &endpoint, tables.inner.rank, (extent, layout.shard));
            }
        })?;
        let replica = averages.then(|| match kind {
            TableKind::Array => {
                Replica::new(rule.clone(), dtype, 1, rows * row_bytes, rows * state_row_bytes)
            }
            _ => Replica::new(rule.clone(), dtype, rows, row_bytes, state_row_bytes),
        });
        let mut base = Base::new(
            &tables.inner,
            creation.is_new(),
            description,
            extent.clone(),
            layout.clock,
            &options,
            rule.is_linear(),
        );
        if base.involves_all_hosts() {
            base.participates = placement.rows_on(tables.inner.host()) > 0;
        }
        // After `Base::new`, because from there on this rank counts as one of the table's users, even if it fails.
        let open = |device| {
            let what = (rule.name(), dtype, layout.shape);
            DeviceShard::open(device, memory, what, &endpoint, (&extent, layout.shard), parked)
        };
        let shard = creation.agree_on(device.map(open).transpose())?;
        let (batch_buffer, scratch) = (BatchBuffer::default(), ScratchByDevice::default());
        let core = Arc::new(TableCore {
            base,
            placement,
            storage: Storage { extent, layout, endpoint, rule, batch_buffer, device_shard: shard, scratch },
            replica,
            views: Views::default(),
            device: options.device,
        });
        // Registered before any rank passes the barrier below: a worker on another host may send a request right after it.
        let _use_guard = tables.inner.register(core.clone());
        let table =
            Table { core, group: tables.group.clone(), _use_guard, _shutdown: Some(tables.shutdown.clone()) };
        if creation.is_new() {
            table.initialize(tables, master, &options.init)?;
        }
        table.core.complete();
        Ok(table)
    }

    /// Fills the table; afterwards all ranks see its initial values.
    fn initialize(&self, tables: &Tables, master: Option<&[u8]>, init: &Init) -> Result<()> {
        let bytes = self.core.description.len() * self.core.description.dtype.size();
        let is_master = tables.inner.worker == Some(0);
        let given = master.filter(|_| is_master);
        let fits = match given {
            Some(values) if values.len() != bytes => {
                let received = format!("{} bytes", values.len());
                Err(Error::usage(
                    "table",
                    format!("{bytes} bytes of initial values"),
                    received,
                    "pass all values",
                ))
            }
            _ => Ok(String::from("values")),
        };
        let purpose = Purpose::new_table(&self.core.description.name);
        creation::agree(&tables.group, &purpose, fits)?;
        let root = tables.inner.roles.workers[0];
        let mut has_values = [i32::from(given.is_some())];
        tables.group.broadcast(&mut has_values, root)?;
        match has_values[0] {
            0 => self.fill(tables, init)?,
            _ if self.core.placement.hosts().len() == 1 && self.core.replica.is_none() => {
                given.map_or(Ok(()), |values| self.set(0, values))?;
            }
            _ => self.broadcast_values(tables, given, root, bytes)?,
        }
        tables.group.barrier()
    }

    /// Every server fills its own shard, and every worker its own copy.
    fn fill(&self, tables: &Tables, init: &Init) -> Result<()> {
        let description = &self.core.description;
        let (row_bytes, rows) = (description.row_bytes(), description.rows);
        let bounds = crate::tables::shard::dense::boundaries::boundaries(rows, tables.servers());
        let (first, end) = match (&self.core.replica, tables.inner.server) {
            _ if *init == Init::Zero => return Ok(()),
            (Some(_), _) => (0, rows),
            (None, Some(server)) => (bounds[server], bounds[server + 1]),
            (None, None) => return Ok(()),
        };
        let step = (CHUNK / row_bytes).max(1);
        let mut buffer = vec![0; step.min(end - first) * row_bytes];
        for row in (first..end).step_by(step) {
            let part = &mut buffer[..step.min(end - row) * row_bytes];
            init.fill(description.dtype, row * description.cols, part);
            self.set(row, part)?;
        }
        Ok(())
    }

    /// Broadcasts the master's values in chunks; each host keeps its own rows.
    fn broadcast_values(
        &self,
        tables: &Tables,
        given: Option<&[u8]>,
        root: usize,
        bytes: usize,
    ) -> Result<()> {
        let row_bytes = self.core.description.row_bytes();
        let step = (CHUNK / row_bytes).max(1) * row_bytes;
        let keeps = self.core.replica.is_some() || tables.inner.is_host_leader();
        let mut buffer = vec![0u8; step.min(bytes)];
        for start in (0..bytes).step_by(step) {
            let part = &mut buffer[..step.min(bytes - start)];
            if let Some(values) = given {
                part.copy_from_slice(&values[start..start + part.len()]);
            }
            tables.group.broadcast(part, root)?;
            if keeps {
                self.set(start / row_bytes, part)?;
            }
        }
        Ok(())
    }

    /// Overwrites those of the rows that this host holds.
    pub(crate) fn set(&self, first: usize, values: &[u8]) -> Result<()> {
        let core = &self.core;
        let row_bytes = core.description.row_bytes();
        if let Some(replica) = &core.replica {
            replica.set_bytes(first * row_bytes, values);
            return Ok(());
        }
        let end = first + values.len() / row_bytes;
        let call = core.call(&self.group, "set");
        for segment in core.placement.on_host(core.host()) {
            let (from, to) = (segment.first.max(first), segment.end.min(end));
            if from < to {
                let part = &values[(from - first) * row_bytes..(to - first) * row_bytes];
                core.storage.set(&call, segment.local + from - segment.first, part)?;
            }
        }
        Ok(())
    }
}
