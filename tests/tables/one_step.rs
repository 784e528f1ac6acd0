//! A `bsp` round is one updater step with the sum (or the mean) of the workers' adds: equal to one worker with a larger batch.

use std::collections::BTreeMap;
use std::sync::Barrier;

use unisono::DType;
use unisono::tables::{
    AddOptions, Consistency, KeyType, KeyValueTable, Keys, OwnedKeys, Rows, Table, TableOptions, Tables,
    UpdaterChoice,
};

use crate::on_all_paths;

const ROWS: usize = 7;
const COLS: usize = 3;
const WORKERS: usize = 3;
const ROUNDS: usize = 4;

/// The add of one worker in one round. `None`: all rows.
struct Add {
    rows: Option<Vec<i64>>,
    delta: Vec<f64>,
}

/// Multiples of 1/8, so that sums of a few of them are exact in any order.
fn number(seed: usize) -> f64 {
    ((seed * 7919 + 13) % 31) as f64 / 8.0 - 2.0
}

/// All rows, some rows, a row twice, none at all.
fn add(worker: usize, round: usize) -> Add {
    let rows = match (worker + round) % 4 {
        0 => None,
        1 => Some(vec![1, 4, 1]),
        2 => Some(vec![6, 0, 4]),
        _ => Some(Vec::new()),
    };
    let count = rows.as_ref().map_or(ROWS, Vec::len);
    Add { rows, delta: (0..count * COLS).map(|at| number(at + 100 * worker + 1000 * round)).collect() }
}

/// The rows in these workers' adds, with their sums divided by `divisor`.
fn sum(adds: &[Add], divisor: f64) -> (Vec<i64>, Vec<f64>) {
    let mut sums: BTreeMap<i64, [f64; COLS]> = BTreeMap::new();
    for add in adds {
        let all: Vec<i64> = (0..ROWS as i64).collect();
        for (row, delta) in add.rows.as_ref().unwrap_or(&all).iter().zip(add.delta.chunks_exact(COLS)) {
            let sum = sums.entry(*row).or_default();
            (0..COLS).for_each(|at| sum[at] += delta[at]);
        }
    }
    let deltas = sums.values().flatten().map(|sum| sum / divisor).collect();
    (sums.into_keys().collect(), deltas)
}

fn options(updater: &str, consistency: &str, name: &str) -> TableOptions {
    TableOptions {
        name: Some(name.into()),
        updater: UpdaterChoice::named(updater).unwrap(),
        consistency: Consistency::parse(consistency).unwrap(),
        ..TableOptions::default()
    }
}

fn bytes(numbers: &[f64]) -> &[u8] {
    bytemuck::cast_slice(numbers)
}

/// The values after all rounds, computed by one worker whose adds are the sums of these workers' adds.
fn by_one(tables: &Tables, updater: &str, workers: std::ops::Range<usize>, mean: bool) -> Vec<f64> {
    let one =
        Table::matrix(tables, (ROWS, COLS), DType::F64, None, options(updater, "async", "one")).unwrap();
    for round in 0..ROUNDS {
        let divisor = if mean { workers.len() as f64 } else { 1.0 };
        let (rows, delta) =
            sum(&workers.clone().map(|worker| add(worker, round)).collect::<Vec<_>>(), divisor);
        if tables.worker_id() == Some(0) {
            one.add(Rows::List(&rows), bytes(&delta), &AddOptions::default()).unwrap();
        }
    }
    tables.barrier().unwrap();
    let mut values = vec![0.0; ROWS * COLS];
    one.get(Rows::All, bytemuck::cast_slice_mut(&mut values)).unwrap();
    tables.barrier().unwrap();
    values
}

fn make(tables: &Tables, updater: &str, consistency: &str, sparse: bool) -> Table {
    let options = options(updater, consistency, "many");
    match sparse {
        true => Table::sparse_matrix(tables, (ROWS, COLS), DType::F64, None, false, options).unwrap(),
        false => Table::matrix(tables, (ROWS, COLS), DType::F64, None, options).unwrap(),
    }
}

fn push(table: &Table, Add { rows, delta }: &Add, soon: bool) {
    let rows = rows.as_deref().map_or(Rows::All, Rows::List);
    match soon {
        true => table.add_soon(rows, bytes(delta), &AddOptions::default()).unwrap(),
        false => table.add(rows, bytes(delta), &AddOptions::default()).unwrap(),
    }
}

fn values(table: &Table) -> Vec<f64> {
    let mut values = vec![0.0; ROWS * COLS];
    table.get(Rows::All, bytemuck::cast_slice_mut(&mut values)).unwrap();
    values
}

fn same(found: &[f64], wanted: &[f64], what: &str) {
    let far = |(found, wanted): (&f64, &f64)| (found - wanted).abs() > 1e-12 * (1.0 + wanted.abs());
    assert!(!found.iter().zip(wanted).any(far), "{what}: {found:?} instead of {wanted:?}");
}

