//! What each rank tells the others about itself at startup: its host, namespaces and process.

use bytemuck::{Pod, Zeroable};

use crate::transport::cpus::Cpus;
use crate::transport::process;

const NAME: usize = 64;

/// What each rank sends to the others about itself.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct ProcessIdentity {
    pub started: u64,
    /// The kernel's boot id: equal on ranks that share a kernel, whatever the host's name.
    pub boot: [u8; NAME],
    pub host: [u8; NAME],
    pub pid_namespace: u64,
    pub network_namespace: u64,
    pub pid: u32,
    user: u32,
    pub cpus: Cpus,
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
            cpus: Cpus::own(),
        }
    }

    /// Why two ranks cannot share memory, as far as can be determined without trying.
    pub fn isolation_reason(&self, other: &ProcessIdentity) -> Option<&'static str> {
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

    /// Whether each of two ranks sees the other's process.
    pub fn may_see(&self, other: &ProcessIdentity) -> bool {
        (self.boot, self.pid_namespace) == (other.boot, other.pid_namespace) && self.pid_namespace != 0
    }
}

fn text(words: &str) -> [u8; NAME] {
    let mut bytes = [0; NAME];
    let words = words.trim().as_bytes();
    let length = words.len().min(NAME);
    bytes[..length].copy_from_slice(&words[..length]);
    bytes
}
