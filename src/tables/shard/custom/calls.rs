//! Gets and adds of user-defined tables, as the engine makes them, and the server side of other hosts' calls.
//!
//! All requests of a call to one host are sent as one message: a list of servers and lengths, then the requests' bytes,
//! concatenated.

use std::borrow::Cow;

use super::core::{CustomCore, HalfOutcome};
use super::halves::Requests;
use crate::error::{Error, Result};
use crate::tables::engine::base::{Base, Turn};
use crate::tables::engine::call::{AddCall, AddPart, GetCall, GetPart, get_local};
use crate::tables::engine::registry::OpenTable;
use crate::tables::engine::shard::Shard;
use crate::tables::remote::compress::SavedResiduals;
use crate::tables::remote::{RemoteRequest, ReplyPiece, RequestVerb, RowList};
use crate::transport::Call;

impl Shard for CustomCore {
    fn base(&self) -> &Base {
        &self.base
    }
}

impl CustomCore {
    /// Splits a call by the other hosts that have servers; under BSP, all of them take part.
    fn split(
        &self,
        worker: usize,
        verb: RequestVerb,
        requests: &[(usize, Vec<u8>)],
    ) -> Vec<(GetPart, RemoteRequest)> {
        let mut parts = Vec::new();
        for host in self.other_server_hosts() {
            let is_there = |position: &u32| self.shards.host(requests[*position as usize].0) == host;
            let positions: Vec<u32> = (0..requests.len() as u32).filter(is_there).collect();
            if positions.is_empty() && !self.involves_all_hosts() {
                continue;
            }
            let of_host = || positions.iter().map(|&position| &requests[position as usize]);
            let mut request = RemoteRequest::new(self.number, worker as u32, verb);
            let sizes = of_host().flat_map(|(server, part)| [*server as i64, part.len() as i64]);
            request.rows = RowList::List(sizes.collect());
            of_host().for_each(|(_, part)| request.payload.extend_from_slice(part));
            parts.push((GetPart { host, positions }, request));
        }
        parts
    }

    /// Those requests whose shards are on this host.
    fn local<'a>(&'a self, requests: &'a Requests) -> impl Iterator<Item = (usize, &'a [u8])> + 'a {
        let local = requests.iter().filter(|(server, _)| self.shards.is_local(*server));
        local.map(|(server, request)| (*server, request.as_slice()))
    }
}

/// Queries shards. All of them are queried, even if the half of one fails; the first error is returned.
pub(crate) struct ShardsGet<'a> {
    requests: &'a Requests,
    /// The replies, in the order of the requests.
    pub replies: Requests,
    local: HalfOutcome<()>,
    remote: Result<()>,
}

impl<'a> ShardsGet<'a> {
    pub fn new(requests: &'a Requests) -> ShardsGet<'a> {
        let replies = requests.iter().map(|(server, _)| (*server, Vec::new())).collect();
        ShardsGet { requests, replies, local: Ok(()), remote: Ok(()) }
    }

    fn take(&mut self, part: &GetPart, reply: Vec<u8>) -> Result<()> {
        let (lengths, bytes) = RowList::decode(reply)?;
        let replies = split(&lengths, &bytes, |[length]| Some((0, usize::try_from(*length).ok()?)))?;
        if replies.len() != part.positions.len() {
            return Err(Error::internal("get", "another number of replies than of requests"));
        }
        for (&position, (_, reply)) in part.positions.iter().zip(replies) {
            self.replies[position as usize].1 = reply.to_vec();
        }
        Ok(())
    }
}

impl GetCall<CustomCore> for ShardsGet<'_> {
    fn requests(&mut self, table: &CustomCore, worker: usize) -> Vec<(GetPart, RemoteRequest)> {
        table.split(worker, RequestVerb::CUSTOM_GET, self.requests)
    }

    fn read(&mut self, table: &CustomCore, call: &Call, worker: usize) -> Result<()> {
        self.local = table.ask_local(call, worker, table.local(self.requests))?.map(|answers| {
            let local = self.replies.iter_mut().filter(|(server, _)| table.shards.is_local(*server));
            local.zip(answers).for_each(|((_, reply), answer)| *reply = answer);
        });
        Ok(())
    }

    fn merge(&mut self, _table: &CustomCore, part: &GetPart, reply: Result<ReplyPiece>) -> Result<()> {
        let taken = reply.and_then(ReplyPiece::whole).and_then(|reply| self.take(part, reply));
        self.remote = std::mem::replace(&mut self.remote, Ok(())).and(taken);
        Ok(())
    }

