//! A history checker: workers with random delays record their adds and gets; afterwards every guarantee is checked against the
//! record.
//!
//! Each worker adds 1 to its own element only, so a get shows exactly how many adds of each worker it contains. An element is an
//! array element, the value of a key, or a sum in a user-defined table.

use std::time::Duration;

use unisono::tables::{
    AddOptions, ArrayTable, Consistency, CustomTable, KeyType, KeyValueTable, Keys, Rows, TableOptions,
    Tables,
};
use unisono::{DType, ReduceOp, World};

use crate::on_all_paths;
use crate::sums::{Dealer, sums_with};

/// The kinds of tables.
const KINDS: [&str; 3] = ["array", "key-value", "user-defined"];

/// One counter per worker, in a table of some kind.
enum Counts {
    Array(ArrayTable<i64>),
    Keys(KeyValueTable),
    Custom(CustomTable<Dealer>),
}

impl Counts {
    fn create(tables: &Tables, kind: &str, consistency: Consistency) -> Counts {
        let workers = tables.workers();
        let options = TableOptions { consistency, ..TableOptions::default() };
        match kind {
            "array" => Counts::Array(ArrayTable::create(tables, workers, None, options).unwrap()),
            "key-value" => {
                Counts::Keys(KeyValueTable::create(tables, KeyType::Int, 1, DType::I64, options).unwrap())
            }
            _ => Counts::Custom(sums_with(tables, "sums", workers, true, consistency)),
        }
    }

    /// Adds 1 to a worker's counter, synchronously or in the background.
    fn count(&self, me: usize, workers: usize, soon: bool) {
        let none = AddOptions::default();
        let mut mine = vec![0i64; workers];
        mine[me] = 1;
        let (delta, key): (&[u8], _) = (bytemuck::cast_slice(&mine), [me as i64]);
        match (self, soon) {
            (Counts::Array(table), false) => table.add(&mine),
            (Counts::Array(table), true) => table.table().add_soon(Rows::All, delta, &none),
            (Counts::Keys(table), false) => table.add(Keys::Int(&key), &1i64.to_ne_bytes(), &none),
            (Counts::Keys(table), true) => table.add_soon(Keys::Int(&key), &1i64.to_ne_bytes(), &none),
            (Counts::Custom(table), false) => table.add(&mine),
            (Counts::Custom(table), true) => table.add_soon(&mine),
        }
        .unwrap();
    }

    fn get(&self, workers: usize) -> Vec<i64> {
        let mut values = vec![0; workers];
        match self {
            Counts::Array(table) => table.get(&mut values).unwrap(),
            Counts::Keys(table) => {
                let keys: Vec<i64> = (0..workers as i64).collect();
                table.get(Keys::Int(&keys), bytemuck::cast_slice_mut(&mut values)).unwrap();
            }
            Counts::Custom(table) => values = table.get(&()).unwrap(),
        }
        values
    }

    fn tick(&self) {
        match self {
            Counts::Array(table) => table.tick(),
            Counts::Keys(table) => table.tick(),
            Counts::Custom(table) => table.tick(),
        }
        .unwrap();
    }
}

impl Counts {
    fn clock(&self) -> i64 {
        let steps = match self {
            Counts::Array(table) => table.clock(),
            Counts::Keys(table) => table.clock(),
            Counts::Custom(table) => table.clock(),
        };
        steps.unwrap() as i64
    }
}

/// One get of a worker: the worker's own adds, ticks and barriers before it, and the values read.
#[derive(Debug)]
struct Get {
    adds: i64,
    ticks: i64,
    barriers: usize,
    values: Vec<i64>,
}

#[derive(Debug, Default)]
struct History {
    gets: Vec<Get>,
    /// The number of this worker's adds at each barrier.
    at_barriers: Vec<i64>,
    /// The number of its adds at its k-th tick.
    at_ticks: Vec<i64>,
}

/// A random number generator, seeded differently for each worker and run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Random adds, ticks, gets and pauses; occasional barriers, at the same steps on all workers.
fn record_history(tables: &Tables, kind: &str, consistency: Consistency, seed: u64) -> History {
    let (workers, me) = (tables.workers(), tables.worker_id().unwrap());
    let table = Counts::create(tables, kind, consistency);
    let mut random = Random(seed * 7919 + me as u64 * 104_729 + 1);
    let mut history = History::default();
    let (mut adds, mut ticks) = (0, 0);
    for step in 0..60 {
        if random.below(3) == 0 {
            std::thread::sleep(Duration::from_micros(random.below(400)));
        }
        // In rounds all workers must make the same calls; otherwise each makes its own.
        let rounds = matches!(consistency, Consistency::Bsp { .. });
        let times = if rounds { 1 + step % 2 } else { random.below(3) };
        for _ in 0..times {
            table.count(me, workers, random.below(2) > 0);
            adds += 1;
        }
        if !rounds || step % 3 > 0 {
            let values = table.get(workers);
            history.gets.push(Get { adds, ticks, barriers: history.at_barriers.len(), values });
        }
        if matches!(consistency, Consistency::Ssp { .. }) {
            table.tick();
            ticks += 1;
            history.at_ticks.push(adds);
        }
        if step % 20 == 19 {
            tables.barrier().unwrap();
            history.at_barriers.push(adds);
        }
    }
    tables.finish().unwrap();
    history
}

