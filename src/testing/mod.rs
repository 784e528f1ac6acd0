//! Test support: ranks as threads, the suite that every transport must pass, and damaged inputs for fuzzing.

pub mod conformance;
#[cfg(all(test, not(unisono_loom)))]
pub(crate) mod counting;
mod mutate;
#[cfg(all(test, not(unisono_loom)))]
mod scaling;

#[cfg(test)]
pub(crate) use mutate::fuzz;
pub use mutate::{LONGEST_SCRIPT, fuzz_iterations, mutate, try_scripts};

#[cfg(test)]
use crate::transport::{Call, CallTime};
use crate::world::{Group, World};

/// Runs `body` on `size` ranks, each in its own thread, and returns their results in rank order. A panic in one of them is
/// propagated.
///
/// ```
/// let ranks = unisono::testing::spawn(3, |group| group.rank());
/// assert_eq!(ranks, [0, 1, 2]);
/// ```
pub fn spawn<R: Send>(size: usize, body: impl Fn(Group) -> R + Sync) -> Vec<R> {
    spawn_worlds(size, |world| body(world.group().clone()))
}

/// As [`spawn`], for a body that needs its world: the rank leaves it when the body ends.
pub fn spawn_worlds<R: Send>(size: usize, body: impl Fn(&World) -> R + Sync) -> Vec<R> {
    run(World::threads(size).expect("a world of threads can be made"), body)
}

/// As [`spawn_worlds`], with ranks that simulate `hosts` hosts: everything between hosts goes by messages.
pub fn spawn_on_hosts<R: Send>(size: usize, hosts: usize, body: impl Fn(&World) -> R + Sync) -> Vec<R> {
    run(World::threads_on_hosts(size, hosts).expect("a world of threads can be made"), body)
}

/// As [`spawn_on_hosts`], with the host of each rank.
#[cfg(test)]
pub(crate) fn spawn_placed<R: Send>(hosts: &[usize], body: impl Fn(&World) -> R + Sync) -> Vec<R> {
    run(World::threads_placed(hosts).expect("a world of threads can be made"), body)
}

/// As [`spawn_placed`], in an arena that is full: no group gets a channel in shared memory.
#[cfg(all(test, not(unisono_loom)))]
pub(crate) fn spawn_without_channels<R: Send>(hosts: &[usize], body: impl Fn(&World) -> R + Sync) -> Vec<R> {
    spawn_placed(hosts, |world| {
        let sizes = (13..40).rev().map(|power| 1 << power);
        let fill = |bytes| std::iter::from_fn(move || world.empty(bytes).ok());
        let _full: Vec<crate::transport::ArenaBuffer> = sizes.flat_map(fill).collect();
        body(world)
    })
}

/// As [`spawn_placed`], with a tally of the messages between hosts.
#[cfg(all(test, not(unisono_loom)))]
pub(crate) fn spawn_tallied<R: Send>(
    hosts: &[usize],
    tally: &crate::transport::counting::Tally,
    body: impl Fn(&World) -> R + Sync,
) -> Vec<R> {
    run(World::threads_tallied(hosts, tally).expect("a world of threads can be made"), body)
}

/// A call of this rank on a world, for tests below the level of groups, with a timeout of one minute.
#[cfg(test)]
pub(crate) fn call(rank: usize, operation: &'static str) -> Call<'static> {
    Call {
        rank,
        operation,
        number: 1,
        group: "world",
        members: &[],
        hosts: &[],
        time: CallTime::new(std::time::Duration::from_secs(60)),
        interrupt: None,
    }
}

fn run<R: Send>(worlds: Vec<World>, body: impl Fn(&World) -> R + Sync) -> Vec<R> {
    let body = &body;
    std::thread::scope(|scope| {
        let run = |world: World| scope.spawn(move || body(&world));
        let threads: Vec<_> = worlds.into_iter().map(run).collect();
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        results
            .into_iter()
            .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}
