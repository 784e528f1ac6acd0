//! Identity and liveness of the other ranks: their hosts and processes, exchanged once at startup.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use bytemuck::{Pod, Zeroable};

use crate::error::{Lost, Missing, Result};
use crate::transport::process::{self, Liveness};
use crate::transport::wait::{self, Awaited, Park};
use crate::transport::{Call, NonblockingTransport, Ticket};

/// Describes what a rank was last doing, if known; provided by the layer above.
pub(crate) type DescribeRank = Box<dyn Fn(usize) -> Option<Missing> + Send + Sync>;

const NAME: usize = 64;

/// How long the surviving members may take to finish a call after another member has died. They cannot always report
/// that they cancelled it: a rank that lost a peer in the middle of a transfer never enters MPI again.
const LOST_MEMBER_GRACE: Duration = Duration::from_secs(2);

/// What each rank sends to the others about itself.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct ProcessIdentity {
    started: u64,
    /// The kernel's boot id: equal on ranks that share a kernel, whatever the host's name.
    boot: [u8; NAME],
    host: [u8; NAME],
    pid_namespace: u64,
    network_namespace: u64,
    pid: u32,
    user: u32,
}

impl ProcessIdentity {
    pub fn own() -> ProcessIdentity {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let pid = std::process::id();
        ProcessIdentity {
            started: process::start_time(pid).unwrap_or_default(),
            boot: text(&read("/proc/sys/kernel/random/boot_id")),
            host: text(&read("/proc/sys/kernel/hostname")),
            pid_namespace: process::pid_namespace(),
            network_namespace: process::network_namespace(None),
            pid,
            user: rustix::process::getuid().as_raw(),
        }
    }

    /// Why two ranks cannot share memory, as far as can be determined without trying.
    fn isolation_reason(&self, other: &ProcessIdentity) -> Option<&'static str> {
        match () {
            _ if self.boot != other.boot => Some("they run under different kernels"),
            _ if self.user != other.user => Some("they belong to different users"),
            _ if self.pid_namespace == 0 || other.pid_namespace == 0 => {
                Some("/proc does not show the PID namespace of one of them")
            }
            _ if self.pid_namespace != other.pid_namespace => {
                Some("they are in separate PID namespaces (containers)")
            }
            _ if self.network_namespace != other.network_namespace => {
                Some("they are in separate network namespaces (containers)")
            }
            _ => None,
        }
    }
}

fn text(words: &str) -> [u8; NAME] {
    let mut bytes = [0; NAME];
    let words = words.trim().as_bytes();
    let length = words.len().min(NAME);
    bytes[..length].copy_from_slice(&words[..length]);
    bytes
}

struct Peer {
    host: String,
    pid: u32,
    started: u64,
    /// The first rank that this one may share memory with.
    first: usize,
    /// Why this rank cannot share memory with that peer.
    isolation_reason: Option<&'static str>,
    same_kernel: bool,
    /// Whether its process is visible from here, so that its death can be detected.
    visible: bool,
}

/// All ranks of the world.
pub(crate) struct Peers {
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
            let visible = same_kernel
                && own.pid_namespace != 0
                && own.pid_namespace == identity.pid_namespace
                && process::liveness(identity.pid, identity.started) != Liveness::Dead;
            Peer {
                host: name.trim_end_matches('\0').to_owned(),
                pid: identity.pid,
                started: identity.started,
                first: first.unwrap_or(usize::MAX),
                isolation_reason: own.isolation_reason(identity),
                same_kernel,
                visible,
            }
        };
        let describe = describe.map_or_else(OnceLock::new, OnceLock::from);
        let mut all: Vec<Peer> = identities.iter().map(peer).collect();
        // A rank that cannot even share memory with itself is its own host.
        all.iter_mut().enumerate().for_each(|(rank, peer)| peer.first = peer.first.min(rank));
        Peers { all, describe }
    }

    /// The host name of each rank.
    pub fn hosts(&self) -> Vec<String> {
        self.all.iter().map(|peer| peer.host.clone()).collect()
    }

    /// For each rank, the first rank under the same kernel, in the same namespaces and of the same user: equal for
    /// ranks that may be able to share memory.
    pub fn candidates(&self) -> Vec<usize> {
        self.all.iter().map(|peer| peer.first).collect()
    }

    /// Why this rank cannot share memory with another one under its kernel, as far as can be determined without trying.
    pub fn isolation_reason(&self, rank: usize) -> Option<&'static str> {
        let peer = &self.all[rank];
        peer.isolation_reason.filter(|_| peer.same_kernel)
    }

    /// Whether the process of a rank is visible from here, so that its death would be detected.
    pub fn is_visible(&self, rank: usize) -> bool {
        self.all[rank].visible
    }

    /// A name for the memory that ranks share with this first rank, known to all of them and to no other process.
    pub fn host_key(&self, first: usize) -> String {
        let first = &self.all[first];
        format!("mpi-{}-{}", first.pid, first.started)
    }

    /// Whether each rank runs on this host, under the same kernel.
    pub fn on_this_host(&self) -> Vec<bool> {
        self.all.iter().map(|peer| peer.same_kernel).collect()
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
            let lost: Vec<Lost> = call.members.iter().filter_map(|&rank| self.lost(rank)).collect();
            if lost.is_empty() || lost_since.get_or_insert_with(Instant::now).elapsed() < LOST_MEMBER_GRACE {
                return Ok(None);
            }
            if poll()? { Ok(Some(())) } else { Err(call.lost(lost)) }
        };
        let found = || Ok(transport.poll(call, ticket)?.then_some(()));
        wait::wait(call.deadline, parking, found, check)
    }

    /// How a rank was lost, if it was. Only deaths of processes on this host can be detected; the launcher watches the
    /// rest.
    pub fn lost(&self, rank: usize) -> Option<Lost> {
        let peer = &self.all[rank];
        let ended = peer.visible && process::liveness(peer.pid, peer.started) == Liveness::Dead;
        ended.then(|| Lost::new(rank, Some(peer.pid), "its process ended"))
    }

    /// All ranks known to be lost.
    pub fn all_lost(&self) -> Vec<Lost> {
        (0..self.all.len()).filter_map(|rank| self.lost(rank)).collect()
    }

    /// Sets the function that describes missing ranks; only the first call has an effect.
    pub fn describe_with(&self, describe: DescribeRank) {
        let _ = self.describe.set(describe);
    }

    /// A rank's pid, on its own host.
    pub fn pid(&self, rank: usize) -> u32 {
        self.all[rank].pid
    }

    /// The known state of a rank that has not arrived.
    pub fn missing(&self, rank: usize) -> Missing {
        if let Some(missing) = self.describe.get().and_then(|describe| describe(rank)) {
            return missing;
        }
        let Peer { host, pid, visible, .. } = &self.all[rank];
        let doing = match *visible && process::is_stopped(*pid) {
            true => format!("on host {host}, stopped by a signal or a debugger"),
            false => format!("on host {host}, what it was doing is not known"),
        };
        Missing::new(rank, Some(*pid), doing)
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
        ranks.into_iter().map(|rank| self.peers.missing(rank)).collect()
    }
}
