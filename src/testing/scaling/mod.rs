//! How the collectives scale, counted on a modelled machine: messages, bytes and steps against their bounds, up to 1,024 ranks.
//!
//! p is the number of hosts and N the number of bytes in the longest buffer of a rank.

mod prediction;
mod tables;
mod verbs;

use std::collections::BTreeSet;

use super::counting::{measure, placed};
use crate::collectives::{self, GATHER_LIMIT, SCATTER_LIMIT};
use crate::transport::counting::{Measurement, NetworkModel, seconds};
use crate::world::Group;
use verbs::{NamedVerb, VERBS};

const SMALL: usize = 4096;
const LARGE: usize = 4_000_000;

/// Parts differ by one element: what a host may send beyond its share of equal parts, per rank and peer.
const ROUNDING: usize = 4;

fn log2(number: usize) -> usize {
    number.next_power_of_two().ilog2() as usize
}

/// One measurement for each verb and size.
fn measured(hosts: usize, each: usize, cases: &[(NamedVerb, usize)]) -> Vec<Measurement> {
    let calls: Vec<_> =
        cases.iter().map(|&((_, verb), bytes)| move |group: &Group| verb(group, bytes)).collect();
    let calls: Vec<_> = calls.iter().map(|call| call as super::counting::CountedCall).collect();
    measure(&placed(hosts, each), NetworkModel::ethernet(100.0), &calls)
}

/// What the algorithm of a verb may cost between more than eight hosts.
struct Bound {
    steps: usize,
    /// Sent by any host.
    bytes: usize,
    /// Ranks of other hosts that any rank sends to.
    peers: usize,
}

/// The bounds of a verb on `hosts` hosts with `each` ranks.
fn bound(verb: &str, hosts: usize, each: usize, bytes: usize) -> Bound {
    let log = log2(hosts);
    let rounding = ROUNDING * each * hosts;
    let share = bytes * (hosts - 1) / hosts + rounding;
    let (steps, sent) = match verb {
        "all_reduce" if bytes * hosts <= GATHER_LIMIT => (log, bytes * (hosts - 1)),
        "all_reduce" => (2 * log, 2 * share),
        // The blocks of up to half of the hosts pass through one of them.
        "reduce" => (2 * log, share + bytes / 2 + rounding),
        "reduce_scatter" | "all_gather" => (log, share),
        "broadcast" if bytes < SCATTER_LIMIT => (log, log * bytes),
        "broadcast" => (2 * log, 2 * share),
        "gather" => (log, bytes / 2 + rounding),
        "scatter" => (log, share),
        "scan" => (log, log * (bytes + rounding)),
        // Everything that a host's ranks have for the ranks of other hosts.
        "all_to_all" => (1, each * bytes * (hosts - 1) / hosts),
        _ => unreachable!("{verb}"),
    };
    let peers = if verb == "all_to_all" { (hosts - 1) * each } else { steps };
    Bound { steps, bytes: sent, peers }
}

fn check(what: &str, found: &Measurement, bound: &Bound) {
    assert!(found.steps <= bound.steps, "{what}: {} steps instead of {}", found.steps, bound.steps);
    let sent = found.per_host(|rank| rank.bytes);
    assert!(sent <= bound.bytes, "{what}: {sent} bytes instead of {}", bound.bytes);
    let peers = found.per_rank(|rank| rank.peers.len());
    assert!(peers <= bound.peers, "{what}: {peers} peers instead of {}", bound.peers);
    // Blocks across the end of the ring travel as two messages.
    let messages = found.per_rank(|rank| rank.messages);
    assert!(messages <= 2 * bound.peers, "{what}: {messages} messages to {peers} peers");
}

#[test]
fn every_verb_keeps_its_bounds_on_many_hosts() {
    let measured_names: BTreeSet<&str> = VERBS.iter().map(|(name, _)| *name).chain(["barrier"]).collect();
    let names: BTreeSet<&str> = collectives::VERBS.iter().map(|verb| verb.name).collect();
    assert_eq!(measured_names, names, "a verb without bounds");
    for (hosts, each) in [(9, 1), (23, 3), (64, 2), (128, 8)] {
        let mut cases: Vec<(NamedVerb, usize)> =
            VERBS.iter().flat_map(|&verb| [(verb, SMALL), (verb, LARGE)]).collect();
        // A message from each rank to each, whatever its size: once is enough.
        cases.retain(|((verb, _), bytes)| *verb != "all_to_all" || *bytes == LARGE);
        for (((verb, _), bytes), found) in cases.iter().zip(measured(hosts, each, &cases)) {
            let what = format!("{verb} of {bytes} bytes on {hosts} hosts with {each} ranks");
            check(&what, &found, &bound(verb, hosts, each, *bytes));
        }
    }
}

