//! Gets and adds of arrays and matrices, as the engine makes them: which rows each host holds, and where its reply goes.

use std::borrow::Cow;

use super::core::TableCore;
use super::row_batch::RowRef;
use super::views::{Seen, SequenceNumbers};
use crate::error::{Error, Result};
use crate::memory::prefetch::prefetch;
use crate::tables::engine::call::{AddCall, AddPart, GetCall, GetPart};
use crate::tables::remote::compress::RowIds;
use crate::tables::remote::{PIECE_BYTES, RemoteRequest, ReplyPiece, RequestVerb, RowList};
use crate::tables::shard::group_sort::sort_by_group;
use crate::tables::spec::description::TableKind;
use crate::tables::{AddOptions, Rows};
use crate::transport::Call;

/// The rows of a call that another host holds; no row refs if the call is for all rows.
struct HostRows {
    host: usize,
    request: RemoteRequest,
    row_refs: Vec<RowRef>,
}

impl HostRows {
    fn into_part(self) -> (GetPart, RemoteRequest) {
        let positions = self.row_refs.iter().map(|row_ref| row_ref.position).collect();
        (GetPart { host: self.host, positions }, self.request)
    }
}

impl TableCore {
    /// Splits a call by the other hosts that hold its rows; under BSP, all hosts that hold rows take part.
    fn split(&self, worker: usize, verb: RequestVerb, rows: Rows) -> Vec<HostRows> {
        let (own, hosts) = (self.host(), self.placement.hosts());
        let mut by_host: Vec<Vec<RowRef>> = vec![Vec::new(); hosts.last().map_or(0, |last| last + 1)];
        if let Rows::List(list) = rows {
            for (position, &row) in list.iter().enumerate() {
                let (host, local) = self.placement.locate(row as usize);
                if host != own {
                    by_host[host].push(RowRef { row: local as u32, position: position as u32 });
                }
            }
        }
        let takes_part = |host: &usize| {
            let involved = matches!(rows, Rows::All) || self.involves_all_hosts();
            *host != own && (involved || !by_host[*host].is_empty())
        };
        let hosts: Vec<usize> = hosts.into_iter().filter(takes_part).collect();
        let part = |host: usize| {
            let mut row_refs = std::mem::take(&mut by_host[host]);
            // The rows of a long reply come in pieces: the server then visits each stripe for one piece, and not for all.
            if verb == RequestVerb::Get && row_refs.len() * self.description.row_bytes() > PIECE_BYTES {
                row_refs = self.by_stripe(host, &row_refs);
            }
            let mut request = RemoteRequest::new(self.number, worker as u32, verb);
            request.rows = listed(rows, row_refs.iter().map(|row_ref| row_ref.position));
            HostRows { host, request, row_refs }
        };
        hosts.into_iter().map(part).collect()
    }

    /// Rows of another host, sorted by the stripes that hold them.
    fn by_stripe(&self, host: usize, row_refs: &[RowRef]) -> Vec<RowRef> {
        let (stripe_rows, mut sorted) = (self.storage.layout.stripe_rows, Vec::new());
        let stripes = self.placement.rows_on(host).div_ceil(stripe_rows);
        let stripe = |row_ref: &RowRef| row_ref.row as usize / stripe_rows;
        sort_by_group(row_refs.iter().copied(), stripes, stripe, &mut sorted);
        sorted
    }

    /// A host's rows of a delta, in the order in which its request lists them.
    fn delta_of<'a>(&self, host: usize, rows: Rows, row_refs: &[RowRef], delta: &'a [u8]) -> Cow<'a, [u8]> {
        let bytes = self.description.row_bytes();
        match rows {
            Rows::All => self.part_of(host, delta),
            // All rows of the list are there.
            Rows::List(list) if list.len() == row_refs.len() => Cow::Borrowed(delta),
            Rows::List(_) => {
                let mut part = Vec::with_capacity(row_refs.len() * bytes);
                for row_ref in row_refs {
                    part.extend_from_slice(&delta[row_ref.position as usize * bytes..][..bytes]);
                }
                Cow::Owned(part)
            }
        }
    }
}

/// Those of the rows that are at these positions.
fn listed(rows: Rows, positions: impl Iterator<Item = u32>) -> RowList {
    match rows {
        Rows::All => RowList::All,
        Rows::List(list) => RowList::List(positions.map(|position| list[position as usize]).collect()),
    }
}

/// Prefetch distance, in rows.
const PREFETCH_DISTANCE: usize = 8;

/// Copies rows to their positions in `out`.
pub(crate) struct RowsGet<'a> {
    pub rows: Rows<'a>,
    pub out: &'a mut [u8],
}

