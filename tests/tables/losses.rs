//! Workers that die without disconnecting, and hosts that must keep serving while others still work.

use std::time::{Duration, Instant};

use unisono::tables::{ArrayTable, Consistency, Role, TableOptions, Tables};
use unisono::{Error, Kind};

fn options(text: &str) -> TableOptions {
    TableOptions { consistency: Consistency::parse(text).unwrap(), ..TableOptions::default() }
}

/// Makes steps as a worker; returns their number, and the error if one occurred.
fn work(table: &ArrayTable<i64>, steps: usize) -> (usize, Option<unisono::Error>) {
    for step in 0..steps {
        let made = table.add(&[1]).and_then(|()| table.tick()).and_then(|()| table.get(&mut [0]));
        if let Err(error) = made {
            return (step, Some(error));
        }
    }
    (steps, None)
}

/// The waiting worker waits at a server whose own rank makes no calls: only the server thread can detect the dead worker there.
#[test]
fn the_server_detects_a_worker_that_dies_on_another_host() {
    let roles = [Role::Server, Role::Worker, Role::Worker];
    for (consistency, continues) in [("bsp", false), ("ssp:1", true), ("bsp:backup=1", true), ("async", true)]
    {
        unisono::testing::spawn_on_hosts(3, 3, |world| {
            let tables = Tables::join(world, roles[world.rank()]).unwrap();
            let tables = tables.with_timeout(Duration::from_secs(40));
            let table = ArrayTable::<i64>::create(&tables, 1, None, options(consistency)).unwrap();
            match world.rank() {
                0 => {}
                1 => match work(&table, 30) {
                    (steps, None) => assert!(continues && steps == 30, "{consistency}"),
                    (steps, Some(error)) => {
                        assert!(!continues, "{consistency}, step {steps}: {error}");
                        assert_eq!(error.kind(), Kind::PeerLost, "{error}");
                        assert!(error.to_string().contains("rank 2"), "{error}");
                    }
                },
                _ => {
                    assert_eq!(work(&table, 5).0, 5, "the other one is alive");
                    // Never disconnects, like a process that is killed.
                    std::mem::forget((table, tables));
                }
            }
        });
    }
}

/// The first worker waits for the second, on its own host and on another one.
#[test]
fn a_worker_that_left_is_not_reported_as_a_process_that_ended() {
    for hosts in [1, 2] {
        unisono::testing::spawn_on_hosts(2, hosts, |world| {
            let tables = Tables::join(world, Role::Both).unwrap();
            let tables = tables.with_timeout(Duration::from_secs(40));
            let table = ArrayTable::<i64>::create(&tables, 1, None, options("bsp")).unwrap();
            if world.rank() == 1 {
                // The world is left while the table still counts on this worker.
                return std::mem::forget((table, tables));
            }
            let error = work(&table, 2).1.unwrap();
            let Error::PeerLost { lost, .. } = &error else { panic!("{hosts} hosts: {error}") };
            assert!(lost[0].rank == 1 && lost[0].left, "{hosts} hosts: {error}");
            assert!(error.to_string().contains("it left the world"), "{hosts} hosts: {error}");
        });
    }
}

const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

#[test]
fn a_host_serves_as_long_as_it_gets_requests() {
    unisono::testing::spawn_on_hosts(2, 2, |world| {
        let tables = Tables::join(world, Role::Both).unwrap();
        let table = ArrayTable::<i64>::create(&tables, 10, None, TableOptions::default()).unwrap();
        match world.rank() {
            // Its timeout is shorter than the other rank's total work, and far longer than that rank's pauses.
            0 => {
                tables.with_timeout(CLOSE_TIMEOUT).close().unwrap();
                let error = table.get(&mut [0; 10]).unwrap_err();
                assert!(error.to_string().contains("a call before close()"), "{error}");
            }
            _ => {
                let began = Instant::now();
                for step in 1.. {
                    std::thread::sleep(CLOSE_TIMEOUT / 50);
                    table.add(&[1; 10]).unwrap();
                    let mut values = [0; 10];
                    table.get(&mut values).unwrap();
                    assert_eq!(values, [step; 10]);
                    if began.elapsed() > CLOSE_TIMEOUT * 3 / 2 {
                        break;
                    }
                }
                tables.close().unwrap();
            }
        }
    });
}

#[test]
fn handles_of_an_earlier_membership_do_not_affect_a_later_one() {
    unisono::testing::spawn_on_hosts(2, 2, |world| {
        let before = Tables::join(world, Role::Both).unwrap();
        let old = ArrayTable::<i64>::create(&before, 10, None, options("bsp")).unwrap();
        old.add(&[1; 10]).unwrap();
        before.close().unwrap();
        let tables = Tables::join(world, Role::Both).unwrap();
        let table = ArrayTable::<i64>::create(&tables, 10, None, options("bsp")).unwrap();
        drop((old, before));
        tables.barrier().unwrap();
        for step in 1..=3 {
            if world.rank() == 1 {
                std::thread::sleep(Duration::from_millis(100));
            }
            table.add(&[1; 10]).unwrap();
            let mut values = [0; 10];
            table.get(&mut values).unwrap();
            assert_eq!(values, [2 * step; 10]);
        }
    });
}
