//! Which host holds which rows of a table, and at which local index.

use super::boundaries::boundaries;
use super::row_batch::RowRef;
use crate::tables::spec::role::Roles;

/// Consecutive rows on one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowSegment {
    pub first: usize,
    pub end: usize,
    pub host: usize,
    /// The local index of the first row on its host.
    pub local: usize,
}

/// The placement of all rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RowPlacement {
    pub segments: Vec<RowSegment>,
}

impl RowPlacement {
    /// `hosts` is the host number of each rank.
    pub fn new(rows: usize, roles: &Roles, hosts: &[usize]) -> RowPlacement {
        let bounds = boundaries(rows, roles.servers.len());
        let mut segments: Vec<RowSegment> = Vec::new();
        for (server, &rank) in roles.servers.iter().enumerate() {
            let (first, end, host) = (bounds[server], bounds[server + 1], hosts[rank]);
            if first == end {
                continue;
            }
            match segments.last_mut() {
                Some(last) if last.host == host => last.end = end,
                _ => {
                    let before = segments.iter().filter(|segment| segment.host == host);
                    let local = before.map(|segment| segment.end - segment.first).sum();
                    segments.push(RowSegment { first, end, host, local });
                }
            }
        }
        RowPlacement { segments }
    }

    /// The segments of one host, in order.
    pub fn on_host(&self, host: usize) -> impl Iterator<Item = &RowSegment> {
        self.segments.iter().filter(move |segment| segment.host == host)
    }

    /// Number of rows on a host.
    pub fn rows_on(&self, host: usize) -> usize {
        self.on_host(host).map(|segment| segment.end - segment.first).sum()
    }

    /// All hosts that hold rows.
    pub fn hosts(&self) -> Vec<usize> {
        let mut hosts: Vec<usize> = self.segments.iter().map(|segment| segment.host).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }

    /// The host of a row, and its local index there.
    pub fn locate(&self, row: usize) -> (usize, usize) {
        let index = self.segments.partition_point(|segment| segment.end <= row);
        let segment = &self.segments[index];
        (segment.host, segment.local + row - segment.first)
    }

    /// Those of the listed rows that one host holds.
    pub fn row_refs<'a>(&'a self, rows: &'a [i64], host: usize) -> impl Iterator<Item = RowRef> + Clone + 'a {
        let only = self.segments.len() == 1;
        rows.iter().enumerate().filter_map(move |(position, &row)| {
            let (holder, local) = match only {
                true => (self.segments[0].host, row as usize),
                false => self.locate(row as usize),
            };
            (holder == host).then_some(RowRef { row: local as u32, position: position as u32 })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::Role;

    #[test]
    fn neighbours_merge_and_every_row_has_one_place() {
        let roles = Roles::new(&[Role::Both; 4]).unwrap();
        let one = RowPlacement::new(11, &roles, &[0; 4]);
        assert_eq!(one.segments, [RowSegment { first: 0, end: 11, host: 0, local: 0 }]);
        for hosts in [[0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 1, 0]] {
            let placement = RowPlacement::new(11, &roles, &hosts);
            for host in [0, 1] {
                let rows: Vec<usize> = (0..11).filter(|&row| placement.locate(row).0 == host).collect();
                assert_eq!(rows.len(), placement.rows_on(host));
                let local: Vec<usize> = rows.iter().map(|&row| placement.locate(row).1).collect();
                assert_eq!(local, (0..rows.len()).collect::<Vec<_>>(), "{hosts:?}");
                let list: Vec<i64> = (0..11).rev().collect();
                let row_refs: Vec<RowRef> = placement.row_refs(&list, host).collect();
                assert_eq!(row_refs.len(), rows.len());
                assert!(row_refs.iter().all(|row_ref| {
                    placement.locate(list[row_ref.position as usize] as usize) == (host, row_ref.row as usize)
                }));
            }
        }
    }
}
