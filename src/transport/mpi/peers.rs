//! Who the other ranks are: their host and process, told to each other once at the start, and whether they are alive.

use std::sync::OnceLock;

use bytemuck::{Pod, Zeroable};

use super::wait::Watch;
use crate::error::{Lost, Missing, Result};
use crate::transport::process;
use crate::transport::{Call, Progress, Ticket};

/// Tells what a rank was last doing; provided by the layer above.
pub(crate) type Describe = Box<dyn Fn(usize) -> Missing + Send + Sync>;

const NAME: usize = 64;

/// What each rank tells the others about itself.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Identity {
    started: u64,
    /// The kernel's boot id: equal on ranks that share a kernel, whatever the host calls itself.
    boot: [u8; NAME],
    host: [u8; NAME],
    pid: u32,
    reserved: u32,
}

impl Identity {
    pub fn own() -> Identity {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let pid = std::process::id();
        Identity {
            started: process::start_time(pid).unwrap_or_default(),
            boot: text(&read("/proc/sys/kernel/random/boot_id")),
            host: text(&read("/proc/sys/kernel/hostname")),
            pid,
            reserved: 0,
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
    /// The first rank under the same kernel.
    first: usize,
    same_kernel: bool,
    /// Whether its process can be seen from here, so that its end can be noticed.
    visible: bool,
}

/// All ranks of the world.
pub(crate) struct Peers {
    all: Vec<Peer>,
    describe: OnceLock<Describe>,
}

impl Peers {
    pub(super) fn new(identities: &[Identity], rank: usize, describe: Option<Describe>) -> Peers {
        let own = &identities[rank];
        let peer = |identity: &Identity| {
            let name = String::from_utf8_lossy(&identity.host);
            let same_kernel = identity.boot == own.boot;
            let first = identities.iter().position(|other| other.boot == identity.boot);
            // Containers may share a kernel and not see each other's processes.
            let visible = same_kernel && process::is_alive(identity.pid, identity.started);
            Peer {
                host: name.trim_end_matches('\0').to_owned(),
                pid: identity.pid,
                started: identity.started,
                first: first.unwrap_or(rank),
                same_kernel,
                visible,
            }
        };
        let describe = describe.map_or_else(OnceLock::new, OnceLock::from);
        Peers { all: identities.iter().map(peer).collect(), describe }
    }

    /// The host's name of each rank.
    pub fn hosts(&self) -> Vec<String> {
        self.all.iter().map(|peer| peer.host.clone()).collect()
    }

    /// For each rank, the first rank on its host: equal for ranks that can share memory.
    pub fn first_on_host(&self) -> Vec<usize> {
        self.all.iter().map(|peer| peer.first).collect()
    }

    /// A name for what the ranks of this host share, known to all of them and to nobody else.
    pub fn host_key(&self, rank: usize) -> String {
        let first = &self.all[self.all[rank].first];
        format!("mpi-{}-{}", first.pid, first.started)
    }

    /// Whether each rank runs on this host, under the same kernel.
    pub fn on_this_host(&self) -> Vec<bool> {
        self.all.iter().map(|peer| peer.same_kernel).collect()
    }

    /// Fails if a call should stop waiting for this exchange: interrupted, a rank that it needs is gone, or too late.
    pub fn check(
        &self,
        call: &Call,
        transport: &dyn Progress,
        ticket: &Ticket,
        watch: &mut Watch,
    ) -> Result<()> {
        call.check_interrupt()?;
        let lost = |ranks: &[usize]| ranks.iter().filter_map(|&rank| self.lost(rank)).collect::<Vec<_>>();
        // What a lost rank had sent before may still arrive: look once more before giving up.
        if !lost(&transport.awaited(ticket)).is_empty() && !transport.poll(call, ticket)? {
            let lost = lost(&transport.awaited(ticket));
            if !lost.is_empty() {
                return Err(call.lost(lost));
            }
        }
        let members = lost(call.members);
        if !members.is_empty() && watch.waited_without_a_member() && !transport.poll(call, ticket)? {
            return Err(call.lost(members));
        }
        if call.remaining().is_zero() && !transport.poll(call, ticket)? {
            let awaited = transport.awaited(ticket);
            return Err(call.timeout(awaited.into_iter().map(|rank| self.missing(rank)).collect()));
        }
        Ok(())
    }

    /// How a rank was lost, if it was. Only the end of processes of this host can be seen; the launcher watches the rest.
    pub fn lost(&self, rank: usize) -> Option<Lost> {
        let peer = &self.all[rank];
        let ended = peer.visible && !process::is_alive(peer.pid, peer.started);
        ended.then(|| Lost { rank, pid: Some(peer.pid), how: "its process ended".into() })
    }

    /// All ranks that are known to be lost.
    pub fn all_lost(&self) -> Vec<Lost> {
        (0..self.all.len()).filter_map(|rank| self.lost(rank)).collect()
    }

    /// From now on asks `describe` what a missing rank was doing; only the first one counts.
    pub fn describe_with(&self, describe: Describe) {
        let _ = self.describe.set(describe);
    }

    /// A rank's process, on its own host.
    pub fn pid(&self, rank: usize) -> u32 {
        self.all[rank].pid
    }

    /// What is known of a rank that has not arrived.
    pub fn missing(&self, rank: usize) -> Missing {
        if let Some(describe) = self.describe.get() {
            return describe(rank);
        }
        let Peer { host, pid, visible, .. } = &self.all[rank];
        let doing = match *visible && process::is_stopped(*pid) {
            true => format!("on host {host}, stopped by a signal or a debugger"),
            false => format!("on host {host}, what it was doing is not known"),
        };
        Missing { rank, pid: Some(*pid), doing, location: None }
    }
}
