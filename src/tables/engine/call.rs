//! The client side of a call, the same for every kind of table: split it by owner, send the other hosts' parts, make the local part
//! while they travel, merge the replies, and count the call.

use std::borrow::Cow;

use super::base::{Base, Turn, applied_in_part, not_applied};
use super::rounds::{add_to_round, apply_complete_rounds};
use super::shard::Shard;
use crate::error::Result;
use crate::tables::remote::compress::SavedResiduals;
use crate::tables::remote::{OutgoingRequest, Remote, RemoteRequest, ReplyPiece};
use crate::tables::spec::verbs;
use crate::transport::Call;

/// The part of a get that another host holds.
pub(crate) struct GetPart {
    pub host: usize,
    /// The positions of its rows, keys or requests in the caller's list; empty if the call is for all rows.
    pub positions: Vec<u32>,
}

/// The part of an add that another host holds.
pub(crate) struct AddPart<'a> {
    pub host: usize,
    /// The request without its payload.
    pub request: RemoteRequest,
    pub payload: Cow<'a, [u8]>,
    /// If the payload is sent in pieces, their lengths are multiples of this number of bytes.
    pub unit: usize,
    /// What compression has left of the host's rows before this add, to be restored if the add is not made.
    pub residuals: SavedResiduals,
}

/// A get of one worker.
pub(crate) trait GetCall<S> {
    /// The requests to other hosts. Under BSP, every host that holds some of the table gets one, because it counts the call.
    fn requests(&mut self, shard: &S, worker: usize) -> Vec<(GetPart, RemoteRequest)>;

    /// Reads what this host holds.
    fn read(&mut self, shard: &S, call: &Call, worker: usize) -> Result<()>;

    /// Takes another host's reply, or a piece of it; an error ends the call.
    fn merge(&mut self, shard: &S, part: &GetPart, reply: Result<ReplyPiece>) -> Result<()>;

    /// The result of the call, given that of merging all replies. The get counts if it succeeded.
    fn finish(&mut self, _shard: &S, merged: Result<()>) -> Result<()> {
        merged
    }
}

/// An add of one worker.
pub(crate) trait AddCall<'a, S> {
    /// The requests to other hosts, compressed; under BSP, as for [`GetCall::requests`].
    fn requests(&mut self, shard: &S, worker: usize) -> Vec<AddPart<'a>>;

    /// Updates what this host holds.
    fn write(&mut self, shard: &S, call: &Call, worker: usize) -> Result<()>;

    /// This host's part as a request, which waits for its round to complete.
    fn local_request(&self, shard: &S, worker: usize) -> RemoteRequest;

    /// The result of the call, given that of all its parts.
    fn finish(&mut self, made: Result<()>) -> Result<()> {
        made
    }
}

/// Makes a get: the other hosts' parts travel while this host reads its own.
pub(crate) fn get<S: Shard>(shard: &S, call: &Call, worker: usize, get: &mut impl GetCall<S>) -> Result<()> {
    let base = shard.base();
    let mut parts = Vec::new();
    let outstanding = match base.inner.remote() {
        None => None,
        Some(remote) => {
            let mut requests = Vec::new();
            for (part, request) in get.requests(shard, worker) {
                requests.push((base.server_of(part.host)?, request));
                parts.push(part);
            }
            Some(remote.send(call, requests)?)
        }
    };
    if base.participates {
        let staleness = get_local(shard, call, worker, Turn::Wait, || get.read(shard, call, worker))?;
        base.staleness.count(staleness);
    }
    let merged = match outstanding {
        None => Ok(()),
        Some(outstanding) => {
            let _waiting = base.inner.endpoint.set_waiting(verbs::GET, call.number);
            outstanding.collect(|index, reply| get.merge(shard, &parts[index], reply))
        }
    };
    get.finish(shard, merged)?;
    if !base.participates {
        base.counts.unclocked_get();
    }
    base.count_get(call, worker, &parts)
}

/// Reads this host's share in this worker's turn, after the rounds that are complete. Counts the get, except under BSP, where it
/// counts once all hosts have answered ([`Base::count_get`]), so that a failed get can be repeated.
pub(crate) fn get_local<S: Shard>(
    shard: &S,
    call: &Call,
    worker: usize,
    turn: Turn,
    read: impl FnOnce() -> Result<()>,
) -> Result<u64> {
    let base = shard.base();
    if turn == Turn::Wait {
        base.wait(call, verbs::GET, || base.clock.get_waits_for(worker))?;
    }
    apply_complete_rounds(shard, call)?;
    read()?;
    Ok(count_local_get(base, worker))
}

