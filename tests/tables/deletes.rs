//! Deleted keys: against a map, with fresh state afterwards, under every consistency, from any rank.

use std::collections::HashMap;

use unisono::tables::{
    AddOptions, Compression, Consistency, Init, KeyType, KeyValueTable, Keys, OwnedKeys, Role, TableOptions,
    Tables, UpdaterChoice,
};
use unisono::testing::spawn_on_hosts;
use unisono::{DType, Kind, ReduceOp};

use crate::on_all_paths;

fn plain() -> AddOptions {
    AddOptions::default()
}

fn owned(kind: KeyType, keys: &[i64]) -> OwnedKeys {
    match kind {
        KeyType::Int => OwnedKeys::Int(keys.to_vec()),
        KeyType::Bytes => OwnedKeys::Bytes(
            keys.iter()
                .map(|key| format!("{key} ").repeat((key % 5).unsigned_abs() as usize + 1))
                .map(Into::into)
                .collect(),
        ),
    }
}

fn random(state: &mut u64, limit: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % limit
}

/// Each rank has its own keys, so that it knows their values at any time.
#[test]
fn random_calls_with_deletes_behave_like_a_map() {
    for (ranks, kind) in
        [1, 2, 3, 4].into_iter().flat_map(|ranks| [(ranks, KeyType::Int), (ranks, KeyType::Bytes)])
    {
        on_all_paths(ranks, |world, tables| {
            let options = TableOptions { init: Init::Whole(7), ..TableOptions::default() };
            let table = KeyValueTable::create(tables, kind, 2, DType::I64, options).unwrap();
            let mut state = 99 + world.rank() as u64;
            let mut expected: HashMap<i64, [i64; 2]> = HashMap::new();
            for call in 0..400 {
                let count = random(&mut state, if call % 10 == 0 { 300 } else { 5 }) as usize;
                let key = |number: u64| (number as i64 - 400) * ranks as i64 + world.rank() as i64;
                let keys: Vec<i64> = (0..count).map(|_| key(random(&mut state, 800))).collect();
                let list = owned(kind, &keys);
                match call % 5 {
                    0 => {
                        let mut values = vec![-1i64; 2 * count];
                        list.with(|keys| table.get(keys, bytemuck::cast_slice_mut(&mut values))).unwrap();
                        let wanted = keys.iter().flat_map(|key| expected.get(key).copied().unwrap_or([7, 7]));
                        assert_eq!(values, wanted.collect::<Vec<_>>(), "call {call}");
                        let known: Vec<bool> = keys.iter().map(|key| expected.contains_key(key)).collect();
                        assert_eq!(list.with(|keys| table.contains(keys)).unwrap(), known);
                    }
                    1 | 2 => {
                        list.with(|keys| match call % 2 {
                            0 => table.delete(keys),
                            _ => table.delete_soon(keys),
                        })
                        .unwrap();
                        expected.retain(|key, _| !keys.contains(key));
                    }
                    _ => {
                        let delta: Vec<i64> =
                            (0..2 * count).map(|_| random(&mut state, 1000) as i64).collect();
                        let bytes = bytemuck::cast_slice(&delta);
                        list.with(|keys| match call % 2 {
                            0 => table.add(keys, bytes, &plain()),
                            _ => table.add_soon(keys, bytes, &plain()),
                        })
                        .unwrap();
                        for (key, delta) in keys.iter().zip(delta.chunks_exact(2)) {
                            let row = expected.entry(*key).or_insert([7, 7]);
                            row.iter_mut().zip(delta).for_each(|(value, delta)| *value += delta);
                        }
                    }
                }
            }
            tables.barrier().unwrap();
            let mut all = [expected.len() as i64];
            world.group().all_reduce(&mut all, ReduceOp::Sum).unwrap();
            assert_eq!(table.len().unwrap(), all[0] as usize);
            tables.barrier().unwrap();
        });
    }
}

/// Adam's state and its count of steps do not survive a deletion.
#[test]
fn an_add_after_a_deletion_starts_anew() {
    for name in ["adam", "adagrad", "ftrl", "dcasgda"] {
        on_all_paths(3, |world, tables| {
            let options = TableOptions {
                updater: UpdaterChoice::named(name).unwrap(),
                init: Init::Uniform { low: -1.0, high: 1.0, seed: 4 },
                ..TableOptions::default()
            };
            let table = KeyValueTable::create(tables, KeyType::Int, 2, DType::F32, options).unwrap();
            let keys: Vec<i64> = (0..40).map(|key| key * 3 + world.rank() as i64).collect();
            let keys = Keys::Int(&keys);
            let delta: Vec<f32> = (0..80).map(|at| 0.3 + 0.01 * at as f32).collect();
            let read = || {
                let mut values = vec![0f32; 80];
                table.get(keys, bytemuck::cast_slice_mut(&mut values)).unwrap();
                values
            };
            let add = || table.add(keys, bytemuck::cast_slice(&delta), &plain()).unwrap();
            let before = read();
            add();
            let first = read();
            assert_ne!(first, before);
            (0..5).for_each(|_| add());
            assert_ne!(read(), first);
            table.delete(keys).unwrap();
            assert_eq!(read(), before, "{name}");
            assert!(!table.contains(keys).unwrap().contains(&true));
            add();
            assert_eq!(read(), first, "{name}: the same first step");
            tables.barrier().unwrap();
        });
    }
}

