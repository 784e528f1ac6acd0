//! Groups: ranks that make collective calls together. The world's group contains all ranks.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::background::{self, Background};
use super::call_order::{CallOrder, CallPermit};
use super::fork_guard::ForkGuard;
use super::pending::{Pending, pending};
use super::steps::EnclosingCall;
use super::watchers::Watchers;
use crate::error::{Error, Kind, Result};
use crate::transport::arena::LocalEndpoint;
use crate::transport::arena::channel::Channel;
use crate::transport::{Call, CallTime, Incoming, Interrupt, MatchKey, Outgoing, Transport, Verb};

/// State shared by all groups of one world.
pub(super) struct WorldState {
    pub transport: Arc<dyn Transport>,
    /// This rank's endpoint in the arena of its host; a world with one rank per host has none.
    pub endpoint: Option<Arc<LocalEndpoint>>,
    /// The host number of each rank; ranks with equal numbers share memory.
    pub hosts: Vec<usize>,
    /// The host name of each rank.
    pub host_names: Vec<String>,
    /// Whether these names differ, so that errors give them.
    pub has_several_hosts: bool,
    pub closed: AtomicBool,
    /// The timeout, in nanoseconds, of calls through handles without one of their own.
    timeout: AtomicU64,
    /// Detects use in a forked child, which must not use the world.
    pub fork_guard: ForkGuard,
    /// Whether a call on a group has failed because a member has died or has given up.
    pub may_have_lost_rank: AtomicBool,
    /// Counts the groups led by this rank, for their context ids.
    pub contexts: AtomicU32,
    /// Observers of calls on the world's group.
    pub watchers: Watchers,
}

impl WorldState {
    pub fn new(
        transport: Arc<dyn Transport>,
        endpoint: Option<Arc<LocalEndpoint>>,
        hosts: Vec<usize>,
        host_names: Vec<String>,
        timeout: Duration,
    ) -> WorldState {
        let has_several_hosts = host_names.iter().any(|name| *name != host_names[0]);
        let world = WorldState {
            transport,
            endpoint,
            hosts,
            host_names,
            has_several_hosts,
            closed: AtomicBool::new(false),
            timeout: AtomicU64::new(0),
            fork_guard: ForkGuard::new(),
            may_have_lost_rank: AtomicBool::new(false),
            contexts: AtomicU32::new(0),
            watchers: Watchers::default(),
        };
        world.set_timeout(timeout);
        world
    }

    pub fn set_timeout(&self, timeout: Duration) {
        self.timeout.store(timeout.min(MAX_TIMEOUT).as_nanos() as u64, Ordering::Relaxed);
    }
}

/// The group's state, shared by all its handles.
pub(super) struct GroupCore {
    pub world: Arc<WorldState>,
    pub context: u32,
    pub name: String,
    /// The world rank of each member.
    pub members: Vec<usize>,
    pub own_rank: usize,
    /// The shared-memory channel, if all members share memory.
    pub channel: Option<Channel>,
    pub call_order: CallOrder,
    /// Held for the duration of a call.
    running: Mutex<()>,
    background: Background,
    messages: AtomicU64,
    pub(super) broken: OnceLock<Error>,
    /// The subgroups that a group over several hosts uses for its two levels.
    pub(super) hierarchy: OnceLock<Option<super::Hierarchy>>,
    /// State of an upper layer, of a type that this layer does not know.
    pub(super) attachment: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
}

/// The longest timeout, about thirty years: adding it to a clock never overflows.
pub(super) const MAX_TIMEOUT: Duration = Duration::from_secs(1_000_000_000);

/// Per-handle call options.
#[derive(Clone)]
pub(super) struct HandleOptions {
    /// `None`: the world's timeout.
    timeout: Option<Duration>,
    deterministic: bool,
    pub interrupt: Option<Arc<Interrupt>>,
    /// The call number that background work already holds a permit for; calls made by that work use it.
    call_number: Option<u64>,
    /// The user's call, if the calls of this handle are steps of it.
    pub enclosing: Option<EnclosingCall>,
}

