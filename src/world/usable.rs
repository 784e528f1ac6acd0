//! Whether calls can be made on a group, and how a group is revoked after an error.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::group::Group;
use crate::error::{Error, Kind, Result};
use crate::transport::{MatchKey, Outgoing, Signature, Verb};

/// How long to try to notify the other members that this rank has revoked the group.
const NOTIFY_TIMEOUT: Duration = Duration::from_millis(500);

impl Group {
    /// Revokes this group on all its members, as `MPIX_Comm_revoke` does: their calls on it, including those that are
    /// blocked, fail with [`Error::PeerLost`], and this rank's later ones with a usage error. A single member calls it
    /// when it cannot make a call that the others wait in. Groups created before remain usable.
    ///
    /// ```
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
        self.revoke_with(&error.at_rank(self.core.world.transport.rank()));
    }

    /// Marks the group as broken and notifies the other members, so that they do not wait for this one.
    pub(crate) fn revoke_with(&self, error: &Error) {
        if !self.mark_broken(error) {
            return;
        }
        if let Some(Some(levels)) = self.core.hierarchy.get() {
            levels.local.revoke_with(error);
            levels.leaders.iter().for_each(|leaders| leaders.revoke_with(error));
        }
        if let Some(channel) = &self.core.channel {
            return channel.give_up(error);
        }
        let others: Vec<usize> = self
            .core
            .members
            .iter()
            .copied()
            .filter(|&rank| rank != self.core.members[self.core.own_rank])
            .collect();
        let group = self.clone();
        let notification = self.start_unordered(move |_| {
            let signature = Signature::new(Verb::REVOKE, 0);
            let match_key = MatchKey { context: group.core.context, tag: MatchKey::COLLECTIVE, signature };
            let sends: Vec<Outgoing> = others.iter().map(|&to| Outgoing { to, bytes: &[] }).collect();
            let brief = group.with_timeout(NOTIFY_TIMEOUT);
            let call = brief.describe(Verb::REVOKE, 0, brief.call_time());
            brief.core.world.transport.exchange(&call, &match_key, &sends, &mut [])
        });
        // An eager message leaves immediately; a dead peer does not need it.
        notification.wait_timeout(NOTIFY_TIMEOUT);
    }

    /// Makes all later calls fail with this error; false if an earlier error already did.
    pub(super) fn mark_broken(&self, error: &Error) -> bool {
        if error.kind() == Kind::PeerLost {
            self.core.world.may_have_lost_rank.store(true, Ordering::Release);
        }
        self.core.broken.set(error.clone()).is_ok()
    }

    /// Fails if no more calls can be made on this group.
    pub(crate) fn check_usable(&self, operation: &str) -> Result<()> {
        self.check_open(operation)?;
        match self.core.broken.get() {
            // This call was not interrupted: the interrupted one has already reported it.
            Some(Error::Interrupted { rank, operation: stopped, number, .. }) => {
                let received = format!("{}, abandoned when {stopped} #{number} was interrupted", self.name());
                let advice = "its ranks are no longer in step: end the job, or go on with other groups";
                Err(Error::usage(operation, "a group in use", received, advice).at_rank(*rank))
            }
            Some(error) => Err(error.clone().after_failure(operation)),
            None => Ok(()),
        }
    }

    /// Fails if the caller is a forked child, or the world was shut down. Operations that need no other rank work as
    /// long as this check passes, even after an error has broken the group.
    pub(crate) fn check_open(&self, operation: &str) -> Result<()> {
        let world = &self.core.world;
        let usage_error = |expected: &str, received: &str, advice: &str| {
            Err(Error::usage(operation, expected, received, advice).at_rank(world.transport.rank()))
        };
        if !world.fork_guard.is_original_process() {
            return usage_error(
                "a call from the process that called init",
                "a call from a forked child of it",
                "start fresh processes instead (for Python: multiprocessing's \"spawn\"), or call only in the parent",
            );
        }
        if world.closed.load(Ordering::Acquire) {
            let advice = match world.transport.size() {
                1 => "call init again, and use what is made after it",
                _ => "a rank joins its job once: shut the world down only when all work is done",
            };
            return usage_error("a world that is running", "one that was shut down", advice);
        }
        Ok(())
    }
}