#[test]
fn every_worker_deletes_while_others_add() {
    for ranks in [2, 4] {
        on_all_paths(ranks, |world, tables| {
            const KEYS: i64 = 5000;
            let table =
                KeyValueTable::create(tables, KeyType::Int, 3, DType::I64, TableOptions::default()).unwrap();
            let kept: Vec<i64> = (0..KEYS).map(|key| 2 * key).collect();
            let passing: Vec<i64> = (0..KEYS).map(|key| 2 * key + 1).collect();
            let ones = vec![1i64; 3 * 500];
            for round in 0..6 {
                for (kept, passing) in kept.chunks(500).zip(passing.chunks(500)) {
                    table.add(Keys::Int(kept), bytemuck::cast_slice(&ones), &plain()).unwrap();
                    table.add(Keys::Int(passing), bytemuck::cast_slice(&ones), &plain()).unwrap();
                    match (round + world.rank()) % 2 {
                        0 => table.delete(Keys::Int(passing)).unwrap(),
                        _ => table.delete_soon(Keys::Int(passing)).unwrap(),
                    }
                }
            }
            tables.barrier().unwrap();
            // Every worker deletes each of these keys after its own last add to it.
            assert_eq!(table.len().unwrap(), KEYS as usize);
            assert_eq!(table.items().unwrap().keys, OwnedKeys::Int(kept.clone()));
            let mut values = vec![0i64; 3 * KEYS as usize];
            table.get(Keys::Int(&kept), bytemuck::cast_slice_mut(&mut values)).unwrap();
            assert!(values.iter().all(|&value| value == 6 * ranks as i64));
            tables.barrier().unwrap();
        });
    }
}

/// A deletion is part of no round: it follows those that are complete, and comes before the one that is not.
#[test]
fn deletions_between_rounds() {
    for updater in ["add", "adagrad"] {
        on_all_paths(3, |world, tables| {
            let options = TableOptions {
                updater: UpdaterChoice::named(updater).unwrap(),
                consistency: Consistency::Bsp { backup: 0, mean: false },
                ..TableOptions::default()
            };
            let table = KeyValueTable::create(tables, KeyType::Int, 1, DType::F32, options).unwrap();
            let mut seen = Vec::new();
            for round in 0..6 {
                table.add(Keys::Int(&[1, 2, 3]), bytemuck::cast_slice(&[1f32; 3]), &plain()).unwrap();
                let mut values = [0f32; 3];
                table.get(Keys::Int(&[1, 2, 3]), bytemuck::cast_slice_mut(&mut values)).unwrap();
                seen.push(values);
                tables.barrier().unwrap();
                if world.rank() == round % 3 {
                    table.delete(Keys::Int(&[2])).unwrap();
                }
                tables.barrier().unwrap();
                assert_eq!(table.contains(Keys::Int(&[1, 2])).unwrap(), [true, false]);
                tables.barrier().unwrap();
            }
            let second: Vec<f32> = seen.iter().map(|values| values[1]).collect();
            assert!(second.iter().all(|value| *value == second[0]), "as in the first round: {seen:?}");
            assert!(seen.windows(2).all(|pair| pair[0][0] != pair[1][0]), "{seen:?}");
            tables.finish().unwrap();
        });
    }
}

#[test]
fn any_rank_deletes_in_order_after_its_own_adds() {
    let roles = [Role::Worker, Role::Server, Role::None, Role::Both, Role::Worker];
    for hosts in 1..=roles.len() {
        spawn_on_hosts(roles.len(), hosts, |world| {
            let tables = Tables::join(world, roles[world.rank()]).unwrap();
            let table =
                KeyValueTable::create(&tables, KeyType::Int, 1, DType::I64, TableOptions::default()).unwrap();
            let base = 100 * world.rank() as i64;
            if tables.worker_id().is_some() {
                for step in 0..50 {
                    let keys = [base + step % 7, base + 50];
                    table.add_soon(Keys::Int(&keys), bytemuck::cast_slice(&[1i64, 1]), &plain()).unwrap();
                    table.delete_soon(Keys::Int(&keys[..1])).unwrap();
                }
            }
            tables.barrier().unwrap();
            let expected = vec![50, 350, 450];
            assert_eq!(table.items().unwrap().keys, OwnedKeys::Int(expected));
            tables.barrier().unwrap();
            if roles[world.rank()] == Role::None {
                table.delete(Keys::Int(&[50, 350, 450, 7])).unwrap();
            }
            tables.barrier().unwrap();
            assert!(table.is_empty().unwrap());
            let error = table.delete(Keys::Bytes(&[b"a"])).unwrap_err();
            assert!(error.kind() == Kind::Usage && error.to_string().contains("int keys"), "{error}");
            tables.barrier().unwrap();
        });
    }
}

/// What a worker's compression had left of a key is not part of the key's next row.
#[test]
fn a_deletion_discards_what_compression_has_left() {
    for kind in [KeyType::Int, KeyType::Bytes] {
        on_all_paths(2, |world, tables| {
            let options = TableOptions {
                compression: Compression::parse("topk:0.1").unwrap(),
                ..TableOptions::default()
            };
            let table = KeyValueTable::create(tables, kind, 2, DType::F32, options).unwrap();
            let list: Vec<i64> = (0..20).map(|key| 2 * key + world.rank() as i64).collect();
            let keys = owned(kind, &list);
            let add = |delta: [f32; 2]| {
                keys.with(|keys| table.add(keys, bytemuck::cast_slice(&[delta; 20]), &plain())).unwrap();
            };
            (0..5).for_each(|_| add([10.0, 0.5]));
            keys.with(|keys| table.delete(keys)).unwrap();
            add([0.0, 1.0]);
            let mut values = [0f32; 40];
            keys.with(|keys| table.get(keys, bytemuck::cast_slice_mut(&mut values))).unwrap();
            // Some of the ones are not sent yet.
            assert!(values.chunks_exact(2).all(|row| row == [0.0, 1.0] || row == [0.0, 0.0]), "{values:?}");
            tables.barrier().unwrap();
        });
    }
}