/// Ranks that make collective calls together. Handles are cheap to clone; options belong to the handle.
///
/// ```
/// use unisono::{ReduceOp, testing};
/// let sums = testing::spawn(3, |group| {
///     let mut value = [group.rank() as i64];
///     group.all_reduce(&mut value, ReduceOp::Sum).unwrap();
///     value[0]
/// });
/// assert_eq!(sums, [3, 3, 3]);
/// ```
#[derive(Clone)]
pub struct Group {
    pub(super) core: Arc<GroupCore>,
    pub(super) options: HandleOptions,
}

impl Group {
    pub(super) fn new(
        world: Arc<WorldState>,
        context: u32,
        name: String,
        members: Vec<usize>,
        channel: Option<Channel>,
        timeout: Option<Duration>,
    ) -> Group {
        let rank = world.transport.rank();
        let own_rank = members.iter().position(|&member| member == rank).expect("this rank is a member");
        // Only the world's own group can be resumed by a restarted process.
        let endpoint = world.endpoint.clone().filter(|_| context == 0 && channel.is_some());
        let core = GroupCore {
            world,
            context,
            name,
            members,
            own_rank,
            channel,
            call_order: endpoint.map_or_else(CallOrder::default, CallOrder::restored_from),
            running: Mutex::new(()),
            background: Background::default(),
            messages: AtomicU64::new(0),
            broken: OnceLock::new(),
            hierarchy: OnceLock::new(),
            attachment: Mutex::default(),
        };
        let options = HandleOptions {
            timeout,
            deterministic: false,
            interrupt: None,
            call_number: None,
            enclosing: None,
        };
        Group { core: Arc::new(core), options }
    }

    /// This rank's number in the group.
    pub fn rank(&self) -> usize {
        self.core.own_rank
    }

    /// The number of members.
    pub fn size(&self) -> usize {
        self.core.members.len()
    }

    /// The members' world ranks, in group order.
    pub fn members(&self) -> &[usize] {
        &self.core.members
    }

    /// The name shown in errors: "world" or "group [0, 2]".
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// The timeout of each call.
    pub fn timeout(&self) -> Duration {
        self.own_timeout()
            .unwrap_or_else(|| Duration::from_nanos(self.core.world.timeout.load(Ordering::Relaxed)))
    }

    /// This handle's own timeout, which overrides the world's.
    pub(super) fn own_timeout(&self) -> Option<Duration> {
        self.options.timeout
    }

