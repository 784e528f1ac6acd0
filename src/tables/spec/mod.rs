//! What defines a table: kind, consistency model, initial values, options of adds, and the roles of ranks.

pub(crate) mod add_options;
pub(crate) mod consistency;
pub(crate) mod description;
pub(crate) mod eviction;
pub(crate) mod init;
pub(crate) mod repeats;
pub(crate) mod role;
pub(crate) mod verbs;
