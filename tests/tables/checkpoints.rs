//! Checkpoints: saved by some ranks, loaded by others, and rejected if damaged.

use std::fs;
use std::path::PathBuf;

use unisono::tables::{
    AddOptions, ArrayTable, Compression, Consistency, KeyType, KeyValueTable, Keys, MatrixTable, Role,
    SparseMatrixTable, TableOptions, Tables, UpdaterChoice,
};
use unisono::testing::spawn_on_hosts;
use unisono::{DType, Kind};

use crate::sums::sums;
use crate::with_tables;

/// A folder that is removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("unisono-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Folder(path)
    }

    fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn on_hosts<R: Send>(ranks: usize, hosts: usize, body: impl Fn(&Tables) -> R + Sync) -> Vec<R> {
    spawn_on_hosts(ranks, hosts, |world| body(&Tables::join(world, Role::Both).unwrap()))
}

fn named(name: &str, updater: &str) -> TableOptions {
    let updater = UpdaterChoice::named(updater).unwrap();
    TableOptions { name: Some(name.into()), updater, ..TableOptions::default() }
}

struct All {
    array: ArrayTable<f64>,
    matrix: MatrixTable<f32>,
    sparse: SparseMatrixTable<i64>,
    average: ArrayTable<f32>,
}

#[test]
fn keys_are_saved_with_their_state() {
    let make = |tables: &Tables| {
        let names =
            KeyValueTable::create(tables, KeyType::Bytes, 2, DType::F32, named("names", "adagrad")).unwrap();
        let numbers =
            KeyValueTable::create(tables, KeyType::Int, 1, DType::F64, named("numbers", "adam")).unwrap();
        let empty =
            KeyValueTable::create(tables, KeyType::Int, 3, DType::I32, named("empty", "add")).unwrap();
        (names, numbers, empty)
    };
    let step =
        |tables: &Tables, (names, numbers, _): &(KeyValueTable, KeyValueTable, KeyValueTable), step: i64| {
            if tables.worker_id() == Some(0) {
                let text = format!("key {}", step % 3);
                let keys: [&[u8]; 3] = [text.as_bytes(), b"", b"always"];
                let delta: Vec<u8> = bytemuck::cast_slice(&[0.01 * step as f32 + 0.001; 6]).to_vec();
                names.add(Keys::Bytes(&keys), &delta, &AddOptions::default()).unwrap();
                let many: Vec<i64> = (0..2000).map(|at| at * step - 7).collect();
                let delta: Vec<f64> = many.iter().map(|&key| (key % 5) as f64).collect();
                numbers.add(Keys::Int(&many), bytemuck::cast_slice(&delta), &AddOptions::default()).unwrap();
            }
            tables.barrier().unwrap();
        };
    let all = |(names, numbers, empty): &(KeyValueTable, KeyValueTable, KeyValueTable)| {
        (names.items().unwrap(), numbers.items().unwrap(), empty.items().unwrap())
    };
    for saved_on in [1, 2, 3] {
        let expected = on_hosts(3, saved_on, |tables| {
            let made = make(tables);
            (1..4).for_each(|number| step(tables, &made, number));
            tables.save("memory://keys").unwrap();
            (4..7).for_each(|number| step(tables, &made, number));
            all(&made)
        });
        for (ranks, hosts) in [(1, 1), (2, 2), (4, 1), (6, 4)] {
            let found = on_hosts(ranks, hosts, |tables| {
                let made = make(tables);
                step(tables, &made, 1000);
                tables.load("memory://keys").unwrap();
                (4..7).for_each(|number| step(tables, &made, number));
                all(&made)
            });
            let what = format!("from {saved_on} hosts to {ranks} ranks on {hosts}");
            assert!(found.iter().all(|found| *found == expected[0]), "{what}");
        }
    }
}

