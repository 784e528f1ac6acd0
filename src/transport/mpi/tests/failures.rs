//! Ranks that are killed, stopped, or started by the wrong launcher.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::cases::{call, match_key, ring, start};
use crate::error::Error;
use crate::memory::{DType, ReduceOp};
use crate::transport::mpi::{MpiOptions, MpiTransport, library};
use crate::transport::{Call, Incoming, MatchKey, Outgoing, Transport};

pub(super) fn signal_rank_1(transport: &MpiTransport, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(transport.peers.pid(1) as i32).expect("a process id");
    rustix::process::kill_process(pid, signal).expect("the signal is sent");
}

/// Rank 1 dies while the others wait for it.
pub fn killed() {
    let transport = start();
    warm_up(&transport);
    if transport.rank() == 1 {
        signal_rank_1(&transport, rustix::process::Signal::KILL);
    }
    let began = Instant::now();
    let mut buffer = vec![0; 1 << 20];
    let receives = &mut [Incoming { from: 1, bytes: &mut buffer }];
    let outcome = transport.exchange(&call(&transport, 20.0), &match_key(1, 0, 1 << 20), &[], receives);
    report_and_exit(&transport, &outcome.expect_err("rank 1 is dead"), began);
}

/// Rank 1 dies while data of an all_reduce is in flight; later calls must fail immediately, too.
pub fn killed_midway() {
    let transport = start();
    warm_up(&transport);
    std::thread::scope(|scope| {
        if transport.rank() == 1 {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(100));
                signal_rank_1(&transport, rustix::process::Signal::KILL);
            });
        }
        let mut bytes = vec![0; 30 << 20];
        loop {
            let began = Instant::now();
            let call = Call { members: &[0, 1, 2], ..call(&transport, 20.0) };
            let match_key = match_key(1, MatchKey::COLLECTIVE, 30 << 20);
            let kind = (DType::U8, ReduceOp::Sum);
            if let Err(error) =
                transport.all_reduce_pipelined(&call, &match_key, &[0, 1, 2], &mut bytes, kind)
            {
                let again = transport.all_reduce_pipelined(&call, &match_key, &[0, 1, 2], &mut bytes, kind);
                assert!(again.is_err(), "rank 1 is still dead");
                return report_and_exit(&transport, &error, began);
            }
        }
    });
}

/// Rank 1 dies while rank 0 waits for it and rank 2 for rank 0, which never reports that it cancelled.
pub fn killed_two_steps_away() {
    let transport = start();
    warm_up(&transport);
    if transport.rank() == 1 {
        signal_rank_1(&transport, rustix::process::Signal::KILL);
    }
    let began = Instant::now();
    let from = if transport.rank() == 0 { 1 } else { 0 };
    let call = Call { members: &[0, 1, 2], ..call(&transport, 20.0) };
    let receives = &mut [Incoming { from, bytes: &mut [0] }];
    let outcome = transport.exchange(&call, &match_key(1, MatchKey::COLLECTIVE, 1), &[], receives);
    report_and_exit(&transport, &outcome.expect_err("rank 1 is dead"), began);
}

/// After as many rounds as ranks, every rank has communicated with every other: no rank is still starting when rank 1
/// dies.
fn warm_up(transport: &MpiTransport) {
    for _ in 0..transport.size() {
        ring(transport, 100, 0).expect("the ring");
    }
}

/// Writes the outcome to a file, waits for the other survivor, and exits.
pub(super) fn report_and_exit(transport: &dyn Transport, error: &Error, began: Instant) {
    let seconds = began.elapsed().as_secs_f64();
    // A launcher that ends a job does not always forward its last lines of output.
    let folder = PathBuf::from(std::env::var_os("UNISONO_TEST_NOTES").expect("the test names a folder"));
    let note = format!("{error} after {seconds:.2} s{}", if seconds > 10.0 { ", hung" } else { "" });
    println!("{note}");
    // Written and then renamed, so that no reader sees half of it.
    let name = transport.rank().to_string();
    std::fs::write(folder.join("part").with_extension(&name), &note).expect("the folder is writable");
    std::fs::rename(folder.join("part").with_extension(&name), folder.join(&name))
        .expect("the note is renamed");
    // Exiting first would end the other rank before it has detected the death.
    let deadline = Instant::now() + Duration::from_secs(20);
    while ["0", "2"].iter().any(|rank| !folder.join(rank).exists()) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::process::exit(3);
}

/// Rank 1 stops before it receives; rank 0 times out and resumes it, and both continue.
pub fn stopped() {
    let transport = start();
    ring(&transport, 100, 0).expect("the ring");
    if transport.rank() == 0 {
        signal_rank_1(&transport, rustix::process::Signal::STOP);
        let large = vec![1; 20 << 20];
        let sends = [Outgoing { to: 1, bytes: &large }];
        let outcome = transport.exchange(&call(&transport, 0.5), &match_key(1, 0, 20 << 20), &sends, &mut []);
        println!("{}", outcome.expect_err("rank 1 is stopped"));
        signal_rank_1(&transport, rustix::process::Signal::CONT);
    }
    ring(&transport, 5 << 20, 0).expect("the ring after it");
    transport.shutdown(Duration::from_secs(30)).expect("MPI ends");
}

/// A library that does not belong to the launcher sees a different world than the launcher's.
pub fn wrong_size() {
    let rank = std::env::var("OMPI_COMM_WORLD_RANK").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let timeout = Duration::from_secs(10);
    let outcome = MpiTransport::init(MpiOptions { expected: Some((rank, 2)), timeout, describe: None });
    println!("{}", outcome.err().expect("the worlds differ"));
    std::process::exit(3);
}

/// Other code (mpi4py, for example) has already initialised MPI, with or without threads.
pub fn already_started() {
    let functions = library::load().expect("an MPI").functions;
    let mut level = 0;
    let wanted = match std::env::var("UNISONO_TEST_LEVEL").as_deref() {
        Ok("single") => 0,
        _ => functions.constants.thread_multiple,
    };
    let nothing = std::ptr::null_mut();
    // SAFETY: MPI has not been started in this process.
    unsafe { (functions.init_thread)(nothing, std::ptr::null_mut(), wanted, &mut level) };
    let timeout = Duration::from_secs(30);
    match MpiTransport::init(MpiOptions { expected: None, timeout, describe: None }) {
        Err(error) => println!("{error}"),
        Ok(transport) => {
            ring(&transport, 100_000, 0).expect("the ring");
            transport.shutdown(timeout).expect("the end of our use");
            let mut finalized = 0;
            // SAFETY: may be called at any time.
            unsafe { (functions.finalized)(&mut finalized) };
            assert_eq!(finalized, 0, "the process that initialised MPI finalises it");
            println!("used and left");
        }
    }
    // SAFETY: MPI was started above and is still running.
    unsafe { (functions.finalize)() };
}
