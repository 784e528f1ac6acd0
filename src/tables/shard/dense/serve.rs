//! Serving requests of other hosts' workers on this host's rows.

use std::sync::Arc;

use super::core::TableCore;
use super::parallel;
use super::row_batch::{DeltaRows, RowRef};
use super::views::SequenceNumbers;
use crate::error::{Error, Result};
use crate::tables::AddOptions;
use crate::tables::engine::base::Turn;
use crate::tables::engine::call::{count_local_get, get_local};
use crate::tables::engine::registry::OpenTable;
use crate::tables::engine::rounds::{add_to_round, apply_complete_rounds};
use crate::tables::remote::{PIECE_BYTES, RemoteRequest, ReplyReader, RequestVerb, RowList};
use crate::tables::updater::UpdateContext;
use crate::transport::Call;

impl OpenTable for TableCore {
    fn serve(&self, call: &Call, worker: usize, request: &RemoteRequest) -> Result<Vec<u8>> {
        match request.verb {
            RequestVerb::Get => self.serve_get(call, worker, request),
            RequestVerb::GetChanged { buffer } => {
                self.serve_changed(call, worker, usize::from(buffer), request)
            }
            RequestVerb::Add => self.serve_add(call, worker, request).map(|()| Vec::new()),
            _ => Err(self.unexpected_request(request)),
        }
    }

    fn reply_reader(
        self: Arc<Self>,
        worker: usize,
        request: &RemoteRequest,
    ) -> Result<Option<Box<dyn ReplyReader>>> {
        if request.verb != RequestVerb::Get || request.reply.is_some() {
            return Ok(None);
        }
        let row_refs = self.requested_rows(request)?;
        let rows = row_refs.as_ref().map_or(self.placement.rows_on(self.host()), Vec::len);
        let is_long = rows * self.description.row_bytes() > PIECE_BYTES;
        let stripe = |row_ref: &RowRef| row_ref.row as usize / self.storage.layout.stripe_rows;
        // Rows in any order are in many stripes, each of which is locked once for every piece.
        let is_sorted = row_refs.as_ref().is_none_or(|row_refs| row_refs.is_sorted_by_key(stripe));
        let piece_bytes = if is_sorted { PIECE_BYTES } else { 4 * PIECE_BYTES };
        let reader = || RowsReader { table: self, worker, row_refs, rows, piece_bytes, read: 0 };
        Ok(is_long.then(|| Box::new(reader()) as Box<dyn ReplyReader>))
    }
}

/// Reads the rows of a long get.
struct RowsReader {
    table: Arc<TableCore>,
    worker: usize,
    /// The listed rows; `None` for all.
    row_refs: Option<Vec<RowRef>>,
    rows: usize,
    piece_bytes: usize,
    /// The number of rows already read.
    read: usize,
}

impl RowsReader {
    fn next_rows(&self) -> usize {
        (self.piece_bytes / self.table.description.row_bytes()).max(1).min(self.rows - self.read)
    }
}

impl ReplyReader for RowsReader {
    fn next_bytes(&self) -> usize {
        self.next_rows() * self.table.description.row_bytes()
    }

    fn read(&mut self, piece: &mut [u8]) -> Result<bool> {
        let (table, first, rows) = (&*self.table, self.read, self.next_rows());
        let call = table.call(&table.inner.registry.group, "a request from another host");
        if first == 0 {
            apply_complete_rounds(table, &call)?;
        }
        match &self.row_refs {
            None => table.storage.get(&call, self.worker, first, piece)?,
            Some(row_refs) => {
                let row_refs = in_piece(row_refs, first, rows);
                table.storage.get_list(&call, self.worker, row_refs, piece)?;
            }
        }
        self.read += rows;
        let more = self.read < self.rows;
        if !more {
            count_local_get(&table.base, self.worker);
        }
        Ok(more)
    }
}

/// The rows of a list that belong to a piece, with their positions in it.
fn in_piece(row_refs: &[RowRef], first: usize, rows: usize) -> impl Iterator<Item = RowRef> + Clone + '_ {
    let position = move |row_ref: &RowRef| row_ref.position - first as u32;
    row_refs[first..first + rows]
        .iter()
        .map(move |row_ref| RowRef { position: position(row_ref), ..*row_ref })
}

