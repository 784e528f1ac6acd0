//! Tables against a naive computation, with ranks as threads.

mod basics;
mod checkpoints;
mod key_value;
mod rounds;

use unisono::World;
use unisono::tables::{Role, Tables};

/// Runs `body` on so many ranks that are threads; all are workers and servers.
pub fn with_tables<R: Send>(ranks: usize, body: impl Fn(&World, &Tables) -> R + Sync) -> Vec<R> {
    unisono::testing::spawn_worlds(ranks, |world| body(world, &Tables::join(world, Role::Both).unwrap()))
}
