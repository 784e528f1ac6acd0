//! Open requests and their answers. Of the threads that wait, one receives for all of them.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};
use crate::transport::wait::Monitor;

/// A request without an answer, or with one that nobody has fetched.
pub(super) struct Open {
    pub server: usize,
    /// Bytes that travel; counted for posted requests alone.
    pub bytes: usize,
    /// Whether nobody waits for the answer itself.
    pub posted: bool,
    pub answer: Option<Result<Vec<u8>>>,
}

/// All open requests of this rank.
#[derive(Default)]
pub(super) struct State {
    last: u64,
    open: HashMap<u64, Open>,
    /// For each server, the number and the bytes of what was posted to it and is not answered.
    posted: HashMap<usize, (usize, usize)>,
    /// Errors among the answers to posted requests, since the last flush.
    failed: Vec<Error>,
    /// Whether some thread is receiving.
    leading: bool,
    /// How often a thread has ended that: changes when answers may have been delivered.
    pub receptions: u32,
}

impl State {
    /// Opens a request and gives its number.
    pub fn open(&mut self, request: Open) -> u64 {
        self.last += 1;
        if request.posted {
            let (count, bytes) = self.posted.entry(request.server).or_default();
            (*count, *bytes) = (*count + 1, *bytes + request.bytes);
        }
        self.open.insert(self.last, request);
        self.last
    }

    /// Takes the answer to a request, which is closed then.
    pub fn take(&mut self, number: u64) -> Option<Result<Vec<u8>>> {
        self.open.get(&number)?.answer.as_ref()?;
        self.open.remove(&number)?.answer
    }

    /// Forgets a request; its answer will be ignored.
    pub fn forget(&mut self, number: u64) -> Option<Open> {
        let open = self.open.remove(&number)?;
        if open.posted
            && let Some((count, bytes)) = self.posted.get_mut(&open.server)
        {
            (*count, *bytes) = (*count - 1, *bytes - open.bytes);
        }
        Some(open)
    }

    /// Puts an answer where it belongs.
    pub fn deliver(&mut self, server: usize, number: u64, answer: Result<Vec<u8>>) {
        match self.open.get_mut(&number) {
            Some(open) if open.server == server && open.posted => {
                self.forget(number);
                self.failed.extend(answer.err());
            }
            Some(open) if open.server == server => open.answer = Some(answer),
            // Its caller has given up.
            _ => tracing::debug!(server, number, "an answer that nobody waits for"),
        }
    }

    /// The number and the bytes of what was posted to this server and is not answered.
    pub fn under_way(&self, server: usize) -> (usize, usize) {
        self.posted.get(&server).copied().unwrap_or_default()
    }

    /// The servers that owe answers to what was posted.
    pub fn owing(&self) -> Vec<usize> {
        let owing = self.posted.iter().filter(|(_, (count, _))| *count > 0);
        owing.map(|(server, _)| *server).collect()
    }

    /// The servers that owe answers to these requests.
    pub fn owing_for(&self, numbers: &[u64]) -> Vec<usize> {
        let waiting = numbers.iter().filter_map(|number| self.open.get(number));
        let mut servers: Vec<usize> =
            waiting.filter(|open| open.answer.is_none()).map(|open| open.server).collect();
        servers.sort_unstable();
        servers.dedup();
        servers
    }

    /// Forgets what was posted to this server, which will not answer any more.
    pub fn write_off(&mut self, server: usize) {
        self.open.retain(|_, open| !(open.posted && open.server == server));
        self.posted.remove(&server);
    }

    /// Starts to receive, unless another thread does.
    fn lead(&mut self) -> bool {
        !std::mem::replace(&mut self.leading, true)
    }

    /// The errors since the last time.
    pub fn take_failed(&mut self) -> Vec<Error> {
        std::mem::take(&mut self.failed)
    }
}

/// The state, and the threads that wait for it to change.
pub(super) struct OpenRequests {
    state: Monitor<State>,
}

impl OpenRequests {
    /// Numbers begin where those of earlier tables in this context do not reach: a late answer to one of their requests must
    /// not be taken for one of ours.
    pub fn new() -> OpenRequests {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        OpenRequests { state: Monitor::new(State { last: now, ..State::default() }) }
    }

    /// Looks at the state or changes it.
    pub fn with<R>(&self, look: impl FnOnce(&mut State) -> R) -> R {
        self.state.with(look)
    }

    /// The right to receive for all threads, unless another one has it.
    pub fn lead(&self) -> Option<Lead<'_>> {
        self.with(State::lead).then(|| Lead { requests: self })
    }

    /// The same; if another thread has the right, waits until that one has received something, at most for `limit`. `None` if any
    /// thread has, since [`State::receptions`] was `seen`.
    pub fn lead_or_follow(&self, seen: u32, limit: Duration) -> Option<Lead<'_>> {
        let turn = |state: &mut State| match state.receptions == seen {
            true => state.lead().then_some(true),
            false => Some(false),
        };
        let leads = self.state.wait_timeout(limit, turn)?;
        leads.then(|| Lead { requests: self })
    }
}

/// The right to receive for all threads; when it ends, another thread takes it.
pub(super) struct Lead<'a> {
    requests: &'a OpenRequests,
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        self.requests.state.update(|state| {
            state.leading = false;
            state.receptions = state.receptions.wrapping_add(1);
        });
    }
}