/// Longer buffers go in windows, each of which costs the same steps.
#[test]
fn windows_of_long_buffers_add_steps_but_no_bytes() {
    let (hosts, each, bytes) = (32, 4, 100_000_000);
    let cases: Vec<(NamedVerb, usize)> = VERBS[..5].iter().map(|&verb| (verb, bytes)).collect();
    for (((verb, _), bytes), found) in cases.iter().zip(measured(hosts, each, &cases)) {
        let windows = bytes.div_ceil(16 << 20) + 1;
        let bound = bound(verb, hosts, each, *bytes);
        let all = Bound {
            steps: windows * bound.steps,
            bytes: bound.bytes + windows * ROUNDING * each * hosts,
            ..bound
        };
        let messages = found.per_rank(|rank| rank.messages);
        assert!(messages <= 2 * all.steps, "{verb}: {messages} messages");
        check(verb, &found, &Bound { peers: messages, ..all });
        assert!(found.per_rank(|rank| rank.peers.len()) <= bound.peers, "{verb}");
        // The model itself: no host can be faster than its NIC, nor than its core.
        let least = (hosts - 1) as f64 / hosts as f64 * *bytes as f64 / NetworkModel::ethernet(100.0).nic;
        assert!((least..12.0 * least).contains(&seconds(found.time)), "{verb}: {} s", seconds(found.time));
    }
}

/// Between few hosts all ranks exchange their parts at once, in one step for each half of a reduction.
#[test]
fn few_hosts_exchange_directly() {
    let (hosts, each) = (8, 4);
    let bytes = 1_000_000;
    let cases: Vec<(NamedVerb, usize)> = VERBS.iter().map(|&verb| (verb, bytes)).collect();
    for (((verb, _), bytes), found) in cases.iter().zip(measured(hosts, each, &cases)) {
        let rounding = ROUNDING * each * hosts;
        let share = bytes * (hosts - 1) / hosts + rounding;
        let (steps, sent) = match *verb {
            "all_reduce" | "reduce" => (2, 2 * share),
            "broadcast" => (3, 3 * bytes),
            "all_to_all" => (1, each * share),
            // Every rank's values go to the ranks that fold them, and back.
            "scan" => (2, 2 * each * share),
            _ => (1, share),
        };
        check(verb, &found, &Bound { steps, bytes: sent, peers: (hosts - 1) * each });
    }
}

/// The order of ranks has its price: each rank's part needs all ranks' values, which no host has reduced before.
#[test]
fn sums_in_rank_order_cost_each_host_its_ranks_bytes() {
    let (hosts, each) = (16, 4);
    let verb = ("deterministic all_reduce", verbs::deterministic_all_reduce as fn(&Group, usize));
    let scan = ("scan of floats", verbs::float_scan as fn(&Group, usize));
    let found = measured(hosts, each, &[(verb, 64), (verb, LARGE), (scan, 64), (scan, LARGE)]);
    let (ranks, log) = (hosts * each, log2(hosts * each));
    check("small", &found[0], &Bound { steps: log, bytes: each * 64 * ranks, peers: log });
    let bytes = (each + 1) * (LARGE * (hosts - 1) / hosts + ROUNDING * ranks);
    let steps = 1 + log2(hosts);
    check("large", &found[1], &Bound { steps, bytes, peers: ranks - each + steps });
    check("small scan", &found[2], &Bound { steps: log, bytes: each * 64 * ranks, peers: log });
    let bytes = 2 * each * (LARGE * (hosts - 1) / hosts + ROUNDING * ranks);
    check("large scan", &found[3], &Bound { steps: 2, bytes, peers: ranks - each });
}

#[test]
fn a_barrier_takes_logarithmically_many_steps() {
    for (hosts, each) in [(9, 1), (128, 8)] {
        let found = measured(hosts, each, &[(("barrier", verbs::barrier), 0)]);
        let log = log2(hosts * each);
        check("barrier", &found[0], &Bound { steps: log, bytes: 0, peers: log });
    }
}

/// Neither the machine that runs the model nor its scheduler has an influence.
#[test]
fn virtual_time_is_the_same_every_time() {
    let cases: Vec<(NamedVerb, usize)> = VERBS.iter().map(|&verb| (verb, 50_000)).collect();
    let times = || measured(12, 3, &cases).iter().map(|found| found.time).collect::<Vec<_>>();
    assert_eq!(times(), times());
}