/// Counts a get that this host has answered, as [`get_local`] does.
pub(crate) fn count_local_get(base: &Base, worker: usize) -> u64 {
    match base.involves_all_hosts() {
        true => base.clock.staleness(worker),
        false => base.clock.record_get(worker),
    }
}

/// Makes an add: with `wait`, on all hosts or on none, and returns once all of them have made it; otherwise returns once it is under
/// way.
pub(crate) fn add<'a, S: Shard>(
    shard: &S,
    call: &Call,
    worker: usize,
    wait: bool,
    add: &mut impl AddCall<'a, S>,
) -> Result<()> {
    let made = match shard.base().inner.remote() {
        None => add_own_part(shard, call, worker, add),
        Some(remote) => {
            let (base, mut parts) = (shard.base(), add.requests(shard, worker));
            let residuals = parts.iter_mut().map(|part| (part.host, std::mem::take(&mut part.residuals)));
            let unsent = Unsent { base, residuals: residuals.collect() };
            let outgoing =
                |AddPart { host, request, payload, unit, .. }: AddPart<'a>| -> Result<OutgoingRequest<'a>> {
                    Ok(OutgoingRequest { server: base.server_of(host)?, request, payload, unit })
                };
            let requests = parts.into_iter().map(outgoing).collect::<Result<Vec<_>>>()?;
            match requests.is_empty() {
                true => add_own_part(shard, call, worker, add),
                false if wait => add_and_wait(shard, remote, call, worker, add, requests, unsent),
                false => add_and_post(shard, remote, call, worker, add, requests, unsent),
            }
        }
    };
    add.finish(made)
}

/// This host's part of an add.
fn add_own_part<'a, S: Shard>(
    shard: &S,
    call: &Call,
    worker: usize,
    add: &mut impl AddCall<'a, S>,
) -> Result<()> {
    let base = shard.base();
    match (base.participates, base.accumulates()) {
        (false, _) => {
            base.counts.unclocked_add();
            Ok(())
        }
        (true, true) => add_to_round(shard, call, worker, Turn::Wait, add.local_request(shard, worker)),
        (true, false) => base.add_local(call, worker, Turn::Wait, || add.write(shard, call, worker)),
    }
}

/// Two-phase commit: the other hosts make their parts once this host has made its own.
fn add_and_wait<'a, S: Shard>(
    shard: &S,
    remote: &Remote,
    call: &Call,
    worker: usize,
    add: &mut impl AddCall<'a, S>,
    requests: Vec<OutgoingRequest<'a>>,
    unsent: Unsent,
) -> Result<()> {
    let prepared = remote.prepare(call, requests).map_err(not_applied)?;
    add_own_part(shard, call, worker, add)?;
    unsent.disarm();
    let words = "add (applied, but not confirmed in time: do not repeat it)";
    prepared.confirm().map_err(|error| error.during(words))?
}

/// Sends the other hosts' parts, which travel while this host makes its own.
fn add_and_post<'a, S: Shard>(
    shard: &S,
    remote: &Remote,
    call: &Call,
    worker: usize,
    add: &mut impl AddCall<'a, S>,
    requests: Vec<OutgoingRequest<'a>>,
    unsent: Unsent,
) -> Result<()> {
    let base = shard.base();
    remote.wait_for_room(call, requests.iter().map(|request| request.server)).map_err(not_applied)?;
    // A server that is not reached does not keep the others from making the add.
    let post = |requests: Vec<OutgoingRequest>| {
        let posted = requests.into_iter().map(|request| remote.post_now(call, request));
        posted.fold(Ok(()), Result::and)
    };
    if !base.participates || base.clock.needs_round_lock() {
        // Joining a round can fail before anything is changed, so the other hosts must not have the add yet.
        add_own_part(shard, call, worker, add)?;
        unsent.disarm();
        return post(requests);
    }
    base.take_add_turn(call, worker, Turn::Wait)?;
    unsent.disarm();
    let posted = post(requests);
    let written = add.write(shard, call, worker).map_err(applied_in_part);
    // The other hosts count this add, so this one does, too, even if it failed here.
    base.clock.record_add(worker);
    written.and(posted)
}

/// Restores the compression residuals of an add that was not sent when it is dropped.
struct Unsent<'a> {
    base: &'a Base,
    residuals: Vec<(usize, SavedResiduals)>,
}

impl Unsent<'_> {
    fn disarm(mut self) {
        self.residuals.clear();
    }
}

impl Drop for Unsent<'_> {
    fn drop(&mut self) {
        self.base.packers().restore(&self.residuals);
    }
}
