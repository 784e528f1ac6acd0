//! Serving requests of other hosts' workers on this host's rows.

use super::core::TableCore;
use super::row_batch::RowRef;
use super::views::SequenceNumbers;
use crate::error::{Error, Result};
use crate::tables::AddOptions;
use crate::tables::engine::base::Turn;
use crate::tables::engine::call::get_local;
use crate::tables::engine::registry::OpenTable;
use crate::tables::engine::rounds::add_to_round;
use crate::tables::remote::{RemoteRequest, RequestVerb, RowList};
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
        let delta = request.delta(self.description.dtype, rows * bytes)?;
        let options = AddOptions::from_bytes(&request.options)?.or(&self.add);
        if self.accumulates() {
            return add_to_round(self, call, worker, Turn::Granted, request.with_payload(delta.into_owned()));
        }
        let context = UpdateContext { worker, step: 0, options: &options };
        self.add_local(call, worker, Turn::Granted, || match &row_refs {
            Some(row_refs) => self.storage.add_list(call, row_refs.iter().copied(), &delta, &context),
            None => self.storage.add(call, 0, &delta, &context, &|row| {
                delta[row * bytes..][..bytes].iter().all(|&byte| byte == 0)
            }),
        })
    }
}
