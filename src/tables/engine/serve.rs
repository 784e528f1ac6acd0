//! The server side of a request: its table and its sender are looked up once, the clock is asked until it allows the request, and
//! the table runs it.

use std::sync::{Arc, Weak};

use super::base::Base;
use super::registry::{OpenTable, Registry};
use crate::error::{Error, Result};
use crate::tables::remote::{
    AdmittedRequest, RemoteRequest, ReplyReader, RequestHandler, RequestKind, RequestVerb,
};

impl RequestHandler for Registry {
    fn admit(self: Arc<Self>, from: usize, mut request: RemoteRequest) -> Result<Box<dyn AdmittedRequest>> {
        // Only adds to rows run on pieces.
        if request.verb != RequestVerb::Add {
            request.join_pieces();
        }
        let (table, worker) = match self.find(request.table) {
            Ok(table) => {
                let worker = table.caller(from, &request)?;
                (Some(Arc::downgrade(&table)), worker)
            }
            Err(error) => (TableRequest::outlived(&request, || error).map(|()| None)?, 0),
        };
        Ok(Box::new(TableRequest { registry: self, table, worker, request }))
    }
}

/// A request to one of the registry's tables.
struct TableRequest {
    registry: Arc<Registry>,
    /// Weak: a request that waits does not keep a table that all ranks have dropped.
    table: Option<Weak<dyn OpenTable>>,
    worker: usize,
    request: RemoteRequest,
}

impl TableRequest {
    /// Passes if the result of a request to a table that all ranks have dropped does not matter.
    fn outlived(request: &RemoteRequest, error: impl FnOnce() -> Error) -> Result<()> {
        match request.verb.kind() {
            RequestKind::Add | RequestKind::Notice => Ok(()),
            RequestKind::Get | RequestKind::Query => Err(error()),
        }
    }

    /// The table; `None` if all ranks have dropped it and the result does not matter.
    fn table(&self) -> Result<Option<Arc<dyn OpenTable>>> {
        match self.table.as_ref().and_then(Weak::upgrade) {
            Some(table) => Ok(Some(table)),
            None => {
                TableRequest::outlived(&self.request, || Registry::unknown(self.request.table)).map(|()| None)
            }
        }
    }
}

impl AdmittedRequest for TableRequest {
    fn request(&self) -> &RemoteRequest {
        &self.request
    }

    fn ready(&self) -> Result<bool> {
        let Some(table) = self.table()? else { return Ok(true) };
        Ok(table.waits_for(self.worker, self.request.verb).is_empty())
    }

    fn check(&self) -> Result<()> {
        let Some(table) = self.table()? else { return Ok(()) };
        let workers = table.waits_for(self.worker, self.request.verb);
        let call = table.call(&self.registry.group, "a request from another host");
        if workers.is_empty() { Ok(()) } else { table.check(&call, &workers) }
    }

    fn reader(&self) -> Result<Option<Box<dyn ReplyReader>>> {
        match (self.request.verb.kind(), self.table()?) {
            (RequestKind::Get, Some(table)) => table.reply_reader(self.worker, &self.request),
            _ => Ok(None),
        }
    }

    fn take_payload(&mut self) -> Vec<Vec<u8>> {
        self.request.take_payload().collect()
    }

    fn run(&self) -> Result<Vec<u8>> {
        let Some(table) = self.table()? else { return Ok(Vec::new()) };
        let (worker, request) = (self.worker, &self.request);
        let call = table.call(&self.registry.group, "a request from another host");
        match request.verb {
            RequestVerb::Tick | RequestVerb::EnterCall | RequestVerb::LeaveCall | RequestVerb::Steps => {
                table.serve_steps(worker, request)
            }
            RequestVerb::GetDone => {
                table.clock.record_get(worker);
                Ok(Vec::new())
            }
            RequestVerb::Finish => table.finish_local(&call, worker).map(|()| Vec::new()),
            _ => table.serve(&call, worker, request),
        }
    }
}

impl Base {
    /// The worker in whose name this rank sends a request.
    fn caller(&self, from: usize, request: &RemoteRequest) -> Result<usize> {
        let (worker, workers) = (request.worker as usize, &self.inner.roles.workers);
        let reject = |received: String| Err(Error::internal("table", received));
        match workers.get(worker) {
            None => reject(format!("a request of worker {worker} of {}", workers.len())),
            Some(&rank) if rank == from || request.verb.is_open_to_all() => Ok(worker),
            Some(_) => reject(format!("rank {from} sent a request of worker {worker}")),
        }
    }

    /// The workers that keep a request of this worker from running now.
    fn waits_for(&self, worker: usize, verb: RequestVerb) -> Vec<usize> {
        match verb.kind() {
            RequestKind::Get => self.clock.get_waits_for(worker),
            RequestKind::Add => self.clock.add_waits_for(worker),
            RequestKind::Notice | RequestKind::Query => Vec::new(),
        }
    }

    /// The error for a request that this kind of table does not support.
    pub(crate) fn unexpected_request(&self, request: &RemoteRequest) -> Error {
        Error::internal("table", format!("{:?} asked of {}", request.verb, self.description))
    }
}

#[cfg(test)]
mod tests;
