//! Peer slots: for each local rank its process record, doorbell and current activity, readable by every peer.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::flag::Flag;
use super::process_record::{LossCause, PeerStatus, ProcessRecord};
use super::shared_text::SharedText;
use crate::transport::Verb;
use crate::transport::process;

/// One local rank's slot. The owner writes it; every peer may read it at any time, hence the atomics.
#[repr(C, align(128))]
pub(crate) struct PeerSlot {
    /// Rung when a message has arrived for this rank or buffer space has become free for it.
    pub doorbell: Flag,
    /// Incremented by peers that request the source location.
    pub location_request: Flag,
    /// Incremented by the owner when `location` holds the reply.
    pub location_reply: Flag,
    /// Liveness and restart state of the owner.
    pub process: ProcessRecord,
    verb: AtomicU32,
    inside: AtomicU32,
    context: AtomicU32,
    answers_location: AtomicU32,
    number: AtomicU64,
    since: AtomicU64,
    /// The owner's source location. Its end, with the file name and line number, matters more than the directories.
    location: SharedText<62>,
}

/// A rank's most recently published activity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CallActivity {
    pub verb: Option<Verb>,
    pub number: u64,
    /// Context number of the group.
    pub context: u32,
    /// Whether the call is still running.
    pub inside: bool,
    pub since: Duration,
}

impl PeerSlot {
    /// Registers the calling process as the slot's owner. The previous owner must have exited.
    pub fn register(&self) {
        self.since.store(now(), Ordering::Relaxed);
        self.verb.store(0, Ordering::Relaxed);
        self.inside.store(0, Ordering::Relaxed);
        self.answers_location.store(0, Ordering::Relaxed);
        self.process.register();
    }

    pub fn pid(&self) -> Option<u32> {
        self.process.pid()
    }

    /// The owner's incarnation: 1 for the first process of the rank. Together with the local rank it identifies a process.
    pub fn incarnation(&self) -> u32 {
        self.process.incarnation()
    }

    /// Whether the last owner has exited or left, regardless of whether it may be restarted.
    pub fn is_lost(&self) -> bool {
        self.lost().is_some()
    }

    /// Whether the last owner's process has exited. A process that has left may still run and hold a lock.
    pub fn process_ended(&self) -> bool {
        self.process.process_ended()
    }

    /// How the last owner was lost, or `None` while it is alive or has not joined yet.
    pub fn lost(&self) -> Option<LossCause> {
        self.process.lost()
    }

    /// Publishes that a call begins (`inside`) or has ended.
    #[inline]
    pub fn set_activity(&self, verb: Verb, number: u64, context: u32, inside: bool) {
        self.verb.store(u32::from(verb.number()), Ordering::Relaxed);
        self.number.store(number, Ordering::Relaxed);
        self.context.store(context, Ordering::Relaxed);
        self.since.store(now(), Ordering::Relaxed);
        self.inside.store(u32::from(inside), Ordering::Release);
    }

    /// Publishes that this rank has joined and made no call yet.
    pub fn clear_activity(&self) {
        self.set_activity(Verb::from_number(0), 0, 0, false);
    }

    pub fn activity(&self) -> CallActivity {
        let inside = self.inside.load(Ordering::Acquire) == 1;
        let verb = self.verb.load(Ordering::Relaxed) as u8;
        CallActivity {
            verb: (verb != 0).then(|| Verb::from_number(verb)),
            number: self.number.load(Ordering::Relaxed),
            context: self.context.load(Ordering::Relaxed),
            inside,
            since: Duration::from_nanos(now().saturating_sub(self.since.load(Ordering::Relaxed))),
        }
    }

    /// Describes the activity and the state of the process, for error messages; with the verb of the call that it is blocked
    /// in, if any.
    pub fn describe(&self) -> (String, Option<Verb>) {
        let Some(pid) = self.pid() else { return ("it has not called init yet".into(), None) };
        if self.process.status() == PeerStatus::Restarting {
            return ("its process ended and is being started again".into(), None);
        }
        let CallActivity { verb, number, inside, since, .. } = self.activity();
        let seconds = since.as_secs_f64();
        let doing = match (verb, inside) {
            (None, _) => format!("computing for {seconds:.1} s since init"),
            (Some(verb), true) => format!("in {} #{number} for {seconds:.1} s", verb.name()),
            (Some(verb), false) => format!("computing for {seconds:.1} s since {} #{number}", verb.name()),
        };
        match process::is_stopped(pid) {
            true => (format!("stopped by a signal, {doing}"), None),
            false => (doing, verb.filter(|_| inside)),
        }
    }

    /// Announces that this rank answers location requests.
    pub fn enable_location_requests(&self) {
        self.answers_location.store(1, Ordering::Release);
    }

    /// Requests the rank's current source location; `None` if no reply arrives within `limit`.
    pub fn request_location(&self, limit: Duration) -> Option<String> {
        if limit.is_zero() || self.answers_location.load(Ordering::Acquire) == 0 || self.is_lost() {
            return None;
        }
        let seen = self.location_reply.load();
        self.location_request.ring();
        let until = std::time::Instant::now() + limit;
        while self.location_reply.load() == seen {
            let left = until.checked_duration_since(std::time::Instant::now())?;
            self.location_reply.sleep_while(seen, left);
        }
        self.location.get()
    }

    /// Replies to all pending location requests.
    pub fn report_location(&self, text: &str) {
        self.location.set(text);
        self.location_reply.ring();
    }
}

/// Monotonic clock in nanoseconds, shared by all processes of a host. It advances every few milliseconds, which suffices for
/// descriptions; an exact clock would cost a small call a tenth of its time.
fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
