//! The untyped table handle, as bindings use it: the element type is known only at run time.

use std::sync::Arc;

use super::common::{common_calls, updater_calls};
use super::make::TableDefinition;
use crate::error::{Error, Result};
use crate::memory::{DType, contains_nan};
use crate::tables::engine::call;
use crate::tables::engine::registry::UseGuard;
use crate::tables::engine::repeats::{SummedRepeats, get_once};
use crate::tables::engine::stats::{CallCounts, TableStats};
use crate::tables::lifecycle::tables::ShutdownGuard;
use crate::tables::shard::dense::calls::{ChangedGet, RowsAdd, RowsGet};
use crate::tables::shard::dense::core::TableCore;
use crate::tables::spec::description::TableKind;
use crate::tables::{AddOptions, Rows, TableOptions, Tables};
use crate::transport::Call;
use crate::world::{Group, Pending};

/// An array, matrix or sparse matrix shared by the workers. Values are passed as bytes of the table's element type, row by row.
///
/// [`ArrayTable`](crate::tables::ArrayTable), [`MatrixTable`](crate::tables::MatrixTable) and [`SparseMatrixTable`](crate::tables::SparseMatrixTable) are
/// its typed counterparts.
#[derive(Clone)]
pub struct Table {
    pub(crate) core: Arc<TableCore>,
    pub(crate) group: Group,
    pub(crate) _use_guard: Arc<UseGuard>,
    /// When the last of these is dropped, the world's tables shut down; background work holds none.
    pub(crate) _shutdown: Option<Arc<ShutdownGuard>>,
}

impl Table {
    common_calls!();
    updater_calls!(storage.rule);

    /// Creates an array of `size` elements. Collective. If worker 0 passes values, they initialize the table.
    pub fn array(
        tables: &Tables,
        size: usize,
        dtype: DType,
        master: Option<&[u8]>,
        options: TableOptions,
    ) -> Result<Table> {
        let definition =
            TableDefinition { kind: TableKind::Array, rows: size, cols: 1, dtype, pipelined: false };
        Table::make(tables, definition, master, options)
    }

    /// Creates a matrix of `shape` (rows, columns), distributed by rows. Collective.
    pub fn matrix(
        tables: &Tables,
        shape: (usize, usize),
        dtype: DType,
        master: Option<&[u8]>,
        options: TableOptions,
    ) -> Result<Table> {
        let definition = TableDefinition {
            kind: TableKind::Matrix,
            rows: shape.0,
            cols: shape.1,
            dtype,
            pipelined: false,
        };
        Table::make(tables, definition, master, options)
    }

    /// Creates a matrix that tracks what each worker has seen, for [`Table::get_changed`]; two views per worker if `pipelined`.
    /// Collective.
    pub fn sparse_matrix(
        tables: &Tables,
        shape: (usize, usize),
        dtype: DType,
        master: Option<&[u8]>,
        pipelined: bool,
        options: TableOptions,
    ) -> Result<Table> {
        let definition =
            TableDefinition { kind: TableKind::SparseMatrix, rows: shape.0, cols: shape.1, dtype, pipelined };
        Table::make(tables, definition, master, options)
    }

    /// The table's kind.
    pub fn kind(&self) -> TableKind {
        self.core.description.kind
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.core.description.dtype
    }

    /// Number of rows; for an array, the number of elements.
    pub fn rows(&self) -> usize {
        self.core.description.rows
    }

    /// Number of columns; an array has one.
    pub fn cols(&self) -> usize {
        self.core.description.cols
    }

    /// Copies rows into `out`.
    pub fn get(&self, rows: Rows, out: &mut [u8]) -> Result<()> {
        let worker = self.validate("get", rows, out.len())?;
        let call = self.core.ordered_call(&self.group, "get")?;
        self.get_now(&call, worker, rows, out)
    }

    pub(crate) fn get_now(&self, call: &Call, worker: usize, rows: Rows, out: &mut [u8]) -> Result<()> {
        if let Some(replica) = &self.core.replica {
            replica.get(rows, out);
            self.core.counts.unclocked_get();
        } else {
            let get =
                |rows: Rows, out: &mut [u8]| call::get(&*self.core, call, worker, &mut RowsGet { rows, out });
            match rows {
                // In shared memory, finding repeats would cost more than copying them.
                Rows::List(list) if self.core.inner.remote().is_some() => {
                    get_once(list, out, |list, out| get(Rows::List(list), out))?;
                }
                _ => get(rows, out)?,
            }
        }
        self.count(rows.listed(), CallCounts::read);
        Ok(())
    }

    /// Adds `delta` to rows, by the table's updater; returns once it is applied on all hosts. [`TableOptions::repeats`] is what
    /// happens to a row that is listed more than once.
    pub fn add(&self, rows: Rows, delta: &[u8], options: &AddOptions) -> Result<()> {
        let worker = self.validate_add(rows, delta, options)?;
        let call = self.core.ordered_call(&self.group, "add")?;
        self.add_now(&call, worker, rows, delta, options, true)
    }

