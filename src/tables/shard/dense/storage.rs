//! A host's rows, in memory shared by its ranks: gets copy them out and adds update them in place, under striped locks.
//!
//! A row is identified by its local index on this host. Lists of rows are sorted by stripe first, so that each lock is acquired
//! once and memory is accessed in one direction.

use std::ops::Range;
use std::sync::Arc;

use super::layout::TableLayout;
use super::row_batch::{BatchBuffer, DeltaRows, RowRef, Stripes};
use super::versions::Versions;
use super::views::Seen;
use crate::error::Result;
use crate::memory::prefetch::prefetch;
use crate::memory::racing::copy_racing;
use crate::memory::stream::stream;
use crate::tables::engine::checkpointable::TableSection;
use crate::tables::engine::header::TableHeader;
use crate::tables::engine::rounds::RoundProgress;
use crate::tables::shard::cuda::{DeviceShard, ScratchByDevice};
use crate::tables::updater::{UpdateContext, UpdateRule};
use crate::transport::Call;
use crate::transport::arena::lock::Lock;
use crate::transport::arena::{Extent, LocalEndpoint, LockGuard};

/// A table's memory on this host.
pub(crate) struct Storage {
    pub extent: Extent,
    pub layout: TableLayout,
    pub endpoint: Arc<LocalEndpoint>,
    pub rule: Arc<dyn UpdateRule>,
    pub batch_buffer: BatchBuffer,
    /// The rows, if they are in device memory.
    pub device_shard: Option<DeviceShard>,
    /// Per-device buffers of this rank's calls.
    pub scratch: ScratchByDevice,
}

/// Adds of fewer rows do not prefetch state: what it saves is less than what it costs if the state is in the cache.
const STATE_PREFETCH_ROWS: usize = 64;

/// Gets of more bytes than this use non-temporal stores: the result is too large to stay in the caches.
const STREAMING_THRESHOLD: usize = 4 << 20;

/// Reads of at most this many bytes of a stripe try to do without its lock. Longer ones are rarely undisturbed, and gain less.
const UNLOCKED_READ: usize = 1024;

/// Lists of rows with at most this many bytes do so, too: they often have few rows in a stripe.
const SHORT_LIST: usize = 64 << 10;

/// How often they try.
const UNLOCKED_ATTEMPTS: usize = 3;

impl Storage {
    pub fn header(&self) -> &TableHeader {
        TableHeader::of(&self.extent)
    }

    /// The first row of a stripe, and the row after its last.
    fn rows_of(&self, stripe: usize) -> (usize, usize) {
        let first = stripe * self.layout.stripe_rows;
        (first, (first + self.layout.stripe_rows).min(self.layout.shape.rows))
    }

    #[inline]
    fn stripe_lock(&self, stripe: usize) -> &Lock {
        assert!(stripe < self.layout.stripes);
        let offset = self.layout.locks + stripe * size_of::<Lock>();
        // SAFETY: the layout has a lock for each stripe there; zeroes are an unlocked lock, and a lock may be shared.
        unsafe { &*self.extent.range(offset, size_of::<Lock>()).cast::<Lock>() }
    }

