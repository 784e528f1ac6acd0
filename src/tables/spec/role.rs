//! Roles of ranks: workers get and add, servers hold shards; worker and server ids follow the order of ranks.

use crate::error::{Error, Result};

/// A rank's role for tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Role {
    /// Takes part in barriers only.
    None = 0,
    /// Gets and adds.
    Worker = 1,
    /// Holds shards.
    Server = 2,
    /// Both: the default.
    #[default]
    Both = 3,
}

impl Role {
    /// Parses a role's name: "none", "worker", "server", "both" or "default".
    pub fn from_name(name: &str) -> Result<Role> {
        match name {
            "none" => Ok(Role::None),
            "worker" => Ok(Role::Worker),
            "server" => Ok(Role::Server),
            "both" | "default" | "all" => Ok(Role::Both),
            other => Err(Error::usage(
                "role",
                "none, worker, server or both",
                format!("{other:?}"),
                "leave it out for both",
            )),
        }
    }

    /// Whether the rank gets and adds.
    pub fn is_worker(self) -> bool {
        self as u8 & 1 != 0
    }

    /// Whether the rank holds shards.
    pub fn is_server(self) -> bool {
        self as u8 & 2 != 0
    }

    pub(crate) fn from_number(number: u8) -> Role {
        [Role::None, Role::Worker, Role::Server, Role::Both][usize::from(number & 3)]
    }
}

/// The roles of all ranks, and the ids that follow from them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Roles {
    /// The rank of each worker.
    pub workers: Vec<usize>,
    /// The rank of each server.
    pub servers: Vec<usize>,
}

impl Roles {
    pub fn new(roles: &[Role]) -> Result<Roles> {
        let ranks = |wanted: fn(Role) -> bool| -> Vec<usize> {
            (0..roles.len()).filter(|&rank| wanted(roles[rank])).collect()
        };
        let (workers, servers) = (ranks(Role::is_worker), ranks(Role::is_server));
        if workers.is_empty() || servers.is_empty() {
            return Err(Error::usage(
                "tables",
                "at least one worker and one server",
                format!("{} workers and {} servers", workers.len(), servers.len()),
                "give some rank the role \"both\"",
            ));
        }
        Ok(Roles { workers, servers })
    }

    pub fn worker_id(&self, rank: usize) -> Option<usize> {
        self.workers.iter().position(|&worker| worker == rank)
    }

    pub fn server_id(&self, rank: usize) -> Option<usize> {
        self.servers.iter().position(|&server| server == rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_follow_the_order_of_ranks() {
        let roles = Roles::new(&[Role::Server, Role::Worker, Role::None, Role::Both]).unwrap();
        assert_eq!(roles.workers, [1, 3]);
        assert_eq!(roles.servers, [0, 3]);
        assert_eq!((roles.worker_id(3), roles.server_id(3)), (Some(1), Some(1)));
        assert_eq!((roles.worker_id(0), roles.server_id(2)), (None, None));
        assert!(Roles::new(&[Role::Worker]).is_err());
        assert!(Role::from_name("boss").is_err());
    }
}