#[test]
fn user_defined_tables_are_saved() {
    let folder = Folder::new("custom");
    let delta: Vec<i64> = (0..50).map(|number| number * number).collect();
    let expected: Vec<i64> = delta.iter().map(|number| 3 * number).collect();
    for saved_on in [1, 2, 3] {
        on_hosts(3, saved_on, |tables| {
            let made = (sums(tables, "plain", 50, false), sums(tables, "dealt", 50, true));
            made.0.add(&delta).unwrap();
            made.1.add(&delta).unwrap();
            tables.save(folder.text()).unwrap();
        });
        for (ranks, hosts) in [(1, 1), (2, 2), (3, 1), (3, 3), (4, 2), (6, 4)] {
            on_hosts(ranks, hosts, |tables| {
                let dealt = sums(tables, "dealt", 50, true);
                dealt.add(&delta).unwrap();
                tables.load(folder.text()).unwrap();
                assert_eq!(dealt.get(&()).unwrap(), expected);
                tables.barrier().unwrap();
                dealt.add(&delta).unwrap();
                tables.barrier().unwrap();
                // A second table, which cannot be loaded by another number of servers: then neither table changes.
                let plain = sums(tables, "plain", 50, false);
                let outcome = tables.load(folder.text());
                match ranks {
                    3 => assert_eq!(plain.get(&()).unwrap(), expected),
                    _ => {
                        let text = outcome.as_ref().unwrap_err().to_string();
                        let words = ["\"plain\"", "those of 3", "implement ServerHalf::load"];
                        assert!(words.iter().all(|word| text.contains(word)), "{text}");
                        assert_eq!(plain.get(&()).unwrap(), [0; 50]);
                    }
                }
                assert_eq!(outcome.is_ok(), ranks == 3, "{outcome:?}");
                let more = if ranks == 3 { 0 } else { ranks as i64 };
                let wanted: Vec<i64> = delta.iter().map(|number| (3 + more) * number).collect();
                assert_eq!(dealt.get(&()).unwrap(), wanted);
                tables.barrier().unwrap();
            });
        }
    }
}

#[test]
fn a_server_half_may_reject_a_save() {
    for hosts in [1, 2] {
        on_hosts(2, hosts, |tables| {
            let sound = sums(tables, "sound", 5, true);
            sound.add(&[1; 5]).unwrap();
            let target = format!("memory://rejected-{hosts}");
            tables.save(&target).unwrap();
            let unlucky = sums(tables, "unlucky", 13, true);
            sound.add(&[1; 5]).unwrap();
            let error = tables.save(&target).unwrap_err();
            assert!(["\"unlucky\"", "luck"].iter().all(|word| error.to_string().contains(word)), "{error}");
            // The other ranks got the error too, and the older checkpoint is unchanged.
            let error = tables.load(&target).unwrap_err();
            assert!(error.to_string().contains("no table of this name"), "{error}");
            drop(unlucky);
            assert_eq!(sound.get(&()).unwrap().len(), 5);
            tables.barrier().unwrap();
        });
        on_hosts(3, 2, |tables| {
            let sound = sums(tables, "sound", 5, true);
            tables.load(&format!("memory://rejected-{hosts}")).unwrap();
            assert_eq!(sound.get(&()).unwrap(), [2; 5]);
            tables.barrier().unwrap();
        });
    }
}

fn make(tables: &Tables) -> All {
    let average = TableOptions { consistency: Consistency::Average, ..named("average", "add") };
    All {
        array: ArrayTable::create(tables, 20_001, None, named("array", "adam")).unwrap(),
        matrix: MatrixTable::create(tables, (37, 5), None, named("matrix", "multiverso_adagrad")).unwrap(),
        sparse: SparseMatrixTable::create(tables, (4, 2), None, false, named("sparse", "add")).unwrap(),
        average: ArrayTable::create(tables, 9, None, average).unwrap(),
    }
}

/// One step: only worker 0 adds, so that the result does not depend on the number of workers.
fn step(tables: &Tables, all: &All, number: usize) {
    if tables.worker_id() == Some(0) {
        let gradient: Vec<f64> = (0..20_001).map(|at| ((at * 7 + number) % 13) as f64 - 6.0).collect();
        all.array.add(&gradient).unwrap();
        let rows = [(number % 37) as i64, 36, 0];
        all.matrix.add_rows(&rows, &[0.01 * number as f32 + 0.001; 15], &AddOptions::default()).unwrap();
        all.sparse.add_rows(&[number as i64 % 4], &[1, 2], &AddOptions::default()).unwrap();
    }
    all.average.add(&[1.0; 9]).unwrap();
    tables.barrier().unwrap();
}

fn values(all: &All) -> (Vec<f64>, Vec<f32>, Vec<i64>, Vec<f32>) {
    let mut values = (vec![0.0; 20_001], vec![0.0; 37 * 5], vec![0; 8], vec![0.0; 9]);
    all.array.get(&mut values.0).unwrap();
    all.matrix.get(&mut values.1).unwrap();
    all.sparse.get(&mut values.2).unwrap();
    all.average.get(&mut values.3).unwrap();
    values
}

#[test]
fn another_number_of_ranks_resumes_with_equal_results() {
    let folder = Folder::new("resume");
    for target in [folder.text(), "memory://resume"] {
        let expected = on_hosts(3, 2, |tables| {
            let all = make(tables);
            (0..4).for_each(|number| step(tables, &all, number));
            tables.save(target).unwrap();
            (4..9).for_each(|number| step(tables, &all, number));
            values(&all)
        });
        for ranks in [1, 2, 3, 4] {
            let found = on_hosts(ranks, ranks.div_ceil(2), |tables| {
                let all = make(tables);
                step(tables, &all, 100);
                tables.load(target).unwrap();
                (4..9).for_each(|number| step(tables, &all, number));
                values(&all)
            });
            assert!(found.iter().all(|found| *found == expected[0]), "{ranks} ranks, {target}");
        }
    }
}

