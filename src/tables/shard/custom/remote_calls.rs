//! The remote part of a call, and the server side of other hosts' calls.
//!
//! All requests of a call to one host are sent as one message: a list of servers and lengths, then the requests' bytes,
//! concatenated.

use super::core::{CustomCore, HalfOutcome};
use super::halves::Requests;
use crate::error::{Error, Result};
use crate::tables::engine::registry::OpenTable;
use crate::tables::remote::{RemoteRequest, RequestVerb, RowList};
use crate::transport::Call;

/// A message to another host: its server's rank, the request, and the positions of its parts in the call's list.
type HostRequest = (usize, RemoteRequest, Vec<usize>);

impl CustomCore {
    fn ask(&self, worker: usize, verb: RequestVerb, requests: &Requests) -> Result<Vec<HostRequest>> {
        let mut asked = Vec::new();
        for host in self.other_server_hosts() {
            let is_there = |position: &usize| self.shards.host(requests[*position].0) == host;
            let positions: Vec<usize> = (0..requests.len()).filter(is_there).collect();
            if positions.is_empty() && !self.involves_all_hosts() {
                continue;
            }
            let parts = || positions.iter().map(|&position| &requests[position]);
            let mut request = RemoteRequest::new(self.number, worker as u32, verb);
            let sizes = parts().flat_map(|(server, part)| [*server as i64, part.len() as i64]);
            request.rows = RowList::List(sizes.collect());
            parts().for_each(|(_, part)| request.payload.extend_from_slice(part));
            asked.push((self.server_of(host)?, request, positions));
        }
        Ok(asked)
    }

    /// Gets from other hosts' shards, and puts the replies at their positions.
    pub(crate) fn ask_remote(
        &self,
        call: &Call,
        worker: usize,
        requests: &Requests,
        replies: &mut Requests,
    ) -> Result<()> {
        let Some(remote) = self.inner.remote() else { return Ok(()) };
        let asked = self.ask(worker, RequestVerb::CUSTOM_GET, requests)?;
        let (mut places, mut sent) = (Vec::new(), Vec::new());
        for (server, request, positions) in asked {
            sent.push((server, request));
            places.push(positions);
        }
        let mut outcome = Ok(());
        for (positions, reply) in places.iter().zip(remote.call_each(call, sent)?) {
            outcome = outcome.and(reply.and_then(|reply| {
                let (lengths, bytes) = RowList::decode(reply)?;
                let parts = split(&lengths, &bytes, |[length]| Some((0, usize::try_from(*length).ok()?)))?;
                if parts.len() != positions.len() {
                    return Err(Error::internal("get", "another number of replies than of requests"));
                }
                let answered = positions.iter().zip(parts);
                answered.for_each(|(&position, (_, reply))| replies[position].1 = reply.to_vec());
                Ok(())
            }));
        }
        outcome
    }

    /// The messages of an add to other hosts' shards.
    pub(crate) fn remote_changes(
        &self,
        worker: usize,
        requests: &Requests,
    ) -> Result<Vec<(usize, RemoteRequest)>> {
        match self.inner.remote() {
            Some(_) => {
                let asked = self.ask(worker, RequestVerb::CUSTOM_ADD, requests)?;
                Ok(asked.into_iter().map(|(server, request, _)| (server, request)).collect())
            }
            None => Ok(Vec::new()),
        }
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
                self.get_local(call, worker, || {
                    replies = self.ask_local(call, worker, parts)?;
                    Ok(())
                })?;
                let replies = replies?;
                let lengths = replies.iter().map(|reply| reply.len() as i64).collect();
                Ok(RowList::List(lengths).encode(replies.concat()))
            }
            RequestVerb::CUSTOM_ADD => {
                let mut outcome = Ok(());
                self.add_local(call, worker, || {
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
