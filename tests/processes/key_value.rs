//! Workers that die while a key-value table grows, evicts and deletes: completed adds stay, and the table stays consistent.

use std::time::Duration;

use unisono::tables::{
    AddOptions, ArrayTable, Eviction, KeyType, KeyValueTable, Keys, OwnedKeys, Role, TableOptions, Tables,
};
use unisono::{DType, World};

use crate::harness::{Job, counted_by_survivors};

/// Large rows, so that memory is allocated all the time.
const DIM: usize = 64;
/// New keys of each add.
const FRESH: usize = 150;
/// Keys that every rank adds to: from `-HOT` to `HOT`.
const HOT: i64 = 7;

fn create(tables: &Tables, name: &str, keys: KeyType, dim: usize) -> KeyValueTable {
    let options = TableOptions { name: Some(name.into()), ..TableOptions::default() };
    KeyValueTable::create(tables, keys, dim, DType::I64, options).unwrap()
}

/// The keys of a rank's add.
fn numbers(rank: usize, step: usize) -> Vec<i64> {
    let fresh = (0..FRESH as i64).map(|key| (step as i64 * FRESH as i64 + key + 1) * 16 + rank as i64 + HOT);
    (-HOT..=HOT).chain(fresh).collect()
}

fn texts(rank: usize, step: usize) -> OwnedKeys {
    let text = |key: usize| format!("rank {rank}, step {step}, ").repeat(key % 40 + 1).into_bytes();
    OwnedKeys::Bytes((0..40).map(text).chain([b"hot".to_vec()]).collect())
}

fn values(table: &KeyValueTable, keys: Keys) -> Vec<i64> {
    let mut values = vec![0; keys.len() * table.dim()];
    table.get(keys, bytemuck::cast_slice_mut(&mut values)).unwrap();
    values
}

/// Adds to shared and to new keys, and counts completed adds; the last rank does so until it is killed.
pub fn growing(world: &World) {
    let tables = Tables::join(world, Role::Both).unwrap();
    let ints = create(&tables, "ints", KeyType::Int, DIM);
    let bytes = create(&tables, "bytes", KeyType::Bytes, 1);
    let named = TableOptions { name: Some("counts".into()), ..TableOptions::default() };
    let counts = ArrayTable::<i64>::create(&tables, world.size() + 1, None, named).unwrap();
    let (victim, none) = (world.size() - 1, AddOptions::default());
    let count = |place: usize| {
        let mut one = vec![0; world.size() + 1];
        one[place] = 1;
        counts.add(&one).unwrap();
    };
    eprintln!("running");
    let mut step = 0;
    while step < 40 || world.rank() == victim {
        let keys = numbers(world.rank(), step);
        ints.add(Keys::Int(&keys), bytemuck::cast_slice(&vec![1i64; keys.len() * DIM]), &none).unwrap();
        let keys = texts(world.rank(), step);
        let ones = vec![1i64; keys.len()];
        keys.with(|keys| bytes.add(keys, bytemuck::cast_slice(&ones), &none)).unwrap();
        count(world.rank());
        step += 1;
    }
    count(world.size());
    let completed = counted_by_survivors(world, &counts);
    // Keys that the victim may have inserted without completing its add are found again, not inserted a second time.
    let last = completed[victim] as usize;
    let keys = numbers(victim, last);
    ints.add(Keys::Int(&keys), bytemuck::cast_slice(&vec![0i64; keys.len() * DIM]), &none).unwrap();
    let keys = texts(victim, last);
    let zeros = vec![0i64; keys.len()];
    keys.with(|keys| bytes.add(keys, bytemuck::cast_slice(&zeros), &none)).unwrap();

    let sum: i64 = completed[..world.size()].iter().sum();
    let hot: Vec<i64> = (-HOT..=HOT).collect();
    let found = values(&ints, Keys::Int(&hot));
    assert!(found.iter().all(|&value| value == sum || value == sum + 1), "{completed:?}: {found:?}");
    for rank in 0..world.size() {
        for step in 0..completed[rank] as usize {
            let fresh = &numbers(rank, step)[hot.len()..];
            assert!(
                values(&ints, Keys::Int(fresh)).iter().all(|&value| value == 1),
                "rank {rank}, step {step}"
            );
            let found = texts(rank, step).with(|keys| values(&bytes, keys));
            assert!(found[..40].iter().all(|&value| value == 1), "rank {rank}, step {step}");
            assert!(found[40] == sum || found[40] == sum + 1, "{completed:?}: {}", found[40]);
        }
    }
    let OwnedKeys::Int(keys) = ints.items().unwrap().keys else { panic!("they are ints") };
    assert!(keys.is_sorted_by(|one, other| one < other), "every key is there once");
    assert_eq!(keys.len(), ints.len().unwrap());
    let started: i64 = completed[..world.size()].iter().sum::<i64>() + 1;
    assert_eq!(keys.len(), hot.len() + started as usize * FRESH);
    let OwnedKeys::Bytes(keys) = bytes.items().unwrap().keys else { panic!("they are bytes") };
    assert!(keys.is_sorted_by(|one, other| one < other), "every key is there once");
    assert_eq!(keys.len(), 1 + started as usize * 40);
}

