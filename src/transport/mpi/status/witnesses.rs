//! Which ranks can report on a rank: itself, others of its host, and the rank on another host that watches it.

/// Other ranks of a host that are asked about a rank, at most.
const MATES: usize = 2;

/// The largest job in which every rank is watched by all ranks of other hosts: each asks them at startup.
const SMALL_JOB: usize = 32;

/// The ranks to ask about a rank, in order. `hosts` has the host of each rank, `own` is the rank that asks.
pub(super) fn witnesses(hosts: &[usize], own: usize, about: usize) -> Vec<usize> {
    let mates = members(hosts, hosts[about]).into_iter().filter(|&mate| mate != about).take(MATES);
    let mut all: Vec<usize> = std::iter::once(about).chain(mates).collect();
    all.extend(watcher_of(hosts, about).filter(|&watcher| watcher != own && !all.contains(&watcher)));
    all
}

/// The ranks that this one asks at startup, so that it can tell later that they have ended. In a large job every rank is asked by
/// one other, whose word the others depend on; it may have ended, too, when they ask.
pub(super) fn watched_by(hosts: &[usize], own: usize) -> Vec<usize> {
    let is_small = hosts.len() <= SMALL_JOB;
    let is_watched = |rank: usize| match is_small {
        true => hosts[rank] != hosts[own],
        false => watcher_of(hosts, rank) == Some(own),
    };
    (0..hosts.len()).filter(|&rank| is_watched(rank)).collect()
}

/// The rank of the preceding host with the same position, wrapped around.
fn watcher_of(hosts: &[usize], rank: usize) -> Option<usize> {
    let all = distinct(hosts);
    let place = all.iter().position(|&host| host == hosts[rank])?;
    let preceding = all[(place + all.len() - 1) % all.len()];
    let position = hosts[..rank].iter().filter(|&&host| host == hosts[rank]).count();
    let watchers = members(hosts, preceding);
    (preceding != hosts[rank]).then(|| watchers[position % watchers.len()])
}

fn members(hosts: &[usize], host: usize) -> Vec<usize> {
    (0..hosts.len()).filter(|&rank| hosts[rank] == host).collect()
}

fn distinct(hosts: &[usize]) -> Vec<usize> {
    let mut all = hosts.to_vec();
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_is_watched_by_one_of_another_host() {
        let rounds = |size: usize, hosts: usize| (0..size).map(|rank| rank % hosts).collect::<Vec<usize>>();
        for hosts in [rounds(33, 2), rounds(40, 3), rounds(33, 32), (0..50).collect()] {
            for rank in 0..hosts.len() {
                let watchers: Vec<usize> =
                    (0..hosts.len()).filter(|&other| watched_by(&hosts, other).contains(&rank)).collect();
                assert!(
                    matches!(watchers[..], [one] if hosts[one] != hosts[rank]),
                    "{hosts:?}: {watchers:?}"
                );
            }
        }
        assert!(watched_by(&[0, 0], 0).is_empty() && watched_by(&[0; 40], 0).is_empty(), "one host");
    }

    #[test]
    fn in_a_small_job_every_rank_is_watched_from_all_other_hosts() {
        assert_eq!(watched_by(&[0, 0, 2, 2, 4], 1), [2, 3, 4]);
        assert_eq!(watched_by(&[0, 0, 2, 2, 4], 2), [0, 1, 4]);
    }

    #[test]
    fn the_rank_itself_is_asked_first_and_the_asking_rank_never() {
        assert_eq!(witnesses(&[0, 0, 2, 2], 0, 3), [3, 2, 1]);
        assert_eq!(witnesses(&[0, 0, 2, 2], 1, 3), [3, 2]);
        assert_eq!(witnesses(&[0, 1], 0, 1), [1]);
    }
}
