//! Tables that are created after a rank was restarted: it finds the existing ones, and creates the later ones with the other
//! ranks.

use std::time::Duration;

use unisono::tables::{
    AddOptions, ArrayTable, Consistency, CustomTable, KeyType, KeyValueTable, Keys, MatrixTable, Requests,
    Role, ServerHalf, TableOptions, Tables, WorkerHalf,
};
use unisono::{DType, Kind, Result, World};

use crate::harness::Job;

fn named(name: &str) -> TableOptions {
    TableOptions { name: Some(name.into()), ..TableOptions::default() }
}

fn victim() -> usize {
    std::env::var("UNISONO_TEST_VICTIM").unwrap().parse().unwrap()
}

fn wait_for_death() -> ! {
    eprintln!("between");
    loop {
        std::thread::sleep(Duration::from_secs(60));
    }
}

/// A counter on server 0.
struct Counter;

impl ServerHalf for Counter {
    fn name(&self) -> &str {
        "counter"
    }
    fn bytes(&self, _server: usize, _servers: usize) -> usize {
        8
    }
    fn add(&self, memory: &mut [u8], _worker: usize, _request: &[u8]) -> Result<()> {
        memory[0] += 1;
        Ok(())
    }
    fn get(&self, memory: &mut [u8], _worker: usize, _request: &[u8], reply: &mut Vec<u8>) -> Result<()> {
        reply.push(memory[0]);
        Ok(())
    }
}

impl WorkerHalf for Counter {
    type Delta = ();
    type Query = ();
    type Answer = u8;
    fn split_add(&self, _delta: &(), _servers: usize) -> Result<Requests> {
        Ok(vec![(0, Vec::new())])
    }
    fn split_get(&self, _query: &(), _servers: usize) -> Result<Requests> {
        Ok(vec![(0, Vec::new())])
    }
    fn merge(&self, _query: &(), replies: Requests) -> Result<u8> {
        Ok(replies[0].1[0])
    }
}

/// The victim dies before some tables are created, is restarted, and creates them with the other ranks.
pub fn later(world: &World) {
    let (size, is_victim) = (world.size(), world.rank() == victim());
    let tables = Tables::join(world, Role::Both).unwrap();
    let early = ArrayTable::<i64>::create(&tables, 5, Some(&[7; 5]), named("early")).unwrap();
    // Without a name, it is found by its position in the order of creation.
    let second = ArrayTable::<i64>::create(&tables, 2, None, TableOptions::default()).unwrap();
    if world.restarts() == 0 {
        early.add(&[1; 5]).unwrap();
        second.add(&[1; 2]).unwrap();
        tables.barrier().unwrap();
        if is_victim {
            wait_for_death();
        }
    }
    world.resume();
    let mut values = [0; 5];
    early.get(&mut values).unwrap();
    assert_eq!(values, [7 + size as i64; 5], "what was there stays");
    // A mistake on one rank is reported on all ranks, including one that was restarted.
    let rows = if is_victim { 0 } else { 3 };
    let rejected =
        MatrixTable::<f32>::create(&tables, (rows, 2), None, named("wrong")).map(drop).unwrap_err();
    assert_eq!(rejected.kind(), Kind::Usage, "{rejected}");
    let master = [world.rank() as f32; 6];
    let late = MatrixTable::create(&tables, (3, 2), Some(&master), named("late")).unwrap();
    late.add(&[1.0; 6]).unwrap();
    let map = KeyValueTable::create(&tables, KeyType::Int, 1, DType::I64, named("map")).unwrap();
    map.add(Keys::Int(&[3, 3]), bytemuck::cast_slice(&[1i64, 1]), &AddOptions::default()).unwrap();
    let own = CustomTable::create(&tables, "own", Counter, Counter, Consistency::Async).unwrap();
    own.add(&()).unwrap();
    tables.barrier().unwrap();
    let mut values = [0.0; 6];
    late.get(&mut values).unwrap();
    assert_eq!(values, [size as f32; 6], "the first worker's values are zeros");
    let mut value = [0i64];
    map.get(Keys::Int(&[3]), bytemuck::cast_slice_mut(&mut value)).unwrap();
    assert_eq!(value, [2 * size as i64]);
    assert_eq!(own.get(&()).unwrap() as usize, size);
    // All ranks save the same tables, whether they created or found them.
    let folder =
        std::env::temp_dir().join(format!("unisono-later-{}", std::env::var("UNISONO_JOB").unwrap()));
    drop(own);
    tables.barrier().unwrap();
    tables.save(folder.to_str().unwrap()).unwrap();
    late.add(&[5.0; 6]).unwrap();
    tables.barrier().unwrap();
    tables.load(folder.to_str().unwrap()).unwrap();
    late.get(&mut values).unwrap();
    assert_eq!(values, [size as f32; 6]);
    tables.barrier().unwrap();
    if world.rank() == 0 {
        std::fs::remove_dir_all(&folder).unwrap();
    }
    // The process that died does not retain what all ranks have dropped.
    drop(early);
    tables.barrier().unwrap();
    let again = ArrayTable::<i64>::create(&tables, 5, None, named("early")).unwrap();
    let mut values = [1; 5];
    again.get(&mut values).unwrap();
    assert_eq!(values, [0; 5]);
    tables.barrier().unwrap();
}

