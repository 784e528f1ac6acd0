//! Gets and adds, roles, initial values, and rejected calls.

use half::{bf16, f16};
use unisono::tables::{
    AddOptions, ArrayTable, Consistency, Init, MatrixTable, Role, Rows, SparseMatrixTable, Table,
    TableElement, TableOptions, Tables, UpdaterChoice,
};
use unisono::{DType, Kind};

use crate::{on_all_paths, with_tables};

const RANKS: [usize; 5] = [1, 2, 3, 4, 6];

fn numbers<T: TableElement>(count: usize, make: impl Fn(usize) -> T) -> Vec<T> {
    (0..count).map(make).collect()
}

fn every_type(check: impl Fn(DType, &(dyn Fn(f64) -> Vec<u8> + Sync))) {
    check(DType::F32, &|value| (value as f32).to_ne_bytes().to_vec());
    check(DType::F64, &|value| value.to_ne_bytes().to_vec());
    check(DType::F16, &|value| f16::from_f64(value).to_ne_bytes().to_vec());
    check(DType::BF16, &|value| bf16::from_f64(value).to_ne_bytes().to_vec());
    check(DType::I32, &|value| (value as i32).to_ne_bytes().to_vec());
    check(DType::I64, &|value| (value as i64).to_ne_bytes().to_vec());
}

#[test]
fn adds_of_all_workers_are_applied_after_a_barrier() {
    for ranks in RANKS {
        for size in [1, 2, 7, 500, 40_001] {
            on_all_paths(ranks, |_, tables| {
                let table = ArrayTable::create(tables, size, None, TableOptions::default()).unwrap();
                let delta = numbers(size, |index| (index % 100 + 1) as f32);
                for round in 1..=3 {
                    table.add(&delta).unwrap();
                    table.add(&delta).unwrap();
                    tables.barrier().unwrap();
                    let mut values = vec![0.0; size];
                    table.get(&mut values).unwrap();
                    let times = (2 * round * ranks) as f32;
                    assert!(values.iter().zip(&delta).all(|(value, delta)| *value == delta * times));
                    tables.barrier().unwrap();
                }
            });
        }
    }
}

/// While two workers add the same number to all elements of a row, the others never get a row in which elements differ, nor an older
/// one than before: short rows, which are read without a lock, and long ones, in a list and as a full table.
#[test]
fn a_get_sees_all_of_an_add_or_nothing() {
    const ADDS: usize = 2000;
    for columns in [1, 3, 100, 255, 3000] {
        with_tables(4, |world, tables| {
            let options = TableOptions::default();
            let matrix = MatrixTable::<f32>::create(tables, (3, columns), None, options.clone()).unwrap();
            let array = ArrayTable::<f32>::create(tables, columns, None, options).unwrap();
            let ones = vec![1.0; columns];
            for _ in 0..if world.rank() < 2 { ADDS } else { 0 } {
                matrix.add_rows(&[1], &ones, &AddOptions::default()).unwrap();
                array.add(&ones).unwrap();
            }
            let (mut row, mut last) = (vec![0.0; columns], 0.0);
            while world.rank() >= 2 && last < 2.0 * ADDS as f32 {
                match world.rank() {
                    2 => matrix.get_rows(&[1], &mut row).unwrap(),
                    _ => array.get(&mut row).unwrap(),
                }
                assert!(row.iter().all(|value| *value == row[0]), "{columns} columns: {row:?}");
                assert!(row[0] >= last, "{} after {last}", row[0]);
                last = row[0];
            }
            tables.barrier().unwrap();
        });
    }
}

#[test]
fn every_type_of_element_adds_up() {
    every_type(|dtype, bytes| {
        on_all_paths(3, |_, tables| {
            let table = Table::matrix(tables, (5, 2), dtype, None, TableOptions::default()).unwrap();
            let delta: Vec<u8> = (0..4).flat_map(|value| bytes(f64::from(value))).collect();
            table.add(Rows::List(&[4, 0]), &delta, &AddOptions::default()).unwrap();
            tables.barrier().unwrap();
            let mut out = vec![0; 10 * dtype.size()];
            table.get(Rows::All, &mut out).unwrap();
            let expected: Vec<u8> =
                [6., 9., 0., 0., 0., 0., 0., 0., 0., 3.].iter().flat_map(|&value| bytes(value)).collect();
            assert_eq!(out, expected, "{dtype}");
        });
    });
}

