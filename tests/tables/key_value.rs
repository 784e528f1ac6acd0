//! Key-value tables against maps, and rejected calls.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use unisono::tables::{
    AddOptions, Compression, Consistency, Init, KeyType, KeyValueTable, Keys, MatrixTable, OwnedKeys, Role,
    TableOptions, Tables, UpdaterChoice,
};
use unisono::testing::spawn_on_hosts;
use unisono::{DType, Kind};

use crate::on_all_paths;

const RANKS: [usize; 5] = [1, 2, 3, 4, 6];

fn plain() -> AddOptions {
    AddOptions::default()
}

fn create(tables: &Tables, keys: KeyType, dim: usize, dtype: DType) -> KeyValueTable {
    KeyValueTable::create(tables, keys, dim, dtype, TableOptions::default()).unwrap()
}

fn ints(tables: &Tables, dim: usize) -> KeyValueTable {
    create(tables, KeyType::Int, dim, DType::I64)
}

fn add(table: &KeyValueTable, keys: &[i64], delta: &[i64]) {
    table.add(Keys::Int(keys), bytemuck::cast_slice(delta), &plain()).unwrap();
}

fn get(table: &KeyValueTable, keys: &[i64]) -> Vec<i64> {
    let mut values = vec![-1; keys.len() * table.dim()];
    table.get(Keys::Int(keys), bytemuck::cast_slice_mut(&mut values)).unwrap();
    values
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Each rank has its own keys, so that it knows the expected values; a shared key counts the calls of all ranks.
#[test]
fn random_calls_behave_like_a_map() {
    for ranks in RANKS {
        on_all_paths(ranks, |world, tables| {
            let table = ints(tables, 2);
            let mut random = Random(77 + world.rank() as u64);
            let mut expected: HashMap<i64, [i64; 2]> = HashMap::new();
            for call in 0..300 {
                let count = random.below(if call % 10 == 0 { 400 } else { 4 }) as usize;
                let mut key = || {
                    let key = random.below(2000) as i64 - 1000;
                    key * ranks as i64 + world.rank() as i64
                };
                let keys: Vec<i64> = (0..count).map(|_| key()).collect();
                if call % 3 == 0 {
                    let values = keys.iter().flat_map(|key| expected.get(key).copied().unwrap_or_default());
                    assert_eq!(get(&table, &keys), values.collect::<Vec<_>>());
                    let known: Vec<bool> = keys.iter().map(|key| expected.contains_key(key)).collect();
                    assert_eq!(table.contains(Keys::Int(&keys)).unwrap(), known);
                    continue;
                }
                let delta: Vec<i64> = (0..2 * count).map(|_| random.below(1000) as i64).collect();
                match call % 3 {
                    1 => add(&table, &keys, &delta),
                    _ => table.add_soon(Keys::Int(&keys), bytemuck::cast_slice(&delta), &plain()).unwrap(),
                }
                for (key, delta) in keys.iter().zip(delta.chunks_exact(2)) {
                    let row = expected.entry(*key).or_default();
                    row.iter_mut().zip(delta).for_each(|(value, delta)| *value += delta);
                }
            }
            tables.barrier().unwrap();
            let items = table.items().unwrap();
            assert_eq!(items.keys.len(), table.len().unwrap());
            let OwnedKeys::Int(keys) = items.keys else { panic!("they are ints") };
            assert!(keys.is_sorted_by(|one, other| one < other));
            let values: Vec<i64> = bytemuck::cast_slice(&items.values).to_vec();
            let all = keys.iter().zip(values.chunks_exact(2));
            let mine: BTreeMap<i64, [i64; 2]> = all
                .filter(|(key, _)| key.rem_euclid(ranks as i64) == world.rank() as i64)
                .map(|(key, row)| (*key, [row[0], row[1]]))
                .collect();
            assert_eq!(mine, expected.into_iter().collect());
            tables.barrier().unwrap();
        });
    }
}

#[test]
fn all_workers_add_to_the_same_keys_while_the_table_grows() {
    const KEYS: i64 = 200_000;
    for ranks in [1, 4] {
        on_all_paths(ranks, |world, tables| {
            let table = ints(tables, 1);
            let keys: Vec<i64> = (0..KEYS).map(|key| (key - KEYS / 2) * 1_000_003).collect();
            let shift = KEYS as usize / ranks * world.rank();
            let mine: Vec<i64> = keys.iter().cycle().skip(shift).take(keys.len()).copied().collect();
            for keys in mine.chunks(7777) {
                add(&table, keys, &vec![1; keys.len()]);
            }
            tables.barrier().unwrap();
            assert_eq!(table.len().unwrap(), KEYS as usize);
            assert!(get(&table, &keys).iter().all(|&value| value == ranks as i64));
            assert_eq!(table.items().unwrap().keys, OwnedKeys::Int(keys));
            assert_eq!(table.recovered(), 0);
        });
    }
}

#[test]
fn keys_may_be_any_bytes() {
    for ranks in RANKS {
        on_all_paths(ranks, |_, tables| {
            let table = create(tables, KeyType::Bytes, 1, DType::F32);
            let mut all: Vec<Vec<u8>> =
                vec![Vec::new(), vec![0], vec![0, 0], vec![255; 100_000], vec![7; 20_000]];
            all.extend(
                (0..3000).map(|number: u32| format!("word {number}").repeat(number as usize % 9).into()),
            );
            all.sort();
            all.dedup();
            let keys: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
            let delta: Vec<f32> = (0..keys.len()).map(|at| at as f32 + 1.0).collect();
            table.add(Keys::Bytes(&keys), bytemuck::cast_slice(&delta), &plain()).unwrap();
            tables.barrier().unwrap();
            let mut values = vec![0f32; keys.len()];
            table.get(Keys::Bytes(&keys), bytemuck::cast_slice_mut(&mut values)).unwrap();
            assert!(values.iter().zip(&delta).all(|(value, delta)| *value == delta * ranks as f32));
            assert_eq!(
                table.contains(Keys::Bytes(&[b"", b"word", &[0, 0, 0]])).unwrap(),
                [true, false, false]
            );
            let items = table.items().unwrap();
            assert_eq!(items.values, bytemuck::cast_slice::<f32, u8>(&values));
            assert_eq!(items.keys, OwnedKeys::Bytes(all));
            tables.barrier().unwrap();
        });
    }
}

#[test]
fn extreme_and_repeated_keys() {
    on_all_paths(3, |_, tables| {
        let table = ints(tables, 1);
        let keys = [i64::MIN, -1, 0, 1, i64::MAX, -1, i64::MIN];
        add(&table, &keys, &[1, 2, 3, 4, 5, 6, 7]);
        add(&table, &[], &[]);
        tables.barrier().unwrap();
        assert_eq!(get(&table, &keys), [24, 24, 9, 12, 15, 24, 24]);
        assert_eq!(table.len().unwrap(), 5);
    });
}

/// The same adds by two workers alternately, to a key and to a row.
#[test]
fn every_updater_treats_keys_like_rows() {
    for name in UpdaterChoice::names() {
        on_all_paths(2, |world, tables| {
            let options = || TableOptions {
                updater: UpdaterChoice::named(name).unwrap(),
                init: Init::Constant(0.5),
                ..TableOptions::default()
            };
            let table = KeyValueTable::create(tables, KeyType::Int, 3, DType::F32, options()).unwrap();
            let matrix = MatrixTable::<f32>::create(tables, (2, 3), None, options()).unwrap();
            for step in 0..10 {
                if step % 2 == world.rank() {
                    let delta = [0.1 * step as f32, -0.3, 0.7, 0.2, 0.4, -0.1 * step as f32];
                    let lr = table.check_option("lr").is_ok().then_some(0.05);
                    let add = AddOptions { lr, ..AddOptions::default() };
                    table.add(Keys::Int(&[-5, 12]), bytemuck::cast_slice(&delta), &add).unwrap();
                    matrix.add_rows(&[0, 1], &delta, &add).unwrap();
                }
                tables.barrier().unwrap();
            }
            let (mut values, mut rows) = ([0f32; 6], [0f32; 6]);
            table.get(Keys::Int(&[-5, 12]), bytemuck::cast_slice_mut(&mut values)).unwrap();
            matrix.get_rows(&[0, 1], &mut rows).unwrap();
            assert_eq!(values, rows, "{name}");
            tables.barrier().unwrap();
        });
    }
}

#[test]
fn initial_values_depend_on_the_key_alone_and_take_no_entry() {
    let keys: Vec<i64> = (-500..500).collect();
    let found: Vec<Vec<f32>> = [1, 3, 4]
        .into_iter()
        .flat_map(|ranks| {
            let paths = on_all_paths(ranks, |world, tables| {
                let options = TableOptions {
                    init: Init::Normal { mean: 3.0, deviation: 0.1, seed: 9 },
                    ..TableOptions::default()
                };
                let table = KeyValueTable::create(tables, KeyType::Int, 2, DType::F32, options).unwrap();
                let mut values = vec![0f32; 2000];
                table.get(Keys::Int(&keys), bytemuck::cast_slice_mut(&mut values)).unwrap();
                assert_eq!(table.len().unwrap(), 0);
                tables.barrier().unwrap();
                if world.rank() == 0 {
                    table.add(Keys::Int(&keys[..10]), bytemuck::cast_slice(&[1f32; 20]), &plain()).unwrap();
                }
                tables.barrier().unwrap();
                let mut later = vec![0f32; 2000];
                table.get(Keys::Int(&keys), bytemuck::cast_slice_mut(&mut later)).unwrap();
                let moved = values.iter().enumerate().map(|(at, value)| value + f32::from(u8::from(at < 20)));
                assert_eq!(later, moved.collect::<Vec<_>>());
                values
            });
            paths.concat()
        })
        .collect();
    assert!(found.windows(2).all(|pair| pair[0] == pair[1]));
    let mean = found[0].iter().sum::<f32>() / 2000.0;
    assert!((mean - 3.0).abs() < 0.02, "{mean}");
}

#[test]
fn rounds_and_bounds_hold_as_for_other_tables() {
    for ranks in [2, 3] {
        let paths = on_all_paths(ranks, |world, tables| {
            let options = TableOptions {
                consistency: Consistency::Bsp { backup: 0, mean: false },
                ..TableOptions::default()
            };
            let table = KeyValueTable::create(tables, KeyType::Int, 1, DType::I64, options).unwrap();
            let mut seen = Vec::new();
            for round in 0..40 {
                std::thread::sleep(Duration::from_micros((world.rank() as u64 * 7919 + round * 331) % 700));
                add(&table, &[round as i64 % 3], &[1 + world.rank() as i64]);
                seen.push(get(&table, &[0, 1, 2]));
            }
            tables.finish().unwrap();
            seen
        });
        let seen = paths.concat();
        assert!(seen.iter().all(|other| *other == seen[0]), "the i-th get is the same on all ranks");
        let each = (ranks * (ranks + 1) / 2) as i64;
        assert!((0..40).all(|round| seen[0][round].iter().sum::<i64>() == each * (round as i64 + 1)));

        on_all_paths(ranks, |world, tables| {
            let options =
                TableOptions { consistency: Consistency::Ssp { bound: 2 }, ..TableOptions::default() };
            let table = KeyValueTable::create(tables, KeyType::Int, 1, DType::I64, options).unwrap();
            for step in 0..50i64 {
                let values = get(&table, &(0..ranks as i64).collect::<Vec<_>>());
                assert!(values.iter().all(|&other| other + 2 >= step), "{values:?} at {step}");
                add(&table, &[world.rank() as i64], &[1]);
                table.tick().unwrap();
            }
            assert!(table.staleness().len() <= 3);
            tables.finish().unwrap();
        });
    }
}

#[test]
fn a_worker_that_has_finished_a_table_does_not_block_the_others() {
    for ranks in RANKS {
        let paths = on_all_paths(ranks, |world, tables| {
            let bsp = || TableOptions {
                consistency: Consistency::Bsp { backup: 0, mean: false },
                ..TableOptions::default()
            };
            let make = || KeyValueTable::create(tables, KeyType::Int, 1, DType::I64, bsp()).unwrap();
            let (first, second) = (make(), make());
            for round in 0..3 * (world.rank() as i64 + 1) {
                add(&first, &[round], &[1]);
                get(&first, &[round]);
            }
            first.add_soon(Keys::Int(&[-1]), bytemuck::cast_slice(&[1i64]), &plain()).unwrap();
            first.finish().unwrap();
            for round in 1..=3 {
                add(&second, &[7], &[1]);
                assert_eq!(get(&second, &[7]), [round * ranks as i64]);
            }
            second.finish().unwrap();
            tables.barrier().unwrap();
            let items = first.items().unwrap();
            let counts =
                items.values.chunks_exact(8).map(|count| i64::from_ne_bytes(count.try_into().unwrap()));
            (items.keys, counts.collect::<Vec<_>>())
        });
        // Rank r adds once to each of the keys below 3 (r + 1), and once to -1.
        let keys: Vec<i64> = (-1..3 * ranks as i64).collect();
        let counts: Vec<i64> = keys.iter().map(|key| ranks as i64 - key.max(&0) / 3).collect();
        let expected = (OwnedKeys::Int(keys), counts);
        assert!(paths.iter().flatten().all(|found| *found == expected), "{paths:?}");
    }
}

#[test]
fn background_calls_are_applied_in_order() {
    on_all_paths(2, |world, tables| {
        let table = ints(tables, 1);
        let mine = vec![world.rank() as i64];
        let mut gets = Vec::new();
        for step in 0..20i64 {
            let keys = OwnedKeys::Int(mine.clone());
            drop(table.start_add(keys.clone(), 1i64.to_ne_bytes(), plain()));
            gets.push((step + 1, table.start_get(keys, [0u8; 8])));
        }
        gets.into_iter().for_each(|(step, get)| assert_eq!(i64::from_ne_bytes(get.wait().unwrap()), step));
        assert_eq!(get(&table, &mine), [20]);
    });
}

#[test]
fn mistakes_are_named_and_change_nothing() {
    on_all_paths(2, |world, tables| {
        let named =
            || TableOptions { name: Some("counts".into()), reject_nan: true, ..TableOptions::default() };
        let table = KeyValueTable::create(tables, KeyType::Int, 2, DType::F32, named()).unwrap();
        let rejected = |result: unisono::Result<()>, words: &[&str]| {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), Kind::Usage, "{error}");
            words.iter().for_each(|word| assert!(error.to_string().contains(word), "{word}: {error}"));
        };
        rejected(table.get(Keys::Int(&[1, 2]), &mut [0; 15]), &["4 elements (2 x 2)", "counts", "15 bytes"]);
        rejected(table.add(Keys::Bytes(&[b"a"]), &[0; 8], &plain()), &["int keys", "bytes keys"]);
        rejected(table.contains(Keys::Bytes(&[b"a"])).map(drop), &["int keys"]);
        let nan = [0.0, 1.0, 2.0, f32::NAN];
        let received = table.add(Keys::Int(&[5, 6]), bytemuck::cast_slice(&nan), &plain());
        rejected(received, &["NaN at key 1", "column 1"]);
        assert_eq!(table.len().unwrap(), 0);
        rejected(
            KeyValueTable::create(tables, KeyType::Int, 2, DType::F32, named()).map(drop),
            &["a new name", "counts"],
        );
        let make = |dim: usize, dtype: DType, options: TableOptions| {
            KeyValueTable::create(tables, KeyType::Int, dim, dtype, options).map(drop)
        };
        rejected(make(0, DType::F32, TableOptions::default()), &["at least one element"]);
        rejected(make(usize::MAX / 2, DType::F32, TableOptions::default()), &["bytes for each key"]);
        rejected(make(1, DType::U8, TableOptions::default()), &["float32"]);
        let average = TableOptions { consistency: Consistency::Average, ..TableOptions::default() };
        rejected(make(1, DType::F32, average), &["average", "another consistency for a key-value table"]);
        let keys = if world.rank() == 0 { KeyType::Int } else { KeyType::Bytes };
        let error = KeyValueTable::create(tables, keys, 1, DType::F32, TableOptions::default()).map(drop);
        assert!(error.unwrap_err().to_string().contains("bytes keys"));
    });
}