#[test]
fn rows_take_one_step_per_round() {
    on_all_paths(WORKERS, |world, tables| {
        for updater in UpdaterChoice::names() {
            for (consistency, sparse) in [("bsp", false), ("bsp", true), ("bsp:mean", false)] {
                let wanted = by_one(tables, updater, 0..WORKERS, consistency == "bsp:mean");
                let table = make(tables, updater, consistency, sparse);
                for round in 0..ROUNDS {
                    push(&table, &add(world.rank(), round), (world.rank() + round) % 2 == 0);
                    // Two adds before a get are two rounds.
                    if round % 2 == 1 {
                        values(&table);
                    }
                }
                same(&values(&table), &wanted, &format!("{updater}, {consistency}, sparse: {sparse}"));
                tables.barrier().unwrap();
            }
        }
    });
}

#[test]
fn bits_do_not_depend_on_the_order_of_arrival() {
    let delta = |rank: usize, round: usize| [0.1, 1e9, -3.7].map(|number| number / (rank + round + 3) as f64);
    let paths = on_all_paths(WORKERS, |world, tables| {
        let table = Table::array(tables, 3, DType::F32, None, options("adam", "bsp", "array")).unwrap();
        let mut values = [0f32; 3];
        for round in 0..6 {
            std::thread::sleep(std::time::Duration::from_millis(((world.rank() * 5 + round * 3) % 7) as u64));
            let delta = delta(world.rank(), round).map(|number| number as f32);
            table.add(Rows::All, bytemuck::cast_slice(&delta), &AddOptions::default()).unwrap();
            table.get(Rows::All, bytemuck::cast_slice_mut(&mut values)).unwrap();
        }
        values.map(f32::to_bits)
    });
    assert!(paths.iter().flatten().all(|bits| *bits == paths[0][0]), "{paths:?}");
}

#[test]
fn backup_rounds_take_one_step_without_the_slowest() {
    for sparse in [false, true] {
        let late = Barrier::new(WORKERS);
        on_all_paths(WORKERS, |world, tables| {
            for updater in ["adam", "momentum", "dcasgd"] {
                let wanted = by_one(tables, updater, 0..WORKERS - 1, false);
                let table = make(tables, updater, "bsp:backup=1", sparse);
                if world.rank() == WORKERS - 1 {
                    late.wait();
                }
                for round in 0..ROUNDS {
                    push(&table, &add(world.rank(), round), false);
                    if world.rank() < WORKERS - 1 {
                        values(&table);
                    }
                }
                if world.rank() < WORKERS - 1 {
                    late.wait();
                }
                tables.barrier().unwrap();
                table.finish().unwrap();
                tables.barrier().unwrap();
                same(&values(&table), &wanted, updater);
                tables.barrier().unwrap();
            }
        });
    }
}

#[test]
fn keys_take_one_step_per_round_and_are_checkpointed() {
    on_all_paths(WORKERS, |world, tables| {
        for (updater, kind) in [("adam", KeyType::Int), ("adagrad", KeyType::Bytes), ("lion", KeyType::Int)] {
            let wanted = by_one(tables, updater, 0..WORKERS, false);
            let table =
                KeyValueTable::create(tables, kind, COLS, DType::F64, options(updater, "bsp", "keys"))
                    .unwrap();
            let keys = |rows: &[i64]| match kind {
                KeyType::Int => OwnedKeys::Int(rows.to_vec()),
                KeyType::Bytes => {
                    OwnedKeys::Bytes(rows.iter().map(|row| row.to_ne_bytes().to_vec()).collect())
                }
            };
            let all: Vec<i64> = (0..ROWS as i64).collect();
            let with = |rows: &[i64], act: &mut dyn FnMut(Keys)| match keys(rows) {
                OwnedKeys::Int(keys) => act(Keys::Int(&keys)),
                OwnedKeys::Bytes(keys) => {
                    act(Keys::Bytes(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>()));
                }
            };
            let read = || {
                let mut values = vec![0.0; ROWS * COLS];
                with(&all, &mut |keys| table.get(keys, bytemuck::cast_slice_mut(&mut values)).unwrap());
                values
            };
            for round in 0..ROUNDS {
                let Add { rows, delta } = add(world.rank(), round);
                with(rows.as_deref().unwrap_or(&all), &mut |keys| {
                    table.add(keys, bytes(&delta), &AddOptions::default()).unwrap();
                });
                if round == 1 {
                    // A complete round is part of a checkpoint, whether a worker has read it or not.
                    let place = format!("memory://one-step-{updater}-{}", world.size());
                    tables.save(&place).unwrap();
                    tables.load(&place).unwrap();
                }
                read();
            }
            same(&read(), &wanted, updater);
            assert_eq!(table.len().unwrap(), ROWS, "{updater}");
            tables.barrier().unwrap();
        }
    });
}

#[test]
fn the_last_worker_takes_one_step_per_round() {
    on_all_paths(2, |world, tables| {
        let table = make(tables, "adam", "bsp", false);
        let add = Add { rows: None, delta: vec![1.0 - world.rank() as f64; ROWS * COLS] };
        push(&table, &add, false);
        if world.rank() == 1 {
            table.finish().unwrap();
        } else {
            for _ in 0..20 {
                push(&table, &add, false);
            }
            assert!((values(&table)[0] + 0.021).abs() < 1e-6, "21 steps: {}", values(&table)[0]);
        }
        tables.barrier().unwrap();
    });
}
