//! Placement of keys: which host has a key's server, and which part of this host's memory holds the key.

use std::collections::BTreeMap;

use super::keys::{KeyRef, Keys};
use crate::tables::engine::tables_state::TablesState;

/// A key of a call that this host holds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LocalKey {
    /// The key's hash; equal keys have equal hashes.
    pub hash: u64,
    pub part: u32,
    /// Its position in the call's list.
    pub position: u32,
}

/// The hosts of all servers, as seen from one host.
#[derive(Debug, Clone)]
pub(crate) struct KeyPlacement {
    /// The host of each server.
    hosts: Vec<usize>,
    /// Each server's index among those of this host, if it is on this host.
    local_index: Vec<Option<u32>>,
}

impl KeyPlacement {
    pub fn new(inner: &TablesState) -> KeyPlacement {
        let hosts: Vec<usize> = inner.roles.servers.iter().map(|&rank| inner.hosts[rank]).collect();
        KeyPlacement::for_host(inner.host(), hosts)
    }

    fn for_host(host: usize, hosts: Vec<usize>) -> KeyPlacement {
        let mut next = 0..;
        let local_index = hosts.iter().map(|&other| if other == host { next.next() } else { None }).collect();
        KeyPlacement { hosts, local_index }
    }

    /// Number of servers on this host.
    pub fn local_servers(&self) -> usize {
        self.local_index.iter().flatten().count()
    }

    /// This host's servers, by their number among all.
    pub fn local_server_numbers(&self) -> Vec<usize> {
        (0..self.hosts.len()).filter(|&server| self.local_index[server].is_some()).collect()
    }

    /// The location of a key, if it is on this host; each server has `server_parts` parts.
    #[inline]
    pub fn local_key(&self, key: KeyRef, position: usize, server_parts: usize) -> Option<LocalKey> {
        let (server, hash) = key.server_and_hash(self.hosts.len());
        let server = self.local_index[server]?;
        // The upper bits, because the index uses the lowest.
        let part = server as usize * server_parts + (hash >> 48) as usize % server_parts;
        Some(LocalKey { hash, part: part as u32, position: position as u32 })
    }

    /// The positions of the keys that other hosts hold, by host.
    pub fn remote_positions(&self, keys: Keys) -> BTreeMap<usize, Vec<u32>> {
        let mut positions: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for position in 0..keys.len() {
            let (server, _) = keys.at(position).server_and_hash(self.hosts.len());
            if self.local_index[server].is_none() {
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
                    let key_placement = KeyPlacement::for_host(host, hosts.clone());
                    let servers = hosts.iter().filter(|&&other| other == host).count();
                    assert_eq!(key_placement.local_servers(), servers);
                    for (position, &key) in numbers.iter().enumerate() {
                        let local_key = key_placement.local_key(KeyRef::Int(key), position, server_parts);
                        found[position] += usize::from(local_key.is_some());
                        let server = key.rem_euclid(hosts.len() as i64) as usize;
                        assert_eq!(local_key.is_some(), hosts[server] == host);
                        assert!(
                            local_key
                                .is_none_or(|local_key| (local_key.part as usize) < servers * server_parts)
                        );
                    }
                    let remote_positions = key_placement.remote_positions(Keys::Int(&numbers));
                    assert!(!remote_positions.contains_key(&host));
                    for (host, positions) in remote_positions {
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
