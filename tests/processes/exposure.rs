//! Memory of a rank that other ranks access in place: after an error only its caller accesses it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use unisono::{DType, Group, Kind, ReduceOp, Result, World};

use crate::harness::Job;

/// Long enough that a rank can be stopped while it works on the buffer.
const ELEMENTS: usize = 4 << 20;

/// Rank 1 may finish before it stops itself: then the attempt is repeated.
const ATTEMPTS: usize = 30;

type Verb = fn(&Group, &mut [u8]) -> Result<()>;

/// Rank 1 stops itself in the middle of each of these, as soon as it has changed its buffer.
const VERBS: [(&str, Verb); 2] = [
    ("all_reduce", |group, bytes| group.raw().all_reduce(bytes, DType::F64, ReduceOp::Sum)),
    ("broadcast", |group, bytes| group.raw().broadcast(bytes, DType::F64, 0)),
];

pub fn late(world: &World) {
    for (name, verb) in VERBS {
        let caught = (0..ATTEMPTS).any(|_| attempt(world, name, verb));
        assert!(caught, "rank 1 was never stopped inside {name}");
    }
}

/// Whether rank 0 gave up while rank 1 was working.
fn attempt(world: &World, name: &str, verb: Verb) -> bool {
    let (rank, all) = (world.rank(), world.group());
    let pair = all.subgroup(&[0, 1]).unwrap().unwrap();
    let mut pids = [0i32; 2];
    all.all_gather(&[std::process::id() as i32], &mut pids).unwrap();
    let mut buffer = world.empty(8 * ELEMENTS).unwrap();
    fill(&mut buffer, if rank == 0 { 2.0 } else { 1.0 });
    all.barrier().unwrap();
    if rank == 1 {
        let outcome = stopped_half_way(&mut buffer, |bytes| verb(&pair, bytes));
        // Its own error, or the values that rank 0 had when it made the call.
        let right = if name == "all_reduce" { 3.0 } else { 2.0 };
        assert!(outcome.is_err() || holds(&buffer, right), "{name} succeeded with what rank 0 wrote later");
    } else {
        let error = verb(&pair.with_timeout(Duration::from_secs(2)), &mut buffer).err();
        if let Some(error) = &error {
            assert_eq!(error.kind(), Kind::Timeout, "{error}");
        }
        fill(&mut buffer, -7.0);
        wake_until(pids[1], || all.barrier().unwrap());
        assert!(error.is_none() || holds(&buffer, -7.0), "{name}: written to after its error");
        let caught = u8::from(error.is_some());
        all.broadcast(&mut [caught], 0).unwrap();
        after(world, &mut buffer);
        return caught == 1;
    }
    all.barrier().unwrap();
    let mut caught = [0u8];
    all.broadcast(&mut caught, 0).unwrap();
    after(world, &mut buffer);
    caught[0] == 1
}

/// The same memory is used for calls on other groups.
fn after(world: &World, buffer: &mut [u8]) {
    fill(buffer, (world.rank() + 1) as f64);
    world.group().raw().all_reduce(&mut *buffer, DType::F64, ReduceOp::Sum).unwrap();
    assert!(holds(buffer, 3.0));
}

/// Makes a call while another thread stops this process as soon as the last part of the buffer changes.
fn stopped_half_way<R>(buffer: &mut [u8], call: impl FnOnce(&mut [u8]) -> R) -> R {
    let over = AtomicBool::new(false);
    // The part that rank 1 works on begins in the middle.
    let place = buffer.as_mut_ptr().expose_provenance() + buffer.len() / 2 + 4096;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: the buffer outlives the scope, and all accesses of this thread are atomic.
            let place = unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(place)) };
            let before = place.load(Ordering::Relaxed);
            while !over.load(Ordering::Relaxed) {
                if place.load(Ordering::Relaxed) != before {
                    kill_process(Pid::from_raw(std::process::id() as i32).unwrap(), Signal::STOP).unwrap();
                    return;
                }
            }
        });
        let _end = StopOnDrop(&over);
        call(buffer)
    })
}

/// Sends SIGCONT to a process repeatedly while `work` runs: it may stop itself later than expected.
fn wake_until(pid: i32, work: impl FnOnce()) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                // It may have ended meanwhile.
                let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::CONT);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let _end = StopOnDrop(&over);
        work();
    });
}

/// Ends a thread that polls this flag, also when a test fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn fill(buffer: &mut [u8], value: f64) {
    buffer.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&value.to_ne_bytes()));
}

fn holds(buffer: &[u8], value: f64) -> bool {
    buffer.chunks_exact(8).all(|chunk| chunk == value.to_ne_bytes())
}

#[test]
fn a_stopped_rank_does_not_write_to_arrays_of_failed_calls() {
    Job::start(2, "stopped half-way").all_succeed();
}
