//! Whether calls can be made on a group, and how a group is abandoned after an error.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::group::Group;
use crate::error::{Error, Result};
use crate::transport::{Outgoing, Signature, Slot, Verb};

/// How long to try to tell the others that this rank gives up.
const FAREWELL: Duration = Duration::from_millis(500);

impl Group {
    /// Ends the use of this group on all its members, as `MPIX_Comm_revoke` does: their calls on it, also those that wait, fail with
    /// [`Error::PeerLost`], and this rank's later ones with a usage error. A single member calls it, when it cannot make a call that the others wait in. Groups made
    /// before remain usable.
    ///
    /// ```
    /// use std::time::Duration;
    /// use unisono::{Kind, testing};
    /// testing::spawn(3, |world| {
    ///     let group = world.subgroup(&[0, 1, 2]).unwrap().unwrap();
    ///     match group.rank() {
    ///         0 => group.revoke(),
    ///         _ => assert_eq!(group.barrier().unwrap_err().kind(), Kind::PeerLost),
    ///     }
    ///     world.barrier().unwrap();
    /// });
    /// ```
    pub fn revoke(&self) {
        let received = format!("{}, which this rank has revoked", self.name());
        let error = Error::usage("revoke", "a group in use", received, "make another group");
        self.give_up(&error.at_rank(self.core.common.transport.rank()));
    }

    /// Breaks the group, and tells the other members so that they need not wait for this one.
    pub(crate) fn give_up(&self, error: &Error) {
        if !self.break_with(error) {
            return;
        }
        if let Some(Some(floors)) = self.core.hierarchy.get() {
            floors.local.give_up(error);
            floors.leaders.iter().for_each(|leaders| leaders.give_up(error));
        }
        if let Some(channel) = &self.core.channel {
            return channel.give_up(error);
        }
        let others: Vec<usize> = self
            .core
            .members
            .iter()
            .copied()
            .filter(|&rank| rank != self.core.members[self.core.me])
            .collect();
        let group = self.clone();
        let farewell = self.start_beside(move |_| {
            let signature = Signature::new(Verb::GaveUp, 0);
            let slot = Slot { context: group.core.context, tag: Slot::COLLECTIVE, signature };
            let sends: Vec<Outgoing> = others.iter().map(|&to| Outgoing { to, bytes: &[] }).collect();
            let hasty = group.with_timeout(FAREWELL);
            let call = hasty.describe(Verb::GaveUp, 0, Instant::now());
            hasty.core.common.transport.exchange(&call, &slot, &sends, &mut [])
        });
        // A short message is on its way at once; whoever is gone does not need it.
        farewell.wait_timeout(FAREWELL);
    }

    /// Makes all later calls fail with this error; false if another one has done so before.
    pub(super) fn break_with(&self, error: &Error) -> bool {
        self.core.broken.set(error.clone()).is_ok()
    }

    /// Fails if no call can be made on this group any more.
    pub(crate) fn check_usable(&self, operation: &str) -> Result<()> {
        self.check_open(operation)?;
        match self.core.broken.get() {
            // This call was not interrupted: the one that was has reported it.
            Some(Error::Interrupted { rank, operation: stopped, number, .. }) => {
                let received = format!("{}, abandoned when {stopped} #{number} was interrupted", self.name());
                let advice = "its ranks are no longer in step: end the job, or go on with other groups";
                Err(Error::usage(operation, "a group in use", received, advice).at_rank(*rank))
            }
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Fails if the world is not this process's, or was shut down. What does not need the others' company works as long
    /// as this holds, also after an error has ended the use of the group.
    pub(crate) fn check_open(&self, operation: &str) -> Result<()> {
        let common = &self.core.common;
        let refuse = |expected: &str, received: &str, advice: &str| {
            Err(Error::usage(operation, expected, received, advice).at_rank(common.transport.rank()))
        };
        if !common.origin.is_here() {
            return refuse(
                "a call from the process that called init",
                "a call from a forked child of it",
                "start fresh processes instead (for Python: multiprocessing's \"spawn\"), or call only in the parent",
            );
        }
        if common.closed.load(Ordering::Acquire) {
            let advice = match common.transport.size() {
                1 => "call init again, and use what is made after it",
                _ => "a rank joins its job once: shut the world down only when all work is done",
            };
            return refuse("a world that is running", "one that was shut down", advice);
        }
        Ok(())
    }
}
