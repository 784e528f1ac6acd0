//! User-defined tables: requests reach their shards one at a time, clocks apply, and errors name the mistake.

use std::time::Duration;

use unisono::tables::{Consistency, CustomTable, Requests, Role, ServerHalf, Tables, WorkerHalf};
use unisono::testing::spawn_on_hosts;
use unisono::{Error, Kind, Result};

use crate::on_all_paths;

#[path = "../../examples/tables/user_defined.rs"]
mod example;

/// A shard that receives this number holds its lock for two seconds.
const SLOW: u64 = 1 << 40;

/// A list of numbers in each shard, in order of arrival, preceded by their count.
struct List {
    capacity: usize,
}

impl ServerHalf for List {
    fn name(&self) -> &str {
        "list"
    }

    fn bytes(&self, server: usize, _servers: usize) -> usize {
        8 * (2 + self.capacity + server)
    }

    fn prepare(&self, memory: &mut [u8], server: usize, servers: usize) {
        let numbers: &mut [u64] = bytemuck::cast_slice_mut(memory);
        numbers[1] = (servers * 100 + server) as u64;
    }

    fn add(&self, memory: &mut [u8], _worker: usize, request: &[u8]) -> Result<()> {
        let numbers: &mut [u64] = bytemuck::cast_slice_mut(memory);
        let count = numbers[0] as usize;
        let new: &[[u8; 8]] = request.as_chunks().0;
        if count + new.len() > self.capacity {
            return Err(Error::usage("add", "room", format!("{count} numbers"), "make the list longer"));
        }
        if new.first() == Some(&SLOW.to_ne_bytes()) {
            std::thread::sleep(Duration::from_secs(2));
        }
        let places = numbers[2 + count..].iter_mut();
        places.zip(new).for_each(|(place, &number)| *place = u64::from_ne_bytes(number));
        numbers[0] += new.len() as u64;
        Ok(())
    }

    fn get(&self, memory: &mut [u8], _worker: usize, _request: &[u8], reply: &mut Vec<u8>) -> Result<()> {
        let numbers: &[u64] = bytemuck::cast_slice(memory);
        assert_eq!(numbers.len() - 2 - self.capacity, numbers[1] as usize % 100, "each server has its own");
        reply.extend_from_slice(bytemuck::cast_slice(&numbers[2..2 + numbers[0] as usize]));
        Ok(())
    }
}

struct Deal;

impl WorkerHalf for Deal {
    type Delta = [u64];
    type Query = ();
    type Answer = Vec<Vec<u64>>;

    fn split_add(&self, delta: &[u64], servers: usize) -> Result<Requests> {
        if delta == [u64::MAX] {
            return Ok(vec![(servers, Vec::new())]);
        }
        let mine = |server: usize| delta.iter().filter(move |&&number| number as usize % servers == server);
        Ok((0..servers)
            .map(|server| (server, mine(server).flat_map(|number| number.to_ne_bytes()).collect()))
            .collect())
    }

    fn split_get(&self, _: &(), servers: usize) -> Result<Requests> {
        Ok((0..servers).rev().map(|server| (server, Vec::new())).collect())
    }

    fn merge(&self, _: &(), replies: Requests) -> Result<Vec<Vec<u64>>> {
        assert!(replies.windows(2).all(|pair| pair[0].0 == pair[1].0 + 1), "in the order of the requests");
        let numbers =
            |reply: &Vec<u8>| reply.as_chunks().0.iter().map(|&bytes| u64::from_ne_bytes(bytes)).collect();
        Ok(replies.iter().rev().map(|(_, reply)| numbers(reply)).collect())
    }
}

fn list(tables: &Tables, name: &str, capacity: usize, consistency: &str) -> Result<CustomTable<Deal>> {
    let consistency = Consistency::parse(consistency).unwrap();
    CustomTable::create(tables, name, List { capacity }, Deal, consistency)
}