    /// As [`Table::add`], but an add that must wait does so in the background: `delta` may be reused immediately, and
    /// [`Tables::flush`] or the next call on this table reports errors.
    pub fn add_soon(&self, rows: Rows, delta: &[u8], options: &AddOptions) -> Result<()> {
        let worker = self.validate_add(rows, delta, options)?;
        if self.core.may_add_now(worker) {
            let call = self.core.call(&self.group, "add");
            return self.add_now(&call, worker, rows, delta, options, false);
        }
        let (table, delta, options) = (self.in_background(), delta.to_vec(), *options);
        let rows = rows.to_owned();
        self.core.queue.run_detached(move || {
            let call = table.core.call(&table.group, "add");
            table.add_now(&call, worker, Rows::of(&rows), &delta, &options, true)
        });
        Ok(())
    }

    pub(crate) fn add_now(
        &self,
        call: &Call,
        worker: usize,
        rows: Rows,
        delta: &[u8],
        options: &AddOptions,
        wait: bool,
    ) -> Result<()> {
        let (listed, summed) = (rows, self.summed_repeats(rows, delta));
        let (rows, delta) = match &summed {
            Some(SummedRepeats { keys, delta }) => (Rows::List(keys), &delta[..]),
            None => (rows, delta),
        };
        if let Some(replica) = &self.core.replica {
            replica.add(rows, delta, &options.or(&self.core.add));
            self.core.counts.unclocked_add();
        } else {
            call::add(&*self.core, call, worker, wait, &mut RowsAdd { rows, delta, options })?;
        }
        self.count(listed.listed(), CallCounts::added);
        Ok(())
    }

    /// Counts the rows of a call; those of an array follow from the number of calls.
    pub(crate) fn count(&self, listed: Option<usize>, count: impl Fn(&CallCounts, usize)) {
        if self.kind() != TableKind::Array {
            count(&self.core.counts, listed.unwrap_or(self.rows()));
        }
    }

    /// Sizes of the table (under `average`, of this worker's copy), and this worker's calls. Any rank may call it; it waits for
    /// no other rank.
    pub fn stats(&self) -> Result<TableStats> {
        self.core.check_open(&self.group, "stats")?;
        let (shape, rule) = (&self.core.storage.layout.shape, &self.core.storage.rule);
        let planes = match &self.core.replica {
            None => shape.planes,
            // A worker's copy has state for this worker alone.
            Some(_) => rule.shared_planes() + rule.worker_planes(),
        };
        let mut stats = self.core.stats(self.rows(), planes, shape.state_row_bytes);
        if self.kind() == TableKind::Array {
            (stats.rows_read, stats.rows_added) = (stats.gets * stats.rows, stats.adds * stats.rows);
        }
        Ok(stats)
    }

    /// The distinct rows of an add and the sum of each, if the table sums rows that an add repeats and this one repeats any.
    pub(crate) fn summed_repeats(&self, rows: Rows, delta: &[u8]) -> Option<SummedRepeats<i64>> {
        match rows {
            Rows::List(list) if self.core.sums_repeats && list.len() > 1 => {
                SummedRepeats::of(&self.core.storage.rule, self.cols(), list, delta)
            }
            _ => None,
        }
    }

    /// Starts a get in the background. `None` means all rows.
    pub fn start_get<B>(&self, rows: Option<Vec<i64>>, mut out: B) -> Pending<B>
    where
        B: AsMut<[u8]> + Send + 'static,
    {
        let worker = self.validate("get", Rows::of(&rows), out.as_mut().len());
        self.start("get", worker, move |table, call, worker| {
            table.get_now(call, worker, Rows::of(&rows), out.as_mut())?;
            Ok(out)
        })
    }

