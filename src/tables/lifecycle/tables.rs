//! The entry point to a world's tables: joining, roles of ranks, shutdown.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::creation::{self, Purpose};
use super::membership::Membership;
use crate::error::{Error, Result};
use crate::tables::engine::registry::{OpenTable, Registry};
use crate::tables::engine::tables_state::TablesState;
use crate::tables::remote::{Remote, RemotePeers};
use crate::tables::shard::cuda::RetainedMemory;
use crate::tables::spec::role::{Role, Roles};
use crate::tables::spec::verbs;
use crate::transport::Interrupt;
use crate::transport::arena::LocalEndpoint;
use crate::world::{Group, Watcher, World};

/// The tables of a world, as seen from one rank. A handle is cheap to clone.
///
/// ```
/// use unisono::World;
/// use unisono::tables::{ArrayTable, Role, TableOptions, Tables};
/// let world = World::init()?;
/// let tables = Tables::join(&world, Role::Both)?;
/// let weights = ArrayTable::<f32>::create(&tables, 3, None, TableOptions::default())?;
/// weights.add(&[1.0, 2.0, 3.0])?;
/// tables.barrier()?;
/// let mut values = [0.0; 3];
/// weights.get(&mut values)?;
/// assert_eq!(values[1], 2.0 * tables.workers() as f32);
/// # Ok::<(), unisono::Error>(())
/// ```
#[derive(Clone)]
pub struct Tables {
    pub(crate) inner: Arc<TablesState>,
    pub(crate) group: Group,
    pub(crate) shutdown: Arc<ShutdownGuard>,
    /// Device memory of tables that this rank dropped before other ranks did.
    pub(crate) parked: Arc<RetainedMemory>,
}

impl Tables {
    /// Sets this rank's role and exchanges roles with the other ranks. Collective.
    pub fn join(world: &World, role: Role) -> Result<Tables> {
        Tables::join_as(world, Ok(role))
    }

    /// As [`Tables::join`], for a role that was read from text: if this rank has an error instead, all ranks fail with it.
    pub fn join_as(world: &World, role: Result<Role>) -> Result<Tables> {
        let group = world.group().clone();
        let endpoint = group.endpoint().cloned().ok_or_else(|| {
            Error::unsupported("tables", "this rank shares no memory with others", "start it with a launcher")
        })?;
        let (hosts, rank) = (group.host_numbers().to_vec(), world.rank());
        // A process that replaces one that had joined finds what was agreed; if its predecessor had not joined, it joins
        // collectively.
        let known = if world.restarts() > 0 { Membership::of(&endpoint, hosts[rank], rank) } else { None };
        let restarted = known.is_some();
        let membership = match known {
            Some(known) => {
                role?;
                known.enter(rank);
                known
            }
            None => Tables::agree_on_roles(&group, &endpoint, &hosts, role)?,
        };
        let (nonce, roles) = (membership.nonce(), membership.roles());
        let roles = Roles::new(&roles).inspect_err(|_| membership.leave(rank))?;
        let (worker, server) = (roles.worker_id(rank), roles.server_id(rank));
        let inner = TablesState {
            roles,
            endpoint,
            hosts,
            rank,
            worker,
            server,
            nonce,
            restarted,
            created: AtomicUsize::new(0),
            registry: Arc::new(Registry::new(&group)),
            remote: OnceLock::new(),
            closed: AtomicBool::new(false),
            workers_group: OnceLock::new(),
        };
        let parked = Arc::new(RetainedMemory::default());
        let watchers: [Arc<dyn Watcher>; 2] = [inner.registry.clone(), parked.clone()];
        watchers.iter().for_each(|watcher| group.add_watcher(Arc::downgrade(watcher)));
        let inner = Arc::new(inner);
        let shutdown = ShutdownGuard::start(&inner, &group, membership)?;
        Ok(Tables { inner, group, shutdown, parked })
    }

    /// Exchanges the roles of all ranks, and records them where a replacement of this process finds them.
    fn agree_on_roles(
        group: &Group,
        endpoint: &LocalEndpoint,
        hosts: &[usize],
        role: Result<Role>,
    ) -> Result<Membership> {
        let rank = group.rank();
        let _series = endpoint.own_slot().process.series_guard();
        let purpose = Purpose::of(verbs::JOIN);
        let mine = role.map(|role| [&[role as u8][..], &new_nonce().to_ne_bytes()].concat());
        let all = creation::exchange(group, &purpose, mine.map_err(|error| error.at_rank(rank)), 1 + 8)??;
        let nonce: u64 = bytemuck::pod_read_unaligned(&all[0][1..]);
        let roles: Vec<Role> = all.iter().map(|value| Role::from_number(value[0])).collect();
        let written = match hosts.iter().position(|&host| host == hosts[rank]) == Some(rank) {
            true => Membership::write(endpoint, hosts[rank], nonce, &roles),
            false => Ok(()),
        };
        // Also the barrier that the other ranks pass before they look the membership up.
        creation::agree(group, &purpose, written.map(|()| "joined".into()))?;
        let membership = Membership::find(endpoint, hosts[rank], nonce);
        let membership = membership.ok_or_else(|| Error::internal("tables", "the roles were not found"))?;
        membership.enter(rank);
        Ok(membership)
    }

    /// Number of workers.
    pub fn workers(&self) -> usize {
        self.inner.roles.workers.len()
    }

