//! Two-level structure of a group over several hosts: the members of each host, and the hosts' leaders.

use std::collections::HashMap;

use super::Group;
use crate::error::Result;
use crate::transport::{Call, MatchKey};

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
        let mut index_of: HashMap<usize, usize> = HashMap::new();
        let mut hosts: Vec<Vec<usize>> = Vec::new();
        let mut host_of = Vec::with_capacity(self.size());
        for (rank, &member) in self.core.members.iter().enumerate() {
            let host = *index_of.entry(self.core.world.hosts[member]).or_insert(hosts.len());
            if host == hosts.len() {
                hosts.push(Vec::new());
            }
            hosts[host].push(rank);
            host_of.push(host);
        }
        let created = if hosts.len() == 1 || hosts.len() == self.size() {
            None
        } else {
            let leaders: Vec<usize> = hosts.iter().map(|ranks| ranks[0]).collect();
            let own_host = &hosts[host_of[self.rank()]];
            let local = self.create_subgroup(call, own_host, MatchKey::CREATE_LEVELS)?;
            let leads = own_host[0] == self.rank();
            let leaders = if leads {
                Some(self.create_subgroup(call, &leaders, MatchKey::CREATE_LEVELS)?)
            } else {
                None
            };
            Some(Hierarchy { local, leaders, host_of, hosts })
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