impl TableCore {
    /// The listed rows of a request, all of which must be local.
    pub(crate) fn requested_rows(&self, request: &RemoteRequest) -> Result<Option<Vec<RowRef>>> {
        let list = match &request.rows {
            RowList::All => return Ok(None),
            RowList::List(list) => list,
            RowList::Keys(_) => return Err(Error::internal("table", "keys for a table of rows")),
        };
        let inside = |&row: &i64| row >= 0 && (row as u64) < self.description.rows as u64;
        let row_refs = match list.iter().all(inside) {
            true => self.placement.row_refs(list, self.host()).collect(),
            false => Vec::new(),
        };
        match row_refs.len() == list.len() {
            true => Ok(Some(row_refs)),
            false => Err(Error::internal("table", "a request for rows that are elsewhere")),
        }
    }

    fn serve_get(&self, call: &Call, worker: usize, request: &RemoteRequest) -> Result<Vec<u8>> {
        let bytes = self.description.row_bytes();
        let row_refs = self.requested_rows(request)?;
        let rows = row_refs.as_ref().map_or(self.placement.rows_on(self.host()), Vec::len);
        let mut out = vec![0; rows * bytes];
        get_local(self, call, worker, Turn::Granted, || match &row_refs {
            None => self.storage.get(call, worker, 0, &mut out),
            Some(row_refs) => self.storage.get_list(call, worker, row_refs.iter().copied(), &mut out),
        })?;
        Ok(out)
    }

    fn serve_changed(
        &self,
        call: &Call,
        worker: usize,
        buffer: usize,
        request: &RemoteRequest,
    ) -> Result<Vec<u8>> {
        let reader = self.reader(worker, buffer)?;
        let row_refs = self.requested_rows(request)?.unwrap_or_default();
        let numbers = SequenceNumbers::from_bytes(&request.payload)?;
        let arrived = self.views.confirm(reader, numbers);
        arrived.iter().for_each(|seen| self.storage.mark_seen(reader, seen));
        let (mut out, mut seen) = (Vec::new(), Vec::new());
        get_local(self, call, worker, Turn::Granted, || {
            seen = self.storage.get_changed(call, reader, row_refs.iter().copied(), |row_ref, row| {
                out.extend_from_slice(&row_ref.position.to_ne_bytes());
                out.extend_from_slice(row);
            })?;
            Ok(())
        })?;
        self.views.record_sent(reader, numbers, seen);
        Ok(out)
    }

    fn serve_add(&self, call: &Call, worker: usize, request: &RemoteRequest) -> Result<()> {
        let bytes = self.description.row_bytes();
        let row_refs = self.requested_rows(request)?;
        let rows = row_refs.as_ref().map_or(self.placement.rows_on(self.host()), Vec::len);
        let dtype = self.description.dtype;
        let options = AddOptions::from_bytes(&request.options)?.or(&self.add);
        if self.accumulates() {
            let delta = request.delta(dtype, rows * bytes)?.into_owned();
            return add_to_round(self, call, worker, Turn::Granted, request.with_payload(delta));
        }
        // An add is one step of each stripe, or of a whole shard on a device.
        let unit = match (&row_refs, &self.storage.device_shard) {
            (Some(_), None) => bytes,
            (None, None) => bytes * self.storage.layout.stripe_rows,
            (_, Some(_)) => rows.max(1) * bytes,
        };
        let pieces = request.delta_pieces(dtype, rows * bytes, unit)?;
        let pieces: Vec<&[u8]> = pieces.iter().map(|piece| &**piece).collect();
        let context = UpdateContext { worker, step: 0, options: &options };
        // Each thread has stripes of its own, which get the adds to their rows in the order of the list.
        let parts = self.storage.stripe_aligned_ranges(self.thread_count(rows * bytes));
        self.add_local(call, worker, Turn::Granted, || match &row_refs {
            Some(row_refs) => {
                let delta = DeltaRows::new(&pieces, bytes);
                parallel::for_each(parts, |part| {
                    let row_refs = row_refs.iter().filter(|row_ref| part.contains(&(row_ref.row as usize)));
                    self.storage.add_list(call, row_refs.copied(), delta, &context)
                })
            }
            None => parallel::for_each(parts, |part| {
                let mut first = 0;
                pieces.iter().try_for_each(|piece| {
                    let (from, end) = (part.start.max(first), part.end.min(first + piece.len() / bytes));
                    let overlap = piece.get((from - first) * bytes..end.saturating_sub(first) * bytes);
                    first += piece.len() / bytes;
                    let Some(overlap) = overlap.filter(|overlap| !overlap.is_empty()) else { return Ok(()) };
                    let skip = |row: usize| overlap[row * bytes..][..bytes].iter().all(|&byte| byte == 0);
                    self.storage.add(call, from, overlap, &context, &skip)
                })
            }),
        })
    }

