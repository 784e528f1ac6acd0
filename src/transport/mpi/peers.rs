//! Identity and liveness of the other ranks: their hosts and processes, exchanged once at startup.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::identity::ProcessIdentity;
use super::status::{
    RemoteDescription, RemoteLoss, ServiceAddress, ServicePlan, StatusListener, StatusService, VisibleRanks,
};
use crate::error::{Lost, Missing, Result};
use crate::transport::process::{self, Liveness};
use crate::transport::wait::{self, Awaited, Park};
use crate::transport::{Call, LEFT_EARLY, NonblockingTransport, Ticket};

/// Describes what a rank was last doing, if known; provided by the layer above. The second argument is how long the rank
/// may take to report its source line.
pub(crate) type DescribeRank = Box<dyn Fn(usize, Duration) -> Option<Missing> + Send + Sync>;

/// Time limit for a rank to report its source line.
const LOCATION_TIMEOUT: Duration = Duration::from_millis(500);

/// How long the surviving members may take to finish a call after another member has died. They cannot always report
/// that they cancelled it: a rank that lost a peer in the middle of a transfer never enters MPI again.
const LOST_MEMBER_GRACE: Duration = Duration::from_secs(2);

struct Peer {
    host: String,
    pid: u32,
    started: u64,
    /// The first rank that this one may share memory with.
    first: usize,
    /// Why this rank cannot share memory with that peer.
    isolation_reason: Option<&'static str>,
    same_kernel: bool,
    same_network: bool,
    /// Whether its process is visible from here, so that its death can be detected without asking.
    visible: bool,
    /// The first rank that may see this one's process; equal for ranks of one host, seen from every rank.
    first_visible: usize,
}

/// All ranks of the world.
pub(crate) struct Peers {
    rank: usize,
    share_cpus: bool,
    known: Arc<KnownPeers>,
    /// In a job on several hosts, asks the processes of other hosts.
    status: OnceLock<StatusService>,
}

/// What is known without asking another rank.
struct KnownPeers {
    all: Vec<Peer>,
    describe: OnceLock<DescribeRank>,
}

impl Peers {
    pub(super) fn new(identities: &[ProcessIdentity], rank: usize, describe: Option<DescribeRank>) -> Peers {
        let own = &identities[rank];
        let peer = |identity: &ProcessIdentity| {
            let name = String::from_utf8_lossy(&identity.host);
            let same_kernel = identity.boot == own.boot;
            let first = identities.iter().position(|other| other.isolation_reason(identity).is_none());
            // Containers may share a kernel without seeing each other's processes: equal pids name different processes
            // there.
            let visible = own.may_see(identity)
                && process::liveness(identity.pid, identity.started) != Liveness::Exited;
            let first_visible = identities.iter().position(|other| other.may_see(identity));
            Peer {
                host: name.trim_end_matches('\0').to_owned(),
                pid: identity.pid,
                started: identity.started,
                first: first.unwrap_or(usize::MAX),
                isolation_reason: own.isolation_reason(identity),
                same_kernel,
                same_network: same_kernel && own.network_namespace == identity.network_namespace,
                visible,
                first_visible: first_visible.unwrap_or(usize::MAX),
            }
        };
        let describe = describe.map_or_else(OnceLock::new, OnceLock::from);
        let mut all: Vec<Peer> = identities.iter().map(peer).collect();
        // A rank that cannot even share memory with itself is its own host.
        for (rank, peer) in all.iter_mut().enumerate() {
            (peer.first, peer.first_visible) = (peer.first.min(rank), peer.first_visible.min(rank));
        }
        let here = || identities.iter().filter(|identity| identity.boot == own.boot);
        let cpus = here().fold(own.cpus, |cpus, identity| cpus.union(identity.cpus));
        let share_cpus = here().count() > cpus.count();
        Peers { rank, share_cpus, known: Arc::new(KnownPeers { all, describe }), status: OnceLock::new() }
    }

    /// Whether some ranks cannot see the processes of others; the same on every rank.
    pub(super) fn are_on_several_hosts(&self) -> bool {
        self.all().iter().any(|peer| peer.first_visible != 0)
    }