    /// Locks a stripe for reading; its rows are written under [`LockGuard::for_writing`].
    #[inline]
    pub fn lock(&self, call: &Call, stripe: usize) -> Result<LockGuard<'_>> {
        self.endpoint.acquire(call, self.stripe_lock(stripe), &self.header().recovered)
    }

    /// Reads a few rows of a stripe without its lock, or with it if others keep writing: `read` may run several times.
    #[inline]
    fn read_few(&self, call: &Call, stripe: usize, mut read: impl FnMut()) -> Result<()> {
        let lock = self.stripe_lock(stripe);
        if (0..UNLOCKED_ATTEMPTS).any(|_| lock.read_unlocked(&mut read)) {
            return Ok(());
        }
        let _guard = self.lock(call, stripe)?;
        read();
        Ok(())
    }

    #[inline(always)]
    pub(super) fn row(&self, row: usize, rows: usize) -> *mut u8 {
        let bytes = self.layout.shape.row_bytes;
        self.extent.range(self.layout.values + row * bytes, rows * bytes)
    }

    /// All rows in at most `count` ranges of full stripes.
    pub fn stripe_aligned_ranges(&self, count: usize) -> Vec<Range<usize>> {
        let rows = self.layout.shape.rows;
        let part = self.layout.stripes.div_ceil(count.max(1)).max(1) * self.layout.stripe_rows;
        (0..rows).step_by(part).map(|first| first..(first + part).min(rows)).collect()
    }

    /// The stripes that contain these rows, starting at a different stripe for each worker to reduce contention.
    fn stripes(&self, first: usize, rows: usize, worker: usize) -> impl Iterator<Item = usize> + use<> {
        let start = first / self.layout.stripe_rows;
        let count = if rows == 0 { 0 } else { (first + rows - 1) / self.layout.stripe_rows + 1 - start };
        let shift = count * (worker % self.layout.shape.workers.max(1)) / self.layout.shape.workers.max(1);
        (0..count).map(move |index| start + (index + shift) % count)
    }

    /// The stripes for a list of rows; each worker starts at a different one.
    fn stripes_from(&self, worker: usize) -> Stripes {
        let (count, workers) = (self.layout.stripes, self.layout.shape.workers.max(1));
        Stripes { rows: self.layout.stripe_rows, count, first: count * (worker % workers) / workers }
    }

    /// Copies consecutive rows.
    pub fn get(&self, call: &Call, worker: usize, first: usize, out: &mut [u8]) -> Result<()> {
        let bytes = self.layout.shape.row_bytes;
        if let Some(shard) = &self.device_shard {
            return self.device_read(call, shard, TableSection::Values, first * bytes, out);
        }
        let rows = out.len() / bytes;
        let large = out.len() > STREAMING_THRESHOLD;
        for stripe in self.stripes(first, rows, worker) {
            let (from, to) = self.rows_of(stripe);
            let (from, to) = (from.max(first), to.min(first + rows));
            let part = &mut out[(from - first) * bytes..(to - first) * bytes];
            let source = self.row(from, to - from);
            if part.len() <= UNLOCKED_READ {
                // SAFETY: the source is in the table's memory.
                self.read_few(call, stripe, || unsafe { copy_racing(source, part) })?;
                continue;
            }
            let _guard = self.lock(call, stripe)?;
            // SAFETY: the source is within this stripe, whose lock is held; the destination is a separate slice.
            unsafe {
                match large {
                    true => stream(source, part.as_mut_ptr(), part.len()),
                    false => part.as_mut_ptr().copy_from_nonoverlapping(source, part.len()),
                }
            }
        }
        Ok(())
    }

    /// Copies listed rows, each to its position.
    pub fn get_list(
        &self,
        call: &Call,
        worker: usize,
        row_refs: impl Iterator<Item = RowRef> + Clone,
        out: &mut [u8],
    ) -> Result<()> {
        let bytes = self.layout.shape.row_bytes;
        if let Some(shard) = &self.device_shard {
            let take = |place: usize, row: &[u8]| out[place * bytes..][..bytes].copy_from_slice(row);
            return self.device_get_list(call, shard, row_refs, take);
        }
        if out.len() <= SHORT_LIST {
            return self.get_short_list(call, worker, row_refs, out);
        }
        self.batch_buffer.by_stripe(row_refs, self.stripes_from(worker), |group| {
            let _guard = self.lock(call, group.stripe)?;
            let start = out.as_ptr();
            let ahead = |row_ref: &RowRef| {
                prefetch(self.row(row_ref.row as usize, 1), bytes);
                prefetch(start.wrapping_add(row_ref.position as usize * bytes), bytes);
            };
            group.each(ahead, |row_ref| {
                let target = &mut out[row_ref.position as usize * bytes..][..bytes];
                // SAFETY: the row is in this stripe, whose lock is held; the destination is a separate slice.
                unsafe {
                    target.as_mut_ptr().copy_from_nonoverlapping(self.row(row_ref.row as usize, 1), bytes);
                }
            });
            Ok(())
        })
    }

    /// As [`Storage::get_list`] in host memory, for short lists: a function of its own, so that it takes no registers from the loop
    /// over long ones.
    #[inline(never)]
    fn get_short_list(
        &self,
        call: &Call,
        worker: usize,
        row_refs: impl Iterator<Item = RowRef> + Clone,
        out: &mut [u8],
    ) -> Result<()> {
        let bytes = self.layout.shape.row_bytes;
        self.batch_buffer.by_stripe(row_refs, self.stripes_from(worker), |group| {
            let ahead = |row_ref: &RowRef| prefetch(self.row(row_ref.row as usize, 1), bytes);
            let mut copy = |row_ref: &RowRef| {
                let target = &mut out[row_ref.position as usize * bytes..][..bytes];
                // SAFETY: the row is in the table's memory.
                unsafe { copy_racing(self.row(row_ref.row as usize, 1), target) };
            };
            if group.len() * bytes <= UNLOCKED_READ {
                return self.read_few(call, group.stripe, || group.each(ahead, &mut copy));
            }
            let _guard = self.lock(call, group.stripe)?;
            group.each(ahead, copy);
            Ok(())
        })
    }

    /// Overwrites consecutive rows; state and step counts are unchanged.
    pub fn set(&self, call: &Call, first: usize, values: &[u8]) -> Result<()> {
        let bytes = self.layout.shape.row_bytes;
        self.copy_in(call, TableSection::Values, first * bytes, values)?;
        if let Some(versions) = self.versions() {
            (first..first + values.len() / bytes).for_each(|row| versions.change(row));
        }
        Ok(())
    }

    /// Adds to consecutive rows. `skip` returns whether a row of the delta has no effect.
    pub fn add(
        &self,
        call: &Call,
        first: usize,
        delta: &[u8],
        context: &UpdateContext,
        skip: &dyn Fn(usize) -> bool,
    ) -> Result<()> {
        let bytes = self.layout.shape.row_bytes;
        let rows = delta.len() / bytes;
        if let Some(shard) = &self.device_shard {
            if self.versions().is_none() {
                return self.device_add(call, shard, delta, context, || ());
            }
            let row = |row: usize| RowRef { row: (first + row) as u32, position: row as u32 };
            let row_refs = (0..rows).filter(|&row| !skip(row)).map(row);
            return self.add_list(call, row_refs, DeltaRows::new(&[delta], bytes), context);
        }
        for stripe in self.stripes(first, rows, context.worker) {
            let (from, to) = self.rows_of(stripe);
            let (from, to) = (from.max(first), to.min(first + rows));
            let _guard = self.lock(call, stripe)?.for_writing();
            match self.versions() {
                None => self.update(from, &delta[(from - first) * bytes..(to - first) * bytes], context),
                Some(versions) => {
                    for row in (from..to).filter(|row| !skip(row - first)) {
                        versions.change(row);
                        self.update(row, &delta[(row - first) * bytes..][..bytes], context);
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds to listed rows; a row that is listed twice is updated twice, in list order.
    pub fn add_list(
        &self,
        call: &Call,
        row_refs: impl Iterator<Item = RowRef> + Clone,
        delta: DeltaRows,
        context: &UpdateContext,
    ) -> Result<()> {
        if let Some(shard) = &self.device_shard {
            return self.device_add_list(call, shard, row_refs, &delta.joined(), context, || ());
        }
        let bytes = self.layout.shape.row_bytes;
        match delta.single() {
            Some(rows) if rows.len() < STATE_PREFETCH_ROWS * bytes || self.layout.shape.planes == 0 => {
                self.add_rows(call, row_refs, |at| &rows[at * bytes..][..bytes], context, |_| ())
            }
            Some(rows) => {
                let state = self.state_columns(context.worker);
                let ahead = |row| self.prefetch_state(&state, row);
                self.add_rows(call, row_refs, |at| &rows[at * bytes..][..bytes], context, ahead)
            }
            None => {
                let state = self.state_columns(context.worker);
                let ahead = |row| self.prefetch_state(&state, row);
                self.add_rows(call, row_refs, |at| delta.row(at), context, ahead)
            }
        }
    }

    /// As [`Storage::add_list`], in host memory; `delta` gives the row at a position of the list, and `prefetch_state` prefetches the
    /// state of a row.
    #[inline]
    fn add_rows<'a>(
        &self,
        call: &Call,
        row_refs: impl Iterator<Item = RowRef> + Clone,
        delta: impl Fn(usize) -> &'a [u8],
        context: &UpdateContext,
        prefetch_state: impl Fn(usize),
    ) -> Result<()> {
        let (bytes, versions) = (self.layout.shape.row_bytes, self.versions());
        self.batch_buffer.by_stripe(row_refs, self.stripes_from(context.worker), |group| {
            let _guard = self.lock(call, group.stripe)?.for_writing();
            let ahead = |row_ref: &RowRef| {
                prefetch(self.row(row_ref.row as usize, 1), bytes);
                prefetch(delta(row_ref.position as usize).as_ptr(), bytes);
                prefetch_state(row_ref.row as usize);
            };
            group.each(ahead, |row_ref| {
                versions.iter().for_each(|versions| versions.change(row_ref.row as usize));
                self.update(row_ref.row as usize, delta(row_ref.position as usize), context);
            });
            Ok(())
        })
    }

    /// Applies one step to the given rows, or to all, in the stripes that have not had it yet. The rows are sorted and distinct.
    pub fn step(
        &self,
        call: &Call,
        rows: Option<&[u32]>,
        delta: &[u8],
        context: &UpdateContext,
        progress: &RoundProgress,
    ) -> Result<()> {
        let bytes = self.layout.shape.row_bytes;
        if let Some(shard) = &self.device_shard {
            if progress.next() > 0 {
                return Ok(());
            }
            let begin = || progress.begin(0);
            let row_ref =
                |at: usize| RowRef { row: rows.map_or(at as u32, |rows| rows[at]), position: at as u32 };
            if rows.is_none() && self.versions().is_none() {
                return self.device_add(call, shard, delta, context, begin);
            }
            let row_refs = (0..delta.len() / bytes).map(row_ref);
            return self.device_add_list(call, shard, row_refs, delta, context, begin);
        }
        for stripe in progress.next()..self.layout.stripes {
            let (from, to) = self.rows_of(stripe);
            let before =
                |end: usize| rows.map_or(end, |rows| rows.partition_point(|&row| (row as usize) < end));
            let places = before(from)..before(to);
            if places.is_empty() {
                continue;
            }
            let _guard = self.lock(call, stripe)?.for_writing();
            progress.begin(stripe);
            let Some(rows) = rows else {
                self.update(from, &delta[from * bytes..to * bytes], context);
                continue;
            };
            for place in places {
                let row = rows[place] as usize;
                self.versions().iter().for_each(|versions| versions.change(row));
                self.update(row, &delta[place * bytes..][..bytes], context);
            }
        }
        Ok(())
    }

    /// The row versions that each reader has seen, for a sparse matrix.
    pub fn versions(&self) -> Option<Versions<'_>> {
        let readers = self.layout.shape.readers;
        (readers > 0)
            .then(|| Versions::new(&self.extent, self.layout.versions, self.layout.shape.rows, readers))
    }

    /// Passes those of the listed rows to `take` whose current version this reader has not seen. They count as seen once the
    /// caller calls [`Storage::mark_seen`]: until then the call may still fail, and the rows must then be returned again.
    pub fn get_changed(
        &self,
        call: &Call,
        reader: usize,
        row_refs: impl Iterator<Item = RowRef> + Clone,
        mut take: impl FnMut(RowRef, &[u8]),
    ) -> Result<Vec<Seen>> {
        let versions = self.versions().expect("a sparse matrix has versions");
        let (bytes, mut seen) = (self.layout.shape.row_bytes, Vec::new());
        if let Some(shard) = &self.device_shard {
            // Read before the rows: a row that changes in between is returned again.
            let unseen = |row_ref: RowRef| Some((row_ref, versions.unseen(reader, row_ref.row as usize)?));
            let unseen: Vec<(RowRef, u32)> = row_refs.filter_map(unseen).collect();
            let wanted = unseen.iter().enumerate();
            let wanted = wanted.map(|(at, (row_ref, _))| RowRef { row: row_ref.row, position: at as u32 });
            self.device_get_list(call, shard, wanted, |at, row| take(unseen[at].0, row))?;
            return Ok(unseen.iter().map(|(row_ref, version)| (row_ref.row, *version)).collect());
        }
        self.batch_buffer.by_stripe(row_refs, self.stripes_from(0), |group| {
            let _guard = self.lock(call, group.stripe)?;
            group.each(
                |_| {},
                |&row_ref| {
                    if let Some(version) = versions.unseen(reader, row_ref.row as usize) {
                        // SAFETY: the row is in this stripe, whose lock is held.
                        let row =
                            unsafe { std::slice::from_raw_parts(self.row(row_ref.row as usize, 1), bytes) };
                        take(row_ref, row);
                        seen.push((row_ref.row, version));
                    }
                },
            );
            Ok(())
        })?;
        Ok(seen)
    }

    /// The reader has received these rows in these versions.
    pub fn mark_seen(&self, reader: usize, seen: &[Seen]) {
        let versions = self.versions().expect("a sparse matrix has versions");
        seen.iter().for_each(|&(row, version)| versions.mark_seen(reader, row as usize, version));
    }

    /// The offset of a section, and its bytes per row (per stripe, if steps are counted by stripe).
    fn section_start(&self, section: TableSection) -> (usize, usize) {
        let shape = &self.layout.shape;
        match section {
            TableSection::Values => (self.layout.values, shape.row_bytes),
            TableSection::Plane(plane) => (self.layout.plane(plane), shape.state_row_bytes),
            TableSection::Steps => (self.layout.steps, 8),
        }
    }

    /// Visits a byte range of a section, under a guard for each stripe it overlaps: `each` gets a pointer into the table and the
    /// corresponding part of the range.
    fn walk<'a, G>(
        &'a self,
        call: &Call,
        section: TableSection,
        range: Range<usize>,
        guard: impl Fn(LockGuard<'a>) -> G,
        mut each: impl FnMut(*mut u8, Range<usize>),
    ) -> Result<()> {
        let (base, unit) = self.section_start(section);
        let counts_stripes = section == TableSection::Steps && self.layout.shape.counts_stripes;
        let stripe_bytes = unit * if counts_stripes { 1 } else { self.layout.stripe_rows };
        let mut at = range.start;
        while at < range.end {
            let stripe = at / stripe_bytes;
            let end = range.end.min((stripe + 1) * stripe_bytes);
            let _guard = guard(self.lock(call, stripe)?);
            each(self.extent.range(base + at, end - at), at - range.start..end - range.start);
            at = end;
        }
        Ok(())
    }

    /// Copies bytes of a section, from `start` on.
    pub fn copy_out(&self, call: &Call, section: TableSection, start: usize, out: &mut [u8]) -> Result<()> {
        if let Some(shard) = &self.device_shard {
            return self.device_read(call, shard, section, start, out);
        }
        let reading = |guard| guard;
        self.walk(call, section, start..start + out.len(), reading, |place, range| {
            let part = &mut out[range];
            // SAFETY: the pointer is within a stripe whose lock is held; the destination is a separate slice.
            unsafe { part.as_mut_ptr().copy_from_nonoverlapping(place, part.len()) };
        })
    }

    /// Overwrites bytes of a section, from `start` on.
    pub fn copy_in(&self, call: &Call, section: TableSection, start: usize, bytes: &[u8]) -> Result<()> {
        if let Some(shard) = &self.device_shard {
            return self.device_write(call, shard, section, start, bytes);
        }
        self.walk(call, section, start..start + bytes.len(), LockGuard::for_writing, |place, range| {
            let part = &bytes[range];
            // SAFETY: the pointer is within a stripe whose lock is held.
            unsafe { place.copy_from_nonoverlapping(part.as_ptr(), part.len()) };
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::error::Kind;
    use crate::tables::{Role, Rows, SparseMatrixTable, TableOptions, Tables};
    use crate::testing::spawn_on_hosts;

    const ROWS: usize = 6;
    const COLS: usize = 40_000; // one row per stripe

    /// A failed sparse get marks nothing as seen, on any host, even if its reply is in flight.
    #[test]
    fn rows_that_did_not_arrive_come_again() {
        for (ranks, hosts) in [(1, 1), (2, 2)] {
            spawn_on_hosts(ranks, hosts, |world| {
                let tables = Tables::join(world, Role::Both).unwrap();
                let shape = (ROWS, COLS);
                let options = TableOptions::default();
                let table = SparseMatrixTable::<f32>::create(&tables, shape, None, false, options).unwrap();
                let core = &table.table().core;
                let call = core.call(&tables.group, "get");
                let mut out = vec![0.0; ROWS * COLS];
                let last = world.rank() == ranks - 1;
                let held = last.then(|| core.storage.lock(&call, core.storage.layout.stripes - 1).unwrap());
                tables.barrier().unwrap();
                if world.rank() == 0 {
                    let hasty = table.table().with_timeout(Duration::from_millis(150));
                    let bytes = bytemuck::cast_slice_mut(&mut out);
                    let error = hasty.get_changed(0, Rows::All, bytes).unwrap_err();
                    assert_eq!(error.kind(), Kind::Timeout, "{error}");
                }
                tables.barrier().unwrap();
                drop(held);
                let all: Vec<i64> = (0..ROWS as i64).collect();
                assert_eq!(table.get_changed(0, &mut out).unwrap(), all);
                assert_eq!(table.get_changed(0, &mut out).unwrap(), [0; 0]);
                tables.barrier().unwrap();
            });
        }
    }
}
