//! Serving requests of other hosts' workers on this host's rows.

use super::base::Base;
use super::core::TableCore;
use super::registry::{OpenTable, Registry};
use super::remote::{RemoteRequest, RequestHandler, RequestVerb, RowList};
use super::row_batch::RowRef;
use super::updater::UpdateContext;
use super::views::SequenceNumbers;
use super::{AddOptions, custom};
use crate::error::{Error, Result};
use crate::transport::Call;

impl RequestHandler for Registry {
    fn admit(&self, from: usize, request: &RemoteRequest) -> Result<()> {
        let Some(table) = self.find_for(request)? else { return Ok(()) };
        let worker = table.caller(request)?;
        // Ranks that are not workers may query keys, too.
        let open_to_all =
            matches!(request.verb, RequestVerb::KeyContains | RequestVerb::KeyLength | RequestVerb::KeyItems);
        match open_to_all || table.inner.roles.workers[worker] == from {
            true => Ok(()),
            false => Err(Error::internal("table", format!("rank {from} sent a request of worker {worker}"))),
        }
    }

    fn ready(&self, request: &RemoteRequest) -> Result<bool> {
        let Some(table) = self.find_for(request)? else { return Ok(true) };
        Ok(table.waits_for(table.caller(request)?, request.verb).is_empty())
    }

    fn check(&self, request: &RemoteRequest) -> Result<()> {
        let Some(table) = self.find_for(request)? else { return Ok(()) };
        let workers = table.waits_for(table.caller(request)?, request.verb);
        let call = table.call(&self.group, "a request from another host");
        if workers.is_empty() { Ok(()) } else { table.check(&call, &workers) }
    }

    fn run(&self, request: &RemoteRequest) -> Result<Vec<u8>> {
        let Some(table) = self.find_for(request)? else { return Ok(Vec::new()) };
        let worker = table.caller(request)?;
        let call = table.call(&self.group, "a request from another host");
        match (request.verb, &table) {
            (RequestVerb::Tick | RequestVerb::EnterCall | RequestVerb::LeaveCall | RequestVerb::Steps, _) => {
                table.serve_steps(worker, request)
            }
            (RequestVerb::GetDone, _) => {
                table.clock.record_get(worker);
                Ok(Vec::new())
            }
            (RequestVerb::Finish, _) => table.finish_local(&call, worker).map(|()| Vec::new()),
            (_, OpenTable::Table(table)) => table.serve(&call, worker, request),
            (_, OpenTable::KeyValue(table)) => table.serve(&call, worker, request),
            (_, OpenTable::Custom(table)) => table.serve(&call, worker, request),
        }
    }
}

impl Registry {
    /// The table of a request; `None` if all ranks have dropped it and the request is an add or a clock notification, whose
    /// result does not matter.
    fn find_for(&self, request: &RemoteRequest) -> Result<Option<OpenTable>> {
        let adds = matches!(request.verb, RequestVerb::Add | RequestVerb::KeyAdd | custom::ADD);
        let steps = matches!(
            request.verb,
            RequestVerb::Tick
                | RequestVerb::GetDone
                | RequestVerb::Finish
                | RequestVerb::EnterCall
                | RequestVerb::LeaveCall
        );
        match self.find(request.table) {
            Err(_) if adds || steps => Ok(None),
            found => found.map(Some),
        }
    }
}

impl Base {
    /// The worker that sent a request.
    fn caller(&self, request: &RemoteRequest) -> Result<usize> {
        let (worker, workers) = (request.worker as usize, self.inner.roles.workers.len());
        match worker < workers {
            true => Ok(worker),
            false => Err(Error::internal("table", format!("a request of worker {worker} of {workers}"))),
        }
    }

    /// The workers that keep a request of this worker from running now.
    fn waits_for(&self, worker: usize, verb: RequestVerb) -> Vec<usize> {
        match verb {
            RequestVerb::Get | RequestVerb::GetChanged { .. } | RequestVerb::KeyGet | custom::GET => {
                self.clock.get_waits_for(worker)
            }
            RequestVerb::Add | RequestVerb::KeyAdd | custom::ADD => self.clock.add_waits_for(worker),
            _ => Vec::new(),
        }
    }

    /// The error for a request that this kind of table does not support.
    pub(super) fn unexpected_request(&self, request: &RemoteRequest) -> Error {
        Error::internal("table", format!("{:?} asked of {}", request.verb, self.description))
    }
}

impl TableCore {
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

    /// The listed rows of a request, all of which must be local.
    pub(super) fn requested_rows(&self, request: &RemoteRequest) -> Result<Option<Vec<RowRef>>> {
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
        self.get_local(call, worker, || match &row_refs {
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
        self.get_local(call, worker, || {
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
            return self.join_round(call, worker, request.clone());
        }
        let context = UpdateContext { worker, step: 0, options: &options };
        self.add_local(call, worker, || match &row_refs {
            Some(row_refs) => self.storage.add_list(call, row_refs.iter().copied(), &delta, &context),
            None => self.storage.add(call, 0, &delta, &context, &|row| {
                delta[row * bytes..][..bytes].iter().all(|&byte| byte == 0)
            }),
        })
    }
}

#[cfg(test)]
mod tests;