    fn finish(&mut self, _table: &CustomCore, merged: Result<()>) -> Result<()> {
        let take = |outcome: &mut Result<()>| std::mem::replace(outcome, Ok(()));
        take(&mut self.local).and(merged).and(take(&mut self.remote))
    }
}

/// Changes shards. All of them get their requests, even if the half of one fails; the first error is returned.
pub(crate) struct ShardsAdd<'a> {
    requests: &'a Requests,
    local: HalfOutcome<()>,
}

impl<'a> ShardsAdd<'a> {
    pub fn new(requests: &'a Requests) -> ShardsAdd<'a> {
        ShardsAdd { requests, local: Ok(()) }
    }
}

impl<'a> AddCall<'a, CustomCore> for ShardsAdd<'a> {
    fn requests(&mut self, table: &CustomCore, worker: usize) -> Vec<AddPart<'a>> {
        let parts = table.split(worker, RequestVerb::CUSTOM_ADD, self.requests).into_iter();
        let part = |(part, mut request): (GetPart, RemoteRequest)| AddPart {
            host: part.host,
            payload: Cow::Owned(std::mem::take(&mut request.payload)),
            request,
            unit: 1,
            residuals: SavedResiduals::default(),
        };
        parts.map(part).collect()
    }

    fn write(&mut self, table: &CustomCore, call: &Call, worker: usize) -> Result<()> {
        self.local = table.change_local(call, worker, table.local(self.requests))?;
        Ok(())
    }

    fn local_request(&self, table: &CustomCore, worker: usize) -> RemoteRequest {
        unreachable!("adds of worker {worker} to {} are never summed", table.description)
    }

    /// A call that one host has counted is counted by all, whatever its half returned.
    fn finish(&mut self, made: Result<()>) -> Result<()> {
        std::mem::replace(&mut self.local, Ok(())).and(made)
    }
}

impl OpenTable for CustomCore {
    fn serve(&self, call: &Call, worker: usize, request: &RemoteRequest) -> Result<Vec<u8>> {
        let parts = split(&request.rows, &request.payload, |[server, length]| {
            Some((usize::try_from(*server).ok()?, usize::try_from(*length).ok()?))
        })?;
        if parts.iter().any(|(server, _)| !self.shards.is_local(*server)) {
            return Err(Error::internal("table", "a request to a shard that is elsewhere"));
        }
        let parts = parts.into_iter();
        match request.verb {
            RequestVerb::CUSTOM_GET => {
                let mut replies: HalfOutcome<Vec<Vec<u8>>> = Ok(Vec::new());
                get_local(self, call, worker, Turn::Granted, || {
                    replies = self.ask_local(call, worker, parts)?;
                    Ok(())
                })?;
                let replies = replies?;
                let lengths = replies.iter().map(|reply| reply.len() as i64).collect();
                Ok(RowList::List(lengths).encode(replies.concat()))
            }
            RequestVerb::CUSTOM_ADD => {
                let mut outcome = Ok(());
                self.add_local(call, worker, Turn::Granted, || {
                    outcome = self.change_local(call, worker, parts)?;
                    Ok(())
                })?;
                outcome.map(|()| Vec::new())
            }
            _ => Err(self.unexpected_request(request)),
        }
    }
}

/// Splits bytes into parts. Each part is described by `N` numbers, which `read` converts to its server and its length.
fn split<'a, const N: usize>(
    list: &RowList,
    bytes: &'a [u8],
    read: impl Fn(&[i64; N]) -> Option<(usize, usize)>,
) -> Result<Vec<(usize, &'a [u8])>> {
    let malformed = || Error::internal("table", "lengths that do not fit what came with them");
    let RowList::List(numbers) = list else { return Err(malformed()) };
    let (descriptions, left) = numbers.as_chunks::<N>();
    let mut rest = bytes;
    let mut parts = Vec::with_capacity(descriptions.len());
    for description in descriptions {
        let (server, length) = read(description).ok_or_else(malformed)?;
        let (part, behind) = rest.split_at_checked(length).ok_or_else(malformed)?;
        parts.push((server, part));
        rest = behind;
    }
    match left.is_empty() && rest.is_empty() {
        true => Ok(parts),
        false => Err(malformed()),
    }
}