    /// Starts an add in the background. `None` means all rows.
    pub fn start_add<B: AsRef<[u8]> + Send + 'static>(
        &self,
        rows: Option<Vec<i64>>,
        delta: B,
        options: AddOptions,
    ) -> Pending<B> {
        let worker = self.validate_add(Rows::of(&rows), delta.as_ref(), &options);
        self.start("add", worker, move |table, call, worker| {
            table.add_now(call, worker, Rows::of(&rows), delta.as_ref(), &options, true)?;
            Ok(delta)
        })
    }

    /// Copies those of the rows that changed since this worker's last call for the same `buffer` (0, or 1 if the table is
    /// pipelined) to their positions in `out`; returns the numbers of these rows. The rest of `out` is unchanged.
    pub fn get_changed(&self, buffer: usize, rows: Rows, out: &mut [u8]) -> Result<Vec<i64>> {
        let worker = self.validate("get_changed", rows, out.len())?;
        let reader = self.core.reader(worker, buffer)?;
        let call = self.core.ordered_call(&self.group, "get_changed")?;
        let all: Vec<i64>;
        let list = match rows {
            Rows::List(list) => list,
            Rows::All => {
                all = (0..self.rows() as i64).collect();
                &all
            }
        };
        let (changed, seen, asked) = (Vec::new(), Vec::new(), Vec::new());
        let mut get = ChangedGet { reader, buffer, list, out, changed, seen, asked };
        call::get(&*self.core, &call, worker, &mut get)?;
        let ChangedGet { mut changed, seen, .. } = get;
        self.core.counts.read(changed.len());
        // Rows count as seen only if the full call succeeds: after an error all of them are returned again.
        self.core.storage.mark_seen(reader, &seen);
        changed.sort_unstable();
        changed.dedup();
        Ok(changed)
    }

    /// Begins this worker's next step, which the bound of `ssp` counts. Under `average`, all workers call it, and each copy is
    /// replaced by the average of all copies.
    ///
    /// ```
    /// # use unisono::World;
    /// # use unisono::tables::{ArrayTable, Consistency, Role, TableOptions, Tables};
    /// # let world = World::init()?;
    /// # let tables = Tables::join(&world, Role::Both)?;
    /// let options = TableOptions { consistency: Consistency::Ssp { bound: 2 }, ..TableOptions::default() };
    /// let weights = ArrayTable::<f32>::create(&tables, 3, None, options)?;
    /// while weights.clock()? < 10 {
    ///     weights.add(&[1.0, 2.0, 3.0])?;
    ///     weights.tick()?;
    /// }
    /// # Ok::<(), unisono::Error>(())
    /// ```
    pub fn tick(&self) -> Result<()> {
        if let Some(replica) = &self.core.replica {
            self.core.worker(&self.group, "tick")?;
            self.core.flush(&self.group)?;
            let members = self.core.inner.workers_group(&self.group)?;
            replica.average(&members, self.core.description.len() * self.dtype().size())?;
        }
        self.core.tick(&self.group)
    }

    /// Validates a call before it has any effect; returns the caller's worker id.
    pub(crate) fn validate(&self, operation: &str, rows: Rows, bytes: usize) -> Result<usize> {
        match rows {
            Rows::All => self.validate_size(operation, self.core.description.rows, bytes),
            Rows::List(list) => {
                self.validate_rows(operation, list)?;
                self.validate_counted(operation, list.len(), bytes)
            }
        }
    }

    /// Rejects a list that contains an invalid row id.
    pub(crate) fn validate_rows(&self, operation: &str, list: &[i64]) -> Result<()> {
        let outside = |row: &i64| *row < 0 || *row as u64 >= self.core.description.rows as u64;
        match list.iter().position(outside) {
            Some(position) => Err(self.row_out_of_range(operation, list[position], position)),
            None => Ok(()),
        }
    }

    /// The error for an invalid row id.
    pub(crate) fn row_out_of_range(&self, operation: &str, id: i64, position: usize) -> Error {
        let description = &self.core.description;
        let expected = format!("row ids from 0 to {} in {description}", description.rows - 1);
        let received = format!("{id} at position {position}");
        Error::usage(operation, expected, received, "row ids count from 0").at_rank(self.core.inner.rank)
    }

    /// Validates a call on `count` listed rows, except for the list itself; returns the caller's worker id.
    pub(crate) fn validate_counted(&self, operation: &str, count: usize, bytes: usize) -> Result<usize> {
        let reject = |expected: String, received: String, advice: &str| {
            Err(Error::usage(operation, expected, received, advice).at_rank(self.core.inner.rank))
        };
        if self.kind() == TableKind::Array {
            let expected = format!("all of {}", self.core.description);
            return reject(expected, "a list of rows".into(), "use a matrix for rows");
        }
        if u32::try_from(count).is_err() {
            let expected = format!("at most {} rows at a time", u32::MAX);
            return reject(expected, count.to_string(), "make several calls");
        }
        self.validate_size(operation, count, bytes)
    }

    /// Checks that the buffer of a call on `count` rows has the right size; returns the caller's worker id.
    fn validate_size(&self, operation: &str, count: usize, bytes: usize) -> Result<usize> {
        let worker = self.core.worker(&self.group, operation)?;
        let (description, rank) = (&self.core.description, self.core.inner.rank);
        let size = description.dtype.size();
        if count.checked_mul(description.row_bytes()) == Some(bytes) {
            return Ok(worker);
        }
        let expected = format!(
            "{} elements ({count} x {}) of {} for {description}",
            count * description.cols,
            description.cols,
            description.dtype
        );
        let received = format!("{} ({bytes} bytes)", bytes / size);
        let advice = "pass one row of values for each row id";
        Err(Error::usage(operation, expected, received, advice).at_rank(rank))
    }

    pub(crate) fn validate_add(&self, rows: Rows, delta: &[u8], options: &AddOptions) -> Result<usize> {
        let worker = self.validate("add", rows, delta.len())?;
        self.validate_options(options)?;
        match self.core.reject_nan.then(|| contains_nan(delta, self.dtype())).flatten() {
            Some(index) => Err(self.found_nan(index)),
            None => Ok(worker),
        }
    }

    /// The error for a delta that contains a NaN.
    pub(crate) fn found_nan(&self, index: usize) -> Error {
        let (row, column) = (index / self.cols(), index % self.cols());
        let received = format!("NaN at row {row}, column {column} of the delta");
        let advice = "look for the cause in your gradients; nothing was added";
        Error::usage("add", "numbers (reject_nan is set)", received, advice).at_rank(self.core.inner.rank)
    }
}
