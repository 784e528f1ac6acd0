//! Workers that die in the middle of adds: completed adds stay, and no rank waits for them forever.

use std::time::Duration;

use unisono::tables::{ArrayTable, Consistency, Role, TableOptions, Tables};
use unisono::{Kind, World};

use crate::harness::{Job, counted_by_survivors};

const SIZE: usize = 100_000;

fn named(name: &str, consistency: &str) -> TableOptions {
    let consistency = Consistency::parse(consistency).unwrap();
    TableOptions { name: Some(name.into()), consistency, ..TableOptions::default() }
}

/// Adds ones to all values and counts completed adds; the last rank does so until it is killed.
pub fn adding(world: &World) {
    let tables = Tables::join(world, Role::Both).unwrap();
    let values = ArrayTable::<i64>::create(&tables, SIZE, None, named("values", "async")).unwrap();
    let counts =
        ArrayTable::<i64>::create(&tables, world.size() + 1, None, named("counts", "async")).unwrap();
    let victim = world.size() - 1;
    let count = |place: usize| {
        let mut one = vec![0; world.size() + 1];
        one[place] = 1;
        counts.add(&one).unwrap();
    };
    let ones = vec![1; SIZE];
    eprintln!("running");
    for _ in 0..60 {
        values.add(&ones).unwrap();
        count(world.rank());
    }
    while world.rank() == victim {
        values.add(&ones).unwrap();
        count(world.rank());
    }
    count(world.size());
    let completed = counted_by_survivors(world, &counts);
    let mut all = vec![0; SIZE];
    values.get(&mut all).unwrap();
    let sum: i64 = completed[..world.size()].iter().sum();
    // The victim's last add may have been applied, fully or in part, without having been counted.
    assert!(all.iter().all(|&value| value == sum || value == sum + 1), "{completed:?}: {:?}", &all[..5]);
}

#[test]
fn a_killed_worker_loses_no_completed_add_and_holds_no_lock() {
    for round in 0..12 {
        let mut job = Job::start(3, "adding");
        (0..3).for_each(|rank| drop(job.wait_for_output(rank, "running")));
        std::thread::sleep(Duration::from_micros(round * 1733));
        job.kill(2);
        for rank in 0..2 {
            let ending = job.end_of(rank);
            assert!(ending.status.success(), "round {round}, rank {rank}: {}", ending.output);
        }
    }
}

/// Works in rounds, or within a staleness bound, until the death of the killed rank is detected.
pub fn in_step(world: &World) {
    let tables = Tables::join(world, Role::Both).unwrap();
    let consistency = std::env::var("UNISONO_TEST_CONSISTENCY").unwrap();
    let table = ArrayTable::<f32>::create(&tables, 1000, None, named("w", &consistency)).unwrap();
    let mut values = vec![0.0; 1000];
    // Rounds end with the victim, however late it is killed; nothing else ends the ranks that continue.
    let steps = if world.rank() == 2 || consistency == "bsp" { usize::MAX } else { 300 };
    eprintln!("running");
    for step in 0..steps {
        // Long enough to be killed in the middle.
        std::thread::sleep(Duration::from_millis(1));
        let work = || {
            table.add(&values)?;
            table.tick()?;
            table.get(&mut vec![0.0; 1000])
        };
        if let Err(error) = work() {
            assert!(step < steps);
            assert_eq!(error.kind(), Kind::PeerLost, "{error}");
            assert!(error.to_string().contains("rank 2"), "{error}");
            return eprintln!("noticed");
        }
        values[step % 1000] += 1.0;
    }
    eprintln!("went on");
}

#[test]
fn a_killed_worker_ends_rounds_but_not_bounds() {
    for (consistency, expected) in [("bsp", "noticed"), ("ssp:1", "went on"), ("async", "went on")] {
        let mut job = Job::start_with(3, "in step", &[("UNISONO_TEST_CONSISTENCY", consistency)]);
        (0..3).for_each(|rank| drop(job.wait_for_output(rank, "running")));
        std::thread::sleep(Duration::from_millis(60));
        job.kill(2);
        for rank in 0..2 {
            let ending = job.end_of(rank);
            assert!(ending.status.success(), "{consistency}, rank {rank}: {}", ending.output);
            assert!(ending.output.contains(expected), "{consistency}, rank {rank}: {}", ending.output);
        }
    }
}

/// The last rank is killed repeatedly; its successor finds the tables and continues counting.
pub fn come_back(world: &World) {
    let tables = Tables::join(world, Role::Both).unwrap();
    let values = ArrayTable::<i64>::create(&tables, SIZE, None, named("values", "ssp:1000000")).unwrap();
    let counts = ArrayTable::<i64>::create(&tables, world.size(), None, named("counts", "async")).unwrap();
    assert_eq!(tables.worker_id(), Some(world.rank()), "ids outlive a process");
    let (victim, ones) = (world.size() - 1, vec![1; SIZE]);
    let mut mine = vec![0; world.size()];
    mine[world.rank()] = 1;
    let steps = if world.rank() == victim && world.restarts() < RESTARTS { usize::MAX } else { 40 };
    for step in 0..steps {
        values.add(&ones).unwrap();
        values.tick().unwrap();
        counts.add(&mine).unwrap();
        if step == 0 {
            eprintln!("running");
        }
    }
    // The new process takes part too: the dead ones died outside this call.
    tables.barrier().unwrap();
    let mut completed = vec![0; world.size()];
    counts.get(&mut completed).unwrap();
    assert!(completed[victim] > 40, "what the dead ones added is there: {completed:?}");
    let mut all = vec![0; SIZE];
    values.get(&mut all).unwrap();
    let sum: i64 = completed.iter().sum();
    let most = sum + RESTARTS as i64;
    assert!(all.iter().all(|value| (sum..=most).contains(value)), "{completed:?}: {:?}", &all[..5]);
}

const RESTARTS: usize = 5;

#[test]
fn a_restarted_worker_finds_its_tables_and_continues() {
    let mut job = Job::start_restartable(3, "come back", &[], RESTARTS);
    for death in 1..=RESTARTS {
        job.wait_for_output(2, "running");
        std::thread::sleep(Duration::from_millis(20));
        job.kill_silently(2);
        job.restart(2, RESTARTS - death);
    }
    job.all_succeed();
}
