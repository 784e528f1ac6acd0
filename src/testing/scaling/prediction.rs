//! The tables of predicted times in docs/design/018-scaling.md.

use super::verbs::{NamedVerb, VERBS};
use crate::testing::counting::{CountedCall, measure, placed};
use crate::transport::counting::{NetworkModel, Picoseconds, seconds};
use crate::world::Group;

const SIZES: [(&str, usize); 3] = [("4 KiB", 4096), ("1 MB", 1_000_000), ("100 MB", 100_000_000)];
const HOSTS: [usize; 3] = [8, 64, 128];
const RANKS_PER_HOST: usize = 8;

fn words(time: Picoseconds) -> String {
    match seconds(time) {
        time if time < 1e-3 => format!("{:.0} µs", time * 1e6),
        time if time < 1e-2 => format!("{:.2} ms", time * 1e3),
        time => format!("{:.1} ms", time * 1e3),
    }
}

#[test]
#[ignore = "prints the tables of docs/design/018-scaling.md, in two minutes"]
fn predicted_times() {
    let cases: Vec<(NamedVerb, usize)> =
        VERBS.iter().flat_map(|&verb| SIZES.map(|(_, bytes)| (verb, bytes))).collect();
    let mut columns = Vec::new();
    for gigabits in [25.0, 100.0] {
        for hosts in HOSTS {
            let calls: Vec<_> =
                cases.iter().map(|&((_, verb), bytes)| move |group: &Group| verb(group, bytes)).collect();
            let calls: Vec<_> = calls.iter().map(|call| call as CountedCall).collect();
            columns.push(measure(&placed(hosts, RANKS_PER_HOST), NetworkModel::ethernet(gigabits), &calls));
        }
    }
    let heading: Vec<String> =
        [25, 100].iter().flat_map(|speed| HOSTS.map(|hosts| format!("{hosts} × {speed}"))).collect();
    println!("| hosts × Gbit/s | {} |", heading.join(" | "));
    println!("|---|{}", "---|".repeat(columns.len()));
    for (row, _) in cases.iter().enumerate() {
        let cells: Vec<String> = columns.iter().map(|column| words(column[row].time)).collect();
        println!("| `{}`, {} | {} |", VERBS[row / 3].0, SIZES[row % 3].0, cells.join(" | "));
    }
    println!("\n| per host, 128 hosts, 100 MB | messages | GB sent | steps |\n|---|---|---|---|");
    for (index, (verb, _)) in VERBS.iter().enumerate() {
        let found = &columns[5][3 * index + 2];
        let (messages, bytes) = (found.per_host(|rank| rank.messages), found.per_host(|rank| rank.bytes));
        println!("| `{verb}` | {messages} | {:.3} | {} |", bytes as f64 / 1e9, found.steps);
    }
}
