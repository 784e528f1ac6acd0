//! A group: ranks that make calls together. The world's group has everybody in it.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::background::{self, Background};
use super::fork_guard::ForkGuard;
use super::pending::{Pending, pending};
use super::call_order::{CallPermit, CallOrder};
use super::watchers::Watchers;
use crate::error::{Error, Kind, Result};
use crate::transport::arena::Seat;
use crate::transport::arena::channel::Channel;
use crate::transport::{Call, Incoming, Interrupt, Outgoing, Slot, Transport, Verb};

/// What all groups of one world have in common.
pub(crate) struct WorldState {
    pub transport: Arc<dyn Transport>,
    /// This rank's place in the arena of its host; a world with one rank per host has none.
    pub seat: Option<Arc<Seat>>,
    /// The host of each rank, as a number; ranks with equal numbers share memory.
    pub hosts: Vec<usize>,
    pub closed: AtomicBool,
    /// The deadline of calls through handles that have none of their own, in nanoseconds.
    timeout: AtomicU64,
    /// The process that made the world: a forked child must not use it.
    pub fork_guard: ForkGuard,
    /// For the context numbers of groups that this rank leads.
    pub contexts: AtomicU32,
    /// Who hears of calls of the world's group.
    pub watchers: Watchers,
}

impl WorldState {
    pub fn new(
        transport: Arc<dyn Transport>,
        seat: Option<Arc<Seat>>,
        hosts: Vec<usize>,
        timeout: Duration,
    ) -> WorldState {
        let world = WorldState {
            transport,
            seat,
            hosts,
            closed: AtomicBool::new(false),
            timeout: AtomicU64::new(0),
            fork_guard: ForkGuard::new(),
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

/// The group itself, shared by all its handles.
pub(crate) struct GroupCore {
    pub world: Arc<WorldState>,
    pub context: u32,
    pub name: String,
    /// The world rank of each member.
    pub members: Vec<usize>,
    pub own_rank: usize,
    /// The fast way for members that share memory.
    pub channel: Option<Channel>,
    pub call_order: CallOrder,
    /// Held during a call.
    running: Mutex<()>,
    background: Background,
    messages: AtomicU64,
    pub(super) broken: OnceLock<Error>,
    /// The smaller groups that a group over several hosts works with.
    pub(crate) hierarchy: OnceLock<Option<super::Hierarchy>>,
    /// What calls on device memory keep from one to the next.
    pub(crate) device: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
}

/// The longest deadline, about thirty years: no clock overflows.
pub(super) const MAX_TIMEOUT: Duration = Duration::from_secs(1_000_000_000);

/// How a handle makes its calls.
#[derive(Clone)]
struct HandleOptions {
    /// The world's, where there is none.
    timeout: Option<Duration>,
    deterministic: bool,
    interrupt: Option<Arc<Interrupt>>,
    /// The call number of work in the background, whose turn has come already.
    call_number: Option<u64>,
}

/// Ranks that make calls together. A handle is cheap to clone; the options belong to the handle.
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
    pub(crate) core: Arc<GroupCore>,
    options: HandleOptions,
}

impl Group {
    pub(crate) fn new(
        world: Arc<WorldState>,
        context: u32,
        name: String,
        members: Vec<usize>,
        channel: Option<Channel>,
        timeout: Option<Duration>,
    ) -> Group {
        let rank = world.transport.rank();
        let own_rank = members.iter().position(|&member| member == rank).expect("this rank is a member");
        // Only the world's own group can be taken up by a process that was started again.
        let seat = world.seat.clone().filter(|_| context == 0 && channel.is_some());
        let core = GroupCore {
            world,
            context,
            name,
            members,
            own_rank,
            channel,
            call_order: seat.map_or_else(CallOrder::default, CallOrder::restored_from),
            running: Mutex::new(()),
            background: Background::default(),
            messages: AtomicU64::new(0),
            broken: OnceLock::new(),
            hierarchy: OnceLock::new(),
            device: Mutex::default(),
        };
        let options = HandleOptions { timeout, deterministic: false, interrupt: None, call_number: None };
        Group { core: Arc::new(core), options }
    }

    /// This rank's number in the group.
    pub fn rank(&self) -> usize {
        self.core.own_rank
    }

    /// How many members there are.
    pub fn size(&self) -> usize {
        self.core.members.len()
    }

    /// The members' ranks in the world, in the order of the group.
    pub fn members(&self) -> &[usize] {
        &self.core.members
    }

    /// The name that errors show: "world" or "group [0, 2]".
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// The deadline that each call gets.
    pub fn timeout(&self) -> Duration {
        self.own_timeout()
            .unwrap_or_else(|| Duration::from_nanos(self.core.world.timeout.load(Ordering::Relaxed)))
    }

    /// The deadline that this handle's calls get instead of the world's.
    pub(super) fn own_timeout(&self) -> Option<Duration> {
        self.options.timeout
    }

    /// A handle whose calls have another deadline.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Group {
        let mut group = self.clone();
        group.options.timeout = Some(timeout.min(MAX_TIMEOUT));
        group
    }

    /// A handle whose waits ask this hook now and then, and when a signal arrives, whether to stop.
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

    /// A handle whose calls are not counted, for those that the library makes itself before any other.
    pub(super) fn uncounted(&self) -> Group {
        let mut group = self.clone();
        group.options.call_number = Some(0);
        group
    }

    /// Whether an error has ended the use of this group.
    pub(super) fn is_broken(&self) -> bool {
        self.core.broken.get().is_some()
    }

    pub(crate) fn is_deterministic(&self) -> bool {
        self.options.deterministic
    }

    /// Counts a collective call that was refused before it was made. Without that, the next call of this rank would be
    /// taken for the one that the others are making; with it, they see that the numbers differ. The verbs do this
    /// themselves; it is for bindings that refuse arguments before the verb sees them.
    pub fn skip_call(&self) {
        // A forked child counts for nobody, least of all in the memory that it shares with its parent.
        // Nor does one that was started again and has not declared its position: its calls are no call of the others.
        if self.options.call_number.is_none() && self.core.world.fork_guard.is_original_process() && self.core.call_order.completed_before() == 0
        {
            self.core.call_order.skip();
        }
    }

    /// Runs calls in the background, after the calls made before and before those made later.
    pub fn start<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Group) -> Result<R> + Send + 'static,
    ) -> Pending<R> {
        let (promise, result) = pending();
        let mut group = self.clone();
        // A forked child has no background; and work inside other work has that one's turn.
        if let Err(error) = self.check_usable("start").and_then(|()| self.check_position("start")) {
            promise.fulfil(|| Err(error));
            return result;
        }
        if self.options.call_number.is_some() {
            promise.fulfil(|| work(&group));
            return result;
        }
        self.core.background.run(|| {
            // Numbers are taken in the order in which work is queued.
            let number = self.core.call_order.take();
            Box::new(move || {
                promise.fulfil(|| {
                    // Only calls made before can be in the way, and each of them ends by its own deadline.
                    let forever = Instant::now() + MAX_TIMEOUT;
                    let permit = group.core.call_order.wait(number, forever, || group.core.broken.get().is_some());
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

    /// Runs the wait for a message in the background, beside all other calls.
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

    /// Makes one collective call: waits for its turn, notes it on the board, and remembers if it breaks the group.
    pub(crate) fn call<R>(&self, verb: Verb, body: impl FnOnce(&Call) -> Result<R>) -> Result<R> {
        self.check_usable(verb.name())?;
        let started = Instant::now();
        let mut permit = None;
        let number = match self.options.call_number {
            Some(number) => number,
            None => {
                let taken = self.wait_for_turn(verb, started)?;
                let number = taken.number;
                permit = Some(taken);
                number
            }
        };
        // Work in the background may have handed its turn to several threads; and whoever had the turn before may have
        // broken the group meanwhile.
        let _alone = self.core.running.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_usable(verb.name())?;
        let call = self.describe(verb, number, started);
        let mut panic_guard = RevokeOnPanic { group: self, operation: verb.name(), armed: true };
        // Who makes a call in the background does other things meanwhile.
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
        // Only now may the next call have its turn.
        drop(permit);
        result
    }

    /// A handle of another group for one step of a call: it has what is left of the call's time, and its interrupt hook.
    pub(crate) fn step_of(&self, call: &Call, group: &Group) -> Group {
        let mut step = group.with_timeout(call.remaining());
        step.options.interrupt = self.options.interrupt.clone();
        step
    }

    /// Makes one call that is not part of the group's order: a message.
    pub(crate) fn message_call<R>(&self, verb: Verb, body: impl FnOnce(&Call) -> Result<R>) -> Result<R> {
        self.check_usable(verb.name())?;
        let number = self.core.messages.fetch_add(1, Ordering::Relaxed) + 1;
        let call = Call { members: &[], ..self.describe(verb, number, Instant::now()) };
        let _underway = self.core.world.seat.as_ref().map(|seat| seat.place().stay.message());
        self.record_activity(verb, number, || body(&call))
    }

    /// Fails if messages and groups with one of these ranks of the world do not work, because it, or this rank, was
    /// started again.
    pub(crate) fn check_reachable(&self, call: &Call, ranks: impl Iterator<Item = usize>) -> Result<()> {
        let Some(seat) = &self.core.world.seat else { return Ok(()) };
        let lost: Vec<_> = ranks.filter_map(|rank| seat.started_again(rank)).collect();
        if lost.is_empty() { Ok(()) } else { Err(call.lost(lost)) }
    }

    /// The same for a message that is about to begin in the background.
    pub(crate) fn check_peer(&self, verb: Verb, rank: usize) -> Result<()> {
        let number = self.core.messages.load(Ordering::Relaxed) + 1;
        self.check_reachable(&self.describe(verb, number, Instant::now()), std::iter::once(rank))
    }

    /// Sends and receives as part of a call; peers are ranks of the group.
    pub(crate) fn exchange(
        &self,
        call: &Call,
        slot: &Slot,
        mut sends: Vec<Outgoing>,
        mut receives: Vec<Incoming>,
    ) -> Result<()> {
        sends.iter_mut().for_each(|send| send.to = self.core.members[send.to]);
        receives.iter_mut().for_each(|receive| receive.from = self.core.members[receive.from]);
        let peers = sends.iter().map(|send| send.to).chain(receives.iter().map(|receive| receive.from));
        self.check_reachable(call, peers)?;
        self.core.world.transport.exchange(call, slot, &sends, &mut receives)
    }

    /// A call that is not part of the group's order, on an object of its own name: only its deadline is the group's.
    pub(crate) fn call_on<'a>(&'a self, operation: &'static str, number: u64, object: &'a str) -> Call<'a> {
        let call = self.describe(Verb::Send, number, Instant::now());
        Call { operation, group: object, members: &[], ..call }
    }

    /// A handle whose waits ask no hook.
    pub(crate) fn without_interrupt(&self) -> Group {
        let mut group = self.clone();
        group.options.interrupt = None;
        group
    }

    pub(super) fn describe<'a>(&'a self, verb: Verb, number: u64, started: Instant) -> Call<'a> {
        Call {
            rank: self.core.world.transport.rank(),
            operation: verb.name(),
            number,
            group: &self.core.name,
            members: &self.core.members,
            started,
            deadline: started + self.timeout(),
            interrupt: self.options.interrupt.as_deref(),
        }
    }

    fn record_activity<R>(&self, verb: Verb, number: u64, body: impl FnOnce() -> R) -> R {
        let Some(seat) = &self.core.world.seat else { return body() };
        seat.note(verb, number, self.core.context, true);
        let result = body();
        seat.note(verb, number, self.core.context, false);
        result
    }

    fn wait_for_turn(&self, verb: Verb, started: Instant) -> Result<CallPermit<'_>> {
        self.check_position(verb.name())?;
        let number = self.core.call_order.take();
        let deadline = started + self.timeout();
        let stop = || self.is_broken() || self.options.interrupt.as_ref().is_some_and(|hook| hook());
        if let Some(permit) = self.core.call_order.wait(number, deadline, stop) {
            return Ok(permit);
        }
        self.check_usable(verb.name())?;
        // The turn will come when nobody wants it any more: the group's order is lost.
        let call = self.describe(verb, number, started);
        let error = match call.remaining().is_zero() {
            true => call.timeout(Vec::new()),
            false => call.interrupted(),
        };
        self.revoke_with(&error);
        Err(error)
    }
}

/// Breaks the group if a call panics: its members would be out of step.
struct RevokeOnPanic<'a> {
    group: &'a Group,
    operation: &'static str,
    armed: bool,
}

impl Drop for RevokeOnPanic<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.group.revoke_with(&Error::internal(self.operation, "it panicked half-way"));
        }
    }
}
