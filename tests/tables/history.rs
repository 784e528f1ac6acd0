//! A checker of histories: workers with random delays record what they add and get; afterwards every promise is checked
//! against the record.
//!
//! Each worker adds 1 to its own element only, so a get shows exactly how many adds of each worker it contains.

use std::time::Duration;

use unisono::tables::{AddOptions, ArrayTable, Consistency, Rows, TableOptions, Tables};

use crate::on_all_paths;

/// What a worker saw in one of its gets: its own adds, ticks and barriers before, and the values.
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
    /// How many adds this worker had made at each barrier.
    at_barriers: Vec<i64>,
    /// How many adds it had made when it made its k-th tick.
    at_ticks: Vec<i64>,
}

/// A generator of random numbers that differs between workers and runs.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Random adds, ticks, gets and pauses; a barrier now and then, at the same steps on all workers.
fn live(tables: &Tables, consistency: Consistency, seed: u64) -> History {
    let (workers, me) = (tables.workers(), tables.worker_id().unwrap());
    let table = ArrayTable::<i64>::create(
        tables,
        workers,
        None,
        TableOptions { consistency, ..TableOptions::default() },
    )
    .unwrap();
    let mut random = Random(seed * 7919 + me as u64 * 104_729 + 1);
    let mut history = History::default();
    let (mut adds, mut ticks) = (0, 0);
    let mut mine = vec![0i64; workers];
    mine[me] = 1;
    for step in 0..60 {
        if random.below(3) == 0 {
            std::thread::sleep(Duration::from_micros(random.below(400)));
        }
        // In rounds all workers must make the same calls; elsewhere each does as it likes.
        let rounds = matches!(consistency, Consistency::Bsp { .. });
        let times = if rounds { 1 + step % 2 } else { random.below(3) };
        for _ in 0..times {
            match random.below(2) {
                0 => table.add(&mine).unwrap(),
                _ => table
                    .table()
                    .add_soon(Rows::All, bytemuck::cast_slice(&mine), &AddOptions::default())
                    .unwrap(),
            }
            adds += 1;
        }
        if !rounds || step % 3 > 0 {
            let mut values = vec![0; workers];
            table.get(&mut values).unwrap();
            history.gets.push(Get { adds, ticks, barriers: history.at_barriers.len(), values });
        }
        if matches!(consistency, Consistency::Ssp { .. }) {
            table.tick().unwrap();
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

/// Every promise that holds for all consistencies.
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
fn recorded_histories_keep_every_promise() {
    for ranks in [1, 2, 3, 4] {
        for seed in 0..3 {
            for histories in on_all_paths(ranks, |_, tables| live(tables, Consistency::Async, seed)) {
                check_common(&histories);
            }
            for histories in
                on_all_paths(ranks, |_, tables| live(tables, Consistency::Bsp { backup: 0 }, seed))
            {
                check_common(&histories);
                for get in histories.iter().flat_map(|history| &history.gets) {
                    assert!(
                        get.values.iter().all(|&seen| seen == get.adds),
                        "a get of round {} holds exactly that many adds of everybody: {get:?}",
                        get.adds
                    );
                }
            }
            let bound = seed;
            for histories in on_all_paths(ranks, |_, tables| live(tables, Consistency::Ssp { bound }, seed)) {
                check_common(&histories);
                for get in histories.iter().flat_map(|history| &history.gets) {
                    // Whoever reads at tick c sees all that the others added before their tick c − bound.
                    let Some(tick) = (get.ticks - bound as i64).checked_sub(1).filter(|&tick| tick >= 0)
                    else {
                        continue;
                    };
                    for (other, &seen) in get.values.iter().enumerate() {
                        let needed = histories[other].at_ticks[tick as usize];
                        assert!(
                            seen >= needed,
                            "bound {bound}: {get:?} lacks adds of worker {other} ({needed})"
                        );
                    }
                }
            }
        }
    }
}