#[test]
fn requests_reach_their_shards_complete_and_in_order() {
    for ranks in [1, 2, 3, 4, 6] {
        on_all_paths(ranks, |world, tables| {
            let table = list(tables, "numbers", 10_000, "async").unwrap();
            let number = |step: u64| (world.rank() as u64) << 32 | step;
            for step in 0..200 {
                let pair = [number(2 * step), number(2 * step + 1)];
                match step % 2 {
                    0 => table.add(&pair).unwrap(),
                    _ => table.add_soon(&pair).unwrap(),
                }
            }
            tables.barrier().unwrap();
            let found = table.get(&()).unwrap();
            assert_eq!(found.len(), ranks);
            for (server, numbers) in found.iter().enumerate() {
                assert!(numbers.iter().all(|&number| number as usize % ranks == server));
                for rank in 0..ranks as u64 {
                    let of_rank: Vec<u64> =
                        numbers.iter().copied().filter(|number| number >> 32 == rank).collect();
                    assert!(of_rank.is_sorted());
                }
            }
            assert_eq!(found.iter().map(Vec::len).sum::<usize>(), 400 * ranks);
            tables.barrier().unwrap();
        });
    }
}

#[test]
fn rounds_and_bounds_hold() {
    let paths = on_all_paths(3, |world, tables| {
        let table = list(tables, "rounds", 1000, "bsp").unwrap();
        let mut seen = Vec::new();
        for round in 0..30 {
            std::thread::sleep(Duration::from_micros((world.rank() as u64 * 977 + round * 331) % 500));
            table.add(&[round * 3 + world.rank() as u64]).unwrap();
            let mut numbers = table.get(&()).unwrap().concat();
            numbers.sort_unstable();
            assert_eq!(numbers, (0..3 * (round + 1)).collect::<Vec<_>>());
            seen.push(numbers);
        }
        tables.finish().unwrap();
        seen
    });
    let seen = paths.concat();
    assert!(seen.iter().all(|other| *other == seen[0]));
    on_all_paths(3, |world, tables| {
        let table = list(tables, "unequal", 1000, "bsp").unwrap();
        for round in 0..5 * (world.rank() as u64 + 1) {
            table.add(&[round]).unwrap();
            table.get(&()).unwrap();
        }
        table.finish().unwrap();
        tables.barrier().unwrap();
        assert_eq!(table.get(&()).unwrap().concat().len(), 5 + 10 + 15);
    });
    on_all_paths(3, |_, tables| {
        let table = list(tables, "bound", 1000, "ssp:1").unwrap();
        for step in 0..30 {
            table.add(&[step]).unwrap();
            table.tick().unwrap();
            // The others have ticked at least as often as this worker had before.
            let found = table.get(&()).unwrap().concat().len() as u64;
            assert!(found > 3 * step, "{found} at {step}");
        }
        assert!(table.staleness().len() <= 2);
        tables.finish().unwrap();
    });
}

#[test]
fn mistakes_are_named() {
    on_all_paths(2, |world, tables| {
        let table = list(tables, "short", 3, "async").unwrap();
        let rejected = |result: Result<()>, words: &[&str]| {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), Kind::Usage, "{error}");
            words.iter().for_each(|word| assert!(error.to_string().contains(word), "{word}: {error}"));
        };
        if world.rank() == 0 {
            table.add(&[0, 2]).unwrap();
            // The other shard has room, on whichever host it is.
            rejected(table.add(&[4, 6, 1]), &["room", "2 numbers"]);
            table.add_soon(&[8, 10]).unwrap_or_else(|error| rejected(Err(error), &["room"]));
            let _ = table.flush();
            rejected(table.add(&[u64::MAX]), &["servers 0 to 1", "server 2"]);
            assert_eq!(table.get(&()).unwrap(), [vec![0, 2], vec![1]]);
        }
        rejected(list(tables, "short", 3, "async").map(drop), &["a new name"]);
        rejected(list(tables, "other", 3, "average").map(drop), &["another consistency"]);
        rejected(list(tables, "other", 3, "bsp:backup=2").map(drop), &["fewer backup workers"]);
        rejected(list(tables, "huge", usize::MAX / 64, "async").map(drop), &["bytes"]);
        let error = list(tables, "different", 3 + world.rank(), "async").map(drop).unwrap_err();
        assert!(error.to_string().contains("different"), "{error}");
    });
}

