//! The tables of a world, whatever their kind, as far as this rank has handles of them.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::base::Base;
use super::core::Core;
use super::save::Saved;
use super::{Consistency, custom, key_value};
use crate::error::{Error, Result};
use crate::world::Group;

/// A table in the world's list; being there does not keep it.
enum Listed {
    Table(Weak<Core>),
    KeyValue(Weak<key_value::Core>),
    Custom(Weak<custom::Core>),
}

/// A table that is in use.
#[derive(Clone)]
pub(super) enum Open {
    Table(Arc<Core>),
    KeyValue(Arc<key_value::Core>),
    Custom(Arc<custom::Core>),
}

impl Listed {
    fn open(&self) -> Option<Open> {
        match self {
            Listed::Table(table) => table.upgrade().map(Open::Table),
            Listed::KeyValue(table) => table.upgrade().map(Open::KeyValue),
            Listed::Custom(table) => table.upgrade().map(Open::Custom),
        }
    }
}

impl Open {
    fn listed(&self) -> Listed {
        match self {
            Open::Table(table) => Listed::Table(Arc::downgrade(table)),
            Open::KeyValue(table) => Listed::KeyValue(Arc::downgrade(table)),
            Open::Custom(table) => Listed::Custom(Arc::downgrade(table)),
        }
    }

    /// The table as checkpoints see it.
    pub fn saved(&self) -> &dyn Saved {
        match self {
            Open::Table(table) => &**table,
            Open::KeyValue(table) => &**table,
            Open::Custom(table) => &**table,
        }
    }
}

impl Deref for Open {
    type Target = Base;

    fn deref(&self) -> &Base {
        match self {
            Open::Table(table) => table,
            Open::KeyValue(table) => table,
            Open::Custom(table) => table,
        }
    }
}

/// The list itself. Workers on other hosts may ask for a table as long as they have handles of it; so where there are other
/// hosts, a table is kept until all of this rank's handles are gone.
pub(super) struct List {
    all: Mutex<Vec<Listed>>,
    kept: Mutex<Vec<Open>>,
    /// Whether any table ever had a bound on how far workers may drift apart.
    pub has_bounds: AtomicBool,
    pub group: Group,
}

impl List {
    pub fn new(group: &Group) -> List {
        let group = group.without_interrupt();
        List { all: Mutex::default(), kept: Mutex::default(), has_bounds: AtomicBool::new(false), group }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Listed>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Open>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tables that are in use, in the order in which they were made.
    pub fn open(&self) -> Vec<Open> {
        self.all().iter().filter_map(Listed::open).collect()
    }

    /// Lists a table; keeps it too if workers on other hosts may ask for it.
    pub fn add(&self, table: Open, keep: bool) {
        if matches!(table.description.consistency, Consistency::Ssp { .. }) {
            self.has_bounds.store(true, Ordering::Release);
        }
        let mut all = self.all();
        all.retain(|other| other.open().is_some());
        all.push(table.listed());
        if keep {
            self.kept().push(table);
        }
    }

    /// Keeps nothing any more.
    pub fn let_go(&self) {
        let kept = std::mem::take(&mut *self.kept());
        drop(kept);
    }

    /// A table by its number, for a request from another host.
    pub fn find(&self, number: u32) -> Result<Open> {
        let found = self.kept().iter().find(|table| table.number == number).cloned();
        found.ok_or_else(|| {
            let expected = "a table that this rank still has";
            Error::usage(
                "table",
                expected,
                format!("table {number}"),
                "keep tables until all workers are done",
            )
        })
    }
}
