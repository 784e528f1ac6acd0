//! The modelled machine: hosts with one full-duplex NIC each, cores that copy memory, and a switch that is never the bottleneck.

/// A point in virtual time, or a duration, in picoseconds: a byte on a fast link takes tens of them.
pub(crate) type Picoseconds = u64;

const PER_SECOND: f64 = 1e12;

/// What a message or a pass over memory costs. docs/design/018-scaling.md explains the model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NetworkModel {
    /// Bytes per second that a host's NIC sends, and at the same time receives.
    pub nic: f64,
    /// From the first byte that leaves a host to the first byte at another host.
    pub latency: Picoseconds,
    /// Bytes per second that one core copies or folds.
    pub core: f64,
    /// From one core's store to another core of the same host that sees it.
    pub local_latency: Picoseconds,
    /// CPU time that a rank spends on each message that it sends or receives.
    pub overhead: Picoseconds,
}

impl NetworkModel {
    /// Hosts with NICs of this many Gbit/s.
    pub fn ethernet(gigabits: f64) -> NetworkModel {
        NetworkModel {
            nic: gigabits * 1e9 / 8.0,
            latency: 5_000_000,
            core: 10e9,
            local_latency: 500_000,
            overhead: 1_000_000,
        }
    }

    /// How long a NIC takes to send, or to receive, this many bytes.
    pub fn on_wire(&self, bytes: usize) -> Picoseconds {
        (bytes as f64 / self.nic * PER_SECOND) as Picoseconds
    }

    /// How long a core takes to copy or fold this many bytes.
    pub fn in_memory(&self, bytes: usize) -> Picoseconds {
        (bytes as f64 / self.core * PER_SECOND) as Picoseconds
    }
}

/// Seconds, for people.
pub(crate) fn seconds(duration: Picoseconds) -> f64 {
    duration as f64 / PER_SECOND
}