/// Rows of the limited tables.
const LIMITS: [usize; 2] = [700, 300];

/// Adds new keys to full tables, reads and deletes some; the last rank does so until it is killed. Afterwards all keys can be found,
/// once each, and at most one row is partially updated.
pub fn evicting(world: &World) {
    let tables = Tables::join(world, Role::Both).unwrap();
    let limited = |name: &str, keys, dim, max_rows, eviction| {
        let options = TableOptions {
            name: Some(name.into()),
            max_rows: Some(max_rows),
            eviction: Some(eviction),
            ..TableOptions::default()
        };
        KeyValueTable::create(&tables, keys, dim, DType::I64, options).unwrap()
    };
    let ints = limited("ints", KeyType::Int, DIM, LIMITS[0], Eviction::Lru);
    let bytes = limited("bytes", KeyType::Bytes, 1, LIMITS[1], Eviction::Lfu);
    let named = TableOptions { name: Some("counts".into()), ..TableOptions::default() };
    let counts = ArrayTable::<i64>::create(&tables, world.size() + 1, None, named).unwrap();
    let (victim, none) = (world.size() - 1, AddOptions::default());
    let count = |place: usize| {
        let mut one = vec![0; world.size() + 1];
        one[place] = 1;
        counts.add(&one).unwrap();
    };
    let step = |rank: usize, step: usize| {
        let keys = numbers(rank, step);
        ints.add(Keys::Int(&keys), bytemuck::cast_slice(&vec![1i64; keys.len() * DIM]), &none).unwrap();
        ints.delete(Keys::Int(&keys[20..40])).unwrap();
        let found = values(&ints, Keys::Int(&keys[40..60]));
        assert!(found.iter().all(|&value| value == 0 || value == 1), "{found:?}");
        let keys = texts(rank, step);
        let ones = vec![1i64; keys.len()];
        keys.with(|keys| bytes.add(keys, bytemuck::cast_slice(&ones), &none)).unwrap();
        keys.with(|keys| bytes.delete(keys)).unwrap();
        keys.with(|keys| bytes.add(keys, bytemuck::cast_slice(&ones), &none)).unwrap();
        assert!(ints.len().unwrap() <= LIMITS[0] && bytes.len().unwrap() <= LIMITS[1]);
        ints.evicted().unwrap();
    };
    eprintln!("running");
    let mut steps = 0;
    while steps < 40 || world.rank() == victim {
        step(world.rank(), steps);
        count(world.rank());
        steps += 1;
    }
    count(world.size());
    counted_by_survivors(world, &counts);
    let check = || {
        let items = ints.items().unwrap();
        let OwnedKeys::Int(keys) = items.keys else { panic!("they are ints") };
        assert!(keys.is_sorted_by(|one, other| one < other), "every key is there once");
        assert!(ints.contains(Keys::Int(&keys)).unwrap().into_iter().all(|found| found));
        assert_eq!(items.values, bytemuck::cast_slice::<i64, u8>(&values(&ints, Keys::Int(&keys))));
        let rows = items.values.chunks_exact(8 * DIM);
        let partial = rows.filter(|row| row.chunks_exact(8).any(|value| value != &row[..8])).count();
        assert!(partial <= 1, "{partial} rows are partially updated, but one process died");
        let OwnedKeys::Bytes(keys) = bytes.items().unwrap().keys else { panic!("they are bytes") };
        assert!(keys.is_sorted_by(|one, other| one < other), "every key is there once");
        let count = keys.len();
        let found = OwnedKeys::Bytes(keys).with(|keys| bytes.contains(keys)).unwrap();
        assert!(found.into_iter().all(|found| found) && (1..=LIMITS[1]).contains(&count));
    };
    if world.rank() == 0 {
        check();
        (0..20).for_each(|number| step(victim + 1, number));
        let keys = numbers(victim + 1, 20);
        ints.add(Keys::Int(&keys), bytemuck::cast_slice(&vec![1i64; keys.len() * DIM]), &none).unwrap();
        check();
        assert_eq!(ints.len().unwrap(), LIMITS[0], "all parts are full");
    }
}

/// Kills rank 2 of a program at different moments, and checks that the others succeed.
fn kill_at_different_moments(program: &str) {
    let rounds = std::env::var("UNISONO_SOAK").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    for round in 0..rounds {
        let mut job = Job::start(3, program);
        (0..3).for_each(|rank| drop(job.wait_for_output(rank, "running")));
        std::thread::sleep(Duration::from_micros(round * 1733 % 30_000));
        job.kill(2);
        for rank in 0..2 {
            let ending = job.end_of(rank);
            assert!(ending.status.success(), "round {round}, rank {rank}: {}", ending.output);
        }
    }
}

#[test]
fn a_worker_killed_while_the_table_evicts_leaves_it_consistent() {
    kill_at_different_moments("evicting");
}

#[test]
fn a_worker_killed_while_the_table_grows_leaves_it_consistent() {
    kill_at_different_moments("growing");
}