#[test]
fn rows_repeat_and_come_in_any_order() {
    for ranks in RANKS {
        for (rows, cols) in [(1, 3), (3, 1), (11, 10), (1000, 50), (3, 40_000)] {
            on_all_paths(ranks, |world, tables| {
                let table =
                    MatrixTable::<f64>::create(tables, (rows, cols), None, TableOptions::default()).unwrap();
                let list: Vec<i64> = (0..2 * rows + 3).map(|at| ((at * 7919 + 3) % rows) as i64).collect();
                let delta = numbers(list.len() * cols, |at| (at % 1000) as f64);
                table.add_rows(&list, &delta, &AddOptions::default()).unwrap();
                tables.barrier().unwrap();
                let mut expected = vec![0.0; rows * cols];
                for (&row, delta) in list.iter().zip(delta.chunks_exact(cols)) {
                    let place = &mut expected[row as usize * cols..][..cols];
                    place.iter_mut().zip(delta).for_each(|(place, delta)| *place += delta * ranks as f64);
                }
                let mut values = vec![0.0; rows * cols];
                table.get(&mut values).unwrap();
                assert_eq!(values, expected);
                let mut picked = vec![0.0; list.len() * cols];
                table.get_rows(&list, &mut picked).unwrap();
                for (&row, picked) in list.iter().zip(picked.chunks_exact(cols)) {
                    assert_eq!(picked, &expected[row as usize * cols..][..cols], "rank {}", world.rank());
                }
                let mut one = vec![0.0; cols];
                let last = rows as i64 - 1;
                table.get_separate(&[last], &mut [&mut one]).unwrap();
                assert_eq!(one, expected[(rows - 1) * cols..]);
                table.get_rows(&[], &mut []).unwrap();
                tables.barrier().unwrap();
            });
        }
    }
}

#[test]
fn the_values_of_the_first_worker_win() {
    on_all_paths(3, |world, tables| {
        let mine = numbers(10, |index| (index + 100 * world.rank()) as i32);
        let table = ArrayTable::create(tables, 10, Some(&mine), TableOptions::default()).unwrap();
        let mut values = [0; 10];
        table.get(&mut values).unwrap();
        assert_eq!(values, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    });
}

#[test]
fn random_values_do_not_depend_on_the_number_of_servers() {
    let init = Init::Uniform { low: -1.0, high: 1.0, seed: 3 };
    let values = RANKS.map(|ranks| {
        on_all_paths(ranks, |_, tables| {
            let options = TableOptions { init, ..TableOptions::default() };
            let table = MatrixTable::<f32>::create(tables, (13, 3), None, options).unwrap();
            let mut values = vec![0.0; 39];
            table.get(&mut values).unwrap();
            values
        })
        .pop()
        .unwrap()
        .remove(0)
    });
    assert!(values.iter().all(|other| *other == values[0]));
    assert!(values[0].iter().any(|&value| value < 0.0) && values[0].iter().any(|&value| value > 0.0));
}

#[test]
fn a_sparse_get_returns_the_changed_rows() {
    on_all_paths(2, |world, tables| {
        let options = TableOptions::default();
        let table = SparseMatrixTable::<f64>::create(tables, (6, 2), None, true, options).unwrap();
        let mut first = [9.0; 12];
        assert_eq!(table.get_changed(0, &mut first).unwrap(), [0, 1, 2, 3, 4, 5]);
        assert_eq!(first, [0.0; 12]);
        assert_eq!(table.get_changed(0, &mut first).unwrap(), [0i64; 0]);
        tables.barrier().unwrap();
        if world.rank() == 0 {
            table.add_rows(&[2, 5, 2], &[1.0; 6], &AddOptions::default()).unwrap();
            // A delta for all rows changes only the rows that are not all zero; a delta of zeros changes nothing.
            table.add(&[0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]).unwrap();
            table.add(&[0.0; 12]).unwrap();
        }
        tables.barrier().unwrap();
        let mut mine = [7.0; 12];
        assert_eq!(table.get_changed(0, &mut mine).unwrap(), [1, 2, 5]);
        assert_eq!(mine, [7.0, 7.0, 3.0, 0.0, 2.0, 2.0, 7.0, 7.0, 7.0, 7.0, 1.0, 1.0]);
        // The second buffer has not been read into yet.
        assert_eq!(table.get_changed(1, &mut first).unwrap().len(), 6);
        let wrong = table.get_changed(2, &mut first).unwrap_err();
        assert!(wrong.to_string().contains("a buffer below 2"), "{wrong}");
    });
}

#[test]
fn only_workers_get_and_add() {
    let roles = [Role::Server, Role::Worker, Role::None, Role::Both];
    unisono::testing::spawn_worlds(4, |world| {
        let role = roles[world.rank()];
        let tables = Tables::join(world, role).unwrap();
        assert_eq!((tables.workers(), tables.servers()), (2, 2));
        assert_eq!(tables.worker_id(), [None, Some(0), None, Some(1)][world.rank()]);
        assert_eq!(tables.server_id(), [Some(0), None, None, Some(1)][world.rank()]);
        assert_eq!(
            (tables.worker_rank(1), tables.server_rank(0), tables.server_rank(2)),
            (Some(3), Some(0), None)
        );
        let table = ArrayTable::<i64>::create(&tables, 5, None, TableOptions::default()).unwrap();
        let outcome = table.add(&[1; 5]);
        assert_eq!(outcome.is_ok(), role.is_worker());
        tables.barrier().unwrap();
        let mut values = [0; 5];
        match table.get(&mut values) {
            Ok(()) => assert_eq!(values, [2; 5]),
            Err(error) => assert!(error.to_string().contains("only workers get and add"), "{error}"),
        }
    });
}

#[test]
fn mistakes_are_named_and_change_nothing() {
    on_all_paths(2, |world, tables| {
        let options = TableOptions { name: Some("w".into()), reject_nan: true, ..TableOptions::default() };
        let table = MatrixTable::<f32>::create(tables, (4, 3), None, options.clone()).unwrap();
        let fails_with = |result: unisono::Result<()>, words: &[&str]| {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), Kind::Usage);
            let text = error.to_string();
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        };
        let rank = format!("rank {}", world.rank());
        fails_with(table.add(&[1.0; 11]), &[&rank, "12 elements", "11", "\"w\""]);
        fails_with(
            table.add_rows(&[0, 4], &[1.0; 6], &AddOptions::default()),
            &["from 0 to 3", "4 at position 1"],
        );
        fails_with(table.get_rows(&[-1], &mut [0.0; 3]), &["-1 at position 0"]);
        fails_with(table.get_rows(&[1, 1], &mut [0.0; 3]), &["6 elements", "3"]);
        let mut delta = [1.0; 12];
        delta[7] = f32::NAN;
        fails_with(table.add(&delta), &["NaN at row 2, column 1"]);
        let again = MatrixTable::<f32>::create(tables, (4, 3), None, options.clone()).map(|_| ());
        fails_with(again, &["a new name", "\"w\""]);
        let other = TableOptions { name: Some("v".into()), ..TableOptions::default() };
        let differs = MatrixTable::<f32>::create(tables, (4 + world.rank(), 3), None, other).map(|_| ());
        fails_with(differs, &["rank 0 called", "4 x 3", "rank 1 called", "5 x 3"]);
        let integers =
            TableOptions { updater: UpdaterChoice::named("adam").unwrap(), ..TableOptions::default() };
        assert!(ArrayTable::<i32>::create(tables, 4, None, integers).is_err());
        let mut values = [0.0; 12];
        table.get(&mut values).unwrap();
        assert_eq!(values, [0.0; 12]);
    });
}

