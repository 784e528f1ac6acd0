//! The registry of a world's tables, of every kind, to which this rank has handles.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::base::Base;
use super::checkpointable::Checkpointable;
use crate::error::{Error, Result};
use crate::tables::Consistency;
use crate::tables::remote::{RemoteRequest, ReplyReader};
use crate::transport::Call;
use crate::world::Group;

/// A table in use, of any kind, as the server and checkpoints see it.
pub(crate) trait OpenTable: Checkpointable {
    /// Runs a get, an add or a query of another host's rank.
    fn serve(&self, call: &Call, worker: usize, request: &RemoteRequest) -> Result<Vec<u8>>;

    /// A reader of the reply to a get, instead of [`OpenTable::serve`], if the reply is worth it.
    fn reply_reader(
        self: Arc<Self>,
        _worker: usize,
        _request: &RemoteRequest,
    ) -> Result<Option<Box<dyn ReplyReader>>> {
        Ok(None)
    }
}

impl Deref for dyn OpenTable {
    type Target = Base;

    fn deref(&self) -> &Base {
        self.base()
    }
}

/// Shared by all handles of a table on this rank, including those of background calls. When the last one is dropped, this rank is
/// done with the table, though it may keep it pinned for other hosts.
pub(crate) struct UseGuard(Arc<dyn OpenTable>);

impl Drop for UseGuard {
    fn drop(&mut self) {
        let UseGuard(table) = self;
        let registry = &table.inner.registry;
        if table.inner.has_remote_ranks()
            && table.inner.is_owner_process()
            && registry.group.check_open("tables").is_ok()
        {
            // There is no caller left to report an error to.
            let _ = table.finish(&registry.group);
            registry.dropped().push(table.number);
        }
    }
}

/// The registry itself. If there are other hosts, the rank that serves this host pins every table until all ranks have dropped
/// theirs.
pub(crate) struct Registry {
    /// Weak references: being registered does not keep a table in use.
    all: Mutex<Vec<Weak<UseGuard>>>,
    pinned: Mutex<Vec<Arc<dyn OpenTable>>>,
    /// The numbers of tables that this rank has dropped but that another rank may still have.
    dropped: Mutex<Vec<u32>>,
    /// Whether any table ever had a staleness bound.
    pub has_bounds: AtomicBool,
    pub group: Group,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    pub fn new(group: &Group) -> Registry {
        let (all, pinned, dropped) = (Mutex::default(), Mutex::default(), Mutex::default());
        Registry {
            all,
            pinned,
            dropped,
            has_bounds: AtomicBool::new(false),
            group: group.without_interrupt(),
        }
    }

