//! Two-level structure of a group over several hosts: the members of each host, and the hosts' leaders.

use super::Group;
use crate::error::Result;
use crate::transport::{Call, Slot};

/// The subgroups of a group over several hosts.
pub(crate) struct Hierarchy {
    /// The members on this host; the first is the leader.
    pub local: Group,
    /// The leaders of all hosts, if this rank is one.
    pub leaders: Option<Group>,
    /// For each group rank, the index of its host's leader in the leader group.
    pub host_of: Vec<usize>,
    /// The group ranks on each host, in the order of the leader group.
    pub hosts: Vec<Vec<usize>>,
}

impl Group {
    /// The two levels of this group, or `None` when all members share a host or no two do. Collective over all members:
    /// created together with the group, so that a member that revokes it can notify the others on each level, or else
    /// by the first call that needs it.
    pub(crate) fn hierarchy(&self, call: &Call) -> Result<Option<&Hierarchy>> {
        if let Some(known) = self.core.hierarchy.get() {
            return Ok(known.as_ref());
        }
        let hosts = &self.core.world.hosts;
        let host = |rank: usize| hosts[self.core.members[rank]];
        let leader_of =
            |rank: usize| (0..self.size()).find(|&other| host(other) == host(rank)).unwrap_or(rank);
        let leaders: Vec<usize> = (0..self.size()).filter(|&rank| leader_of(rank) == rank).collect();
        let created = if leaders.len() == 1 || leaders.len() == self.size() {
            None
        } else {
            let host_ranks: Vec<usize> =
                (0..self.size()).filter(|&rank| host(rank) == host(self.rank())).collect();
            let local = self.create_subgroup(call, &host_ranks, Slot::CREATE_LEVELS)?;
            let leads = leaders.contains(&self.rank());
            let leader_group =
                if leads { Some(self.create_subgroup(call, &leaders, Slot::CREATE_LEVELS)?) } else { None };
            let position = |rank: usize| leaders.iter().position(|&leader| leader == leader_of(rank));
            let host_of: Vec<usize> = (0..self.size()).filter_map(position).collect();
            let mut hosts = vec![Vec::new(); leaders.len()];
            host_of.iter().enumerate().for_each(|(rank, &host)| hosts[host].push(rank));
            Some(Hierarchy { local, leaders: leader_group, host_of, hosts })
        };
        Ok(self.core.hierarchy.get_or_init(|| created).as_ref())
    }
}

#[cfg(all(test, not(unisono_loom)))]
mod tests {
    use std::time::{Duration, Instant};

    use crate::error::Kind;
    use crate::memory::ReduceOp;
    use crate::testing;

    /// The first call of a group over several hosts does not wait for a member that has revoked the group before.
    #[test]
    fn members_of_other_hosts_notice_a_group_that_was_revoked_before_its_first_call() {
        testing::spawn_on_hosts(4, 2, |world| {
            let group = world.group().subgroup(&[0, 1, 2, 3]).unwrap().unwrap();
            if group.rank() == 3 {
                group.revoke();
                assert_eq!(group.barrier().unwrap_err().kind(), Kind::Usage);
            } else {
                let (started, limit) = (Instant::now(), Duration::from_secs(60));
                let error = group.with_timeout(limit).all_reduce(&mut [1.0f32], ReduceOp::Sum).unwrap_err();
                assert_eq!(error.kind(), Kind::PeerLost, "{error}");
                assert!(started.elapsed() < limit / 2, "{error}");
            }
            world.group().barrier().unwrap();
        });
    }
}
