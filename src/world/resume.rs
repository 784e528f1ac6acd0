//! Position of a restarted rank among the world's collectives: the program must declare it, because the library cannot
//! know which of its state the program has restored.

use std::sync::Arc;

use super::{Group, World};
use crate::error::{Error, Result};
use crate::transport::arena::LocalEndpoint;

/// A series of collectives that ends when the value is dropped: see [`World::series`].
pub struct Series(Option<Arc<LocalEndpoint>>);

impl Drop for Series {
    fn drop(&mut self) {
        self.0.iter().for_each(|endpoint| endpoint.own_slot().process.end_series());
    }
}

impl World {
    /// Declares that this process continues where its predecessor stopped: its next collective on the world is the one
    /// that the other ranks make next. A rank restarted by `unisono run --restart` calls this once its state is
    /// restored, before its first collective; otherwise it has no effect.
    ///
    /// Without it, that first collective is an error on all ranks if an earlier process of this rank had completed any:
    /// the program may have started from scratch, and would combine its first step with a later step of the others.
    /// Collectives that create, save or load tables do not count, because a restarted rank finds the tables as they
    /// are.
    ///
    /// ```
    /// let world = unisono::World::init()?;
    /// if world.restarts() > 0 {
    ///     // … restore what the process before had computed …
    ///     world.resume();
    /// }
    /// world.group().barrier()?;
    /// # Ok::<(), unisono::Error>(())
    /// ```
    pub fn resume(&self) {
        self.group.core.call_order.resume();
    }

    /// For libraries built on this one: marks this rank's collectives, until the returned value is dropped, as setup
    /// whose result a restarted rank finds without repeating them. They do not count as completed collectives, and a
    /// rank that dies within the series cannot be restarted.
    pub fn series(&self) -> Series {
        let endpoint = self.group.core.world.endpoint.clone();
        endpoint.iter().for_each(|endpoint| endpoint.own_slot().process.begin_series());
        Series(endpoint)
    }
}

impl Group {
    /// Fails, and revokes the group on all members, if this process would repeat collectives of an earlier one.
    pub(super) fn check_position(&self, operation: &str) -> Result<()> {
        let completed_before = self.core.call_order.completed_before();
        if completed_before == 0 {
            return Ok(());
        }
        let rank = self.core.world.transport.rank();
        let restart =
            self.core.world.endpoint.as_ref().map_or(0, |endpoint| endpoint.own_slot().process.restarts());
        let collectives = if completed_before == 1 { "collective" } else { "collectives" };
        let error = Error::usage(
            operation,
            "the collective that the other ranks make next",
            format!(
                "restart {restart} of rank {rank}, which would repeat collectives: its earlier process had completed \
                 {completed_before} {collectives}"
            ),
            "restore its state and call world.resume() before its first collective, or start the job again",
        )
        .at_rank(rank);
        if self.mark_broken(&error)
            && let Some(channel) = &self.core.channel
        {
            channel.give_up_as_restarted();
        }
        Err(error)
    }
}
