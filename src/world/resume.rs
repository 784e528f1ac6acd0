//! Where a rank that was started again stands among the collectives of the world: its program must say so, because the
//! library cannot know what of its state the program has restored.

use std::sync::Arc;

use super::{Group, World};
use crate::error::{Error, Result};
use crate::transport::arena::Seat;

/// Collectives that belong together, until it is dropped: see [`World::series`].
pub struct Series(Option<Arc<Seat>>);

impl Drop for Series {
    fn drop(&mut self) {
        self.0.iter().for_each(|seat| seat.place().stay.end_series());
    }
}

impl World {
    /// Declares that this process goes on where the process before it had stopped: its next collective on the world is the one
    /// that the others make next. A rank that `unisono run --restart` started again calls it once its state is restored,
    /// before its first collective; elsewhere it does nothing.
    ///
    /// Without it, that first collective is an error on all ranks if an earlier process of this rank had completed any: the
    /// program may have begun anew, and would mix its first step with a later one of the others. Collectives that make, save
    /// or load tables do not count, because a restarted rank finds the tables as they are.
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

    /// For libraries over this one: collectives of this rank, until the result is dropped, with which they set something up
    /// that a restarted rank finds without them. They do not count as completed ones, and a rank that dies among them
    /// cannot be started again.
    pub fn series(&self) -> Series {
        let seat = self.group.core.world.seat.clone();
        seat.iter().for_each(|seat| seat.place().stay.begin_series());
        Series(seat)
    }
}

impl Group {
    /// Fails, and ends the use of the group for all members, if this process would repeat collectives of an earlier one.
    pub(super) fn check_position(&self, operation: &str) -> Result<()> {
        let completed_before = self.core.call_order.completed_before();
        if completed_before == 0 {
            return Ok(());
        }
        let rank = self.core.world.transport.rank();
        let restart = self.core.world.seat.as_ref().map_or(0, |seat| seat.place().stay.restarts());
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
