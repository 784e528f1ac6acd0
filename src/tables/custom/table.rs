//! A user-defined table: what its calls do.

use std::sync::Arc;
use std::time::Duration;

use super::halves::{Requests, ServerHalf, WorkerHalf};
use super::shards::Shards;
use crate::error::{Error, Result};
use crate::memory::DType;
use crate::tables::base::Base;
use crate::tables::description::{Description, TableKind};
use crate::tables::founding::Making;
use crate::tables::listing::Listed;
use crate::tables::make::check_consistency;
use crate::tables::{AddOptions, Consistency, TableOptions, Tables};
use crate::transport::{Call, Interrupt};
use crate::world::Group;

/// A table whose shards and requests a program defines by a [`ServerHalf`] and a [`WorkerHalf`]. Names, clocks, locks and
/// memory are those of every table.
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
    base: Arc<Base>,
    shards: Arc<Shards>,
    server: Arc<dyn ServerHalf>,
    worker: Arc<W>,
    group: Group,
}

impl<W> Clone for CustomTable<W> {
    fn clone(&self) -> CustomTable<W> {
        self.with_group(self.group.clone())
    }
}

impl<W> CustomTable<W> {
    fn with_group(&self, group: Group) -> CustomTable<W> {
        let CustomTable { base, shards, server, worker, .. } = self;
        CustomTable {
            base: base.clone(),
            shards: shards.clone(),
            server: server.clone(),
            worker: worker.clone(),
            group,
        }
    }
}

impl<W: WorkerHalf> CustomTable<W> {
    /// Makes the table. Every rank calls it, with equal halves.
    pub fn create(
        tables: &Tables,
        name: &str,
        server: impl ServerHalf,
        worker: W,
        consistency: Consistency,
    ) -> Result<CustomTable<W>> {
        tables.group.check_open("table")?;
        tables.check_one_host("user-defined")?;
        let shards = check_consistency(consistency, TableKind::Custom, DType::U8, tables.workers())
            .and_then(|()| Shards::new(&server, tables.workers(), tables.servers()));
        let making = Making::begin(tables, Some(name), TableKind::Custom);
        let shards = making.together(shards)?;
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
        let extent = making.found(&description, shards.total, prepare)?;
        let (add, options) = (AddOptions::default(), TableOptions::default());
        let base = Arc::new(Base::new(&making, description, extent, shards.clock, add, &options));
        tables.inner.list.add(Listed::Custom(Arc::downgrade(&base)));
        making.all_have_it()?;
        let (server, worker) = (Arc::new(server), Arc::new(worker));
        Ok(CustomTable { base, shards: Arc::new(shards), server, worker, group: tables.group.clone() })
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.base.description.name
    }

    /// How far workers may drift apart.
    pub fn consistency(&self) -> Consistency {
        self.base.description.consistency
    }

    /// A handle whose calls have another deadline.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> CustomTable<W> {
        self.with_group(self.group.with_timeout(timeout))
    }

    /// A handle whose waits ask this hook now and then whether to stop.
    #[must_use]
    pub fn with_interrupt(&self, interrupt: Arc<Interrupt>) -> CustomTable<W> {
        self.with_group(self.group.with_interrupt(interrupt))
    }

    /// Asks the servers and puts their replies together.
    pub fn get(&self, query: &W::Query) -> Result<W::Answer> {
        let worker = self.base.worker(&self.group, "get")?;
        let requests = self.worker.split_get(query, self.shards.len())?;
        self.check("get", &requests)?;
        let call = self.base.call(&self.group, "get");
        self.base.queue.drain(&call)?;
        let mut replies = Vec::with_capacity(requests.len());
        let staleness = self.base.get_here(&call, worker, || {
            requests.iter().try_for_each(|(server, request)| {
                let mut reply = Vec::new();
                self.shards.with(&self.base, &call, &*self.server, *server, |memory| {
                    self.server.get(memory, worker, request, &mut reply)
                })?;
                replies.push((*server, reply));
                Ok(())
            })
        })?;
        self.base.staleness.count(staleness);
        self.worker.merge(query, replies)
    }

    /// Changes the shards; returns when it is done on all of them. A shard's error ends the call: shards that came before keep
    /// their change.
    pub fn add(&self, delta: &W::Delta) -> Result<()> {
        let (worker, requests) = self.check_add(delta)?;
        let call = self.base.call(&self.group, "add");
        self.base.queue.drain(&call)?;
        self.add_now(&call, worker, &requests)
    }

    /// As [`CustomTable::add`], but what must wait does so in the background; [`Tables::flush`] or the next call on this table
    /// reports what went wrong.
    pub fn add_soon(&self, delta: &W::Delta) -> Result<()> {
        let (worker, requests) = self.check_add(delta)?;
        if self.base.queue.is_empty() && self.base.may_add(worker) && !self.base.clock.has_rounds() {
            return self.add_now(&self.base.call(&self.group, "add"), worker, &requests);
        }
        let table = self.with_group(self.group.without_interrupt());
        self.base
            .queue
            .run_unwatched(move || table.add_now(&table.base.call(&table.group, "add"), worker, &requests));
        Ok(())
    }

    fn add_now(&self, call: &Call, worker: usize, requests: &Requests) -> Result<()> {
        self.base.add_here(call, worker, || {
            requests.iter().try_for_each(|(server, request)| {
                self.shards.with(&self.base, call, &*self.server, *server, |memory| {
                    self.server.add(memory, worker, request)
                })
            })
        })
    }

    /// Says that this worker begins its next step: the bound of `ssp` counts these.
    pub fn tick(&self) -> Result<()> {
        let worker = self.base.worker(&self.group, "tick")?;
        self.base.queue.drain(&self.base.call(&self.group, "tick"))?;
        self.base.clock.tick(worker);
        Ok(())
    }

    /// How old the values were that this rank's gets returned; see [`Table::staleness`](crate::tables::Table::staleness).
    pub fn staleness(&self) -> Vec<u64> {
        self.base.staleness.histogram()
    }

    fn check_add(&self, delta: &W::Delta) -> Result<(usize, Requests)> {
        let worker = self.base.worker(&self.group, "add")?;
        let requests = self.worker.split_add(delta, self.shards.len())?;
        self.check("add", &requests)?;
        Ok((worker, requests))
    }

    fn check(&self, operation: &str, requests: &Requests) -> Result<()> {
        let servers = self.shards.len();
        match requests.iter().find(|(server, _)| *server >= servers) {
            None => Ok(()),
            Some((server, _)) => Err(Error::usage(
                operation,
                format!("requests to servers 0 to {}", servers - 1),
                format!("one to server {server}"),
                "look at how the worker half splits its calls",
            )
            .at_rank(self.base.inner.rank)),
        }
    }
}
