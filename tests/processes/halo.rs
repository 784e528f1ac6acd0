//! Halo exchange between real processes: halos arrive, and a neighbour that is killed half-way is named.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use unisono::halo::{Boundary, Edges, Exchange, ExchangeOptions, Grid, Layout, Plan, Window};
use unisono::{DType, World};

use crate::harness::Job;

fn exchange(world: &World, shape: [usize; 3], direct: bool) -> Exchange {
    let grid =
        Grid::new(&[("h", -1), ("w", 1 + i64::from(world.size().is_multiple_of(2)))], world.size()).unwrap();
    let layout = Layout::new(&grid, &shape, &[("h", 1), ("w", 2)]).unwrap();
    let window = Window { kernel: 5, padding: (2, 2), ..Window::IDENTITY };
    let edges = Edges::both(Boundary::Periodic);
    let windows = [Window::IDENTITY, window, window];
    let plan = Plan::window(&layout, &windows, &[edges; 3], None, world.rank()).unwrap();
    let options = ExchangeOptions { direct, ..ExchangeOptions::of(DType::F32) };
    Exchange::new(world.group(), plan, options).unwrap()
}

/// Every element of the padded part equals that of the global array.
pub fn every_case(world: &World) {
    for (shape, direct) in [([2, 9, 7], true), ([3, 2, 5], true), ([1, 300, 200], true), ([2, 9, 7], false)] {
        let mut exchange = exchange(world, shape, direct);
        let value = |index: &[i64]| {
            let wrapped = index.iter().zip(shape).map(|(at, length)| at.rem_euclid(length as i64));
            wrapped.fold(0, |sum, at| sum * 331 + at) as f32
        };
        for round in 0..20 {
            let part: Vec<f32> =
                exchange.plan().own().indices().map(|at| value(&at) + round as f32).collect();
            let mut padded = vec![0.0; exchange.plan().needed().elements()];
            exchange.forward(&part, &mut padded).unwrap();
            let needed = exchange.plan().needed().indices();
            assert!(needed.zip(&padded).all(|(index, found)| *found == value(&index) + round as f32));
        }
    }
}

#[test]
fn halos_arrive_between_processes() {
    for size in [1, 2, 3, 4] {
        Job::start(size, "halo conformance").all_succeed();
    }
}

/// Exchanges until it fails, then prints the error and exits successfully.
pub fn endless(world: &World) {
    let mut exchange = exchange(world, [4, 200, 200], std::env::var("UNISONO_TEST_DIRECT").is_ok());
    let part = vec![1.0f32; exchange.plan().own().elements()];
    let mut padded = vec![0.0; exchange.plan().needed().elements()];
    eprintln!("running");
    loop {
        if let Err(error) = exchange.forward(&part, &mut padded) {
            eprintln!("{:?}: {error}", error.kind());
            return;
        }
    }
}

#[test]
fn a_neighbour_that_is_killed_half_way_is_named() {
    for environment in [&[("UNISONO_TEST_DIRECT", "1")][..], &[]] {
        let mut job = Job::start_with(4, "halo", environment);
        (0..4).for_each(|rank| drop(job.wait_for_output(rank, "running")));
        std::thread::sleep(Duration::from_millis(50));
        let (pid, killed) = (job.pid(3), Instant::now());
        job.signal(3, Signal::KILL);
        for rank in 0..3 {
            let ending = job.end_of(rank);
            assert!(ending.status.success(), "{}", ending.output);
            assert!(ending.output.contains("PeerLost"), "{}", ending.output);
            let named = ending.output.contains(&format!("rank 3 (process {pid}"));
            assert!(named || ending.output.contains("gave up"), "{}", ending.output);
        }
        assert!(killed.elapsed() < Duration::from_secs(20));
    }
}
