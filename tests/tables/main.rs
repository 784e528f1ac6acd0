//! Tables against a naive computation, with ranks as threads: on one host, and on several simulated hosts.

mod basics;
mod checkpoints;
mod custom;
mod deletes;
mod history;
mod key_value;
mod limits;
mod losses;
mod messages;
mod one_step;
mod repeats;
mod rounds;
mod sums;

use unisono::World;
use unisono::tables::{Role, Tables};

/// Runs `body` on `ranks` ranks as threads; all are workers and servers.
pub fn with_tables<R: Send>(ranks: usize, body: impl Fn(&World, &Tables) -> R + Sync) -> Vec<R> {
    unisono::testing::spawn_worlds(ranks, |world| body(world, &Tables::join(world, Role::Both).unwrap()))
}

/// Runs `body` on one host, on two, and with every rank on its own host; returns the results of each.
pub fn on_all_paths<R: Send>(ranks: usize, body: impl Fn(&World, &Tables) -> R + Sync) -> Vec<Vec<R>> {
    let mut hosts = vec![1, 2.min(ranks), ranks];
    hosts.dedup();
    let run = |hosts: usize| {
        unisono::testing::spawn_on_hosts(ranks, hosts, |world| {
            body(world, &Tables::join(world, Role::Both).unwrap())
        })
    };
    hosts.into_iter().map(run).collect()
}
