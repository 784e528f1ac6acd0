//! The service's thread: blocks until a socket has an event or an inquiry is due to change, and never on one peer.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use super::ServiceState;
use super::knowledge::{Finding, Inquiry};
use super::listener::StatusListener;
use super::query::{QueryOutcome, Question, StatusQuery};
use super::wire::{MAX_LOST, RankStatus, StatusReply, StatusRequest};
use super::witnesses::witnesses;
use crate::error::Missing;

/// Inquiries in progress at a time.
const MAX_INQUIRIES: usize = 32;
/// How long a rank may take to reply, to determine its source line included.
const REPLY_TIMEOUT: Duration = Duration::from_millis(1000);
/// How long a description with a source line is repeated to other ranks that ask, instead of being made again.
const DESCRIPTION_AGE: Duration = Duration::from_secs(1);

pub(super) struct EventLoop {
    state: Arc<ServiceState>,
    listener: Option<StatusListener>,
    open: Vec<OpenInquiry>,
    /// Descriptions with source lines of ranks on this host.
    described: HashMap<usize, (Instant, Missing)>,
}

/// An inquiry in progress: one witness is being asked.
struct OpenInquiry {
    inquiry: Inquiry,
    /// The ranks to ask after the current one, as positions in the list of witnesses.
    rest: std::vec::IntoIter<usize>,
    witnesses: Vec<usize>,
    position: usize,
    query: Option<StatusQuery>,
    /// Whether the rank itself has accepted a connection.
    accepted: bool,
}

impl EventLoop {
    pub fn new(state: Arc<ServiceState>, listener: Option<StatusListener>) -> EventLoop {
        EventLoop { state, listener, open: Vec::new(), described: HashMap::new() }
    }

    pub fn run(mut self) {
        while !self.state.knowledge.with(|knowledge| knowledge.ending) {
            self.serve();
            self.begin_inquiries();
            self.advance_inquiries();
            if self.block().is_err() {
                // Not expected; without a way to block, the loop would keep a core busy.
                std::thread::sleep(REPLY_TIMEOUT);
            }
        }
    }

    fn begin_inquiries(&mut self) {
        while self.open.len() < MAX_INQUIRIES
            && let Some(inquiry) = self.state.knowledge.with(|knowledge| knowledge.queue.pop_front())
        {
            let witnesses = witnesses(&self.state.hosts, self.state.rank, inquiry.about);
            let preferred = self.state.knowledge.with(|knowledge| knowledge.ranks[&inquiry.about].witness);
            let preferred = Some(preferred).filter(|&position| position < witnesses.len());
            let others = (0..witnesses.len()).filter(|&position| Some(position) != preferred);
            let order: Vec<usize> = preferred.into_iter().chain(others).collect();
            let rest = order.into_iter();
            let mut open =
                OpenInquiry { inquiry, rest, witnesses, position: 0, query: None, accepted: false };
            open.ask_next(&self.state);
            self.open.push(open);
        }
    }

    fn advance_inquiries(&mut self) {
        let state = &self.state;
        self.open.retain_mut(|open| {
            let finding = open.advance(state);
            if let Some(finding) = finding {
                let (inquiry, position) = (open.inquiry, open.position);
                state.knowledge.update(|knowledge| {
                    if matches!(finding, Finding::Alive(_)) {
                        knowledge.ranks.entry(inquiry.about).or_default().witness = position;
                    }
                    knowledge.finish(inquiry, finding);
                });
                return false;
            }
            true
        });
    }

    fn serve(&mut self) {
        let EventLoop { state, listener, described, .. } = self;
        if let Some(listener) = listener {
            listener.advance(&state.token, state.size, |request| state.reply(described, request));
        }
    }

