//! How a limit of rows is divided: between all servers of the table, and between the parts of each.

use crate::tables::Eviction;

/// Minimum number of rows per part, if the table is that large. Keys are divided between parts by their hashes, so that the number
/// of keys that fall to a part of `n` rows deviates by about the square root of `n`: small parts would evict while others have room.
const MIN_PART_ROWS: usize = 256;

/// The rows that this host may hold, and which it evicts.
#[derive(Debug, Clone)]
pub(crate) struct RowLimit {
    pub eviction: Eviction,
    /// Maximum number of rows of the table, on all hosts.
    pub max_rows: usize,
    /// Number of servers, on all hosts.
    servers: usize,
    /// This host's servers, by their number among all.
    local_servers: Vec<usize>,
}

/// Part `index` of `whole`, divided into equal parts: the first ones get the remainder.
fn share(whole: usize, parts: usize, index: usize) -> usize {
    whole / parts + usize::from(index < whole % parts)
}

impl RowLimit {
    /// There is at least one row for each server.
    pub fn new(max_rows: usize, eviction: Eviction, servers: usize, local_servers: Vec<usize>) -> RowLimit {
        assert!(max_rows >= servers);
        RowLimit { eviction, max_rows, servers, local_servers }
    }

    /// Number of parts per server, of which an unlimited table would have `most`.
    pub fn server_parts(&self, most: usize) -> usize {
        (self.max_rows / self.servers / MIN_PART_ROWS).clamp(1, most)
    }

    /// Number of rows of one of this host's parts.
    pub fn part_rows(&self, part: usize, server_parts: usize) -> usize {
        let server = self.local_servers[part / server_parts];
        share(share(self.max_rows, self.servers, server), server_parts, part % server_parts)
    }

    /// Number of rows of the smallest part.
    pub fn min_part_rows(&self, server_parts: usize) -> usize {
        self.max_rows / self.servers / server_parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_all_hosts_have_the_limit_in_sum() {
        let hosts = [
            vec![vec![0]],
            vec![vec![0, 1, 2]],
            vec![vec![0, 3], vec![1, 2, 4]],
            vec![vec![1], vec![], vec![0]],
        ];
        for servers_of in hosts {
            let servers = servers_of.iter().map(Vec::len).sum();
            for max_rows in [servers, servers + 1, 100, 1000, 12_345, 1 << 20] {
                let mut rows = Vec::new();
                for local in &servers_of {
                    let limit = RowLimit::new(max_rows, Eviction::Lru, servers, local.clone());
                    let server_parts = limit.server_parts(16usize.div_ceil(local.len().max(1)));
                    assert!((1..=16).contains(&server_parts));
                    let all = (0..local.len() * server_parts).map(|part| limit.part_rows(part, server_parts));
                    rows.extend(all.inspect(|&rows| {
                        assert!(rows >= limit.min_part_rows(server_parts));
                        assert!(rows >= MIN_PART_ROWS || server_parts == 1);
                    }));
                }
                assert_eq!(rows.iter().sum::<usize>(), max_rows);
                assert!(rows.iter().all(|&rows| rows > 0));
            }
        }
    }
}
