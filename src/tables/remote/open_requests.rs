//! Open requests and their replies. Of the waiting threads, one receives for all of them (leader/follower).

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};
use crate::transport::wait::Monitor;

/// A request without a reply, or whose reply has not been fetched yet.
pub(super) struct OpenRequest {
    pub server: usize,
    /// Payload bytes; counted for posted requests only.
    pub bytes: usize,
    /// Whether the request was posted: no caller waits for its reply.
    pub posted: bool,
    /// The pieces of the reply that were not fetched yet, each with whether more follow.
    pub reply: VecDeque<(Result<Vec<u8>>, bool)>,
}

impl OpenRequest {
    pub fn new(server: usize, bytes: usize, posted: bool) -> OpenRequest {
        OpenRequest { server, bytes, posted, reply: VecDeque::new() }
    }

    /// Whether the server may still have something to do for it.
    pub fn is_unanswered(&self) -> bool {
        self.reply.back().is_none_or(|(_, more)| *more)
    }
}

/// All open requests of this rank.
#[derive(Default)]
pub(super) struct RequestState {
    last: u64,
    open: HashMap<u64, OpenRequest>,
    /// For each server, the number and the payload bytes of posted requests without a reply.
    posted: HashMap<usize, (usize, usize)>,
    /// Errors among the replies to posted requests since the last flush.
    failed: Vec<Error>,
    /// Whether a thread is receiving.
    leading: bool,
    /// How often a thread has stopped receiving; it changes whenever replies may have been delivered.
    pub receive_count: u32,
}

impl RequestState {
    /// Registers a request and returns its number.
    pub fn open(&mut self, request: OpenRequest) -> u64 {
        self.last += 1;
        if request.posted {
            let (count, bytes) = self.posted.entry(request.server).or_default();
            (*count, *bytes) = (*count + 1, *bytes + request.bytes);
        }
        self.open.insert(self.last, request);
        self.last
    }

    /// Takes the next piece of the reply to a request, with whether more follow; the last one closes the request.
    pub fn take(&mut self, number: u64) -> Option<(Result<Vec<u8>>, bool)> {
        let (piece, more) = self.open.get_mut(&number)?.reply.pop_front()?;
        if !more {
            self.open.remove(&number);
        }
        Some((piece, more))
    }

    /// Drops a request; its reply will be ignored.
    pub fn forget(&mut self, number: u64) -> Option<OpenRequest> {
        let open = self.open.remove(&number)?;
        if open.posted
            && let Some((count, bytes)) = self.posted.get_mut(&open.server)
        {
            (*count, *bytes) = (*count - 1, *bytes - open.bytes);
        }
        Some(open)
    }

    /// Stores a reply, or a piece of it, with its request.
    pub fn deliver(&mut self, server: usize, number: u64, reply: Result<Vec<u8>>, more: bool) {
        match self.open.get_mut(&number) {
            Some(open) if open.server == server && open.posted => {
                self.forget(number);
                self.failed.extend(reply.err());
            }
            Some(open) if open.server == server => open.reply.push_back((reply, more)),
            // The caller has given up.
            _ => tracing::debug!(server, number, "a reply to no open request"),
        }
    }

    /// The number and the payload bytes of posted requests to this server without a reply.
    pub fn in_flight(&self, server: usize) -> (usize, usize) {
        self.posted.get(&server).copied().unwrap_or_default()
    }

    /// The servers with unanswered posted requests.
    pub fn pending_servers(&self) -> Vec<usize> {
        let pending_servers = self.posted.iter().filter(|(_, (count, _))| *count > 0);
        pending_servers.map(|(server, _)| *server).collect()
    }

    /// The servers with unanswered requests among these.
    pub fn pending_servers_of(&self, numbers: &[u64]) -> Vec<usize> {
        let waiting = numbers.iter().filter_map(|number| self.open.get(number));
        let mut servers: Vec<usize> =
            waiting.filter(|open| open.is_unanswered()).map(|open| open.server).collect();
        servers.sort_unstable();
        servers.dedup();
        servers
    }

    /// Drops the posted requests to this server, which will not reply any more.
    pub fn forget_lost(&mut self, server: usize) {
        self.open.retain(|_, open| !(open.posted && open.server == server));
        self.posted.remove(&server);
    }

    /// Becomes the leader, unless another thread is.
    fn try_lead(&mut self) -> bool {
        !std::mem::replace(&mut self.leading, true)
    }

    /// Takes the errors collected since the last call.
    pub fn take_errors(&mut self) -> Vec<Error> {
        std::mem::take(&mut self.failed)
    }
}

/// The state, and the threads that wait for it to change.
pub(super) struct OpenRequests {
    state: Monitor<RequestState>,
}

impl OpenRequests {
    /// Numbers start above those of earlier tables in this context: a late reply to one of their requests must not be mistaken
    /// for a reply to one of ours.
    pub fn new() -> OpenRequests {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        OpenRequests { state: Monitor::new(RequestState { last: now, ..RequestState::default() }) }
    }

    /// Reads or changes the state.
    pub fn with<R>(&self, access: impl FnOnce(&mut RequestState) -> R) -> R {
        self.state.with(access)
    }

    /// Leadership, the right to receive for all threads, unless another thread holds it.
    pub fn try_lead(&self) -> Option<LeaderGuard<'_>> {
        self.with(RequestState::try_lead).then(|| LeaderGuard { requests: self })
    }

    /// As [`OpenRequests::try_lead`], but if another thread leads, waits at most `limit` for that thread to receive something.
    /// `None` if any thread has received since [`RequestState::receive_count`] was `seen`.
    pub fn lead_or_follow(&self, seen: u32, limit: Duration) -> Option<LeaderGuard<'_>> {
        let turn = |state: &mut RequestState| match state.receive_count == seen {
            true => state.try_lead().then_some(true),
            false => Some(false),
        };
        let leads = self.state.wait_timeout(limit, turn)?;
        leads.then(|| LeaderGuard { requests: self })
    }
}

/// The right to receive for all threads; another thread can take over when it is dropped.
pub(super) struct LeaderGuard<'a> {
    requests: &'a OpenRequests,
}

impl Drop for LeaderGuard<'_> {
    fn drop(&mut self) {
        self.requests.state.update(|state| {
            state.leading = false;
            state.receive_count = state.receive_count.wrapping_add(1);
        });
    }
}
