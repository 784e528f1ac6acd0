//! Status service: ranks ask the processes of other hosts whether they run and what they do, over TCP and beside MPI.
//!
//! MPI does not report the end of a process reliably, and `/proc` shows the processes of one host only. So in a job on
//! several hosts each rank listens at a port of its own, and one thread replies to questions. The ports and addresses
//! are exchanged at startup, with a random token; requests without it get no reply.
//!
//! **When a rank asks.** Only when a call has waited for a second. Each question is a connection of its own, with one
//! request and one reply (`wire`), so that an idle job holds no connection. The thread asks, without blocking (`query`);
//! the waiting call only reads what is known (`knowledge`), and its polling is never delayed.
//!
//! **What proves the end of a process.**
//!
//! | observation | conclusion |
//! |---|---|
//! | its service replies | it runs |
//! | another rank of its host sees the process | it runs |
//! | connection refused, twice, at an address where its service has replied before | it has ended |
//! | another rank of its host reports that the process has ended | it has ended |
//! | another rank reports that refusals have proved its end | it has ended |
//! | connection refused at an address that was never proven | nothing: a firewall or another host may have refused |
//! | connection reset or closed without a reply | nothing; asked again soon |
//! | no reply | nothing: the host may be down, the link cut, or the process stopped |
//!
//! What proves nothing leaves the wait to its deadline. So that addresses are proven before they matter, each rank of a small
//! job asks all ranks of other hosts at startup. In a large one it asks some ranks of the next host, such that every rank is
//! asked by one: its *watcher* (`witnesses`).
//!
//! **Who is asked.** The rank itself; if it does not reply, two other ranks of its host, which see its process and its
//! record in shared memory even while it is stopped; then its watcher, which asks it if it knows nothing yet. The reply includes other ranks known to be lost,
//! so that a loss is also named by ranks that wait for another one.
//!
//! **What a forked child does.** It inherits the listening socket but not the thread. While such a child outlives its
//! rank, connections to the rank are accepted and get no reply: then only other ranks of its host can report its end.

mod addresses;
mod event_loop;
mod knowledge;
mod listener;
mod query;
#[cfg(test)]
mod tests;
mod wire;
mod witnesses;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;

pub(super) use addresses::ServiceAddress;
pub(super) use listener::StatusListener;

use crate::error::Missing;
use crate::transport::process;
use crate::transport::wait::Monitor;
use event_loop::EventLoop;
pub(super) use knowledge::RemoteLoss;
use knowledge::{Finding, Inquiry, Knowledge};
use wire::JobToken;

/// How long the descriptions of late ranks may take: a rank has half a second to determine its source line, and if it does
/// not reply, another rank of its host is asked.
const DESCRIBE_TIMEOUT: Duration = Duration::from_millis(2200);
/// How recent a failed inquiry must be so that it is not repeated for a description.
const RECENT: Duration = Duration::from_secs(5);

/// What the service knows without asking: the ranks whose processes are visible on this host.
pub(super) trait VisibleRanks: Send + Sync {
    /// What a rank of this host is doing; none if it is not visible. With `locate`, also its source line.
    fn describe(&self, rank: usize, locate: bool) -> Option<Missing>;
    /// All visible ranks whose processes have ended.
    fn all_ended(&self) -> Vec<usize>;
}

/// How a description of a rank ended.
#[derive(Debug, PartialEq)]
pub(super) enum RemoteDescription {
    Known(Missing),
    /// Its host accepts connections; its process does not reply.
    Silent,
    Unknown,
}

/// One rank's service, and its view of the ranks on other hosts.
pub(super) struct StatusService {
    state: Arc<ServiceState>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The process whose thread serves; a forked child has no such thread.
    pid: u32,
}

struct ServiceState {
    rank: usize,
    size: usize,
    token: JobToken,
    local: Arc<dyn VisibleRanks>,
    /// Where to ask each rank; none for ranks without a service.
    addresses: Vec<Vec<SocketAddr>>,
    /// The host of each rank: ranks with equal numbers see each other's processes.
    hosts: Vec<usize>,
    leaving: AtomicBool,
    knowledge: Monitor<Knowledge>,
    /// Written to wake the thread.
    wake: OwnedFd,
}

/// What a rank knows about all ranks when it starts its service.
pub(super) struct ServicePlan<'a> {
    pub rank: usize,
    /// What each rank has announced.
    pub announced: &'a [ServiceAddress],
    pub hosts: Vec<usize>,
    /// Whether each rank uses this rank's network namespace.
    pub same_network: Vec<bool>,
    pub local: Arc<dyn VisibleRanks>,
}