#[test]
fn several_gets_may_be_in_flight() {
    on_all_paths(2, |_, tables| {
        let table = MatrixTable::<f32>::create(tables, (100, 4), None, TableOptions::default()).unwrap();
        table.add(&[1.0; 400]).unwrap();
        tables.barrier().unwrap();
        let gets: Vec<_> = (0..20).map(|row| table.start_get_rows(vec![row, row + 1])).collect();
        for get in gets {
            assert_eq!(get.wait().unwrap().0, [2.0; 8]);
        }
    });
}

#[test]
fn copies_are_averaged_when_all_tick() {
    on_all_paths(3, |world, tables| {
        let options = TableOptions { consistency: Consistency::Average, ..TableOptions::default() };
        let table = MatrixTable::<f64>::create(tables, (2, 2), Some(&[1.0; 4]), options).unwrap();
        let rank = world.rank() as f64;
        table.add_rows(&[1], &[3.0 * rank, rank], &AddOptions::default()).unwrap();
        let mut values = [0.0; 4];
        table.get(&mut values).unwrap();
        assert_eq!(values, [1.0, 1.0, 1.0 + 3.0 * rank, 1.0 + rank]);
        table.tick().unwrap();
        table.get(&mut values).unwrap();
        assert_eq!(values, [1.0, 1.0, 4.0, 2.0]);
        // The sum of the copies exceeds the range of a half type; their average does not.
        let options = TableOptions { consistency: Consistency::Average, ..TableOptions::default() };
        let large = half::f16::from_f32(60_000.0);
        let table = ArrayTable::<half::f16>::create(tables, 3, Some(&[large; 3]), options).unwrap();
        table.tick().unwrap();
        let mut values = [half::f16::ZERO; 3];
        table.get(&mut values).unwrap();
        assert_eq!(values, [large; 3]);
    });
}

#[test]
fn memory_is_freed_when_all_ranks_have_dropped_a_table() {
    with_tables(2, |_, tables| {
        for _ in 0..40 {
            let options = TableOptions { name: Some("again".into()), ..TableOptions::default() };
            let table = ArrayTable::<i64>::create(tables, 100_000_000, None, options).unwrap();
            drop(table);
            tables.barrier().unwrap();
        }
    });
}
