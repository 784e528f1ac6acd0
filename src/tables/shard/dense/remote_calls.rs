//! The remote part of a call: the requests to each other host, and where their replies go.

use std::sync::PoisonError;

use super::core::TableCore;
use super::row_batch::RowRef;
use crate::error::{Error, Result};
use crate::tables::remote::compress::{Packer, RowIds, SavedResiduals};
use crate::tables::remote::{RemoteRequest, RequestVerb, RowList};
use crate::tables::spec::description::TableKind;
use crate::tables::{AddOptions, Consistency, Rows};
use crate::transport::{self, Call};

impl TableCore {
    /// Whether this rank's host takes part in every call. Under BSP it does if it holds rows of the table, because other hosts
    /// are not notified of calls. Otherwise it does if it has servers, so that its clock counts and shows the values' staleness.
    pub(crate) fn participates(&self) -> bool {
        match self.description.consistency {
            Consistency::Bsp { .. } => {
                self.placement.on_host(self.host()).any(|segment| segment.end > segment.first)
            }
            _ => self.has_servers(),
        }
    }

    /// The other hosts that hold rows.
    fn other_hosts(&self) -> impl Iterator<Item = usize> + '_ {
        let hosts = if self.inner.remote().is_some() { self.placement.hosts() } else { Vec::new() };
        hosts.into_iter().filter(|&host| host != self.host())
    }

    /// As [`TableCore::request_for`]; `None` if there is nothing to request. Under BSP every host must see every call.
    fn ask(
        &self,
        host: usize,
        worker: usize,
        verb: RequestVerb,
        rows: Rows,
    ) -> Option<(RemoteRequest, Vec<RowRef>)> {
        let (request, row_refs) = self.request_for(host, worker, verb, rows);
        let is_empty = matches!(rows, Rows::List(_)) && row_refs.is_empty();
        (!is_empty || self.involves_all_hosts()).then_some((request, row_refs))
    }

    /// A request for those of the rows that a host holds, and their positions in the caller's list.
    pub(crate) fn request_for(
        &self,
        host: usize,
        worker: usize,
        verb: RequestVerb,
        rows: Rows,
    ) -> (RemoteRequest, Vec<RowRef>) {
        let mut request = RemoteRequest::new(self.number, worker as u32, verb);
        let Rows::List(list) = rows else { return (request, Vec::new()) };
        let row_refs: Vec<RowRef> = self.placement.row_refs(list, host).collect();
        request.rows =
            RowList::List(row_refs.iter().map(|row_ref| list[row_ref.position as usize]).collect());
        (request, row_refs)
    }

    /// Copies the rows that other hosts hold to their positions in `out`.
    pub(crate) fn get_remote(&self, call: &Call, worker: usize, rows: Rows, out: &mut [u8]) -> Result<()> {
        let Some(remote) = self.inner.remote() else { return Ok(()) };
        let mut asked = Vec::new();
        let mut requests = Vec::new();
        for host in self.other_hosts() {
            if let Some((mut request, row_refs)) = self.ask(host, worker, RequestVerb::Get, rows) {
                request.reply = self.reply_encoding();
                requests.push((self.server_of(host)?, request));
                asked.push((host, row_refs));
            }
        }
        let _waiting = self.inner.endpoint.set_waiting(transport::Verb::TableGet, call.number);
        let bytes = self.description.row_bytes();
        for ((host, row_refs), reply) in asked.iter().zip(remote.call_all(call, requests)?) {
            let count = match rows {
                Rows::All => self.placement.rows_on(*host),
                Rows::List(_) => row_refs.len(),
            };
            if reply.len() != count * bytes {
                return Err(Error::internal(
                    "get",
                    format!("{} bytes instead of {}", reply.len(), count * bytes),
                ));
            }
            let mut rest = &reply[..];
            match rows {
                Rows::All => {
                    for segment in self.placement.on_host(*host) {
                        let place = &mut out[segment.first * bytes..segment.end * bytes];
                        let (part, behind) = rest.split_at(place.len());
                        place.copy_from_slice(part);
                        rest = behind;
                    }
                }
                Rows::List(_) => {
                    for (row_ref, row) in row_refs.iter().zip(reply.chunks_exact(bytes)) {
                        out[row_ref.position as usize * bytes..][..bytes].copy_from_slice(row);
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes an add on all hosts that hold some of its rows.
    pub(crate) fn add(
        &self,
        call: &Call,
        worker: usize,
        rows: Rows,
        delta: &[u8],
        options: &AddOptions,
        wait: bool,
    ) -> Result<()> {
        let local = || match (self.participates(), self.accumulates()) {
            (false, _) => Ok(()),
            (true, true) => self.join_round(call, worker, self.local_request(worker, rows, delta, options)),
            (true, false) => self.add_local(call, worker, || self.write(call, worker, rows, delta, options)),
        };
        if self.inner.remote().is_none() {
            return local();
        }
        let (mut requests, mut taken) = (Vec::new(), Vec::new());
        for host in self.other_hosts() {
            let Some((mut request, row_refs)) = self.ask(host, worker, RequestVerb::Add, rows) else {
                continue;
            };
            let server = self.server_of(host)?;
            request.options = options.to_bytes().to_vec();
            taken.push((host, self.pack(host, rows, &row_refs, delta, &mut request)));
            requests.push((server, request));
        }
        self.add_on_all_hosts(call, requests, wait, local, || {
            let mut packers = self.packers.lock().unwrap_or_else(PoisonError::into_inner);
            for (host, before) in taken {
                packers.get_mut(&host).into_iter().for_each(|packer| packer.restore(&before));
            }
        })
    }

    /// This worker has received everything its get requested: under BSP the get counts now.
    pub(crate) fn count_get(&self, call: &Call, worker: usize) -> Result<()> {
        self.base.count_get(call, worker, || self.participates(), self.other_hosts())
    }

    /// Discards the compression residuals: the table's content is replaced.
    pub(crate) fn clear_residuals(&self) {
        self.packers.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Sets a request's payload to the compressed part of a delta for one host. Returns the previous residuals of its rows, to
    /// restore them if the add is not made.
    fn pack(
        &self,
        host: usize,
        rows: Rows,
        row_refs: &[RowRef],
        delta: &[u8],
        request: &mut RemoteRequest,
    ) -> SavedResiduals {
        let bytes = self.description.row_bytes();
        let part: Vec<u8> = match rows {
            Rows::All => self.part_of(host, delta).into_owned(),
            Rows::List(_) => row_refs
                .iter()
                .flat_map(|row_ref| &delta[row_ref.position as usize * bytes..][..bytes])
                .copied()
                .collect(),
        };
        let mut packers = self.packers.lock().unwrap_or_else(PoisonError::into_inner);
        let packer = packers.entry(host).or_insert_with(|| {
            let row = match self.description.kind {
                TableKind::Array => self.placement.rows_on(host),
                _ => self.description.cols,
            };
            Packer::new(self.description.dtype, row, self.compression)
        });
        let local: Vec<i64> = row_refs.iter().map(|row_ref| i64::from(row_ref.row)).collect();
        let units = match rows {
            Rows::All => RowIds::From(0),
            Rows::List(_) => RowIds::List(&local),
        };
        let before = packer.save_residuals(units, &part);
        (request.payload, request.packed) = packer.pack(units, &part);
        before
    }

    /// Fetches those rows of other hosts that this reader has not seen; returns their numbers.
    pub(crate) fn get_changed_remote(
        &self,
        call: &Call,
        worker: usize,
        buffer: usize,
        list: &[i64],
        out: &mut [u8],
    ) -> Result<Vec<i64>> {
        let Some(remote) = self.inner.remote() else { return Ok(Vec::new()) };
        let verb = RequestVerb::GetChanged { buffer: buffer as u8 };
        let (mut asked, mut requests, mut changed) = (Vec::new(), Vec::new(), Vec::new());
        for host in self.other_hosts() {
            if let Some((mut request, row_refs)) = self.ask(host, worker, verb, Rows::List(list)) {
                let numbers = self.views.ask(host, buffer);
                request.payload = numbers.to_bytes();
                requests.push((self.server_of(host)?, request));
                asked.push((host, numbers, row_refs));
            }
        }
        let bytes = self.description.row_bytes();
        for ((_, _, row_refs), reply) in asked.iter().zip(remote.call_all(call, requests)?) {
            if !reply.len().is_multiple_of(4 + bytes) {
                return Err(Error::internal("get_changed", format!("{} bytes of rows", reply.len())));
            }
            for entry in reply.chunks_exact(4 + bytes) {
                let (index, row) = entry.split_at(4);
                let index = u32::from_ne_bytes(index.try_into().unwrap_or_default()) as usize;
                let row_ref = row_refs
                    .get(index)
                    .ok_or_else(|| Error::internal("get_changed", "a row that was not requested"))?;
                out[row_ref.position as usize * bytes..][..bytes].copy_from_slice(row);
                changed.push(list[row_ref.position as usize]);
            }
        }
        asked.iter().for_each(|(host, numbers, _)| self.views.acknowledge(*host, buffer, *numbers));
        Ok(changed)
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