impl GetCall<TableCore> for RowsGet<'_> {
    fn requests(&mut self, table: &TableCore, worker: usize) -> Vec<(GetPart, RemoteRequest)> {
        let parts = table.split(worker, RequestVerb::Get, self.rows).into_iter();
        let reply = table.reply_encoding();
        parts
            .map(|mut part| {
                part.request.reply = reply;
                part.into_part()
            })
            .collect()
    }

    fn read(&mut self, table: &TableCore, call: &Call, worker: usize) -> Result<()> {
        table.read(call, worker, self.rows, self.out)
    }

    fn merge(&mut self, table: &TableCore, part: &GetPart, reply: Result<ReplyPiece>) -> Result<()> {
        let (ReplyPiece { start, bytes: values, is_last }, bytes) = (reply?, table.description.row_bytes());
        let (first, rows) = (start / bytes, values.len() / bytes);
        let count = match self.rows {
            Rows::All => table.placement.rows_on(part.host),
            Rows::List(_) => part.positions.len(),
        };
        let end = start + values.len();
        let is_whole = start.is_multiple_of(bytes) && values.len().is_multiple_of(bytes);
        if !is_whole || end > count * bytes || is_last != (end == count * bytes) {
            let received = format!("{end} bytes instead of {}", count * bytes);
            return Err(Error::internal("get", received));
        }
        match self.rows {
            Rows::All => {
                let mut rest = &values[..];
                for segment in table.placement.on_host(part.host) {
                    let before = first + (values.len() - rest.len()) / bytes;
                    let end = segment.local + segment.end - segment.first;
                    if (segment.local..end).contains(&before) {
                        let (taken, behind) = rest.split_at(rest.len().min((end - before) * bytes));
                        let place = (segment.first + before - segment.local) * bytes;
                        self.out[place..][..taken.len()].copy_from_slice(taken);
                        rest = behind;
                    }
                }
            }
            Rows::List(_) => {
                let positions = &part.positions[first..first + rows];
                match positions.is_sorted_by(|one, next| one + 1 == *next) {
                    true => {
                        let one = positions.first().map_or(0, |one| *one as usize);
                        self.out[one * bytes..][..values.len()].copy_from_slice(&values);
                    }
                    false => {
                        let start = self.out.as_ptr();
                        let mut ahead = positions.iter().skip(PREFETCH_DISTANCE);
                        for (&position, row) in positions.iter().zip(values.chunks_exact(bytes)) {
                            ahead.next().into_iter().for_each(|position| {
                                prefetch(start.wrapping_add(*position as usize * bytes), bytes);
                            });
                            self.out[position as usize * bytes..][..bytes].copy_from_slice(row);
                        }
                    }
                }
            }
        }
        if let Some(remote) = table.inner.remote() {
            remote.recycle(values);
        }
        Ok(())
    }
}

/// Copies those of the listed rows that this worker has not seen.
pub(crate) struct ChangedGet<'a> {
    pub reader: usize,
    pub buffer: usize,
    pub list: &'a [i64],
    pub out: &'a mut [u8],
    /// The rows copied.
    pub changed: Vec<i64>,
    /// The local ones among them, which count as seen once the call has succeeded.
    pub seen: Vec<Seen>,
    pub asked: Vec<(usize, SequenceNumbers)>,
}

impl ChangedGet<'_> {
    fn take(&mut self, position: usize, row: &[u8]) {
        self.out[position * row.len()..][..row.len()].copy_from_slice(row);
        self.changed.push(self.list[position]);
    }
}

impl GetCall<TableCore> for ChangedGet<'_> {
    fn requests(&mut self, table: &TableCore, worker: usize) -> Vec<(GetPart, RemoteRequest)> {
        let verb = RequestVerb::GetChanged { buffer: self.buffer as u8 };
        let mut requests = Vec::new();
        for mut part in table.split(worker, verb, Rows::List(self.list)) {
            let numbers = table.views.ask(part.host, self.buffer);
            part.request.payload = numbers.to_bytes();
            self.asked.push((part.host, numbers));
            requests.push(part.into_part());
        }
        requests
    }

    fn read(&mut self, table: &TableCore, call: &Call, _worker: usize) -> Result<()> {
        let row_refs = table.placement.row_refs(self.list, table.host());
        let reader = self.reader;
        let take = |row_ref: RowRef, row: &[u8]| self.take(row_ref.position as usize, row);
        self.seen = table.storage.get_changed(call, reader, row_refs, take)?;
        Ok(())
    }

    fn merge(&mut self, table: &TableCore, part: &GetPart, reply: Result<ReplyPiece>) -> Result<()> {
        let (reply, bytes) = (reply?.whole()?, table.description.row_bytes());
        if !reply.len().is_multiple_of(4 + bytes) {
            return Err(Error::internal("get_changed", format!("{} bytes of rows", reply.len())));
        }
        for entry in reply.chunks_exact(4 + bytes) {
            let (index, row) = entry.split_at(4);
            let index = u32::from_ne_bytes(index.try_into().unwrap_or_default()) as usize;
            let position = part.positions.get(index);
            let position =
                position.ok_or_else(|| Error::internal("get_changed", "a row that was not requested"))?;
            self.take(*position as usize, row);
        }
        Ok(())
    }

    fn finish(&mut self, table: &TableCore, merged: Result<()>) -> Result<()> {
        merged?;
        self.asked.iter().for_each(|(host, numbers)| table.views.acknowledge(*host, self.buffer, *numbers));
        Ok(())
    }
}

/// Adds a delta to rows.
pub(crate) struct RowsAdd<'a> {
    pub rows: Rows<'a>,
    pub delta: &'a [u8],
    pub options: &'a AddOptions,
}