impl StatusListener {
    /// What to announce to the other ranks.
    pub fn announce(listener: Option<&StatusListener>) -> ServiceAddress {
        ServiceAddress::own(listener.and_then(|listener| listener.port().ok()).unwrap_or(0))
    }
}

impl StatusService {
    /// Starts the thread. Without a listener this rank asks others but cannot be asked.
    pub fn start(listener: Option<StatusListener>, plan: ServicePlan) -> std::io::Result<StatusService> {
        let ServicePlan { rank, announced, hosts, same_network, local } = plan;
        let token = announced[0].token;
        if token == JobToken::default() {
            return Err(std::io::Error::other("rank 0 has no random numbers"));
        }
        let own = &announced[rank];
        let addresses =
            announced.iter().zip(same_network).map(|(other, same)| other.reachable_from(own, same)).collect();
        let state = Arc::new(ServiceState {
            rank,
            size: announced.len(),
            token,
            local,
            addresses,
            hosts,
            leaving: AtomicBool::new(false),
            knowledge: Monitor::default(),
            wake: rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
        });
        state.knowledge.with(|knowledge| {
            let since = Instant::now();
            let watched = witnesses::watched_by(&state.hosts, rank);
            watched.into_iter().for_each(|about| knowledge.ask(Inquiry { about, locate: false, since }));
        });
        let event_loop = EventLoop::new(state.clone(), listener);
        let thread = Builder::new().name("unisono-status".into()).spawn(move || event_loop.run())?;
        Ok(StatusService { state, thread: Mutex::new(Some(thread)), pid: process::own_pid() })
    }

    /// How a rank was lost, if that is certain. Notes that a call waits for it: after a while, the rank is asked.
    pub fn await_rank(&self, rank: usize) -> Option<RemoteLoss> {
        let now = Instant::now();
        let (lost, asks) = self.state.knowledge.with(|knowledge| {
            let asks = knowledge.awaits(rank, now);
            (knowledge.lost(rank), asks)
        });
        if asks {
            self.state.wake();
        }
        lost
    }

    /// Asks about ranks at once, because MPI has failed at `since`; to be repeated until something is found.
    pub fn suspect(&self, ranks: &[usize], since: Instant) {
        let ask = |knowledge: &mut Knowledge| {
            ranks.iter().filter(|&&rank| knowledge.suspect(rank, since)).count() > 0
        };
        if self.state.knowledge.with(ask) {
            self.state.wake();
        }
    }

    /// How a rank was lost, as far as is known.
    pub fn known_loss(&self, rank: usize) -> Option<RemoteLoss> {
        self.state.knowledge.with(|knowledge| knowledge.lost(rank))
    }

    /// What ranks on other hosts are doing. Takes up to two seconds.
    pub fn describe(&self, ranks: &[usize]) -> Vec<RemoteDescription> {
        let since = Instant::now();
        let is_answered = |knowledge: &Knowledge, rank: usize| {
            let latest = knowledge.ranks.get(&rank).and_then(|known| known.latest.as_ref());
            latest.is_some_and(|(asked, finding)| match finding {
                Finding::Unreachable => since.saturating_duration_since(*asked) < RECENT,
                _ => *asked >= since,
            })
        };
        self.state.knowledge.with(|knowledge| {
            for &about in ranks {
                if !is_answered(knowledge, about) {
                    knowledge.ask(Inquiry { about, locate: true, since });
                }
            }
        });
        self.state.wake();
        let all_answered =
            |knowledge: &mut Knowledge| ranks.iter().all(|&rank| is_answered(knowledge, rank)).then_some(());
        let _ = self.state.knowledge.wait_timeout(DESCRIBE_TIMEOUT, all_answered);
        let describe = |knowledge: &mut Knowledge| {
            let latest = |rank: &usize| Some(knowledge.ranks.get(rank)?.latest.as_ref()?.1.clone());
            let describe = |rank| match latest(rank) {
                Some(Finding::Alive(doing)) => RemoteDescription::Known(doing),
                Some(Finding::Silent) => RemoteDescription::Silent,
                _ => RemoteDescription::Unknown,
            };
            ranks.iter().map(describe).collect()
        };
        self.state.knowledge.with(describe)
    }

    /// Lets replies state from now on that this rank is leaving the world.
    pub fn announce_leaving(&self) {
        self.state.leaving.store(true, Ordering::Release);
    }

    /// Ends the thread and closes the port.
    pub fn stop(&self) {
        if self.pid != process::own_pid() {
            return;
        }
        self.state.knowledge.with(|knowledge| knowledge.ending = true);
        self.state.wake();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl Drop for StatusService {
    fn drop(&mut self) {
        self.stop();
    }
}

impl ServiceState {
    fn wake(&self) {
        // Fails only if the counter is at its limit, and then the thread is awake.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}
