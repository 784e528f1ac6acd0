//! The end of the use of MPI: all ranks arrive, then MPI is finalised.
//!
//! MPI may block in any call, against its standard, once a rank or a link is lost: in connections to a lost rank, or in requests to
//! its launcher. So the calls that wait for other ranks are made on a thread of their own, for which the leaving thread waits
//! with a deadline. If it is late, MPI is left as it is, and process exit ends the thread. A message in the background may still
//! be under way then. Its buffer stays allocated: it is freed only after the message was cancelled, for which its thread waits
//! for the engine's lock, which the thread that leaves holds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::{Duration, Instant};

use super::engine::MpiEngine;
use super::{MpiTransport, PollBackoff, lock};
use crate::error::{Error, Result};
use crate::transport::POLL_INTERVAL;
use crate::transport::wait::wait as wait_for;

/// How long the thread may take to end after its deadline, before MPI is considered to block in a call.
const GRACE: Duration = Duration::from_secs(1);

/// How the wait for the other ranks has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    /// All ranks have arrived: MPI can be finalised.
    All,
    /// Some ranks have not.
    Late,
    /// MPI could not be used any more.
    Unusable,
}

impl MpiTransport {
    /// Ends the use of MPI; collective. Calls MPI_Finalize if this transport initialised MPI and all ranks arrive
    /// before the timeout. After a lost peer MPI_Finalize is skipped, because it would hang in MPICH and in Open MPI, and the
    /// barrier before it, in which MPICH may abort. The launcher may then report that the rank exited without it, which is true.
    pub fn shutdown(&self, timeout: Duration) -> Result<()> {
        if !self.peers.all_lost().is_empty() {
            return Ok(());
        }
        match self.await_all(Instant::now() + timeout)? {
            Some(Arrival::All) => return self.engine().mpi.end(),
            Some(Arrival::Unusable) => {}
            Some(Arrival::Late) => {
                tracing::warn!("not all ranks arrived at shutdown; skipping MPI_Finalize");
            }
            None => tracing::warn!("an MPI call is blocked at shutdown; skipping MPI_Finalize"),
        }
        Ok(())
    }

    /// Waits for all ranks until the deadline or the loss of one; `None` if MPI blocks.
    fn await_all(&self, deadline: Instant) -> Result<Option<Arrival>> {
        let (sender, arrival) = channel();
        let (gives_up, oversubscribed) = (Arc::new(AtomicBool::new(false)), self.oversubscribed);
        let (engine, stops) = (self.engine.clone(), gives_up.clone());
        let arrive_apart = move || {
            let _ = sender.send(arrive(&engine, oversubscribed, deadline, &stops));
        };
        if let Err(error) = Builder::new().name("unisono-leave".into()).spawn(arrive_apart) {
            // The other ranks wait for this one. Without a thread, the wait has the same deadline unless MPI blocks.
            tracing::warn!(%error, "no thread could be started at shutdown");
            return arrive(&self.engine, oversubscribed, deadline, &AtomicBool::new(false)).map(Some);
        }
        let mut limit = deadline + GRACE;
        loop {
            match arrival.recv_timeout(POLL_INTERVAL) {
                Ok(outcome) => return outcome.map(Some),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::internal("shutdown", "the thread that leaves MPI panicked"));
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() >= limit => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if !gives_up.load(Ordering::Relaxed) && !self.peers.all_lost().is_empty() {
                gives_up.store(true, Ordering::Release);
                limit = limit.min(Instant::now() + GRACE);
            }
        }
    }
}

/// Waits for all ranks, and makes MPI unusable for all later calls.
fn arrive(
    engine: &Mutex<MpiEngine>,
    oversubscribed: bool,
    deadline: Instant,
    gives_up: &AtomicBool,
) -> Result<Arrival> {
    let mut engine = lock(engine);
    let rank = engine.mpi.rank;
    if engine.broken.is_some() {
        return Ok(Arrival::Unusable);
    }
    let mut all_here = engine.mpi.barrier()?;
    let mut arrived = false;
    let poll = || {
        engine.progress()?;
        arrived = arrived || engine.mpi.test(&mut all_here)?.is_some();
        Ok((arrived && engine.control_idle()).then_some(Arrival::All))
    };
    let check = || {
        let is_late = gives_up.load(Ordering::Acquire) || Instant::now() >= deadline;
        Ok(is_late.then_some(Arrival::Late))
    };
    let arrival = wait_for(deadline, PollBackoff::new(oversubscribed), poll, check)?;
    engine.broken = Some(rank);
    Ok(arrival)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Transport;
    use crate::transport::mpi::Peers;
    use crate::transport::mpi::identity::ProcessIdentity;
    use crate::transport::mpi::tests::fake;

    #[test]
    fn leaving_takes_a_limited_time_if_mpi_blocks() {
        let peers = Peers::new(&[ProcessIdentity::own(); fake::SIZE], fake::RANK, None);
        let transport = MpiTransport::new(fake::start_blocking(), peers);
        let limit = Duration::from_millis(200);
        // On another thread, or the test would be as late as the call.
        let (sender, left) = channel();
        std::thread::spawn(move || {
            let started = Instant::now();
            transport.leave(limit, false);
            sender.send(started.elapsed()).unwrap();
        });
        let took = left.recv_timeout(Duration::from_secs(20)).expect("leaving waits for MPI");
        assert!(took >= limit, "{took:?}");
    }
}
