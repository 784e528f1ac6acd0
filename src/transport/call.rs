//! The context of a blocking call: its name and number for errors, its deadline, and its interrupt hook.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::process;
use super::wait::NO_LIMIT;
use crate::error::{Error, Lost, Missing, Result, SAME_CALLS};

/// Polled during long waits; returning `true` ends the wait with [`Error::Interrupted`].
pub type Interrupt = dyn Fn() -> bool + Send + Sync;

/// One call by one rank on one group.
pub(crate) struct Call<'a> {
    /// The caller's world rank.
    pub rank: usize,
    /// The operation's name, as in the public API.
    pub operation: &'static str,
    /// The call's sequence number in the group, from 1.
    pub number: u64,
    /// The group's name, for errors.
    pub group: &'a str,
    /// The world ranks required for the call to succeed; peers that it exchanges messages with need not be listed.
    pub members: &'a [usize],
    /// The host name of each world rank in a job on several hosts, else empty: for errors.
    pub hosts: &'a [String],
    /// When the call started and must have returned.
    pub time: CallTime,
    /// The caller's Ctrl-C hook.
    pub interrupt: Option<&'a Interrupt>,
}

/// When a call started and must have returned. Reading the clock would cost a small call a twentieth of its time, so it is read
/// when the time is first needed: when the call begins to wait.
#[derive(Debug, Clone)]
pub(crate) struct CallTime {
    started: OnceLock<Instant>,
    limit: Duration,
}

impl CallTime {
    /// A call that starts now and may take this long.
    #[inline]
    pub fn new(limit: Duration) -> CallTime {
        CallTime { started: OnceLock::new(), limit }
    }

    /// A call without a deadline.
    pub fn unlimited() -> CallTime {
        CallTime::new(NO_LIMIT)
    }

    /// A call that has started before, and may take this long from now on.
    pub fn since(started: Instant, remaining: Duration) -> CallTime {
        CallTime { started: started.into(), limit: started.elapsed() + remaining }
    }

    pub fn started(&self) -> Instant {
        *self.started.get_or_init(Instant::now)
    }

    pub fn deadline(&self) -> Instant {
        self.started() + self.limit
    }
}

impl Call<'_> {
    /// When the call must have returned.
    pub fn deadline(&self) -> Instant {
        self.time.deadline()
    }

    /// Time left until the deadline; zero when it has passed.
    pub fn remaining(&self) -> Duration {
        self.deadline().saturating_duration_since(Instant::now())
    }

    /// How long the call may take in all.
    pub fn limit(&self) -> Duration {
        self.time.limit
    }

    /// Fails if the caller's hook requests an interrupt.
    pub fn check_interrupt(&self) -> Result<()> {
        match self.interrupt {
            Some(hook) if hook() => Err(self.interrupted()),
            _ => Ok(()),
        }
    }

    /// Fails when the deadline has passed or the caller interrupts. For waits on a device.
    pub fn check_wait(&self) -> Result<()> {
        self.check_interrupt()?;
        if self.remaining().is_zero() {
            let pid = Some(process::own_pid());
            return Err(self.timeout(vec![Missing::new(self.rank, pid, "its device is still at work")]));
        }
        Ok(())
    }

    /// The error for a wait that the caller interrupted.
    pub fn interrupted(&self) -> Error {
        Error::Interrupted {
            rank: self.rank,
            operation: self.operation.into(),
            number: self.number,
            group: self.group.into(),
        }
    }

    /// The name of a world rank's host, in a job on several hosts.
    fn host_of(&self, rank: usize) -> Option<String> {
        self.hosts.get(rank).cloned()
    }

    /// The error for an expired deadline.
    pub fn timeout(&self, mut missing: Vec<Missing>) -> Error {
        for one in missing.iter_mut().filter(|one| one.host.is_none()) {
            one.host = self.host_of(one.rank);
        }
        Error::Timeout {
            rank: self.rank,
            operation: self.operation.into(),
            number: self.number,
            group: self.group.into(),
            waited: self.time.started().elapsed(),
            missing,
        }
    }

    /// The error for lost ranks.
    pub fn lost(&self, mut lost: Vec<Lost>) -> Error {
        for one in lost.iter_mut().filter(|one| one.host.is_none()) {
            one.host = self.host_of(one.rank);
        }
        Error::PeerLost {
            rank: self.rank,
            operation: self.operation.into(),
            number: self.number,
            group: self.group.into(),
            lost,
        }
    }

    /// The error for ranks that made different calls.
    pub fn mismatch(&self, calls: Vec<(usize, String)>) -> Error {
        self.mismatch_with(calls, SAME_CALLS)
    }

    /// As [`Call::mismatch`], with other advice.
    pub fn mismatch_with(&self, mut calls: Vec<(usize, String)>, advice: &str) -> Error {
        for (rank, call) in &mut calls {
            if let Some(host) = self.host_of(*rank) {
                call.push_str(&format!(" on host {host}"));
            }
        }
        let advice = advice.into();
        Error::Mismatch { rank: self.rank, group: self.group.into(), number: self.number, calls, advice }
    }
}
