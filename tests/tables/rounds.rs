//! Consistency: rounds, bounds, and workers that finish early.

use std::time::Duration;

use unisono::tables::{ArrayTable, Consistency, Rows, TableOptions};

use crate::on_all_paths;

fn options(text: &str) -> TableOptions {
    TableOptions { consistency: Consistency::parse(text).unwrap(), ..TableOptions::default() }
}

/// A short pause that differs between ranks and steps.
fn jitter(rank: usize, step: usize) {
    std::thread::sleep(Duration::from_micros(((rank * 7919 + step * 104_729) % 13 * 60) as u64));
}

#[test]
fn in_rounds_every_worker_reads_the_same() {
    for ranks in [1, 2, 3, 4] {
        let paths = on_all_paths(ranks, |world, tables| {
            let table = ArrayTable::<i64>::create(tables, 1001, None, options("bsp")).unwrap();
            let mut seen = Vec::new();
            for step in 0..30 {
                jitter(world.rank(), step);
                let delta = vec![(world.rank() + 1) as i64; 1001];
                match step % 3 {
                    0 => table
                        .table()
                        .add_soon(Rows::All, bytemuck::cast_slice(&delta), &Default::default())
                        .unwrap(),
                    _ => table.add(&delta).unwrap(),
                }
                let mut values = vec![0; 1001];
                table.get(&mut values).unwrap();
                assert!(values.iter().all(|value| *value == values[0]), "a get is of one round");
                seen.push(values[0]);
            }
            seen
        });
        let of_all = (ranks * (ranks + 1) / 2) as i64;
        let expected: Vec<i64> = (1..=30).map(|round| round * of_all).collect();
        assert!(paths.iter().flatten().all(|seen| *seen == expected), "{paths:?}");
    }
}

#[test]
fn rounds_need_no_rows_on_every_host() {
    for ranks in [2, 3, 4] {
        on_all_paths(ranks, |world, tables| {
            let table = ArrayTable::<i32>::create(tables, 1, None, options("bsp")).unwrap();
            for step in 1..=10 {
                jitter(world.rank(), step);
                table.add(&[1]).unwrap();
                let mut value = [0];
                table.get(&mut value).unwrap();
                assert_eq!(value[0] as usize, step * ranks);
            }
        });
    }
}

#[test]
fn workers_may_finish_early() {
    on_all_paths(4, |world, tables| {
        let table = ArrayTable::<i32>::create(tables, 500, None, options("bsp")).unwrap();
        for step in 0..5 * (world.rank() + 2) {
            jitter(world.rank(), step);
            (0..3).for_each(|_| table.add(&vec![1; 500]).unwrap());
            (0..3).for_each(|_| table.get(&mut vec![0; 500]).unwrap());
        }
        // Finishes with one table, or with all.
        if world.rank() % 2 == 0 { table.finish().unwrap() } else { tables.finish().unwrap() }
    });
}

#[test]
fn a_reader_is_never_ahead_of_the_bound() {
    for bound in [0, 1, 3] {
        on_all_paths(3, |world, tables| {
            let table = ArrayTable::<i64>::create(tables, 3, None, options(&format!("ssp:{bound}"))).unwrap();
            for step in 0..40 {
                if world.rank() == 0 {
                    jitter(step, step);
                }
                let mut delta = [0; 3];
                delta[world.rank()] = 1;
                table.add(&delta).unwrap();
                table.tick().unwrap();
                let mut values = [0; 3];
                table.get(&mut values).unwrap();
                let slowest = values.iter().copied().min().unwrap();
                assert!(slowest + bound > step as i64, "step {step}: {values:?}");
                assert_eq!(values[world.rank()], step as i64 + 1, "one's own adds are there");
            }
            assert!(table.staleness().len() as i64 <= bound + 1, "{:?}", table.staleness());
            assert_eq!(table.staleness().iter().sum::<u64>(), 40);
            tables.finish().unwrap();
        });
    }
}

#[test]
fn the_adds_of_the_slowest_are_dropped_and_answered() {
    let paths = on_all_paths(3, |world, tables| {
        let table = ArrayTable::<i64>::create(tables, 4, None, options("bsp:backup=1")).unwrap();
        let mut values = [0; 4];
        for step in 0..20 {
            if world.rank() == 2 {
                std::thread::sleep(Duration::from_millis(3));
            }
            table.add(&[1; 4]).unwrap();
            table.get(&mut values).unwrap();
            assert!(values[0] >= 2 * (step + 1), "every round has two adds: {values:?}");
        }
        tables.finish().unwrap();
        tables.barrier().unwrap();
        table.get(&mut values).unwrap();
        values
    });
    // A late reader may already see adds of later rounds; in the end no round has had more than two.
    assert!(paths.iter().flatten().all(|values| *values == [40; 4]), "{paths:?}");
}

#[test]
fn a_last_round_drops_no_more_than_the_backup() {
    for _ in 0..20 {
        for values in on_all_paths(4, |world, tables| {
            let table = ArrayTable::<i64>::create(tables, 1, None, options("bsp:backup=1")).unwrap();
            jitter(world.rank(), 1);
            table.add(&[1]).unwrap();
            tables.finish().unwrap();
            tables.barrier().unwrap();
            let mut value = [0];
            table.get(&mut value).unwrap();
            value[0]
        }) {
            assert!(values.iter().all(|&value| value == 3), "{values:?}");
        }
    }
}