#[test]
fn a_restarted_rank_creates_later_tables_with_the_others() {
    for victim in [2, 0] {
        let environment = [("UNISONO_TEST_VICTIM", victim.to_string())];
        let environment = environment.each_ref().map(|(name, value)| (*name, value.as_str()));
        let mut job = Job::start_restartable(3, "later tables", &environment, 2);
        job.wait_for_output(victim, "between");
        job.kill_silently(victim);
        job.restart(victim, 1);
        job.all_succeed();
    }
}

/// A table whose creator stops in the middle, between two of the calls that creation consists of.
struct Slow;

impl ServerHalf for Slow {
    fn name(&self) -> &str {
        "slow"
    }
    fn bytes(&self, _server: usize, _servers: usize) -> usize {
        8
    }
    fn prepare(&self, _memory: &mut [u8], _server: usize, _servers: usize) {
        wait_for_death();
    }
    fn add(&self, _memory: &mut [u8], _worker: usize, _request: &[u8]) -> Result<()> {
        Ok(())
    }
    fn get(&self, _memory: &mut [u8], _worker: usize, _request: &[u8], _reply: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }
}

pub fn half_made(world: &World) {
    let tables = Tables::join(world, Role::Both).unwrap();
    let made = CustomTable::create(&tables, "slow", Slow, Counter, Consistency::Async);
    let error = made.map(drop).unwrap_err();
    eprintln!("{:?}: {error}", error.kind());
}

#[test]
fn a_rank_killed_while_creating_a_table_is_lost_for_all_ranks() {
    let mut job = Job::start_restartable(3, "half made", &[], 5);
    job.wait_for_output(0, "between");
    job.kill_silently(0);
    let rejected = job.memory.restart(0).unwrap_err().to_string();
    assert!(rejected.contains("while it made, saved or loaded a table"), "{rejected}");
    for rank in [1, 2] {
        let ending = job.end_of(rank);
        assert!(ending.status.success() && ending.output.contains("PeerLost"), "{}", ending.output);
    }
}

/// A counter whose add never returns in the victim's first process.
struct Deadly {
    signal: Option<std::path::PathBuf>,
}

impl ServerHalf for Deadly {
    fn name(&self) -> &str {
        "deadly"
    }
    fn bytes(&self, _server: usize, _servers: usize) -> usize {
        8
    }
    fn add(&self, memory: &mut [u8], _worker: usize, _request: &[u8]) -> Result<()> {
        if let Some(signal) = &self.signal {
            std::fs::write(signal, "inside").unwrap();
            wait_for_death();
        }
        memory[0] += 1;
        Ok(())
    }
    fn get(&self, memory: &mut [u8], _worker: usize, _request: &[u8], reply: &mut Vec<u8>) -> Result<()> {
        reply.push(memory[0]);
        Ok(())
    }
}

/// The last rank is killed after its add was accepted into a round and before it is applied. A round may complete without
/// it.
pub fn in_a_round(world: &World) {
    let signal = std::path::PathBuf::from(std::env::var("UNISONO_TEST_SIGNAL").unwrap());
    let dies = world.rank() == 2 && world.restarts() == 0;
    let tables = Tables::join(world, Role::Both).unwrap();
    let half = Deadly { signal: dies.then(|| signal.clone()) };
    let table =
        CustomTable::create(&tables, "rounds", half, Counter, Consistency::Bsp { backup: 1, mean: false })
            .unwrap();
    while !dies && !signal.exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    for step in 0..20 {
        table.add(&()).unwrap();
        assert!(table.get(&()).unwrap() > step, "every round has adds");
    }
    tables.finish().unwrap();
    eprintln!("went on");
}

#[test]
fn a_worker_killed_in_a_round_does_not_block_the_others() {
    for comes_back in [false, true] {
        let signal = std::env::temp_dir().join(format!("unisono-signal-{}-{comes_back}", std::process::id()));
        let _ = std::fs::remove_file(&signal);
        let environment = [("UNISONO_TEST_SIGNAL", signal.to_str().unwrap())];
        let mut job = Job::start_restartable(3, "in a round", &environment, usize::from(comes_back));
        job.wait_for_output(2, "between");
        match comes_back {
            true => {
                job.kill_silently(2);
                job.restart(2, 0);
            }
            false => job.kill(2),
        }
        for rank in 0..2 + usize::from(comes_back) {
            let ending = job.end_of(rank);
            assert!(
                ending.status.success() && ending.output.contains("went on"),
                "rank {rank}: {}",
                ending.output
            );
        }
        std::fs::remove_file(&signal).unwrap();
    }
}

/// Local copies belong to processes: a process that replaces another has none.
pub fn averages(world: &World) {
    let tables = Tables::join(world, Role::Both).unwrap();
    let options = TableOptions { consistency: Consistency::Average, ..named("copies") };
    let table = ArrayTable::<f32>::create(&tables, 3, Some(&[1.0; 3]), options);
    match (world.rank(), world.restarts()) {
        (0, _) => table.map(drop).unwrap(),
        (_, 0) => wait_for_death(),
        _ => {
            let error = table.map(drop).unwrap_err();
            assert_eq!(error.kind(), Kind::Unsupported, "{error}");
            assert!(error.to_string().contains("copy ended with its process"), "{error}");
        }
    }
}

#[test]
fn a_lost_average_copy_is_not_read_as_zeros() {
    let mut job = Job::start_restartable(2, "averages", &[], 1);
    job.wait_for_output(1, "between");
    job.kill_silently(1);
    job.restart(1, 0);
    job.all_succeed();
}