impl<'a> AddCall<'a, TableCore> for RowsAdd<'a> {
    fn requests(&mut self, table: &TableCore, worker: usize) -> Vec<AddPart<'a>> {
        let mut packers = table.packers();
        let parts = table.split(worker, RequestVerb::Add, self.rows).into_iter();
        parts
            .map(|HostRows { host, mut request, row_refs }| {
                let delta = table.delta_of(host, self.rows, &row_refs, self.delta);
                // An array is one row of each host.
                let row = match table.description.kind {
                    TableKind::Array => table.placement.rows_on(host),
                    _ => table.description.cols,
                };
                let packer = packers.of(host, table.description.dtype, row, table.compression);
                let local: Vec<i64> = match packer.has_feedback() {
                    true => row_refs.iter().map(|row_ref| i64::from(row_ref.row)).collect(),
                    false => Vec::new(),
                };
                let (units, unit) = match self.rows {
                    // The server counts an add once for each stripe.
                    Rows::All => (RowIds::From(0), table.storage.layout.stripe_rows),
                    Rows::List(_) => (RowIds::List(&local), 1),
                };
                let residuals = packer.save_residuals(units, &delta);
                let (payload, packed) = packer.pack(units, delta);
                request.packed = packed;
                request.options = self.options.to_bytes().to_vec();
                AddPart { host, request, payload, unit: unit * table.description.row_bytes(), residuals }
            })
            .collect()
    }

    fn write(&mut self, table: &TableCore, call: &Call, worker: usize) -> Result<()> {
        table.write(call, worker, self.rows, self.delta, self.options)
    }

    fn local_request(&self, table: &TableCore, worker: usize) -> RemoteRequest {
        let list = if let Rows::List(list) = self.rows { list } else { &[] };
        let row_refs: Vec<RowRef> = table.placement.row_refs(list, table.host()).collect();
        let mut request = RemoteRequest::new(table.number, worker as u32, RequestVerb::Add);
        request.rows = listed(self.rows, row_refs.iter().map(|row_ref| row_ref.position));
        request.options = self.options.to_bytes().to_vec();
        request.payload = table.delta_of(table.host(), self.rows, &row_refs, self.delta).into_owned();
        request
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::error::Kind;
    use crate::tables::{ArrayTable, Consistency, Role, Rows, Table, TableOptions, Tables};
    use crate::testing::spawn_on_hosts;

    const SIZE: usize = 6;
    const SOON: Duration = Duration::from_millis(150);

    fn add(table: &Table) -> Result<(), crate::Error> {
        table.add(Rows::All, bytemuck::cast_slice(&[1f64; SIZE]), &Default::default())
    }

    fn get(table: &Table) -> Result<[f64; SIZE], crate::Error> {
        let mut values = [0.0; SIZE];
        table.get(Rows::All, bytemuck::cast_slice_mut(&mut values))?;
        Ok(values)
    }

    /// While the server of host 0 is busy, other ranks' calls time out. The error states whether the add was made; an add that
    /// was not made may be repeated. Each add counts once, and rounds stay in step.
    #[test]
    fn an_add_that_times_out_is_made_on_all_hosts_or_on_none() {
        for consistency in [Consistency::Async, Consistency::Bsp { backup: 0, mean: false }] {
            spawn_on_hosts(3, 3, |world| {
                let tables = Tables::join(world, Role::Both).unwrap();
                let options = TableOptions { consistency, ..TableOptions::default() };
                let table = ArrayTable::<f64>::create(&tables, SIZE, None, options).unwrap();
                let (table, rank) = (table.table(), world.rank());
                let hasty = table.with_timeout(SOON);
                let call = table.core.call(&tables.group, "add");
                let barrier = || world.group().barrier().unwrap();
                let busy = || (rank == 0).then(|| table.core.storage.lock(&call, 0).unwrap().for_writing());

                let held = busy();
                barrier();
                if rank == 2 {
                    let error = add(&hasty).unwrap_err();
                    assert_eq!(error.kind(), Kind::Timeout, "{error}");
                    assert!(error.to_string().contains("do not repeat it"), "{error}");
                }
                barrier();
                for _ in 0..if rank == 1 { 3 } else { 0 } {
                    let error = add(&hasty).unwrap_err();
                    assert_eq!(error.kind(), Kind::Timeout, "{error}");
                    assert!(error.to_string().contains("it may be repeated"), "{error}");
                }
                barrier();
                drop(held);
                if rank < 2 {
                    add(table).unwrap();
                }
                barrier();
                assert_eq!(get(table).unwrap(), [3.0; SIZE]);
                barrier();

                let held = busy();
                barrier();
                for _ in 0..3 * rank {
                    let error = get(&hasty).unwrap_err();
                    assert_eq!(error.kind(), Kind::Timeout, "{error}");
                }
                barrier();
                drop(held);
                for round in 2..5 {
                    add(table).unwrap();
                    barrier();
                    assert_eq!(get(table).unwrap(), [3.0 * f64::from(round); SIZE]);
                    barrier();
                }
            });
        }
    }
}