#[test]
fn a_damaged_or_foreign_checkpoint_changes_nothing() {
    let folder = Folder::new("damaged");
    let others = |tables: &Tables, number: i64| {
        let words =
            KeyValueTable::create(tables, KeyType::Bytes, 1, DType::I64, named("words", "add")).unwrap();
        let sums = sums(tables, "sums", 20, true);
        let keys: Vec<Vec<u8>> = (0..30).map(|key| format!("{key} {number}").into_bytes()).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        words.add(Keys::Bytes(&keys), &vec![1; 30 * 8], &AddOptions::default()).unwrap();
        sums.add(&[number; 20]).unwrap();
        tables.barrier().unwrap();
        (words, sums)
    };
    let save = || {
        on_hosts(3, 2, |tables| {
            let all = make(tables);
            let _others = others(tables, 1);
            step(tables, &all, 0);
            tables.save(folder.text()).unwrap();
        });
        fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    let rejects = |what: &str| {
        on_hosts(2, 2, |tables| {
            let all = make(tables);
            let (words, sums) = others(tables, 2);
            step(tables, &all, 5);
            let state = || (values(&all), words.items().unwrap(), sums.get(&()).unwrap());
            let before = state();
            let error = tables.load(folder.text()).unwrap_err();
            assert!([Kind::Usage, Kind::Io].contains(&error.kind()), "{what}: {error}");
            assert_eq!(state(), before, "{what}");
            tables.barrier().unwrap();
        });
    };
    for file in 0..save().len() {
        let file = &save()[file];
        let bytes = fs::read(file).unwrap();
        fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
        rejects(&format!("half of {file:?}"));
        let mut flipped = bytes.clone();
        flipped[bytes.len() * 2 / 3] ^= 1;
        fs::write(file, flipped).unwrap();
        rejects(&format!("a flipped bit in {file:?}"));
        fs::remove_file(file).unwrap();
        rejects(&format!("without {file:?}"));
        let _ = fs::remove_dir_all(&folder.0);
    }
    rejects("nothing there");
}

/// Compression residuals from before a load do not affect the loaded values.
#[test]
fn a_load_discards_compression_residuals() {
    on_hosts(2, 2, |tables| {
        let options = |name: &str| TableOptions { compression: Compression::TopK(0.1), ..named(name, "add") };
        let rows = MatrixTable::<f32>::create(tables, (2, 10), None, options("rows")).unwrap();
        let keys = KeyValueTable::create(tables, KeyType::Bytes, 10, DType::F32, options("keys")).unwrap();
        tables.save("memory://losses").unwrap();
        let small: Vec<f32> = (0..10).map(|at| if at == 0 { 1.0 } else { 0.5 }).collect();
        let add = |delta: &[f32]| {
            for row in [0, 1] {
                rows.add_rows(&[row], delta, &AddOptions::default()).unwrap();
            }
            for name in [b"a", b"b", b"c", b"d"] {
                keys.add(Keys::Bytes(&[name]), bytemuck::cast_slice(delta), &AddOptions::default()).unwrap();
            }
            tables.barrier().unwrap();
        };
        add(&small);
        tables.load("memory://losses").unwrap();
        add(&[0.0; 10]);
        let mut values = [1f32; 20];
        rows.get(&mut values).unwrap();
        assert_eq!(values, [0.0; 20]);
        assert!(keys.items().unwrap().values.iter().all(|&byte| byte == 0));
        tables.barrier().unwrap();
    });
}

#[test]
fn checkpoints_of_different_tables_are_rejected() {
    with_tables(2, |_, tables| {
        let table = ArrayTable::<f32>::create(tables, 10, None, named("w", "add")).unwrap();
        tables.save("memory://other").unwrap();
        drop(table);
        tables.barrier().unwrap();
        let larger = ArrayTable::<f32>::create(tables, 11, None, named("w", "add")).unwrap();
        let error = tables.load("memory://other").unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("table \"w\", whose rows is 11, received one in which its rows is 10"),
            "{text}"
        );
        drop(larger);
        tables.barrier().unwrap();
        let other = ArrayTable::<f32>::create(tables, 10, None, named("w", "adam")).unwrap();
        let text = tables.load("memory://other").unwrap_err().to_string();
        assert!(
            text.contains("whose updater is `adam`, received one in which its updater is `add`"),
            "{text}"
        );
        assert!(text.contains("make the table with updater `add` to load it"), "{text}");
        drop(other);
    });
}
