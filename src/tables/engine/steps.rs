//! A worker's steps on a table. Every host is notified of them; a restarted process continues its predecessor's count; and a
//! worker that waits for all others in a collective does not block other workers' reads.

use std::sync::atomic::Ordering;

use super::base::Base;
use super::registry::Registry;
use crate::error::{Error, Missing, Result};
use crate::tables::Consistency;
use crate::tables::remote::{RemoteRequest, RequestVerb};
use crate::tables::spec::verbs;
use crate::transport::{Call, Verb};
use crate::world::{Group, Watcher};

/// The calls in which a worker waits for others at a table.
const TABLE_CALLS: [Verb; 2] = [verbs::GET, verbs::ADD];

impl Base {
    /// This worker begins its next step.
    pub(crate) fn tick(&self, group: &Group) -> Result<()> {
        let worker = self.worker(group, "tick")?;
        let call = self.ordered_call(group, "tick")?;
        self.sync_steps(&call, worker)?;
        // Operations that can fail precede the step, so that a failed tick can be repeated.
        if let Some(remote) = self.inner.remote() {
            let servers = self.other_server_hosts().map(|host| self.server_of(host));
            remote.wait_for_room(&call, servers.collect::<Result<Vec<_>>>()?.into_iter())?;
        }
        let steps = self.clock.tick(worker);
        self.notify_remote_number(&call, worker, RequestVerb::Tick, steps)
    }

    /// Number of steps this worker has made.
    pub(crate) fn steps(&self, group: &Group) -> Result<u64> {
        let worker = self.worker(group, "clock")?;
        self.sync_steps(&self.call(group, "clock"), worker)?;
        Ok(self.clock.ticks(worker))
    }

    /// Other hosts may have fast-forwarded this worker while it waited in a collective: its count continues from there.
    fn sync_steps(&self, call: &Call, worker: usize) -> Result<()> {
        let Some(remote) = self.inner.remote().filter(|_| self.maybe_fast_forwarded.load(Ordering::Acquire))
        else {
            return Ok(());
        };
        let ask = |host| {
            Ok((self.server_of(host)?, RemoteRequest::new(self.number, worker as u32, RequestVerb::Steps)))
        };
        let requests = self.other_server_hosts().map(ask).collect::<Result<Vec<_>>>()?;
        for answer in remote.call_all(call, requests)? {
            self.clock.tick_to(worker, number_in(&answer)?);
        }
        self.maybe_fast_forwarded.store(false, Ordering::Release);
        Ok(())
    }

    fn notify_remote_number(&self, call: &Call, worker: usize, verb: RequestVerb, number: u64) -> Result<()> {
        self.notify_remote_with(call, worker, verb, &number.to_ne_bytes())
    }

    /// All ranks have the table.
    pub(crate) fn complete(&self) {
        self.complete.store(true, Ordering::Release);
    }

    /// Whether other workers may wait for this worker's steps.
    fn has_bound(&self) -> bool {
        matches!(self.description.consistency, Consistency::Ssp { .. })
            && self.complete.load(Ordering::Acquire)
    }

    fn enter_call(&self, group: &Group, number: u64) {
        let Some(worker) = self.inner.worker else { return };
        self.clock.enter_call(worker, number);
        // A host that was not notified keeps waiting for this worker, but that wait ends, too.
        if let Err(error) =
            self.notify_remote_number(&self.call(group, "enter"), worker, RequestVerb::EnterCall, number)
        {
            tracing::debug!(%error, "another host did not hear that this worker waits");
        }
    }

    fn leave_call(&self, group: &Group) {
        let Some(worker) = self.inner.worker else { return };
        self.clock.leave_call(worker);
        self.maybe_fast_forwarded.store(self.inner.remote().is_some(), Ordering::Release);
        if let Err(error) = self.notify_remote(&self.call(group, "leave"), worker, RequestVerb::LeaveCall) {
            tracing::debug!(%error, "another host did not hear that this worker goes on");
        }
    }

    /// Adds to each missing worker its step count, and what its program may have omitted.
    pub(crate) fn hint(&self, missing: &mut [Missing]) {
        let bounded = matches!(self.description.consistency, Consistency::Ssp { .. });
        for missing in missing {
            let Some(worker) = self.inner.roles.worker_id(missing.rank) else { continue };
            let hint = match self.clock.ticks(worker) {
                0 if bounded => {
                    ", and it has never called tick() on this table: with ssp every worker calls it once a step".into()
                }
                steps if bounded => format!(", at step {steps} of this table"),
                _ if missing.call.as_ref().is_some_and(|call| TABLE_CALLS.iter().all(|verb| verb.name() != call)) => {
                    ", not at this table: with bsp a worker that makes fewer calls ends them with finish()".into()
                }
                _ => String::new(),
            };
            missing.doing.push_str(&hint);
        }
    }

    /// Runs a step request of a worker on another host.
    pub(crate) fn serve_steps(&self, worker: usize, request: &RemoteRequest) -> Result<Vec<u8>> {
        match request.verb {
            RequestVerb::Tick => self.clock.tick_to(worker, number_in(&request.payload)?),
            RequestVerb::EnterCall => self.clock.enter_call(worker, number_in(&request.payload)?),
            RequestVerb::LeaveCall => self.clock.leave_call(worker),
            _ => return Ok(self.clock.ticks(worker).to_ne_bytes().to_vec()),
        }
        Ok(Vec::new())
    }
}

fn number_in(bytes: &[u8]) -> Result<u64> {
    let bytes = bytes
        .try_into()
        .map_err(|_| Error::internal("tick", format!("{} bytes for a number", bytes.len())))?;
    // Values in the upper half of the range are never reached by counting, so adding steps cannot overflow.
    let number = u64::from_ne_bytes(bytes);
    match number >> 63 {
        0 => Ok(number),
        _ => Err(Error::internal("tick", format!("step {number}"))),
    }
}

/// Tables are notified of collectives in which this rank may wait for all others, after the calls it queued before.
impl Watcher for Registry {
    fn enter(&self, number: u64) {
        self.bounded(move |table, group| table.enter_call(group, number));
    }

    fn leave(&self) {
        self.bounded(|table, group| table.leave_call(group));
    }
}

impl Registry {
    fn bounded(&self, act: impl Fn(&Base, &Group) + Clone + Send + 'static) {
        // Most programs have no such tables and call collectives often.
        if !self.has_bounds.load(Ordering::Acquire) {
            return;
        }
        for table in self.live_tables().into_iter().filter(|table| table.has_bound()) {
            match table.queue.is_empty() {
                true => act(&table, &self.group),
                false => {
                    let (act, group, later) = (act.clone(), self.group.clone(), table.clone());
                    table.queue.run(move || act(&later, &group));
                }
            }
        }
    }
}
