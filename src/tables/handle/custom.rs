//! The handle of a user-defined table, and what its calls do.

use std::sync::Arc;

use super::common::common_calls;
use super::make::check_consistency;
use crate::error::{Error, Result};
use crate::memory::DType;
use crate::tables::engine::base::Base;
use crate::tables::engine::call;
use crate::tables::engine::registry::UseGuard;
use crate::tables::lifecycle::creation::TableCreation;
use crate::tables::lifecycle::tables::ShutdownGuard;
use crate::tables::shard::custom::calls::{ShardsAdd, ShardsGet};
use crate::tables::shard::custom::core::CustomCore;
use crate::tables::shard::custom::halves::{Requests, ServerHalf, WorkerHalf};
use crate::tables::shard::custom::shards::Shards;
use crate::tables::spec::description::{Description, TableKind};
use crate::tables::{Consistency, TableOptions, Tables};
use crate::transport::Call;
use crate::world::Group;

/// A table whose shards and requests a program defines by a [`ServerHalf`] and a [`WorkerHalf`]. Names, clocks, locks and memory
/// are those of every table.
///
/// ```
/// use unisono::tables::{Consistency, CustomTable, Requests, Role, ServerHalf, Tables, WorkerHalf};
/// use unisono::{Result, World};
///
/// /// Counts bytes: a shard holds a counter for each byte value that it is responsible for.
/// struct Counters;
/// impl ServerHalf for Counters {
///     fn name(&self) -> &str { "byte counter" }
///     fn bytes(&self, _server: usize, _servers: usize) -> usize { 256 * 8 }
///     fn add(&self, memory: &mut [u8], _worker: usize, request: &[u8]) -> Result<()> {
///         let counts: &mut [u64] = bytemuck::cast_slice_mut(memory);
///         request.iter().for_each(|&byte| counts[byte as usize] += 1);
///         Ok(())
///     }
///     fn get(&self, memory: &mut [u8], _worker: usize, request: &[u8], reply: &mut Vec<u8>) -> Result<()> {
///         reply.extend_from_slice(&memory[request[0] as usize * 8..][..8]);
///         Ok(())
///     }
/// }
///
/// /// Byte values are dealt out to the servers in turn.
/// struct Callers;
/// impl WorkerHalf for Callers {
///     type Delta = [u8];
///     type Query = u8;
///     type Answer = u64;
///     fn split_add(&self, delta: &[u8], servers: usize) -> Result<Requests> {
///         let mine = |server| delta.iter().copied().filter(|&byte| byte as usize % servers == server).collect();
///         Ok((0..servers).map(|server| (server, mine(server))).collect())
///     }
///     fn split_get(&self, query: &u8, servers: usize) -> Result<Requests> {
///         Ok(vec![(*query as usize % servers, vec![*query])])
///     }
///     fn merge(&self, _query: &u8, replies: Requests) -> Result<u64> {
///         Ok(bytemuck::pod_read_unaligned(&replies[0].1))
///     }
/// }
///
/// # let world = World::threads(1)?.remove(0);
/// let tables = Tables::join(&world, Role::Both)?;
/// let table = CustomTable::create(&tables, "bytes", Counters, Callers, Consistency::Async)?;
/// table.add(b"banana")?;
/// assert_eq!(table.get(&b'a')?, 3);
/// # Ok::<(), unisono::Error>(())
/// ```
pub struct CustomTable<W> {
    core: Arc<CustomCore>,
    worker: Arc<W>,
    group: Group,
    use_guard: Arc<UseGuard>,
    /// When the last of these is dropped, the world's tables shut down; background work holds none.
    shutdown: Option<Arc<ShutdownGuard>>,
}

impl<W> Clone for CustomTable<W> {
    fn clone(&self) -> CustomTable<W> {
        self.with_group(self.group.clone())
    }
}

impl<W> CustomTable<W> {
    fn with_group(&self, group: Group) -> CustomTable<W> {
        let CustomTable { core, worker, use_guard, shutdown, .. } = self;
        let (core, worker, use_guard) = (core.clone(), worker.clone(), use_guard.clone());
        CustomTable { core, worker, group, use_guard, shutdown: shutdown.clone() }
    }
}

impl<W: WorkerHalf> CustomTable<W> {
    common_calls!();