    /// A handle whose calls have a different timeout.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Group {
        let mut group = self.clone();
        group.options.timeout = Some(timeout.min(MAX_TIMEOUT));
        group
    }

    /// A handle whose waits poll this hook periodically, and whenever a signal arrives; returning true interrupts the
    /// call.
    #[must_use]
    pub fn with_interrupt(&self, interrupt: Arc<Interrupt>) -> Group {
        let mut group = self.clone();
        group.options.interrupt = Some(interrupt);
        group
    }

    /// A handle whose reductions give the same bits on every transport.
    #[must_use]
    pub fn deterministic(&self, deterministic: bool) -> Group {
        let mut group = self.clone();
        group.options.deterministic = deterministic;
        group
    }

    /// A handle whose calls are not numbered, for calls that the library itself makes before any other.
    pub(super) fn uncounted(&self) -> Group {
        let mut group = self.clone();
        group.options.call_number = Some(0);
        group
    }

    /// Whether an error has made this group unusable.
    pub(super) fn is_broken(&self) -> bool {
        self.core.broken.get().is_some()
    }

    pub(crate) fn is_deterministic(&self) -> bool {
        self.options.deterministic
    }

    /// Counts a collective call that was rejected before it was made. Otherwise the other ranks would match this rank's
    /// next call with the one they are making; counting it makes them see that the numbers differ. The collectives do
    /// this themselves; this method is for bindings that reject arguments before the collective sees them.
    pub fn skip_call(&self) {
        // A forked child must not count, least of all in the memory that it shares with its parent. Nor must a
        // restarted process that has not declared its position: its calls correspond to no call of the other ranks.
        if self.options.call_number.is_none()
            && self.core.world.fork_guard.is_original_process()
            && self.core.call_order.completed_before() == 0
        {
            self.core.call_order.skip();
        }
    }

    /// Runs calls in the background, ordered after all earlier calls and before all later ones.
    pub fn start<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Group) -> Result<R> + Send + 'static,
    ) -> Pending<R> {
        let (promise, result) = pending();
        let mut group = self.clone();
        // A forked child has no background thread; and work started inside other background work runs under the permit
        // of that work.
        if let Err(error) = self.check_usable("start").and_then(|()| self.check_position("start")) {
            promise.fulfil(|| Err(error));
            return result;
        }
        if self.options.call_number.is_some() {
            promise.fulfil(|| work(&group));
            return result;
        }
        self.core.background.run(|| {
            // Numbers are assigned in queue order.
            let number = self.core.call_order.take();
            Box::new(move || {
                promise.fulfil(|| {
                    // Only earlier calls can block this one, and each of them ends by its own deadline.
                    let forever = Instant::now() + MAX_TIMEOUT;
                    let permit =
                        group.core.call_order.wait(number, forever, || group.core.broken.get().is_some());
                    group.options.call_number = Some(number);
                    group.options.interrupt = None;
                    let result = work(&group);
                    drop(permit);
                    result
                });
            })
        });
        result
    }

    /// Waits for a message in the background, unordered with respect to all other calls.
    pub(crate) fn start_unordered<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Group) -> Result<R> + Send + 'static,
    ) -> Pending<R> {
        let (promise, result) = pending();
        let mut group = self.clone();
        group.options.interrupt = None;
        background::spawn(move || promise.fulfil(|| work(&group)));
        result
    }

    /// Makes one collective call: waits for its permit, records the activity in this rank's slot, and revokes the group
    /// if the call breaks it.
    pub(crate) fn call<R>(&self, verb: Verb, body: impl FnOnce(&Call) -> Result<R>) -> Result<R> {
        let operation = self.operation(verb);
        self.check_usable(operation)?;
        let time = self.call_time();
        let mut permit = None;
        let number = match self.options.call_number {
            Some(number) => number,
            None => {
                let taken = self.wait_for_turn(verb, &time)?;
                let number = taken.number;
                permit = Some(taken);
                number
            }
        };
        // Background work may share its permit between several threads; and the previous holder of the permit may have
        // broken the group in the meantime.
        let _alone = self.core.running.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_usable(operation)?;
        let call = self.describe(verb, number, time);
        let mut panic_guard = RevokeOnPanic { group: self, operation, armed: true };
        // A rank that makes a call in the background is not blocked in it, so only foreground calls are reported.
        let watched = permit.is_some() && self.core.context == 0;
        let watched_call = watched.then(|| self.core.world.watchers.notify_call(number));
        let result = self.record_activity(verb, number, || body(&call));
        drop(watched_call);
        panic_guard.armed = false;
        if let Err(error) = &result
            && (error.kind() != Kind::Usage || self.core.channel.is_none())
        {
            self.revoke_with(error);
        }
        // Only now may the next call receive its permit.
        drop(permit);
        result
    }

    /// Makes one unordered call: a point-to-point message.
    pub(crate) fn message_call<R>(&self, verb: Verb, body: impl FnOnce(&Call) -> Result<R>) -> Result<R> {
        self.check_usable(verb.name())?;
        let number = self.core.messages.fetch_add(1, Ordering::Relaxed) + 1;
        let call = Call { members: &[], ..self.describe(verb, number, self.call_time()) };
        let _underway =
            self.core.world.endpoint.as_ref().map(|endpoint| endpoint.own_slot().process.message_guard());
        self.record_activity(verb, number, || body(&call))
    }

    /// Fails if messages and groups with one of these world ranks cannot work because that rank, or this one, was
    /// restarted.
    pub(crate) fn check_reachable(&self, call: &Call, ranks: impl Iterator<Item = usize>) -> Result<()> {
        let Some(endpoint) = &self.core.world.endpoint else { return Ok(()) };
        let lost: Vec<_> = ranks.filter_map(|rank| endpoint.restarted(rank)).collect();
        if lost.is_empty() { Ok(()) } else { Err(call.lost(lost)) }
    }

    /// The same check for a message that is about to start in the background.
    pub(crate) fn check_peer(&self, verb: Verb, rank: usize) -> Result<()> {
        let number = self.core.messages.load(Ordering::Relaxed) + 1;
        self.check_reachable(&self.describe(verb, number, self.call_time()), std::iter::once(rank))
    }

    /// Sends and receives as part of a call; peers are group ranks.
    pub(crate) fn exchange(
        &self,
        call: &Call,
        match_key: &MatchKey,
        mut sends: Vec<Outgoing>,
        mut receives: Vec<Incoming>,
    ) -> Result<()> {
        sends.iter_mut().for_each(|send| send.to = self.core.members[send.to]);
        receives.iter_mut().for_each(|receive| receive.from = self.core.members[receive.from]);
        let peers = sends.iter().map(|send| send.to).chain(receives.iter().map(|receive| receive.from));
        self.check_reachable(call, peers)?;
        self.core.world.transport.exchange(call, match_key, &sends, &mut receives)
    }

    /// An unordered call on an object with its own name; only the timeout comes from the group.
    pub(crate) fn call_on<'a>(&'a self, operation: &'static str, number: u64, object: &'a str) -> Call<'a> {
        let call = self.describe(Verb::SEND, number, self.call_time());
        Call { operation, group: object, members: &[], ..call }
    }

    /// A handle whose waits poll no interrupt hook.
    pub(crate) fn without_interrupt(&self) -> Group {
        let mut group = self.clone();
        group.options.interrupt = None;
        group
    }

    /// The time of a call on this group that starts now.
    #[inline]
    pub(super) fn call_time(&self) -> CallTime {
        CallTime::new(self.timeout())
    }

    pub(super) fn describe<'a>(&'a self, verb: Verb, number: u64, time: CallTime) -> Call<'a> {
        let world = &self.core.world;
        let (group, number, time) = match &self.options.enclosing {
            Some(enclosing) => {
                let time = CallTime::since(enclosing.started, self.timeout());
                (&*enclosing.group, enclosing.number, time)
            }
            None => (&*self.core, number, time),
        };
        Call {
            rank: world.transport.rank(),
            operation: self.operation(verb),
            number,
            group: &group.name,
            members: &self.core.members,
            hosts: if world.has_several_hosts { &world.host_names } else { &[] },
            time,
            interrupt: self.options.interrupt.as_deref(),
        }
    }

    fn record_activity<R>(&self, verb: Verb, number: u64, body: impl FnOnce() -> R) -> R {
        // During a step, the enclosing call remains this rank's activity.
        let endpoint = self.core.world.endpoint.as_ref().filter(|_| self.options.enclosing.is_none());
        let Some(endpoint) = endpoint else { return body() };
        endpoint.set_activity(verb, number, self.core.context, true);
        let result = body();
        endpoint.set_activity(verb, number, self.core.context, false);
        result
    }

    fn wait_for_turn(&self, verb: Verb, time: &CallTime) -> Result<CallPermit<'_>> {
        self.check_position(self.operation(verb))?;
        let number = match self.core.call_order.begin() {
            Ok(permit) => return Ok(permit),
            Err(number) => number,
        };
        let stop = || self.is_broken() || self.options.interrupt.as_ref().is_some_and(|hook| hook());
        if let Some(permit) = self.core.call_order.wait(number, time.deadline(), stop) {
            return Ok(permit);
        }
        self.check_usable(self.operation(verb))?;
        // The permit would arrive when no call waits for it any more: the group's call order is lost.
        let call = self.describe(verb, number, time.clone());
        let error = match call.remaining().is_zero() {
            true => call.timeout(Vec::new()),
            false => call.interrupted(),
        };
        self.revoke_with(&error);
        Err(error)
    }
}

/// Revokes the group if a call panics: its members would be out of step.
struct RevokeOnPanic<'a> {
    group: &'a Group,
    operation: &'static str,
    armed: bool,
}

impl Drop for RevokeOnPanic<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.group.revoke_with(&Error::internal(self.operation, "it panicked midway"));
        }
    }
}
