//! Where keys are at home: which host has a key's server, and which part of this host's memory holds it.

use std::collections::BTreeMap;

use super::keys::{Key, Keys};
use crate::tables::Tables;

/// A key of a call that this host holds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Target {
    /// The key's number in its part; equal keys have equal ones.
    pub mixed: u64,
    pub part: u32,
    /// Where it stands in the call's list.
    pub position: u32,
}

/// The places of all servers.
#[derive(Debug, Clone)]
pub(super) struct Homes {
    /// The host of each server.
    hosts: Vec<usize>,
    /// Of each server its number among those of this host, if it is one of them.
    here: Vec<Option<u32>>,
}

impl Homes {
    pub fn new(tables: &Tables) -> Homes {
        let hosts: Vec<usize> =
            tables.inner.roles.servers.iter().map(|&rank| tables.inner.hosts[rank]).collect();
        Homes::seen_from(tables.host(), hosts)
    }

    fn seen_from(host: usize, hosts: Vec<usize>) -> Homes {
        let mut next = 0..;
        let here = hosts.iter().map(|&other| if other == host { next.next() } else { None }).collect();
        Homes { hosts, here }
    }

    /// How many servers this host has.
    pub fn servers_here(&self) -> usize {
        self.here.iter().flatten().count()
    }

    /// Where a key is on this host, if it is here; each server has so many parts.
    #[inline]
    pub fn target(&self, key: Key, position: usize, server_parts: usize) -> Option<Target> {
        let (server, mixed) = key.home(self.hosts.len());
        let server = self.here[server]?;
        // The index uses the lowest bits.
        let part = server as usize * server_parts + (mixed >> 48) as usize % server_parts;
        Some(Target { mixed, part: part as u32, position: position as u32 })
    }

    /// The keys that other hosts hold: for each host, where they stand in the list.
    pub fn elsewhere(&self, keys: Keys) -> BTreeMap<usize, Vec<u32>> {
        let mut positions: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for position in 0..keys.len() {
            let (server, _) = keys.at(position).home(self.hosts.len());
            if self.here[server].is_none() {
                positions.entry(self.hosts[server]).or_default().push(position as u32);
            }
        }
        positions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_one_home() {
        let numbers: Vec<i64> = (-50..50).collect();
        for hosts in [vec![0], vec![0, 0, 0], vec![0, 1], vec![0, 1, 0, 2], vec![2, 2, 1]] {
            for server_parts in [1, 6] {
                let mut found = vec![0; numbers.len()];
                for host in 0..4 {
                    let homes = Homes::seen_from(host, hosts.clone());
                    let servers = hosts.iter().filter(|&&other| other == host).count();
                    assert_eq!(homes.servers_here(), servers);
                    for (position, &key) in numbers.iter().enumerate() {
                        let target = homes.target(Key::Int(key), position, server_parts);
                        found[position] += usize::from(target.is_some());
                        let server = key.rem_euclid(hosts.len() as i64) as usize;
                        assert_eq!(target.is_some(), hosts[server] == host);
                        assert!(target.is_none_or(|target| (target.part as usize) < servers * server_parts));
                    }
                    let elsewhere = homes.elsewhere(Keys::Int(&numbers));
                    assert!(!elsewhere.contains_key(&host));
                    for (host, positions) in elsewhere {
                        let belongs = |&position: &u32| {
                            hosts[numbers[position as usize].rem_euclid(hosts.len() as i64) as usize] == host
                        };
                        assert!(positions.iter().all(belongs));
                    }
                }
                assert!(found.iter().all(|&count| count == 1), "{hosts:?}");
            }
        }
    }
}