#[test]
fn a_rank_that_is_not_a_worker_may_read_but_not_write() {
    let roles = [Role::Worker, Role::Server, Role::None, Role::Both, Role::Worker];
    for hosts in 1..=roles.len() {
        spawn_on_hosts(roles.len(), hosts, |world| {
            let tables = Tables::join(world, roles[world.rank()]).unwrap();
            let table = ints(&tables, 1);
            if tables.worker_id().is_some() {
                add(&table, &[-3, 8], &[2, 1]);
                let more = [-3i64, 5];
                table.add_soon(Keys::Int(&more), bytemuck::cast_slice(&[1i64, 7]), &plain()).unwrap();
                let own = get(&table, &[5, 4, -3]);
                assert!(own[0] >= 7 && own[1] == 0 && own[2] >= 3, "{own:?}");
            } else {
                assert!(table.get(Keys::Int(&[1]), &mut [0; 8]).unwrap_err().to_string().contains("worker"));
            }
            tables.barrier().unwrap();
            let items = table.items().unwrap();
            assert_eq!(items.keys, OwnedKeys::Int(vec![-3, 5, 8]));
            assert_eq!(items.values, bytemuck::cast_slice::<i64, u8>(&[9, 21, 3]));
            assert_eq!(table.contains(Keys::Int(&[8, 9, 5])).unwrap(), [true, false, true]);
            assert_eq!(table.len().unwrap(), 3);
            tables.barrier().unwrap();
        });
    }
}

