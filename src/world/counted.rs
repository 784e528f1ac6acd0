//! Worlds of tests that count messages: ranks of a modelled machine, and threads with a tally.

use std::sync::Arc;
use std::time::Instant;

use super::World;
use super::join::Joined;
use super::settings::DEFAULT_TIMEOUT;
use crate::error::Result;
use crate::transport::arena::ArenaTransport;
use crate::transport::counting::{CountingTransport, Tally, TallyTransport};
use crate::transport::{Transport, local};

impl World {
    /// A rank of a modelled machine, on these hosts.
    pub(crate) fn counted(transport: CountingTransport, hosts: &[usize]) -> World {
        let me = hosts[transport.rank()];
        let joined = Joined {
            transport: Arc::new(transport),
            endpoint: None,
            hosts: hosts.to_vec(),
            names: Vec::new(),
            host_ranks: (0..hosts.len()).filter(|&rank| hosts[rank] == me).collect(),
            host: None,
        };
        World::new(joined, "none", DEFAULT_TIMEOUT)
    }

    /// As [`World::threads_placed`], with a tally of the messages between hosts.
    pub(crate) fn threads_tallied(hosts: &[usize], tally: &Tally) -> Result<Vec<World>> {
        let shared = Arc::new(hosts.to_vec());
        let world = |threads: ArenaTransport| {
            let (rank, endpoint) = (threads.rank(), threads.endpoint.clone());
            let transport = TallyTransport { threads, hosts: shared.clone(), tally: tally.clone() };
            let joined = Joined {
                transport: Arc::new(transport),
                endpoint: Some(endpoint),
                hosts: hosts.to_vec(),
                names: Vec::new(),
                host_ranks: (0..hosts.len()).filter(|&other| hosts[other] == hosts[rank]).collect(),
                host: None,
            };
            World::new(joined, "none", DEFAULT_TIMEOUT)
        };
        Ok(local::create(hosts.len())?.into_iter().map(world).collect())
    }

    /// As a rank does that joins.
    pub(crate) fn enter(&self) -> Result<()> {
        self.initial_barrier(Instant::now() + DEFAULT_TIMEOUT)
    }
}
