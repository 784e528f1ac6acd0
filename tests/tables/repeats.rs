//! Rows and keys that one add lists more than once: their sum is one step of the updater, or each of them is a step.

use std::collections::BTreeMap;

use half::{bf16, f16};
use proptest::prelude::*;
use unisono::tables::{
    AddOptions, Compression, Consistency, KeyType, KeyValueTable, Keys, Repeats, Rows, Table, TableElement,
    TableOptions, Tables, UpdateContext, UpdaterChoice,
};
use unisono::{DType, Element};

use crate::on_all_paths;

const ROWS: usize = 40;
const COLS: usize = 3;

fn options(updater: &str, repeats: Option<Repeats>) -> TableOptions {
    TableOptions {
        updater: UpdaterChoice::named(updater).unwrap(),
        add: AddOptions::default(),
        repeats,
        ..TableOptions::default()
    }
}

fn bytes<T: Element>(values: &[T]) -> &[u8] {
    bytemuck::cast_slice(values)
}

fn narrow<T: TableElement<State = S>, S: From<f32>>(values: &[f32]) -> Vec<T> {
    values.iter().map(|value| T::narrow(S::from(*value))).collect()
}

/// Each distinct row once, with the sum of its deltas in the order of the list, in the precision of the state, rounded once.
fn summed<T: TableElement<State = S>, S: From<f32> + Copy + std::ops::AddAssign + Default>(
    rows: &[i64],
    delta: &[T],
) -> BTreeMap<i64, Vec<T>> {
    let mut sums: BTreeMap<i64, Vec<S>> = BTreeMap::new();
    for (row, delta) in rows.iter().zip(delta.chunks_exact(COLS)) {
        match sums.get_mut(row) {
            Some(sum) => sum.iter_mut().zip(delta).for_each(|(sum, delta)| *sum += delta.widen()),
            None => drop(sums.insert(*row, delta.iter().map(|delta| delta.widen()).collect())),
        }
    }
    sums.into_iter().map(|(row, sum)| (row, sum.into_iter().map(T::narrow).collect())).collect()
}

/// One step of a rule without a table.
fn step<T: TableElement>(
    updater: &str,
    values: &mut [T],
    planes: &mut [Vec<T::State>],
    delta: &[T],
    count: u64,
) {
    let choice = UpdaterChoice::named(updater).unwrap();
    let mut state: Vec<&mut [T::State]> = planes.iter_mut().map(Vec::as_mut_slice).collect();
    let options = AddOptions::default();
    let context = UpdateContext { worker: 0, step: count, options: &options };
    choice.step(values, &mut state, delta, &context).unwrap();
}

fn planes_of(updater: &str) -> usize {
    let planes = |count: usize| {
        let (mut state, options) = (vec![[0f64]; count], AddOptions::default());
        let mut state: Vec<&mut [f64]> = state.iter_mut().map(|plane| &mut plane[..]).collect();
        let context = UpdateContext { worker: 0, step: 1, options: &options };
        UpdaterChoice::named(updater).unwrap().step(&mut [0f64], &mut state, &[0.0], &context).is_ok()
    };
    (0..4).find(|&count| planes(count)).unwrap()
}

/// The values after these adds, each of which is one step of each of its rows.
fn naive<T: TableElement<State = S>, S: From<f32> + Copy + std::ops::AddAssign + Default>(
    updater: &str,
    adds: &[(Vec<i64>, Vec<T>)],
) -> Vec<T> {
    let mut table = vec![T::zeroed(); ROWS * COLS];
    let mut state = vec![vec![vec![S::default(); COLS]; planes_of(updater)]; ROWS];
    let mut counts = [0; ROWS];
    for (rows, delta) in adds {
        for (row, delta) in summed(rows, delta) {
            let row = row as usize;
            counts[row] += 1;
            step(updater, &mut table[row * COLS..][..COLS], &mut state[row], &delta, counts[row]);
        }
    }
    table
}

fn all_rows<T: TableElement>(table: &Table) -> Vec<T> {
    let mut values = vec![T::zeroed(); ROWS * COLS];
    table.get(Rows::All, bytemuck::cast_slice_mut(&mut values)).unwrap();
    values
}

