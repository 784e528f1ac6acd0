//! The messages of tables between hosts: a call of one worker talks only to the hosts that hold its rows.

use crate::tables::{AddOptions, MatrixTable, Role, TableOptions, Tables};
use crate::testing::{counting::placed, spawn_tallied};
use crate::transport::counting::{Posted, Tally};

const COLS: usize = 16;
const ROW: usize = COLS * 4;

/// What a request or a reply may have beside its rows: number, table, worker, options.
const TRAILER: usize = 256;

/// The messages of one call, by the first worker.
struct Call {
    what: &'static str,
    /// Messages that the worker sends to each host that holds rows of the call, and gets from each.
    rounds: usize,
    hosts: usize,
    /// Bytes of rows and of their numbers, in both directions.
    rows: usize,
    numbers: usize,
}

#[test]
fn a_call_talks_once_to_every_host_with_its_rows() {
    for (hosts, each) in [(3, 2), (16, 2), (64, 1)] {
        let tally = Tally::default();
        let (rows, others) = (hosts * 10, hosts - 1);
        let found = spawn_tallied(&placed(hosts, each), &tally, |world| {
            let tables = Tables::join(world, Role::Both).unwrap();
            let options = TableOptions::default();
            let table = MatrixTable::<f32>::create(&tables, (rows, COLS), None, options).unwrap();
            tables.barrier().unwrap();
            let mut calls: Vec<(Call, Vec<Posted>)> = Vec::new();
            if world.rank() == 0 {
                let mut values = vec![1.0; rows * COLS];
                let all = (rows - 10) * ROW;
                let mut record = |what, rounds, hosts, rows, numbers| {
                    calls.push((Call { what, rounds, hosts, rows, numbers }, tally.take()));
                };
                tally.take();
                table.get(&mut values).unwrap();
                record("get", 1, others, all, 0);
                // Values that compress little.
                let noise = |index: usize| (index as f32 * 0.7548777).fract() + index as f32 * 0.01;
                (0..values.len()).for_each(|index| values[index] = noise(index));
                table.add(&values).unwrap();
                record("add", 2, others, all, 0);
                // Two rows of the last host, and one of the second.
                let list = [rows as i64 - 1, 10, rows as i64 - 2];
                table.get_rows(&list, &mut values[..3 * COLS]).unwrap();
                record("get of rows", 1, 2.min(others), 3 * ROW, 3 * 8);
                table.add_rows(&list, &values[..3 * COLS], &AddOptions::default()).unwrap();
                record("add of rows", 2, 2.min(others), 3 * ROW, 3 * 8);
                table.get_rows(&[0, 5], &mut values[..2 * COLS]).unwrap();
                record("get of own rows", 1, 0, 0, 0);
            }
            tables.barrier().unwrap();
            calls
        });
        for (call, posted) in found.into_iter().flatten() {
            let Call { what, rounds, hosts: talked_to, rows, numbers } = call;
            let what = format!("{what} on {hosts} hosts: {posted:?}");
            let requests = posted.iter().filter(|posted| posted.is_request).count();
            assert_eq!((requests, posted.len()), (rounds * talked_to, 2 * rounds * talked_to), "{what}");
            assert!(posted.iter().all(|posted| posted.from == 0 || posted.to == 0), "{what}");
            let bytes: usize = posted.iter().map(|posted| posted.bytes).sum();
            let most = rows + numbers + posted.len() * TRAILER;
            assert!((rows..=most).contains(&bytes), "{bytes} bytes instead of {rows}: {what}");
        }
    }
}