/// Each worker has its own keys, so that the loss of compression can be distinguished from the adds of others.
#[test]
fn compression_loses_nothing_permanently() {
    let all = ["none", "float16", "bfloat16", "int8", "topk:0.3"];
    for (compression, keys) in all.into_iter().flat_map(|all| [(all, KeyType::Int), (all, KeyType::Bytes)]) {
        on_all_paths(3, |world, tables| {
            let options = TableOptions {
                compression: Compression::parse(compression).unwrap(),
                ..TableOptions::default()
            };
            let table = KeyValueTable::create(tables, keys, 3, DType::F32, options).unwrap();
            let names: Vec<i64> = (0..8).map(|key| key * 100 + world.rank() as i64).collect();
            let texts: Vec<String> = names.iter().map(|name| format!("key {name}")).collect();
            let texts: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
            let keys = if keys == KeyType::Int { Keys::Int(&names) } else { Keys::Bytes(&texts) };
            let delta: Vec<f32> = (0..24).map(|at| 0.1 * at as f32 - 1.0).collect();
            for _ in 0..50 {
                table.add(keys, bytemuck::cast_slice(&delta), &plain()).unwrap();
            }
            let mut values = vec![0f32; 24];
            table.get(keys, bytemuck::cast_slice_mut(&mut values)).unwrap();
            for (value, delta) in values.iter().zip(&delta) {
                let wanted = 50.0 * delta;
                // The residual of the last adds has not been sent yet, and a get may lose some more precision.
                let most = if compression == "none" { 1e-4 } else { 0.02 * wanted.abs().max(50.0) };
                // With top-k, a small value is sent only once its residual has grown to be among the largest.
                let most = if compression.starts_with("topk") { 4.5 } else { most };
                assert!((value - wanted).abs() <= most, "{compression}: {value} instead of {wanted}");
            }
            tables.barrier().unwrap();
        });
    }
}

#[test]
fn rounds_continue_without_the_slowest() {
    for seen in on_all_paths(3, |world, tables| {
        let consistency = Consistency::Bsp { backup: 1, mean: false };
        let options = TableOptions { consistency, ..TableOptions::default() };
        let table = KeyValueTable::create(tables, KeyType::Int, 1, DType::I64, options).unwrap();
        for round in 0..15 {
            if world.rank() == 2 {
                std::thread::sleep(Duration::from_millis(3));
            }
            add(&table, &[0, 1, 2], &[1, 1, 1]);
            let values = get(&table, &[0, 1, 2]);
            assert!(values.iter().all(|&value| value >= 2 * (round + 1)), "two adds a round: {values:?}");
        }
        tables.finish().unwrap();
        tables.barrier().unwrap();
        get(&table, &[0, 1, 2])
    }) {
        // A late reader may already see adds of later rounds; in the end no round has had more than two.
        assert!(seen.iter().flatten().all(|&value| value == 30), "{seen:?}");
    }
}