    /// Among how many threads to divide a long request.
    fn thread_count(&self, bytes: usize) -> usize {
        let ranks = self.inner.hosts.iter().filter(|&&host| host == self.host()).count();
        // A device has one lock for all rows.
        if self.storage.device_shard.is_some() { 1 } else { parallel::thread_count(bytes, ranks) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::error::Kind;
    use crate::tables::{
        AddOptions, ArrayTable, MatrixTable, Role, Rows, TableOptions, Tables, UpdaterChoice,
    };
    use crate::testing::spawn_placed;

    const ROWS: usize = 30_000;
    const COLS: usize = 61;

    /// Rows in no order, each of them twice or more.
    fn list() -> Vec<i64> {
        (0..2 * ROWS + 100).map(|index| (index * 7919 % ROWS) as i64).collect()
    }

    fn delta(rows: usize, seed: usize) -> Vec<f32> {
        (0..rows * COLS).map(|index| ((index * 31 + seed * 17) % 101) as f32 - 50.0).collect()
    }

    /// Several pieces for each host: the updater counts the steps of a stripe, or of a row, so pieces must not divide them.
    #[test]
    fn long_calls_have_the_same_results_on_any_hosts() {
        for updater in ["add", "adam"] {
            let results = [&[0][..], &[0, 1], &[0, 1, 0], &[0, 1, 2]].map(|hosts| {
                let results = spawn_placed(hosts, |world| {
                    let tables = Tables::join(world, Role::Both).unwrap();
                    let options = || TableOptions {
                        updater: UpdaterChoice::named(updater).unwrap(),
                        ..Default::default()
                    };
                    let matrix = MatrixTable::<f32>::create(&tables, (ROWS, COLS), None, options()).unwrap();
                    let array = ArrayTable::<f32>::create(&tables, ROWS * COLS, None, options()).unwrap();
                    let rows = list();
                    if world.rank() == 0 {
                        matrix.add(&delta(ROWS, 1)).unwrap();
                        matrix.add_rows(&rows, &delta(rows.len(), 2), &AddOptions::default()).unwrap();
                        array.add(&delta(ROWS, 3)).unwrap();
                        let soon = delta(ROWS, 4);
                        let soon = bytemuck::cast_slice(&soon);
                        array.table().add_soon(Rows::All, soon, &AddOptions::default()).unwrap();
                        tables.flush().unwrap();
                    }
                    tables.barrier().unwrap();
                    let (mut all, mut flat) = (vec![0.0; ROWS * COLS], vec![0.0; ROWS * COLS]);
                    let mut listed = vec![0.0; rows.len() * COLS];
                    matrix.get(&mut all).unwrap();
                    matrix.get_rows(&rows, &mut listed).unwrap();
                    array.get(&mut flat).unwrap();
                    let expected = rows.iter().flat_map(|&row| &all[row as usize * COLS..][..COLS]);
                    assert!(listed.iter().eq(expected), "rank {}", world.rank());
                    tables.barrier().unwrap();
                    (all, flat)
                });
                assert!(results.iter().all(|other| *other == results[0]), "{updater} on {hosts:?}");
                results.into_iter().next()
            });
            assert!(results.iter().all(|other| *other == results[0]), "{updater}");
        }
    }

    /// A get that gives up between two pieces, because a stripe is locked, leaves nothing behind that a later call could meet.
    #[test]
    fn a_long_get_that_times_out_can_be_repeated() {
        spawn_placed(&[0, 1], |world| {
            let tables = Tables::join(world, Role::Both).unwrap();
            let table =
                ArrayTable::<f32>::create(&tables, ROWS * COLS, None, TableOptions::default()).unwrap();
            let (core, mut out) = (&table.table().core, vec![0.0; ROWS * COLS]);
            let call = core.call(&tables.group, "get");
            let last = core.storage.layout.stripes - 1;
            for turn in 1..4 {
                let held = (world.rank() == 1).then(|| core.storage.lock(&call, last).unwrap());
                tables.barrier().unwrap();
                if world.rank() == 0 {
                    let hasty = table.table().with_timeout(Duration::from_millis(150));
                    let error = hasty.get(Rows::All, bytemuck::cast_slice_mut(&mut out)).unwrap_err();
                    assert_eq!(error.kind(), Kind::Timeout, "{error}");
                }
                tables.barrier().unwrap();
                drop(held);
                if world.rank() == 0 {
                    table.add(&vec![1.0; ROWS * COLS]).unwrap();
                }
                tables.barrier().unwrap();
                table.get(&mut out).unwrap();
                assert!(out.iter().all(|value| *value == turn as f32));
                tables.barrier().unwrap();
            }
        });
    }
}
