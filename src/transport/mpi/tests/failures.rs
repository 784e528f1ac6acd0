//! Ranks that are killed, stopped, or started by the wrong launcher.

use std::time::{Duration, Instant};

use super::cases::{call, ring, slot, start};
use crate::transport::mpi::{MpiOptions, MpiTransport};
use crate::transport::{Incoming, Outgoing, Transport};

fn signal_rank_1(transport: &MpiTransport, signal: rustix::process::Signal) {
    let pid = transport.peers.missing(1).pid.expect("its process is known");
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a process id");
    rustix::process::kill_process(pid, signal).expect("the signal is sent");
}

/// Rank 1 dies in the middle of an exchange with everybody.
pub fn killed() {
    let transport = start();
    // After as many rounds as ranks, everybody has heard of everybody: nobody is still starting when rank 1 dies.
    for _ in 0..transport.size() {
        ring(&transport, 100, 0).expect("the ring");
    }
    if transport.rank() == 1 {
        signal_rank_1(&transport, rustix::process::Signal::KILL);
    }
    let began = Instant::now();
    let mut buffer = vec![0; 1 << 20];
    let receives = &mut [Incoming { from: 1, bytes: &mut buffer }];
    let outcome = transport.exchange(&call(&transport, 20.0), &slot(1, 0, 1 << 20), &[], receives);
    let seconds = began.elapsed().as_secs_f64();
    let error = outcome.expect_err("rank 1 is dead");
    // A launcher that ends a job does not always pass on its last lines.
    let folder =
        std::path::PathBuf::from(std::env::var_os("UNISONO_TEST_NOTES").expect("the test names a folder"));
    let note = format!("{error} after {seconds:.2} s");
    std::fs::write(folder.join(transport.rank().to_string()), &note).expect("the folder is writable");
    // Leaving first would end the other before it has noticed.
    let patience = Instant::now() + Duration::from_secs(5);
    while [0, 2].iter().any(|rank: &usize| !folder.join(rank.to_string()).exists())
        && Instant::now() < patience
    {
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("{note}{}", if seconds > 2.0 { ", hung" } else { "" });
    std::process::exit(3);
}

/// Rank 1 stops before it receives; rank 0 times out, wakes it, and both go on.
pub fn stopped() {
    let transport = start();
    ring(&transport, 100, 0).expect("the ring");
    if transport.rank() == 0 {
        signal_rank_1(&transport, rustix::process::Signal::STOP);
        let large = vec![1; 20 << 20];
        let began = Instant::now();
        let sends = [Outgoing { to: 1, bytes: &large }];
        let outcome = transport.exchange(&call(&transport, 0.5), &slot(1, 0, 20 << 20), &sends, &mut []);
        println!("{}", outcome.expect_err("rank 1 is stopped"));
        assert!(began.elapsed() < Duration::from_millis(1500), "late: {:?}", began.elapsed());
        signal_rank_1(&transport, rustix::process::Signal::CONT);
    }
    ring(&transport, 5 << 20, 0).expect("the ring after it");
    transport.shutdown(Duration::from_secs(30)).expect("MPI ends");
}

/// A library that does not belong to the launcher sees another world than the launcher's.
pub fn wrong_size() {
    let rank = std::env::var("OMPI_COMM_WORLD_RANK").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let timeout = Duration::from_secs(10);
    let outcome = MpiTransport::init(MpiOptions { expected: Some((rank, 2)), timeout, describe: None });
    println!("{}", outcome.err().expect("the worlds differ"));
    std::process::exit(3);
}
