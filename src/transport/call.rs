//! What a waiting call needs to know of itself: its name and number for errors, its deadline, and how to be interrupted.

use std::time::{Duration, Instant};

use super::process;
use crate::error::{Error, Lost, Missing, Result};

/// Asked now and then during a long wait; `true` ends the wait with [`Error::Interrupted`].
pub type Interrupt = dyn Fn() -> bool + Send + Sync;

/// One call of one rank on one group.
pub(crate) struct Call<'a> {
    /// The caller's rank in the world.
    pub rank: usize,
    /// The verb, as users write it.
    pub operation: &'static str,
    /// Its number in the group, counted from 1.
    pub number: u64,
    /// The group's name, as errors show it.
    pub group: &'a str,
    /// The ranks of the world without which the call cannot end well; those that it exchanges messages with need not be
    /// named.
    pub members: &'a [usize],
    /// When the call began.
    pub started: Instant,
    /// When it must have ended.
    pub deadline: Instant,
    /// The caller's hook for Ctrl-C.
    pub interrupt: Option<&'a Interrupt>,
}

impl Call<'_> {
    /// Time left until the deadline; zero when it has passed.
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Fails if the caller wants to stop.
    pub fn check_interrupt(&self) -> Result<()> {
        match self.interrupt {
            Some(hook) if hook() => Err(self.interrupted()),
            _ => Ok(()),
        }
    }

    /// Fails when the call's time is over or its caller wants to stop: for waits for a device.
    pub fn check_wait(&self) -> Result<()> {
        self.check_interrupt()?;
        if self.remaining().is_zero() {
            let doing = "its device is still at work".to_string();
            let waits = Missing { rank: self.rank, pid: Some(process::own()), doing, location: None };
            return Err(self.timeout(vec![waits]));
        }
        Ok(())
    }

    /// The error for a wait that the caller stopped.
    pub fn interrupted(&self) -> Error {
        Error::Interrupted {
            rank: self.rank,
            operation: self.operation.into(),
            number: self.number,
            group: self.group.into(),
        }
    }

    /// The error for a passed deadline.
    pub fn timeout(&self, missing: Vec<Missing>) -> Error {
        Error::Timeout {
            rank: self.rank,
            operation: self.operation.into(),
            number: self.number,
            group: self.group.into(),
            waited: self.started.elapsed(),
            missing,
        }
    }

    /// The error for ranks that are gone.
    pub fn lost(&self, lost: Vec<Lost>) -> Error {
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
        Error::Mismatch { rank: self.rank, group: self.group.into(), number: self.number, calls }
    }
}
