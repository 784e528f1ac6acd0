//! The state of a world's tables on one rank: roles, hosts, the connection to other hosts, and the tables in use.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::registry::{OpenTable, Registry, UseGuard};
use crate::error::{Error, Result};
use crate::tables::remote::Remote;
use crate::tables::spec::role::Roles;
use crate::transport::Transport;
use crate::transport::arena::LocalEndpoint;
use crate::world::Group;

/// State of a world's tables on one rank, shared by all of its handles.
pub(crate) struct TablesState {
    pub roles: Roles,
    pub endpoint: Arc<LocalEndpoint>,
    /// The host number of each rank.
    pub hosts: Vec<usize>,
    pub rank: usize,
    pub worker: Option<usize>,
    pub server: Option<usize>,
    /// Distinguishes this membership's tables from those of an earlier one in the same world.
    pub nonce: u64,
    /// Whether this process replaces one that died; existing tables are then reopened, not created.
    pub restarted: bool,
    /// Number of tables this rank has created.
    pub created: AtomicUsize,
    /// All tables, in order of creation.
    pub registry: Arc<Registry>,
    /// The connection to other hosts, if there are any.
    pub remote: OnceLock<Remote>,
    pub closed: AtomicBool,
    pub workers_group: OnceLock<Group>,
}

impl TablesState {
    /// The connection to other hosts, if workers and servers are on several.
    pub fn remote(&self) -> Option<&Remote> {
        self.remote.get()
    }

    /// Shuts the connection to other hosts down, once: a second shutdown message would be taken for one of a later membership.
    pub fn close(&self, group: &Group) -> Result<()> {
        match self.remote() {
            Some(remote) if !self.closed.swap(true, Ordering::AcqRel) => {
                remote.close(&group.call_on("shutdown", 0, "tables"))
            }
            _ => Ok(()),
        }
    }

    pub fn transport(&self) -> &dyn Transport {
        &**self.registry.group.transport()
    }

    /// Whether the connection to other hosts was shut down.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether this is the process that joined, and not a forked child of it.
    pub fn is_owner_process(&self) -> bool {
        self.registry.group.is_original_process()
    }

    /// Registers a table that this rank has created; it is in use as long as the result lives.
    pub fn register(&self, table: Arc<dyn OpenTable>) -> Arc<UseGuard> {
        let serves = self.host_server(self.hosts[self.rank]) == Some(self.rank);
        self.registry.add(table, serves && self.has_remote_ranks())
    }

    /// Whether workers and servers are on several hosts.
    pub fn has_remote_ranks(&self) -> bool {
        let mut ranks = self.roles.workers.iter().chain(&self.roles.servers);
        ranks.any(|&rank| self.hosts[rank] != self.hosts[self.roles.workers[0]])
    }

    /// The hosts that have servers.
    pub fn server_hosts(&self) -> impl Iterator<Item = usize> + '_ {
        let hosts: BTreeSet<usize> = self.roles.servers.iter().map(|&rank| self.hosts[rank]).collect();
        hosts.into_iter()
    }

    /// The rank that serves a host.
    pub fn host_server(&self, host: usize) -> Option<usize> {
        self.roles.servers.iter().copied().find(|&rank| self.hosts[rank] == host)
    }

    /// The group of all workers, created collectively by them at the first call that needs it.
    pub fn workers_group(&self, group: &Group) -> Result<Group> {
        if self.roles.workers.len() == group.size() {
            return Ok(group.clone());
        }
        if let Some(known) = self.workers_group.get() {
            return Ok(known.clone());
        }
        let created = group.subgroup(&self.roles.workers)?;
        let created = created
            .ok_or_else(|| Error::internal("tables", "a rank that is no worker asked for the workers"))?;
        Ok(self.workers_group.get_or_init(|| created).clone())
    }

    /// The shared-heap key of a table on this rank's host.
    pub fn key(&self, name: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.nonce, self.host(), name).hash(&mut hasher);
        hasher.finish()
    }

    /// The number of this rank's host.
    pub fn host(&self) -> usize {
        self.hosts[self.rank]
    }

    /// Whether this rank allocates what its host's ranks share.
    pub fn is_host_leader(&self) -> bool {
        self.hosts.iter().position(|&host| host == self.host()) == Some(self.rank)
    }
}