    /// Starts this rank's status service, given what every rank has announced about its own. Without it, the loss of
    /// ranks on other hosts is not detected, and everything else works.
    pub(super) fn start_status(&self, listener: Option<StatusListener>, announced: &[ServiceAddress]) {
        let plan = ServicePlan {
            rank: self.rank,
            announced,
            hosts: self.all().iter().map(|peer| peer.first_visible).collect(),
            same_network: self.all().iter().map(|peer| peer.same_network).collect(),
            local: self.known.clone(),
        };
        match StatusService::start(listener, plan) {
            Ok(service) => drop(self.status.set(service)),
            Err(error) => tracing::debug!(%error, "the loss of ranks on other hosts will not be detected"),
        }
    }

    /// Announces that this rank is leaving the world.
    pub(super) fn announce_leaving(&self) {
        self.status.get().inspect(|status| status.announce_leaving());
    }

    /// Ends this rank's status service.
    pub(super) fn stop_status(&self) {
        self.status.get().inspect(|status| status.stop());
    }

    fn all(&self) -> &[Peer] {
        &self.known.all
    }

    /// The host name of each rank.
    pub fn hosts(&self) -> Vec<String> {
        self.all().iter().map(|peer| peer.host.clone()).collect()
    }

    /// For each rank, the first rank under the same kernel, in the same namespaces and of the same user: equal for
    /// ranks that may be able to share memory.
    pub fn candidates(&self) -> Vec<usize> {
        self.all().iter().map(|peer| peer.first).collect()
    }

    /// Why this rank cannot share memory with another one under its kernel, as far as can be determined without trying.
    pub fn isolation_reason(&self, rank: usize) -> Option<&'static str> {
        let peer = &self.all()[rank];
        peer.isolation_reason.filter(|_| peer.same_kernel)
    }

    /// Whether the process of a rank is visible from here, so that its death would be detected.
    pub fn is_visible(&self, rank: usize) -> bool {
        self.all()[rank].visible
    }

    /// A name for the memory that ranks share with this first rank, known to all of them and to no other process.
    pub fn host_key(&self, first: usize) -> String {
        let first = &self.all()[first];
        format!("mpi-{}-{}", first.pid, first.started)
    }

    /// Whether the ranks on this host share CPUs.
    pub fn share_cpus(&self) -> bool {
        self.share_cpus
    }

    /// Polls until an exchange is complete. `transport` is the MPI transport, or one that contains it.
    pub fn complete(
        &self,
        call: &Call,
        transport: &dyn NonblockingTransport,
        ticket: &Ticket,
        parking: impl Park,
    ) -> Result<()> {
        let exchange = AwaitedExchange { peers: self, transport, ticket };
        let mut lost_since: Option<Instant> = None;
        let mut poll = || transport.poll(call, ticket);
        let check = || {
            if call.check(&exchange, &mut poll)? {
                return Ok(Some(()));
            }
            let lost: Vec<Lost> = call.members.iter().filter_map(|&rank| self.known_lost(rank)).collect();
            if lost.is_empty() || lost_since.get_or_insert_with(Instant::now).elapsed() < LOST_MEMBER_GRACE {
                return Ok(None);
            }
            if poll()? { Ok(Some(())) } else { Err(call.lost(lost)) }
        };
        let found = || Ok(transport.poll(call, ticket)?.then_some(()));
        wait::wait(call.deadline(), parking, found, check)
    }

    /// How a rank that a call waits for was lost, if that is certain: its process is not visible any more on this host, or
    /// its host has reported its end. Ranks on other hosts are asked once the wait has lasted for a while.
    pub fn lost(&self, rank: usize) -> Option<Lost> {
        match self.all()[rank].visible {
            true => self.known.visibly_lost(rank),
            false => self.status.get()?.await_rank(rank).map(|loss| self.remotely_lost(rank, loss)),
        }
    }

    /// How a rank was lost, as far as is known without asking.
    pub fn known_lost(&self, rank: usize) -> Option<Lost> {
        let remote = || self.status.get()?.known_loss(rank).map(|loss| self.remotely_lost(rank, loss));
        self.known.visibly_lost(rank).or_else(remote)
    }

    /// All ranks known to be lost.
    pub fn all_lost(&self) -> Vec<Lost> {
        (0..self.all().len()).filter_map(|rank| self.known_lost(rank)).collect()
    }

    /// Asks those of the ranks that are on other hosts, because MPI has failed at `since`; true if there are any.
    pub(super) fn suspect(&self, ranks: &[usize], since: Instant) -> bool {
        let remote: Vec<usize> = ranks.iter().copied().filter(|&rank| !self.all()[rank].visible).collect();
        self.status.get().inspect(|status| status.suspect(&remote, since)).is_some() && !remote.is_empty()
    }

    fn remotely_lost(&self, rank: usize, loss: RemoteLoss) -> Lost {
        let Peer { host, pid, .. } = &self.all()[rank];
        let (how, left) = match loss {
            RemoteLoss::Ended => ("its process ended", false),
            RemoteLoss::Left => (LEFT_EARLY, true),
        };
        Lost { left, host: Some(host.clone()), ..Lost::new(rank, Some(*pid), how) }
    }

    /// Sets the function that describes missing ranks; only the first call has an effect.
    pub fn describe_with(&self, describe: DescribeRank) {
        let _ = self.known.describe.set(describe);
    }

    /// A rank's pid, on its own host.
    pub fn pid(&self, rank: usize) -> u32 {
        self.all()[rank].pid
    }

    /// The known state of ranks that have not arrived. Those on other hosts are asked, all at the same time.
    pub fn missing(&self, ranks: &[usize]) -> Vec<Missing> {
        let mut found: Vec<(usize, Option<Missing>)> =
            ranks.iter().map(|&rank| (rank, self.known.visibly_missing(rank, LOCATION_TIMEOUT))).collect();
        let remote: Vec<usize> =
            found.iter().filter(|(_, missing)| missing.is_none()).map(|(rank, _)| *rank).collect();
        let mut described = match self.status.get().filter(|_| !remote.is_empty()) {
            Some(status) => status.describe(&remote),
            None => Vec::new(),
        }
        .into_iter();
        let complete = |(rank, missing): &mut (usize, Option<Missing>)| match missing.take() {
            Some(missing) => missing,
            None => self.remotely_missing(*rank, described.next().unwrap_or(RemoteDescription::Unknown)),
        };
        found.iter_mut().map(complete).collect()
    }

    fn remotely_missing(&self, rank: usize, described: RemoteDescription) -> Missing {
        let Peer { host, pid, .. } = &self.all()[rank];
        let (missing, doing) = match described {
            RemoteDescription::Known(missing) => (missing.clone(), missing.doing),
            RemoteDescription::Silent => (
                Missing::new(rank, None, ""),
                "it does not answer: it is stopped, or its host is very busy".into(),
            ),
            RemoteDescription::Unknown => (Missing::new(rank, None, ""), NOT_KNOWN.into()),
        };
        Missing { rank, pid: Some(*pid), host: Some(host.clone()), doing, ..missing }
    }
}

