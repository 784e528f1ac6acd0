//! The life of tables: joining, creating, saving, loading, leaving.

pub(crate) mod creation;
pub(crate) mod membership;
pub(crate) mod save;
pub(crate) mod tables;