    fn pinned(&self) -> MutexGuard<'_, Vec<Arc<dyn OpenTable>>> {
        locked(&self.pinned)
    }

    fn dropped(&self) -> MutexGuard<'_, Vec<u32>> {
        locked(&self.dropped)
    }

    /// The tables in use, in order of creation.
    pub fn live_tables(&self) -> Vec<Arc<dyn OpenTable>> {
        let used: Vec<Arc<UseGuard>> = locked(&self.all).iter().filter_map(Weak::upgrade).collect();
        used.iter().map(|used| used.0.clone()).collect()
    }

    /// Registers a table; also pins it if ranks on other hosts may send requests for it to this rank.
    pub fn add(&self, table: Arc<dyn OpenTable>, pin: bool) -> Arc<UseGuard> {
        if matches!(table.description.consistency, Consistency::Ssp { .. }) {
            self.has_bounds.store(true, Ordering::Release);
        }
        if pin {
            self.pinned().push(table.clone());
        }
        let used = Arc::new(UseGuard(table));
        let mut all = locked(&self.all);
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&used));
        used
    }

    /// Releases the tables that all ranks have dropped. Collective.
    pub fn release_dropped(&self, group: &Group) -> Result<()> {
        let own: Vec<i64> = self.dropped().iter().map(|number| i64::from(*number)).collect();
        let mut counts = vec![0_i64; group.size()];
        group.all_gather(&[own.len() as i64], &mut counts)?;
        if counts.contains(&0) {
            return Ok(());
        }
        let counts: Vec<usize> = counts.into_iter().map(|count| count as usize).collect();
        let mut all = vec![0_i64; counts.iter().sum()];
        group.all_gather_varied(&own, &mut all, &counts)?;
        let by_all = |number: &u32| {
            all.iter().filter(|dropped| **dropped == i64::from(*number)).count() == group.size()
        };
        self.dropped().retain(|number| !by_all(number));
        let released: Vec<Arc<dyn OpenTable>> =
            self.pinned().extract_if(.., |table| by_all(&table.number)).collect();
        drop(released);
        // A rank that creates a table of the same name must not find this one.
        group.barrier()
    }

    /// Releases all pinned tables.
    pub fn release_all(&self) {
        let pinned = std::mem::take(&mut *self.pinned());
        drop(pinned);
    }

    /// A table by its number, for a request from another host.
    pub fn find(&self, number: u32) -> Result<Arc<dyn OpenTable>> {
        let found = self.pinned().iter().find(|table| table.number == number).cloned();
        found.ok_or_else(|| Registry::unknown(number))
    }

    /// The error for a request to a table that this rank does not have.
    pub fn unknown(number: u32) -> Error {
        let (expected, advice) =
            ("a table that this rank still has", "keep tables until all workers are done");
        Error::usage("table", expected, format!("table {number}"), advice)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use std::sync::Arc;

    use super::OpenTable;
    use crate::tables::{ArrayTable, Consistency, Role, TableOptions, Tables};
    use crate::testing::spawn_placed;

    fn make(tables: &Tables, name: &str, consistency: Consistency) -> ArrayTable<f32> {
        let options = TableOptions { name: Some(name.into()), consistency, ..TableOptions::default() };
        ArrayTable::create(tables, 10, None, options).unwrap()
    }

    #[test]
    fn between_hosts_a_table_stays_until_all_have_dropped_it() {
        spawn_placed(&[0, 0, 1, 2], |world| {
            let tables = Tables::join(world, Role::Both).unwrap();
            let mut held = Some(make(&tables, "held", Consistency::Async));
            for turn in 0..5 {
                let table = make(&tables, "again", Consistency::Async);
                // In flight when the table is dropped.
                table.add(&[1.0; 10]).unwrap();
                let mut values = [0.0; 10];
                table.get(&mut values).unwrap();
                assert!(values[9] >= 1.0);
                drop(table);
                if turn == world.rank() {
                    held = None;
                }
                if let Some(held) = &held {
                    held.add(&[1.0; 10]).unwrap();
                    held.get(&mut values).unwrap();
                }
                let name = |table: &Arc<dyn OpenTable>| table.description.name.clone();
                let pinned: Vec<String> = tables.inner.registry.pinned().iter().map(name).collect();
                // Rank 3 is the last to have the table; the ranks learn of its drop when the next table is created.
                let expected: &[&str] = match (world.rank(), turn) {
                    (1, _) => &[],
                    (_, 4) => &["again"],
                    _ => &["held", "again"],
                };
                assert_eq!(pinned, expected, "turn {turn}");
            }
            tables.close().unwrap();
        });
    }

    #[test]
    fn between_hosts_nobody_waits_for_a_worker_that_dropped_its_table() {
        spawn_placed(&[0, 1], |world| {
            let tables = Tables::join(world, Role::Both).unwrap();
            let tables = tables.with_timeout(Duration::from_secs(60));
            for quitter in 0..2 {
                let rounds = make(&tables, "rounds", Consistency::Bsp { backup: 0, mean: false });
                let mut values = [0.0; 10];
                rounds.add(&[1.0; 10]).unwrap();
                rounds.get(&mut values).unwrap();
                assert_eq!(values, [2.0; 10]);
                if world.rank() != quitter {
                    rounds.add(&[1.0; 10]).unwrap();
                    rounds.get(&mut values).unwrap();
                    assert_eq!(values, [3.0; 10]);
                }
            }
            tables.close().unwrap();
        });
    }
}