    /// Number of servers.
    pub fn servers(&self) -> usize {
        self.inner.roles.servers.len()
    }

    /// This rank's worker id, if it is a worker.
    pub fn worker_id(&self) -> Option<usize> {
        self.inner.worker
    }

    /// This rank's server id, if it is a server.
    pub fn server_id(&self) -> Option<usize> {
        self.inner.server
    }

    /// The rank of a worker.
    pub fn worker_rank(&self, id: usize) -> Option<usize> {
        self.inner.roles.workers.get(id).copied()
    }

    /// The rank of a server.
    pub fn server_rank(&self, id: usize) -> Option<usize> {
        self.inner.roles.servers.get(id).copied()
    }

    /// The group of all ranks.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// A handle whose calls have a different timeout.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Tables {
        Tables { group: self.group.with_timeout(timeout), ..self.clone() }
    }

    /// A handle whose waits periodically call this hook, which can interrupt them.
    #[must_use]
    pub fn with_interrupt(&self, interrupt: Arc<Interrupt>) -> Tables {
        Tables { group: self.group.with_interrupt(interrupt), ..self.clone() }
    }

    /// Waits until all adds that this rank started are applied. Returns the first error that was not reported to a caller.
    pub fn flush(&self) -> Result<()> {
        let flushed = first_error(self.live_tables().iter().map(|table| table.flush(&self.group)));
        match self.inner.remote() {
            Some(remote) => flushed.and(remote.flush(&self.group.call_on("flush", 0, "tables"))),
            None => flushed,
        }
    }

    /// Waits for all ranks; afterwards, all adds they started before are applied.
    pub fn barrier(&self) -> Result<()> {
        // Even if the flush failed, the other ranks wait in the barrier for this one.
        let flushed = self.flush();
        self.group.barrier()?;
        flushed
    }

    /// Declares that this worker makes no more calls, so that the others do not wait for it.
    pub fn finish(&self) -> Result<()> {
        let flushed = self.flush();
        let finished = first_error(self.live_tables().iter().map(|table| table.finish(&self.group)));
        flushed.and(finished).and(self.flush())
    }

    /// As [`Tables::finish`]; with several hosts, also serves the other ranks until all of them have called it. They may have
    /// work for much longer than a call's timeout, so the timeout restarts with each of their requests: the call fails only if no
    /// request arrives for that long. Dropping the last handle does the same; programs whose handles may outlive the world call
    /// it before the world ends.
    pub fn close(&self) -> Result<()> {
        // Even if finishing failed, the other ranks wait for this rank's shutdown message.
        let finished = self.finish();
        let closed = self.inner.close(&self.group);
        finished.and(closed)
    }

    /// The tables in use, in order of creation.
    pub(crate) fn live_tables(&self) -> Vec<Arc<dyn OpenTable>> {
        self.inner.registry.live_tables()
    }

    /// A name for the next table of a kind, if none is given.
    pub(crate) fn next_name(&self, kind: &str) -> String {
        format!("{kind}-{}", self.inner.created.load(Ordering::Relaxed) + 1)
    }
}

/// Shuts a world's tables down when the last handle is dropped.
pub(crate) struct ShutdownGuard {
    inner: Arc<TablesState>,
    group: Group,
    pub(crate) membership: Membership,
}

impl ShutdownGuard {
    fn start(inner: &Arc<TablesState>, group: &Group, membership: Membership) -> Result<Arc<ShutdownGuard>> {
        if inner.has_remote_ranks() {
            let servers: Vec<usize> =
                inner.server_hosts().filter_map(|host| inner.host_server(host)).collect();
            // Ranks that are not workers may send requests, too: to query a table's keys.
            let callers = if servers.contains(&inner.rank) { inner.hosts.len() } else { 0 };
            let others = |ranks: Vec<usize>| ranks.into_iter().filter(|&rank| rank != inner.rank).collect();
            let callers = others((0..callers).collect());
            let terms = RemotePeers { context: group.context(), callers, servers: others(servers) };
            let remote = Remote::start(group.transport().clone(), terms, inner.registry.clone())?;
            let _ = inner.remote.set(remote);
        }
        Ok(Arc::new(ShutdownGuard { inner: inner.clone(), group: group.without_interrupt(), membership }))
    }
}

impl Drop for ShutdownGuard {
    fn drop(&mut self) {
        if !self.inner.is_owner_process() {
            // A forked child has no server thread, and nothing to shut down.
            return std::mem::forget(self.inner.clone());
        }
        if self.group.check_open("tables").is_ok() {
            // An error in drop cannot be reported; callers that need it call `close` first.
            let tables = self.inner.registry.live_tables();
            let _ = first_error(tables.iter().map(|table| table.finish(&self.group)));
            drop(tables);
            let _ = self.inner.close(&self.group);
        }
        self.membership.leave(self.inner.rank);
        self.inner.registry.release_all();
    }
}

/// Runs all of them, and returns the first error.
fn first_error(results: impl Iterator<Item = Result<()>>) -> Result<()> {
    results.fold(Ok(()), Result::and)
}

/// A number that no other membership has.
fn new_nonce() -> u64 {
    let mut hasher = DefaultHasher::new();
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    (time, std::process::id(), std::thread::current().id()).hash(&mut hasher);
    hasher.finish()
}
