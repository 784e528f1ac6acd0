//! Workers that make different numbers of steps, and workers that continue where a dead process stopped.

use std::time::{Duration, Instant};

use unisono::World;
use unisono::tables::{ArrayTable, Consistency, Role, TableOptions, Tables};

use crate::harness::Job;

/// Short enough that a test ends, long enough that a rank that is merely slow does not time out.
const TIMEOUT: (&str, &str) = ("UNISONO_TIMEOUT", "40");

fn counts(tables: &Tables, consistency: &str) -> ArrayTable<i64> {
    let consistency = Consistency::parse(consistency).unwrap();
    let options = TableOptions { name: Some("counts".into()), consistency, ..TableOptions::default() };
    ArrayTable::create(tables, tables.workers(), None, options).unwrap()
}

fn count(table: &ArrayTable<i64>, rank: usize, size: usize) -> Vec<i64> {
    let mut values = vec![0; size];
    values[rank] = 1;
    table.add(&values).unwrap();
    table.tick().unwrap();
    table.get(&mut values).unwrap();
    values
}

/// Each rank makes more steps than the one before it, and then waits for all, in every way that exists.
pub fn unequal(world: &World) {
    let (rank, size) = (world.rank(), world.size());
    let tables = Tables::join(world, Role::Both).unwrap();
    let table = counts(&tables, "ssp:1");
    for epoch in 1..=4 {
        (0..8 * (rank + 1)).for_each(|_| drop(count(&table, rank, size)));
        match epoch % 2 {
            0 => tables.barrier().unwrap(),
            _ => world.group().barrier().unwrap(),
        }
        let mut values = vec![0; size];
        table.get(&mut values).unwrap();
        let at_least = |rank: usize| (8 * (rank + 1) * epoch) as i64;
        assert!((0..size).all(|rank| values[rank] >= at_least(rank)), "{epoch}: {values:?}");
    }
}

#[test]
fn workers_that_wait_in_a_barrier_do_not_block_the_others() {
    for size in [2, 3] {
        Job::start_with(size, "unequal steps", &[TIMEOUT]).all_succeed();
    }
}

const STEPS: u64 = 60;
/// The step at which the victim's first process stops.
const DEATH: u64 = 20;
const VICTIM: usize = 2;

/// All ranks make the same number of steps; the victim dies during them. Its next process continues at the table's clock, or
/// starts over.
pub fn from_the_clock(world: &World) {
    let (rank, size) = (world.rank(), world.size());
    let tables = Tables::join(world, Role::Both).unwrap();
    let table = counts(&tables, "ssp:2");
    if world.restarts() > 0 {
        assert!(table.clock().unwrap() >= DEATH, "{:?}", table.clock());
    }
    let from_zero = std::env::var("UNISONO_TEST_FROM_ZERO").is_ok();
    let last = if from_zero && world.restarts() > 0 { table.clock().unwrap() + STEPS } else { STEPS };
    while table.clock().unwrap() < last {
        if rank == VICTIM && world.restarts() == 0 && table.clock().unwrap() == DEATH {
            eprintln!("between");
            std::thread::sleep(Duration::from_secs(60));
        }
        count(&table, rank, size);
        if rank == 0 && table.clock().unwrap() == STEPS / 2 {
            eprintln!("half-way");
        }
    }
    tables.barrier().unwrap();
    let mut values = vec![0; size];
    table.get(&mut values).unwrap();
    assert!((0..size).all(|rank| rank == VICTIM || values[rank] == STEPS as i64), "{values:?}");
    if from_zero {
        assert!(values[VICTIM] >= (DEATH + STEPS) as i64, "{values:?}");
    } else {
        assert!((DEATH as i64..=STEPS as i64).contains(&values[VICTIM]), "{values:?}");
        assert_eq!(table.clock().unwrap(), STEPS, "all workers have reached the same step");
    }
    tables.barrier().unwrap();
}

#[test]
fn a_restarted_worker_continues_from_the_clock_or_from_zero_without_a_stall() {
    // It is restarted at once, or when the others have continued without it.
    for (from_zero, late) in [(false, false), (false, true), (true, true)] {
        let mut environment = vec![TIMEOUT];
        environment.extend(from_zero.then_some(("UNISONO_TEST_FROM_ZERO", "1")));
        let mut job = Job::start_restartable(3, "from the clock", &environment, 1);
        job.wait_for_output(VICTIM, "between");
        job.kill_silently(VICTIM);
        if late {
            job.wait_for_output(0, "half-way");
        }
        job.restart(VICTIM, 0);
        job.all_succeed();
    }
}

/// Makes rounds, until the victim waits to be killed.
pub fn in_rounds(world: &World) {
    let tables = Tables::join(world, Role::Both).unwrap();
    let table = counts(&tables, "bsp");
    let (rank, size) = (world.rank(), world.size());
    (0..5).for_each(|_| drop(count(&table, rank, size)));
    if rank == VICTIM {
        eprintln!("between");
        std::thread::sleep(Duration::from_secs(60));
    }
    let mut values = vec![0; size];
    let error = table.add(&values).and_then(|()| table.get(&mut values)).unwrap_err();
    eprintln!("{:?}: {error}", error.kind());
}

#[test]
fn a_worker_of_rounds_is_not_restarted() {
    let mut job = Job::start_restartable(3, "in rounds", &[TIMEOUT], 5);
    job.wait_for_output(VICTIM, "between");
    // A worker that waits in a table call is visible there.
    let began = Instant::now();
    while !job.memory.activity(0).contains("in a table's get #") {
        assert!(began.elapsed() < Duration::from_secs(30), "{}", job.memory.activity(0));
        std::thread::sleep(Duration::from_millis(1));
    }
    job.kill_silently(VICTIM);
    let rejected = job.memory.restart(VICTIM).unwrap_err().to_string();
    assert!(
        rejected.contains("a table with consistency bsp, whose rounds cannot continue without"),
        "{rejected}"
    );
    for rank in 0..VICTIM {
        let ending = job.end_of(rank);
        assert!(ending.status.success() && ending.output.contains("PeerLost"), "{}", ending.output);
    }
}
