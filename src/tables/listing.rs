//! The tables of a world, whatever their kind, as far as this rank has handles of them.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use super::base::Base;
use super::core::Core;
use super::key_value;

/// A table in the world's list; being there does not keep it.
pub(super) enum Listed {
    Table(Weak<Core>),
    KeyValue(Weak<key_value::Core>),
    Custom(Weak<Base>),
}

/// A table that is in use.
pub(super) enum Open {
    Table(Arc<Core>),
    KeyValue(Arc<key_value::Core>),
    Custom(Arc<Base>),
}

impl Listed {
    pub fn open(&self) -> Option<Open> {
        match self {
            Listed::Table(table) => table.upgrade().map(Open::Table),
            Listed::KeyValue(table) => table.upgrade().map(Open::KeyValue),
            Listed::Custom(table) => table.upgrade().map(Open::Custom),
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
