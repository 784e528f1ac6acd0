//! Host-side synchronisation during a call on device memory: ranks exchange a few bytes, within the call's deadline.

use std::time::{Duration, Instant};

use super::super::all_to_all::compare_counts;
use super::super::raw::HostCall;
use crate::error::{Error, Kind, Lost, Result};
use crate::transport::wait::poll_until;
use crate::transport::{Call, Signature};
use crate::world::Group;

/// How long a killed process may take to end after its connections were closed.
const PROCESS_END_LIMIT: Duration = Duration::from_secs(2);

/// One call of a group, while it lasts.
pub(super) struct Rendezvous<'a> {
    pub group: &'a Group,
    pub call: &'a Call<'a>,
    pub signature: Signature,
}

impl Rendezvous<'_> {
    /// Gathers the bytes of all ranks, equally many on every rank, concatenated in rank order.
    pub fn all_gather_bytes(&self, mine: &[u8]) -> Result<Vec<u8>> {
        HostCall::all_gather_bytes(self.group, self.call, self.signature, mine)
    }

    /// Blocks until all ranks have called this.
    pub fn barrier(&self) -> Result<()> {
        self.all_gather_bytes(&[]).map(drop)
    }

    /// Fails if the ranks' counts in all_to_all do not match.
    pub fn compare(&self, counts: &[u64]) -> Result<()> {
        if counts.is_empty() { Ok(()) } else { compare_counts(self.call, self.signature, self.group, counts) }
    }

    /// Fails when the call's deadline has passed or its caller interrupts it: for waits on the device.
    pub fn go_on(&self) -> Result<()> {
        self.call.check_wait()
    }

    /// Runs a call in which other ranks access this rank's memory. After an error it returns only when no rank does so any
    /// more: past the call's deadline, if a rank has device work in flight. Kernels wait for no rank, so they end.
    pub fn lend<R>(&self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        match self.group.channel() {
            Some(channel) => channel.with_exposed(None, work),
            None => work(),
        }
    }

    /// Accesses memory of other ranks, unless one has given up on the call and reclaimed its memory. All work that `work`
    /// starts has ended when it returns.
    pub fn touch(&self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        self.go_on()?;
        match self.group.channel() {
            Some(channel) => channel.touch(self.call, work),
            None => work(),
        }
    }

    /// As [`Rendezvous::go_on`], and also fails if a rank is lost or has given up: it will send nothing.
    pub fn check_peers(&self) -> Result<()> {
        let group = self.group;
        let lost = |member: usize| match group.channel() {
            Some(channel) => channel.lost(member),
            None => group.transport().lost(group.members()[member]),
        };
        let lost: Vec<Lost> =
            (0..group.size()).filter(|&member| member != group.rank()).filter_map(lost).collect();
        if lost.is_empty() { self.go_on() } else { Err(self.call.lost(lost)) }
    }

    /// Replaces an error of another library by the loss of a peer, if that is its cause. The library may see a peer's closed
    /// connection a moment before the peer's process has ended.
    pub fn explain(&self, error: Error) -> Error {
        if error.kind() != Kind::Io {
            return error;
        }
        let look = || Ok(self.check_peers().err().filter(|lost| lost.kind() == Kind::PeerLost));
        let lost = poll_until(Instant::now() + PROCESS_END_LIMIT, Duration::from_millis(10), look);
        lost.ok().flatten().unwrap_or(error)
    }
}

/// The error for a state that a correct rank cannot be in.
pub(super) fn internal_error(what: &str) -> Error {
    Error::internal("CUDA collectives", what)
}