#[test]
fn a_timeout_names_the_owner_of_the_lock() {
    spawn_on_hosts(2, 1, |world| {
        let tables = &Tables::join(world, Role::Both).unwrap();
        let table = list(tables, "slow", 10, "async").unwrap();
        tables.barrier().unwrap();
        match world.rank() {
            0 => table.add(&[SLOW]).unwrap(),
            _ => {
                std::thread::sleep(Duration::from_millis(500));
                let error = table.with_timeout(Duration::from_millis(200)).get(&()).unwrap_err();
                assert_eq!(error.kind(), Kind::Timeout, "{error}");
                assert!(error.to_string().contains("waiting for rank 0"), "{error}");
            }
        }
        tables.barrier().unwrap();
    });
}

/// A call that fails on one shard counts as a call on all hosts: later rounds are still complete.
#[test]
fn rounds_stay_in_step_after_an_error() {
    on_all_paths(3, |world, tables| {
        let table = list(tables, "failing", 20, "bsp").unwrap();
        let me = world.rank() as u64;
        for round in 0..6 {
            let outcome = match round {
                // Server 2 has no room for that many numbers, and server 1 must still get its number.
                2 if me == 1 => table.add(&[[2 + 3 * me; 21].as_slice(), &[1 + 3 * me]].concat()),
                _ => table.add(&[1 + 3 * me]),
            };
            assert_eq!(outcome.is_err(), round == 2 && me == 1, "{outcome:?}");
            let numbers = table.get(&()).unwrap();
            assert_eq!(numbers[1].len() as u64, 3 * (round + 1), "{numbers:?}");
            assert!(numbers[2].is_empty());
        }
        tables.finish().unwrap();
    });
}

#[test]
fn workers_and_servers_may_be_separate_ranks() {
    let roles = [Role::Worker, Role::Server, Role::None, Role::Server, Role::Worker];
    for hosts in 1..=roles.len() {
        for consistency in ["async", "bsp", "ssp:1"] {
            spawn_on_hosts(roles.len(), hosts, |world| {
                let tables = Tables::join(world, roles[world.rank()]).unwrap();
                let table = list(&tables, "apart", 100, consistency).unwrap();
                for number in 0..10 {
                    let outcome = table.add(&[number]);
                    assert_eq!(outcome.is_ok(), tables.worker_id().is_some());
                    if outcome.is_ok() {
                        let found = table.get(&()).unwrap().concat().len() as u64;
                        let least = if consistency == "bsp" { 2 * number + 2 } else { number + 1 };
                        assert!(found >= least, "{found} at {number}");
                        table.tick().unwrap();
                    }
                }
                tables.finish().unwrap();
                tables.barrier().unwrap();
                if tables.worker_id().is_some() {
                    let mut all = table.get(&()).unwrap();
                    all.iter_mut().for_each(|numbers| numbers.sort_unstable());
                    assert_eq!(all, [[0, 0, 2, 2, 4, 4, 6, 6, 8, 8], [1, 1, 3, 3, 5, 5, 7, 7, 9, 9]]);
                }
                tables.barrier().unwrap();
            });
        }
    }
}

#[test]
fn the_example_finds_the_most_frequent_words() {
    for (ranks, hosts) in [(1, 1), (3, 1), (3, 2), (4, 4)] {
        spawn_on_hosts(ranks, hosts, |world| example::run(world).unwrap());
    }
}