/// Worker 0 makes these adds, in every way in which an add can be made; all workers then read the same values as `naive`.
fn check<T: TableElement<State = S>, S: From<f32> + Copy + std::ops::AddAssign + Default>(
    tables: &Tables,
    updater: &str,
    adds: &[(Vec<i64>, Vec<T>)],
) {
    let adder = tables.worker_id() == Some(0);
    let expected = naive::<T, S>(updater, adds);
    for sparse in [false, true] {
        let options = options(updater, Some(Repeats::Sum));
        let shape = (ROWS, COLS);
        let table = match sparse {
            false => Table::matrix(tables, shape, T::DTYPE, None, options).unwrap(),
            true => Table::sparse_matrix(tables, shape, T::DTYPE, None, false, options).unwrap(),
        };
        for (number, (rows, delta)) in adds.iter().enumerate().filter(|_| adder) {
            let (listed, plain) = (Rows::List(rows), AddOptions::default());
            match number % 3 {
                0 => table.add(listed, bytes(delta), &plain).unwrap(),
                1 => table.add_soon(listed, bytes(delta), &plain).unwrap(),
                _ => drop(table.start_add(Some(rows.clone()), bytes(delta).to_vec(), plain).wait().unwrap()),
            }
        }
        tables.barrier().unwrap();
        assert!(bytes(&all_rows::<T>(&table)) == bytes(&expected), "{updater} {} {sparse}", T::DTYPE);
        tables.barrier().unwrap();
    }
    for key_type in [KeyType::Int, KeyType::Bytes] {
        let options = options(updater, Some(Repeats::Sum));
        let table = KeyValueTable::create(tables, key_type, COLS, T::DTYPE, options).unwrap();
        let texts: Vec<Vec<u8>> = (0..ROWS).map(|row| format!("{row}-{:row$}", "").into()).collect();
        for (rows, delta) in adds.iter().filter(|_| adder) {
            let listed: Vec<&[u8]> = rows.iter().map(|&row| &texts[row as usize][..]).collect();
            let keys = match key_type {
                KeyType::Int => Keys::Int(rows),
                KeyType::Bytes => Keys::Bytes(&listed),
            };
            table.add(keys, bytes(delta), &AddOptions::default()).unwrap();
        }
        tables.barrier().unwrap();
        let numbers: Vec<i64> = (0..ROWS as i64).collect();
        let texts: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
        let keys = if key_type == KeyType::Int { Keys::Int(&numbers) } else { Keys::Bytes(&texts) };
        let mut values = vec![T::zeroed(); ROWS * COLS];
        table.get(keys, bytemuck::cast_slice_mut(&mut values)).unwrap();
        assert!(bytes(&values) == bytes(&expected), "{updater} {} {key_type:?}", T::DTYPE);
        tables.barrier().unwrap();
    }
}

/// These adds, rounded to a type.
fn typed<T: TableElement<State = S>, S: From<f32>>(adds: &[(Vec<i64>, Vec<f32>)]) -> Vec<(Vec<i64>, Vec<T>)> {
    adds.iter().map(|(rows, delta)| (rows.clone(), narrow(delta))).collect()
}

fn any_adds() -> impl Strategy<Value = Vec<(Vec<i64>, Vec<f32>)>> {
    let few = proptest::collection::vec(0..3i64, 0..30);
    let many = proptest::collection::vec(0..ROWS as i64, 0..100);
    let equal = (0..ROWS as i64, 0..40usize).prop_map(|(row, count)| vec![row; count]);
    let rows = prop_oneof![few, many, equal];
    let add = rows.prop_flat_map(|rows| {
        let delta = proptest::collection::vec(-3f32..3.0, rows.len() * COLS);
        (Just(rows), delta)
    });
    proptest::collection::vec(add, 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3))]

    /// Every updater and float type, on 1 to 4 ranks of one host and of several: the same bits as sums made beforehand.
    #[test]
    fn repeated_rows_are_one_step_of_every_updater(adds in any_adds(), ranks in 1usize..5) {
        on_all_paths(ranks, |_, tables| {
            for updater in UpdaterChoice::names() {
                check::<f32, f32>(tables, updater, &typed(&adds));
                check::<f16, f32>(tables, updater, &typed(&adds));
                check::<bf16, f32>(tables, updater, &typed(&adds));
                check::<f64, f64>(tables, updater, &typed(&adds));
            }
        });
    }
}

/// The deltas of row 1 are 1 and 2; the values are those after one add, on a table that starts at zero.
fn after_one_add(tables: &Tables, consistency: &str, updater: &str, repeats: Option<Repeats>) -> f64 {
    let consistency = Consistency::parse(consistency).unwrap();
    let options = TableOptions { consistency, ..options(updater, repeats) };
    let table = Table::matrix(tables, (3, 1), DType::F64, None, options).unwrap();
    let (rows, delta) = ([1, 0, 1], [1.0, 5.0, 2.0]);
    table.add(Rows::List(&rows), bytes(&delta), &AddOptions::default()).unwrap();
    tables.flush().unwrap();
    let mut values = [0.0; 3];
    table.get(Rows::All, bytemuck::cast_slice_mut(&mut values)).unwrap();
    table.finish().unwrap();
    assert_eq!(values[2], 0.0);
    values[1]
}

#[test]
fn stateful_updaters_sum_repeats_by_default_and_others_do_not_need_to() {
    on_all_paths(1, |_, tables| {
        for consistency in ["async", "ssp:2", "average", "bsp"] {
            let value = |updater, repeats| after_one_add(tables, consistency, updater, repeats);
            let (sum, each) = (-3.0, -(1.0 + (0.9 + 2.0)));
            assert_eq!(value("momentum", None), sum, "{consistency}");
            assert_eq!(value("momentum", Some(Repeats::Sum)), sum, "{consistency}");
            // A round is one step of the updater in any case.
            let in_rounds = if consistency == "bsp" { sum } else { each };
            assert!((value("momentum", Some(Repeats::Each)) - in_rounds).abs() < 1e-12, "{consistency}");
            for repeats in [None, Some(Repeats::Sum), Some(Repeats::Each)] {
                assert_eq!(value("add", repeats), 3.0);
                assert_eq!(value("sgd", repeats), -3.0);
            }
        }
    });
}

