//! Subgroups: the new group's leader chooses its context id and its shared-memory channel, and sends both to the other
//! members.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::Ordering;

use super::Group;
use super::verbs;
use crate::error::{Error, Result};
use crate::memory::DType;
use crate::transport::arena::channel::Channel;
use crate::transport::{Call, Incoming, MatchKey, Outgoing, Signature};

/// Sentinel offset: the group has no channel in shared memory.
const NO_CHANNEL: u64 = u64::MAX;

/// A context id is the leader's world rank (12 bits) followed by the number of the group among those that it led (20
/// bits).
const MAX_CONTEXT: u32 = 0xf_ffff;

impl Group {
    /// Creates the group of these members (ranks of this group, in the order of their new ranks). Every member calls
    /// this with the same list; other ranks may call it too and get `None`.
    ///
    /// ```
    /// use unisono::{ReduceOp, testing};
    /// testing::spawn(4, |group| {
    ///     if let Some(pair) = group.subgroup(&[3, 1]).unwrap() {
    ///         let mut value = [group.rank() as i32];
    ///         pair.broadcast(&mut value, 0).unwrap();
    ///         assert_eq!(value, [3]);
    ///     }
    /// });
    /// ```
    pub fn subgroup(&self, members: &[usize]) -> Result<Option<Group>> {
        self.check_members(members)?;
        if !members.contains(&self.rank()) {
            return Ok(None);
        }
        self.message_call(verbs::GROUP, |call| {
            let group = self.create_subgroup(call, members, MatchKey::CREATE_GROUP)?;
            group.hierarchy(call)?;
            Ok(Some(group))
        })
    }

    /// Creates one group for each `color`, its members ordered by `key` and then by rank. Every member of this group
    /// calls it; a member without a color joins no group.
    pub fn split(&self, color: Option<u64>, key: i64) -> Result<Option<Group>> {
        let mine = [i64::from(color.is_some()), color.unwrap_or(0) as i64, key];
        let mut all = vec![0; 3 * self.size()];
        self.all_gather(&mine, &mut all)?;
        if color.is_none() {
            return Ok(None);
        }
        let mut members: Vec<usize> =
            (0..self.size()).filter(|&rank| all[3 * rank..3 * rank + 2] == mine[..2]).collect();
        members.sort_by_key(|&rank| (all[3 * rank + 2], rank));
        self.subgroup(&members)
    }

    fn check_members(&self, members: &[usize]) -> Result<()> {
        let wrong = |received: String| {
            let expected = format!("different ranks below {}", self.size());
            Err(Error::usage("group", expected, received, "list each member once")
                .at_rank(self.core.members[self.rank()]))
        };
        if members.is_empty() {
            return wrong("no rank at all".into());
        }
        for (index, &member) in members.iter().enumerate() {
            if member >= self.size() {
                return wrong(format!("rank {member}"));
            }
            if members[..index].contains(&member) {
                return wrong(format!("rank {member} twice"));
            }
        }
        Ok(())
    }

    /// Creates the group as part of a call; `tag` separates the groups that the library creates internally from the
    /// others.
    pub(crate) fn create_subgroup(&self, call: &Call, members: &[usize], tag: u32) -> Result<Group> {
        let world = &self.core.world;
        let ranks: Vec<usize> = members.iter().map(|&member| self.core.members[member]).collect();
        self.check_reachable(call, ranks.iter().copied())?;
        let local_ranks =
            world.endpoint.as_ref().filter(|_| self.share_a_host(&ranks)).and_then(|endpoint| {
                let local_ranks: Option<Vec<usize>> =
                    ranks.iter().map(|&rank| endpoint.local_rank_of(rank)).collect();
                local_ranks.map(|local_ranks| (endpoint, local_ranks))
            });
        let leads = members[0] == self.rank();
        let mut channel = match &local_ranks {
            // If the arena has no room for a channel, the group falls back to messages.
            Some((endpoint, local_ranks)) if leads => Channel::create(endpoint, local_ranks.clone()).ok(),
            _ => None,
        };
        let mut terms = [0u64; 2];
        if leads {
            let count = world.contexts.fetch_add(1, Ordering::Relaxed) + 1;
            if count > MAX_CONTEXT {
                let what = format!("this rank has already led {MAX_CONTEXT} groups");
                return Err(Error::unsupported("group", what, "make groups once and keep them"));
            }
            terms = [
                (ranks[0] as u64) << 20 | u64::from(count),
                channel.as_ref().map_or(NO_CHANNEL, |channel| channel.offset() as u64),
            ];
        }
        self.send_terms(call, members, &mut terms, tag)?;
        if let (None, Some((endpoint, local_ranks)), true) = (&channel, local_ranks, terms[1] != NO_CHANNEL) {
            channel = Some(Channel::join(endpoint, terms[1] as usize, local_ranks));
        }
        #[cfg(all(test, not(unisono_loom)))]
        if channel.is_none() && self.share_a_host(&ranks) {
            channel = world.transport.counted_channel(terms[0] as u32, &ranks);
        }
        let name = format!("group {ranks:?}");
        Ok(Group::new(world.clone(), terms[0] as u32, name, ranks, channel, self.own_timeout()))
    }

    /// Sends the leader's terms (context id, channel offset) to the other members.
    fn send_terms(&self, call: &Call, members: &[usize], terms: &mut [u64; 2], tag: u32) -> Result<()> {
        let mut hasher = DefaultHasher::new();
        members.hash(&mut hasher);
        // The fingerprint replaces the call number: members with different lists detect the mismatch.
        let signature = Signature::new(verbs::GROUP, hasher.finish()).of(DType::I64, members.len() as u64);
        let match_key = MatchKey { context: self.core.context, tag, signature };
        if members[0] == self.rank() {
            let bytes = bytemuck::bytes_of(terms);
            let sends = members[1..].iter().map(|&to| Outgoing { to, bytes }).collect();
            self.exchange(call, &match_key, sends, Vec::new())
        } else {
            let bytes = bytemuck::bytes_of_mut(terms);
            self.exchange(call, &match_key, Vec::new(), vec![Incoming { from: members[0], bytes }])
        }
    }

    fn share_a_host(&self, ranks: &[usize]) -> bool {
        let hosts = &self.core.world.hosts;
        ranks.iter().all(|&rank| hosts[rank] == hosts[ranks[0]])
    }
}
