//! Gets and adds of arrays and matrices, as the engine makes them: which rows each host holds, and where its reply goes.

use std::collections::BTreeMap;

use super::core::TableCore;
use super::row_batch::RowRef;
use super::views::{Seen, SequenceNumbers};
use crate::error::{Error, Result};
use crate::tables::engine::call::{AddCall, AddPart, GetCall, Part};
use crate::tables::remote::compress::RowIds;
use crate::tables::remote::{RemoteRequest, RequestVerb, RowList};
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
    fn into_part(self) -> (Part, RemoteRequest) {
        let positions = self.row_refs.iter().map(|row_ref| row_ref.position).collect();
        (Part { host: self.host, positions }, self.request)
    }
}

impl TableCore {
    /// Splits a call by the other hosts that hold its rows; under BSP, all hosts that hold rows take part.
    fn split(&self, worker: usize, verb: RequestVerb, rows: Rows) -> Vec<HostRows> {
        let own = self.host();
        let mut by_host: BTreeMap<usize, Vec<RowRef>> = BTreeMap::new();
        if matches!(rows, Rows::All) || self.involves_all_hosts() {
            let others = self.placement.hosts().into_iter().filter(|&host| host != own);
            by_host.extend(others.map(|host| (host, Vec::new())));
        }
        if let Rows::List(list) = rows {
            for (position, &row) in list.iter().enumerate() {
                let (host, local) = self.placement.locate(row as usize);
                if host != own {
                    let row_ref = RowRef { row: local as u32, position: position as u32 };
                    by_host.entry(host).or_default().push(row_ref);
                }
            }
        }
        let part = |(host, row_refs): (usize, Vec<RowRef>)| {
            let mut request = RemoteRequest::new(self.number, worker as u32, verb);
            request.rows = listed(rows, row_refs.iter().map(|row_ref| row_ref.position));
            HostRows { host, request, row_refs }
        };
        by_host.into_iter().map(part).collect()
    }

    /// A host's rows of a delta, in the order in which its request lists them.
    fn delta_of(
        &self,
        host: usize,
        rows: Rows,
        row_refs: impl Iterator<Item = RowRef>,
        delta: &[u8],
    ) -> Vec<u8> {
        let bytes = self.description.row_bytes();
        match rows {
            Rows::All => self.part_of(host, delta).into_owned(),
            Rows::List(_) => {
                let mut part = Vec::with_capacity(row_refs.size_hint().0 * bytes);
                row_refs.for_each(|row_ref| {
                    part.extend_from_slice(&delta[row_ref.position as usize * bytes..][..bytes]);
                });
                part
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

/// Copies rows to their positions in `out`.
pub(crate) struct RowsGet<'a> {
    pub rows: Rows<'a>,
    pub out: &'a mut [u8],
}

impl GetCall<TableCore> for RowsGet<'_> {
    fn requests(&mut self, table: &TableCore, worker: usize) -> Vec<(Part, RemoteRequest)> {
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

    fn merge(&mut self, table: &TableCore, part: &Part, reply: Result<Vec<u8>>) -> Result<()> {
        let (reply, bytes) = (reply?, table.description.row_bytes());
        let count = match self.rows {
            Rows::All => table.placement.rows_on(part.host),
            Rows::List(_) => part.positions.len(),
        };
        if reply.len() != count * bytes {
            let received = format!("{} bytes instead of {}", reply.len(), count * bytes);
            return Err(Error::internal("get", received));
        }
        match self.rows {
            Rows::All => {
                let mut rest = &reply[..];
                for segment in table.placement.on_host(part.host) {
                    let place = &mut self.out[segment.first * bytes..segment.end * bytes];
                    let (values, behind) = rest.split_at(place.len());
                    place.copy_from_slice(values);
                    rest = behind;
                }
            }
            Rows::List(_) => {
                for (&position, row) in part.positions.iter().zip(reply.chunks_exact(bytes)) {
                    self.out[position as usize * bytes..][..bytes].copy_from_slice(row);
                }
            }
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
    fn requests(&mut self, table: &TableCore, worker: usize) -> Vec<(Part, RemoteRequest)> {
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

    fn merge(&mut self, table: &TableCore, part: &Part, reply: Result<Vec<u8>>) -> Result<()> {
        let (reply, bytes) = (reply?, table.description.row_bytes());
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

impl AddCall<TableCore> for RowsAdd<'_> {
    fn requests(&mut self, table: &TableCore, worker: usize) -> Vec<AddPart> {
        let mut packers = table.packers();
        let parts = table.split(worker, RequestVerb::Add, self.rows).into_iter();
        parts
            .map(|HostRows { host, mut request, row_refs }| {
                let delta = table.delta_of(host, self.rows, row_refs.iter().copied(), self.delta);
                let local: Vec<i64> = row_refs.iter().map(|row_ref| i64::from(row_ref.row)).collect();
                let units = match self.rows {
                    Rows::All => RowIds::From(0),
                    Rows::List(_) => RowIds::List(&local),
                };
                // An array is one row of each host.
                let row = match table.description.kind {
                    TableKind::Array => table.placement.rows_on(host),
                    _ => table.description.cols,
                };
                let packer = packers.of(host, table.description.dtype, row, table.compression);
                let residuals = packer.save_residuals(units, &delta);
                (request.payload, request.packed) = packer.pack(units, &delta);
                request.options = self.options.to_bytes().to_vec();
                AddPart { host, request, residuals }
            })
            .collect()
    }

    fn write(&mut self, table: &TableCore, call: &Call, worker: usize) -> Result<()> {
        table.write(call, worker, self.rows, self.delta, self.options)
    }

    fn local_request(&self, table: &TableCore, worker: usize) -> RemoteRequest {
        let row_refs = || {
            let list = if let Rows::List(list) = self.rows { list } else { &[] };
            table.placement.row_refs(list, table.host())
        };
        let mut request = RemoteRequest::new(table.number, worker as u32, RequestVerb::Add);
        request.rows = listed(self.rows, row_refs().map(|row_ref| row_ref.position));
        request.options = self.options.to_bytes().to_vec();
        request.payload = table.delta_of(table.host(), self.rows, row_refs(), self.delta);
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
                let busy = || (rank == 0).then(|| table.core.storage.lock(&call, 0).unwrap());

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