/// Half types are rounded once, after the sum, also in rounds: 2048 + 1 is no f16, 2048 + 1 + 1 is.
#[test]
fn sums_of_half_types_are_rounded_once() {
    for consistency in ["async", "bsp"] {
        on_all_paths(2, |world, tables| {
            let options = TableOptions {
                consistency: Consistency::parse(consistency).unwrap(),
                ..options("momentum", None)
            };
            let table = Table::matrix(tables, (5, 1), DType::F16, None, options).unwrap();
            let delta: Vec<f16> = narrow::<f16, f32>(&[2048.0, 1.0, 1.0]);
            let rows: &[i64] = if world.rank() == 0 { &[4; 3] } else { &[] };
            table.add(Rows::List(rows), bytes(&delta[..rows.len()]), &AddOptions::default()).unwrap();
            tables.barrier().unwrap();
            let mut value = [f16::ZERO];
            table.get(Rows::List(&[4]), bytemuck::cast_slice_mut(&mut value)).unwrap();
            assert_eq!(value[0].to_f32(), -2050.0);
            tables.barrier().unwrap();
        });
    }
}

/// Sums are made before an add is split by host, so compression sees each row once.
#[test]
fn repeats_are_summed_before_compression() {
    on_all_paths(2, |world, tables| {
        let options =
            TableOptions { compression: Compression::TopK(0.5), ..options("momentum", Some(Repeats::Sum)) };
        let table = Table::matrix(tables, (4, 1), DType::F32, None, options).unwrap();
        if world.rank() == 0 {
            // Alone, each of the small deltas of row 3 would be left out.
            let delta = [3f32, 2.0, 2.0, 2.0];
            table.add(Rows::List(&[2, 3, 3, 3]), bytes(&delta), &AddOptions::default()).unwrap();
        }
        tables.barrier().unwrap();
        let mut value = [0f32];
        table.get(Rows::List(&[3]), bytemuck::cast_slice_mut(&mut value)).unwrap();
        assert_eq!(value, [-6.0]);
        tables.barrier().unwrap();
    });
}

/// All ranks state the same option, or the table is not made.
#[test]
fn ranks_that_treat_repeats_differently_are_told_apart() {
    on_all_paths(2, |world, tables| {
        let repeats = if world.rank() == 0 { Repeats::Sum } else { Repeats::Each };
        let made = Table::matrix(tables, (4, 1), DType::F32, None, options("adam", Some(repeats)));
        let error = made.err().expect("different tables").to_string();
        assert!(error.contains("repeats each"), "{error}");
    });
}

/// Gets of repeated rows and keys fill every position, on one host and on several, where each row is sent once.
#[test]
fn gets_fill_every_position_of_a_repeated_row() {
    for ranks in 1..5 {
        on_all_paths(ranks, |world, tables| {
            let table = Table::matrix(tables, (ROWS, 1), DType::F64, None, options("add", None)).unwrap();
            let keys =
                KeyValueTable::create(tables, KeyType::Int, 1, DType::F64, options("add", None)).unwrap();
            let all: Vec<i64> = (0..ROWS as i64).collect();
            let values: Vec<f64> = all.iter().map(|row| *row as f64).collect();
            if world.rank() == ranks - 1 {
                table.add(Rows::List(&all), bytes(&values), &AddOptions::default()).unwrap();
                keys.add(Keys::Int(&all), bytes(&values), &AddOptions::default()).unwrap();
            }
            tables.barrier().unwrap();
            for count in [0, 1, 2, 5, 400] {
                let list: Vec<i64> = (0..count).map(|at| (at * at + 3 * world.rank() as i64) % 13).collect();
                let expected: Vec<f64> = list.iter().map(|row| *row as f64).collect();
                let mut found = vec![-1.0; list.len()];
                table.get(Rows::List(&list), bytemuck::cast_slice_mut(&mut found)).unwrap();
                assert_eq!(found, expected);
                found.fill(-1.0);
                keys.get(Keys::Int(&list), bytemuck::cast_slice_mut(&mut found)).unwrap();
                assert_eq!(found, expected);
            }
            let (stats, of_keys) = (table.stats().unwrap(), keys.stats().unwrap());
            assert_eq!((stats.gets, stats.rows_read, of_keys.gets, of_keys.rows_read), (5, 408, 5, 408));
            let added = if world.rank() == ranks - 1 { (1, ROWS as u64) } else { (0, 0) };
            assert_eq!((stats.adds, stats.rows_added), added);
            assert_eq!((of_keys.adds, of_keys.rows_added), added);
            assert_eq!((of_keys.rows, of_keys.value_bytes), (ROWS as u64, 8 * ROWS as u64));
            tables.barrier().unwrap();
        });
    }
}