/// As [`record_history`] with a bound, but every worker makes its own number of steps between two barriers.
fn record_uneven_history(world: &World, tables: &Tables, kind: &str, bound: u64, seed: u64) -> History {
    let (workers, me) = (tables.workers(), tables.worker_id().unwrap());
    let table = Counts::create(tables, kind, Consistency::Ssp { bound });
    let mut random = Random(seed * 7919 + me as u64 * 104_729 + 1);
    let (mut history, mut adds) = (History::default(), 0);
    for epoch in 0..6 {
        for _ in 0..random.below(12) {
            if random.below(3) == 0 {
                std::thread::sleep(Duration::from_micros(random.below(400)));
            }
            for _ in 0..random.below(3) {
                table.count(me, workers, random.below(2) > 0);
                adds += 1;
            }
            let (ticks, values) = (table.clock(), table.get(workers));
            history.gets.push(Get { adds, ticks, barriers: history.at_barriers.len(), values });
            table.tick();
            history.at_ticks.resize(table.clock() as usize, adds);
        }
        match epoch % 3 {
            0 => tables.barrier().unwrap(),
            1 => tables.flush().and(world.group().barrier()).unwrap(),
            _ => tables.flush().and(world.group().all_reduce(&mut [1], ReduceOp::Sum)).unwrap(),
        }
        history.at_barriers.push(adds);
        // The clock was fast-forwarded over the steps that the others made without this worker, with its adds up to then.
        history.at_ticks.resize(table.clock() as usize, adds);
    }
    tables.finish().unwrap();
    history
}

/// A get at tick c sees all adds that the other workers made before their tick c − bound.
fn check_bound(histories: &[History], bound: u64) {
    for get in histories.iter().flat_map(|history| &history.gets) {
        let Some(tick) = (get.ticks - bound as i64).checked_sub(1).filter(|&tick| tick >= 0) else {
            continue;
        };
        for (other, &seen) in get.values.iter().enumerate() {
            // A worker that stopped earlier has made no later adds that could be missed.
            let ticks = &histories[other].at_ticks;
            let needed = ticks.get(tick as usize).or(ticks.last()).copied().unwrap_or(0);
            assert!(seen >= needed, "bound {bound}: {get:?} lacks adds of worker {other} ({needed})");
        }
    }
}

#[test]
fn a_bound_holds_if_workers_make_different_numbers_of_steps() {
    for (ranks, kind) in [2, 3, 4].into_iter().flat_map(|ranks| KINDS.map(|kind| (ranks, kind))) {
        for (seed, bound) in [(0, 0), (1, 1), (2, 3)] {
            let record_history =
                |world: &World, tables: &Tables| record_uneven_history(world, tables, kind, bound, seed);
            for histories in on_all_paths(ranks, record_history) {
                check_common(&histories);
                check_bound(&histories, bound);
            }
        }
    }
}

/// The guarantees that hold for all consistencies.
fn check_common(histories: &[History]) {
    for (me, history) in histories.iter().enumerate() {
        let mut before = vec![0; histories.len()];
        for get in &history.gets {
            assert_eq!(get.values[me], get.adds, "worker {me} reads its own writes: {get:?}");
            for (other, &seen) in get.values.iter().enumerate() {
                assert!(seen >= before[other], "nothing is taken back: {get:?}");
                if get.barriers > 0 {
                    let flushed = histories[other].at_barriers[get.barriers - 1];
                    assert!(seen >= flushed, "a barrier flushes: {get:?}, worker {other} had made {flushed}");
                }
            }
            before.clone_from(&get.values);
        }
    }
}

#[test]
fn recorded_histories_satisfy_every_guarantee() {
    for (ranks, kind) in [1, 2, 3, 4].into_iter().flat_map(|ranks| KINDS.map(|kind| (ranks, kind))) {
        for seed in 0..3 {
            for histories in
                on_all_paths(ranks, |_, tables| record_history(tables, kind, Consistency::Async, seed))
            {
                check_common(&histories);
            }
            for histories in on_all_paths(ranks, |_, tables| {
                record_history(tables, kind, Consistency::Bsp { backup: 0, mean: false }, seed)
            }) {
                check_common(&histories);
                for get in histories.iter().flat_map(|history| &history.gets) {
                    assert!(
                        get.values.iter().all(|&seen| seen == get.adds),
                        "{kind}: a get of round {} holds exactly that many adds of every worker: {get:?}",
                        get.adds
                    );
                }
            }
            let bound = seed;
            for histories in on_all_paths(ranks, |_, tables| {
                record_history(tables, kind, Consistency::Ssp { bound }, seed)
            }) {
                check_common(&histories);
                check_bound(&histories, bound);
            }
        }
    }
}