const NOT_KNOWN: &str = "what it was doing is not known";

impl KnownPeers {
    /// How a rank whose process is visible was lost.
    fn visibly_lost(&self, rank: usize) -> Option<Lost> {
        let peer = &self.all[rank];
        let ended = peer.visible && process::liveness(peer.pid, peer.started) == Liveness::Exited;
        ended.then(|| Lost::new(rank, Some(peer.pid), "its process ended"))
    }

    /// The state of a rank whose process is visible.
    fn visibly_missing(&self, rank: usize, location: Duration) -> Option<Missing> {
        let described = self.describe.get().and_then(|describe| describe(rank, location));
        let Peer { host, pid, visible, .. } = &self.all[rank];
        let of_process = || {
            let stopped = process::is_stopped(*pid);
            let doing = if stopped { "stopped by a signal or a debugger" } else { NOT_KNOWN };
            Missing { host: Some(host.clone()), ..Missing::new(rank, Some(*pid), doing) }
        };
        described.or_else(|| visible.then(of_process))
    }
}

impl VisibleRanks for KnownPeers {
    fn describe(&self, rank: usize, locate: bool) -> Option<Missing> {
        let location = if locate { LOCATION_TIMEOUT } else { Duration::ZERO };
        // The rank that asks adds the host.
        Some(Missing { host: None, ..self.visibly_missing(rank, location)? })
    }

    fn all_ended(&self) -> Vec<usize> {
        (0..self.all.len()).filter(|&rank| self.visibly_lost(rank).is_some()).collect()
    }
}

/// An exchange that a call waits for. Messages that a lost rank had already sent may still arrive.
struct AwaitedExchange<'a> {
    peers: &'a Peers,
    transport: &'a dyn NonblockingTransport,
    ticket: &'a Ticket,
}

impl Awaited for AwaitedExchange<'_> {
    fn awaited(&self) -> Vec<usize> {
        self.transport.awaited(self.ticket)
    }

    fn lost(&self, rank: usize) -> Option<Lost> {
        self.peers.lost(rank)
    }

    fn missing(&self, ranks: Vec<usize>) -> Vec<Missing> {
        self.peers.missing(&ranks)
    }
}