    /// Blocks until there is something to do.
    fn block(&self) -> rustix::io::Result<()> {
        let EventLoop { state, listener, open, .. } = self;
        let mut events = vec![PollFd::new(&state.wake, PollFlags::IN)];
        let served = listener.iter().flat_map(|listener| listener.sockets());
        events.extend(served.map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN)));
        let queries = || open.iter().filter_map(|open| open.query.as_ref());
        events.extend(queries().flat_map(StatusQuery::sockets).map(|(socket, connects)| {
            PollFd::from_borrowed_fd(socket, if connects { PollFlags::OUT } else { PollFlags::IN })
        }));
        let until = queries().map(StatusQuery::until);
        let until = until.chain(listener.iter().filter_map(StatusListener::until)).min();
        // Rounded up: a wait that ends early would be repeated without effect.
        let limit = until.map(|until| {
            let left = until.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
        });
        match rustix::event::poll(&mut events, limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        let _ = rustix::io::read(&state.wake, &mut [0; 8]);
        Ok(())
    }
}

impl OpenInquiry {
    /// Asks the next witness that has a service; afterwards there is no query if there is none.
    fn ask_next(&mut self, state: &ServiceState) {
        self.query = None;
        for position in self.rest.by_ref() {
            let asked = self.witnesses[position];
            let proven = state.knowledge.with(|knowledge| knowledge.ranks.get(&asked)?.proven);
            let addresses = proven.map_or_else(|| state.addresses[asked].clone(), |one| vec![one]);
            if addresses.is_empty() {
                continue;
            }
            self.position = position;
            self.query = Some(StatusQuery::start(Question {
                token: state.token,
                size: state.size,
                asked,
                about: self.inquiry.about,
                locate: self.inquiry.locate,
                addresses: &addresses,
                proven: proven.is_some(),
                until: Instant::now() + REPLY_TIMEOUT,
            }));
            return;
        }
    }

    /// The finding, if the inquiry has ended.
    fn advance(&mut self, state: &ServiceState) -> Option<Finding> {
        let about = self.inquiry.about;
        while let Some(query) = &mut self.query {
            let asked = query.asked;
            let outcome = query.advance()?;
            if let QueryOutcome::Failed { accepted, .. } = outcome {
                self.accepted |= accepted && asked == about;
            }
            let finding = state.knowledge.with(|knowledge| knowledge.learn(about, asked, outcome));
            if finding.is_some() {
                return finding;
            }
            self.ask_next(state);
        }
        Some(if self.accepted { Finding::Silent } else { Finding::Unreachable })
    }
}

impl ServiceState {
    fn reply(&self, described: &mut HashMap<usize, (Instant, Missing)>, request: &StatusRequest) -> Vec<u8> {
        let about = request.about as usize;
        let mut lost = self.local.all_ended();
        lost.extend(self.knowledge.with(|knowledge| knowledge.all_lost()));
        lost.retain(|&rank| rank != self.rank);
        let status = if lost.contains(&about) {
            let left = self.knowledge.with(|knowledge| knowledge.has_left(about));
            RankStatus::Lost { left }
        } else {
            let leaving = about == self.rank && self.leaving.load(Ordering::Acquire);
            let doing = self.describe(described, about, request.locate == 1);
            if doing.is_none() {
                self.knowledge.with(|knowledge| knowledge.ask_for_another(about));
            }
            doing.map_or(RankStatus::Unknown, |doing| RankStatus::Alive { doing, leaving })
        };
        lost.truncate(MAX_LOST);
        StatusReply { from: self.rank, about, status, lost }.encode(self.token)
    }

    /// What a rank of this host is doing. Many ranks may ask at the same time, when their deadlines pass: the source line
    /// is determined once.
    fn describe(
        &self,
        described: &mut HashMap<usize, (Instant, Missing)>,
        rank: usize,
        locate: bool,
    ) -> Option<Missing> {
        if !locate {
            return self.local.describe(rank, false);
        }
        if let Some((_, doing)) = described.get(&rank).filter(|(at, _)| at.elapsed() < DESCRIPTION_AGE) {
            return Some(doing.clone());
        }
        let doing = self.local.describe(rank, true)?;
        described.insert(rank, (Instant::now(), doing.clone()));
        Some(doing)
    }
}
