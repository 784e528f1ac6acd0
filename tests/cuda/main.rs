//! Collectives and tables on CUDA memory: the same bits as on the host, over every path; and the errors without a device.

mod buffer;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../processes/harness.rs"]
mod harness;
mod speed;
mod suite;
mod tables;

use std::time::Duration;

use harness::Job;
use unisono::cuda::{Device, Span};
use unisono::testing::spawn;
use unisono::{DType, Kind, ReduceOp, World};

/// Not a test itself: what each rank of the other tests runs.
#[test]
fn rank() {
    let Ok(scenario) = std::env::var(harness::SCENARIO) else { return };
    if std::env::var("UNISONO_CUDA_PATH").is_ok_and(|path| path == "nccl") {
        let rank = std::env::var("UNISONO_RANK").unwrap();
        // SAFETY: no other thread of this program reads the environment yet. NCCL accepts two ranks on one device if they
        // appear to be on different hosts.
        unsafe { std::env::set_var("NCCL_HOSTID", format!("host-{rank}")) };
    }
    let world = World::init().unwrap();
    let group = world.group().with_timeout(Duration::from_secs(30));
    match scenario.as_str() {
        "every verb" => suite::run(&group),
        "endless" => suite::endless(&group),
        "speed" => speed::measure(&group),
        other => panic!("no scenario is called {other}"),
    }
}

/// Whether there is a device to test with; prints a note if not.
fn has_device(what: &str) -> bool {
    let device = Device::get(0);
    if let Err(missing) = &device {
        println!("left out: {what}: {missing}");
    }
    device.is_ok()
}

#[test]
fn without_a_device_there_is_one_clear_error_and_the_group_stays_usable() {
    spawn(2, |group| {
        let missing = Span::empty(4000);
        let error = group.raw().all_reduce(missing, DType::F32, ReduceOp::Sum).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported, "{error}");
        let error = group.raw().all_reduce(missing, DType::I32, ReduceOp::Avg).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage, "{error}");
        let mut value = [1i32];
        group.all_reduce(&mut value, ReduceOp::Sum).unwrap();
        assert_eq!(value, [2]);
    });
}

#[test]
fn a_device_reports_its_free_memory() {
    if has_device("free memory") {
        let device = Device::get(0).unwrap();
        // This process's context has taken some memory; other processes may come and go meanwhile.
        assert!(device.free_memory().unwrap() < device.memory());
    }
}

#[test]
fn every_verb_has_the_hosts_bits_on_threads() {
    if has_device("every verb on threads") {
        for size in [1, 3] {
            spawn(size, |group| suite::run(&group));
        }
    }
}

#[test]
fn every_verb_has_the_hosts_bits_on_processes() {
    if has_device("every verb on processes") {
        for path in ["ipc", "staged"] {
            for size in [1, 2, 4] {
                Job::start_with(size, "every verb", &[("UNISONO_CUDA_PATH", path)]).all_succeed();
            }
        }
    }
}

#[test]
fn every_verb_has_the_hosts_bits_by_nccl() {
    if has_device("every verb by NCCL") {
        for size in [2, 3] {
            Job::start_with(size, "every verb", &[("UNISONO_CUDA_PATH", "nccl")]).all_succeed();
        }
    }
}

#[test]
fn every_verb_works_between_simulated_hosts() {
    if has_device("every verb between hosts") {
        unisono::testing::spawn_on_hosts(3, 2, |world| suite::run(&world.group().deterministic(true)));
    }
}

#[test]
fn a_killed_rank_is_detected() {
    if !has_device("a rank that is killed") {
        return;
    }
    for path in ["ipc", "staged", "nccl"] {
        let mut job = Job::start_with(3, "endless", &[("UNISONO_CUDA_PATH", path)]);
        job.wait_for_output(0, "under way");
        job.kill(1);
        for rank in [0, 2] {
            let ending = job.end_of(rank);
            assert!(ending.output.contains("lost rank 1"), "rank {rank}: {}", ending.output);
        }
    }
}

/// Prints measurements; asserts nothing.
#[test]
fn speed_of_all_reduce() {
    if !has_device("speed") || std::env::var_os("UNISONO_TEST_SPEED").is_none() {
        return;
    }
    for path in ["ipc", "staged", "nccl"] {
        let mut job = Job::start_with(2, "speed", &[("UNISONO_CUDA_PATH", path)]);
        for rank in [0, 1] {
            let ending = job.end_of(rank);
            println!(
                "{}",
                ending.output.lines().filter(|line| line.contains(':')).collect::<Vec<_>>().join("\n")
            );
        }
    }
}