    /// Creates the table. Collective; every rank passes equal halves.
    pub fn create(
        tables: &Tables,
        name: &str,
        server: impl ServerHalf,
        worker: W,
        consistency: Consistency,
    ) -> Result<CustomTable<W>> {
        tables.group.check_open("table")?;
        let shards = check_consistency(consistency, TableKind::Custom, DType::U8, tables.workers())
            .and_then(|()| Shards::new(&server, &tables.inner));
        let creation = TableCreation::begin(tables, Some(name), TableKind::Custom);
        let shards = creation.agree_on(shards)?;
        let description = Description {
            name: name.into(),
            kind: TableKind::Custom,
            dtype: DType::U8,
            rows: shards.len(),
            cols: shards.bytes(),
            updater: server.name().into(),
            consistency,
            more: format!(", {} workers, {} servers", tables.workers(), tables.servers()),
        };
        let prepare = |extent: &_| shards.prepare(extent, &server);
        let extent = creation.allocate(&description, shards.total, prepare)?;
        let base = Base::new(
            &tables.inner,
            creation.is_new(),
            description,
            extent,
            shards.clock,
            &TableOptions::default(),
            true,
        );
        let core = Arc::new(CustomCore { base, shards, half: Arc::new(server) });
        let use_guard = tables.inner.register(core.clone());
        creation.barrier()?;
        core.complete();
        let (group, shutdown) = (tables.group.clone(), Some(tables.shutdown.clone()));
        Ok(CustomTable { core, worker: Arc::new(worker), group, use_guard, shutdown })
    }

    /// Queries the servers and merges their replies. Every server is queried, even if the half of one of them fails; the first
    /// error is returned.
    pub fn get(&self, query: &W::Query) -> Result<W::Answer> {
        let core = &self.core;
        let worker = core.worker(&self.group, "get")?;
        let requests = self.worker.split_get(query, core.shards.len())?;
        self.validate("get", &requests)?;
        let call = core.ordered_call(&self.group, "get")?;
        let mut get = ShardsGet::new(&requests);
        call::get(&**core, &call, worker, &mut get)?;
        self.worker.merge(query, get.replies)
    }

    /// Changes the shards; returns once it is done on all of them. Every shard gets its request, even if the half of another one
    /// fails; the first error is returned.
    pub fn add(&self, delta: &W::Delta) -> Result<()> {
        let (worker, requests) = self.validate_add(delta)?;
        let call = self.core.ordered_call(&self.group, "add")?;
        self.add_now(&call, worker, &requests, true)
    }

    /// As [`CustomTable::add`], but an add that must wait does so in the background; [`Tables::flush`] or the next call on this
    /// table reports errors.
    pub fn add_soon(&self, delta: &W::Delta) -> Result<()> {
        let (worker, requests) = self.validate_add(delta)?;
        let core = &self.core;
        if core.may_add_now(worker) {
            return self.add_now(&core.call(&self.group, "add"), worker, &requests, false);
        }
        let table = CustomTable { shutdown: None, ..self.with_group(self.group.without_interrupt()) };
        core.queue.run_detached(move || {
            table.add_now(&table.core.call(&table.group, "add"), worker, &requests, true)
        });
        Ok(())
    }

    fn add_now(&self, call: &Call, worker: usize, requests: &Requests, wait: bool) -> Result<()> {
        call::add(&*self.core, call, worker, wait, &mut ShardsAdd::new(requests))
    }

    /// Begins this worker's next step, which the bound of `ssp` counts.
    pub fn tick(&self) -> Result<()> {
        self.core.tick(&self.group)
    }

    fn validate_add(&self, delta: &W::Delta) -> Result<(usize, Requests)> {
        let worker = self.core.worker(&self.group, "add")?;
        let requests = self.worker.split_add(delta, self.core.shards.len())?;
        self.validate("add", &requests)?;
        Ok((worker, requests))
    }

    fn validate(&self, operation: &str, requests: &Requests) -> Result<()> {
        let servers = self.core.shards.len();
        match requests.iter().find(|(server, _)| *server >= servers) {
            None => Ok(()),
            Some((server, _)) => Err(Error::usage(
                operation,
                format!("requests to servers 0 to {}", servers - 1),
                format!("one to server {server}"),
                "look at how the worker half splits its calls",
            )
            .at_rank(self.core.inner.rank)),
        }
    }
}
