//! Virtual time: a discrete-event simulation of messages, in which the threads of all ranks take turns.
//!
//! One thread runs at a time, the one whose rank is first in virtual time; a thread that blocks processes events until a rank can go on.
//! So the result depends neither on the machine nor on the operating system's scheduler.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;

use super::counts::{Measurement, RankCounts};
use super::network::{NetworkModel, Picoseconds};
use crate::memory::meter;
use crate::transport::Signature;

/// The context of the step in which all ranks meet between two measurements; no group has it.
const MEASUREMENT: u32 = u32::MAX;

/// Messages match by sender, context and tag.
pub(super) type Key = (usize, u32, u32);

#[derive(Clone)]
pub(super) struct Message {
    pub from: usize,
    pub to: usize,
    pub context: u32,
    pub tag: u32,
    pub bytes: usize,
    pub signature: Signature,
    /// The contents of messages that create groups; others have none.
    pub payload: Option<Vec<u8>>,
    /// The length of the chain of messages between hosts that this one ends.
    pub depth: usize,
}

/// A message that is under way: its index in [`State::messages`].
type MessageId = usize;

enum Event {
    /// The rank goes on.
    Wake(usize),
    /// The rank passes its next message to its NIC, or to its peer's memory.
    Enqueue(usize),
    /// The NIC of a host has sent a message completely.
    Left(usize),
    /// The first byte of a message reaches the receiver's NIC.
    Arrive(MessageId),
    /// The last byte is in the receiver's memory.
    Deliver(MessageId),
    /// A rank may use the memory of one of its messages again.
    Sent(usize),
}

/// An event in the order of time, and of creation if two happen at once.
struct Scheduled {
    at: Picoseconds,
    number: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

#[derive(Default)]
struct Nic {
    queue: VecDeque<MessageId>,
    sends: bool,
    /// When it will have received what has arrived.
    receives_until: Picoseconds,
}

/// The exchange that a rank is blocked in.
#[derive(Default)]
struct Exchange {
    /// Messages that the rank has not passed on yet.
    outbox: VecDeque<MessageId>,
    /// Messages that have not arrived.
    missing: usize,
    unsent: usize,
    sent_at: Picoseconds,
}

/// The messages from one sender with one context and tag.
#[derive(Default)]
struct Lane {
    arrived: VecDeque<(Picoseconds, MessageId)>,
    /// How many the current exchange receives.
    wanted: usize,
}

#[derive(Default)]
struct Rank {
    /// This rank's own time, at or after the time of the simulation.
    clock: Picoseconds,
    depth: usize,
    inbox: HashMap<Key, Lane>,
    exchange: Option<Exchange>,
    counts: RankCounts,
}

struct State {
    network: NetworkModel,
    hosts: Vec<usize>,
    now: Picoseconds,
    created: u64,
    events: BinaryHeap<Reverse<Scheduled>>,
    /// Messages under way, and the free entries.
    messages: Vec<Option<Message>>,
    free: Vec<MessageId>,
    nics: Vec<Nic>,
    ranks: Vec<Rank>,
    /// The rank whose thread runs.
    turn: Option<usize>,
    unfinished: usize,
    is_stuck: bool,
    /// Per context, the ranks that have entered a step through shared memory, and the bytes that each copies or folds in it.
    entered: BTreeMap<u32, Vec<(usize, usize)>>,
    started: Picoseconds,
    measured: Vec<Measurement>,
}

/// The simulation that all ranks share.
pub(crate) struct Engine {
    state: Mutex<State>,
    threads: Vec<OnceLock<Thread>>,
}

impl Engine {
    /// Ranks on these hosts, which are numbered from zero.
    pub fn new(network: NetworkModel, hosts: &[usize]) -> Engine {
        let size = hosts.len();
        let mut state = State {
            network,
            hosts: hosts.to_vec(),
            now: 0,
            created: 0,
            events: BinaryHeap::new(),
            messages: Vec::new(),
            free: Vec::new(),
            nics: (0..size).map(|_| Nic::default()).collect(),
            ranks: (0..size).map(|_| Rank::default()).collect(),
            turn: None,
            unfinished: size,
            is_stuck: false,
            entered: BTreeMap::new(),
            started: 0,
            measured: Vec::new(),
        };
        (0..size).for_each(|rank| state.schedule(0, Event::Wake(rank)));
        state.advance();
        Engine { state: Mutex::new(state), threads: (0..size).map(|_| OnceLock::new()).collect() }
    }

    pub fn size(&self) -> usize {
        self.threads.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread of this rank begins: waits for its first turn. From now on it counts passes over memory instead of making them.
    pub fn enter(&self, rank: usize) {
        meter::start();
        self.threads[rank].get_or_init(std::thread::current);
        drop(self.wait_for_turn(rank));
    }

    /// The thread of this rank ends, possibly by a panic.
    pub fn finish(&self, rank: usize) {
        let mut state = self.lock();
        state.unfinished -= 1;
        if state.turn == Some(rank) {
            self.pass_on(state);
        }
    }

    /// All ranks meet; ends one measurement and begins the next.
    pub fn mark(&self, rank: usize) {
        drop(self.meet(rank, MEASUREMENT, self.size(), 0));
    }

    /// The measurements, in order.
    pub fn measured(&self) -> Vec<Measurement> {
        self.lock().measured.clone()
    }

    /// One step of the `members` of a host through shared memory: all of them enter before any goes on, and this one then copies or
    /// folds `bytes`.
    pub fn step(&self, rank: usize, context: u32, members: usize, bytes: usize) {
        drop(self.meet(rank, context, members, bytes));
    }

    fn meet(&self, rank: usize, context: u32, members: usize, bytes: usize) -> MutexGuard<'_, State> {
        let mut state = self.act(rank);
        let entered = state.entered.entry(context).or_default();
        entered.push((rank, bytes));
        if entered.len() == members {
            let entered = state.entered.remove(&context).unwrap_or_default();
            state.complete_step(context, &entered);
        }
        self.block(state, rank)
    }

    /// Sends and receives; returns the messages received, in the order of `wanted`.
    pub(super) fn exchange(&self, rank: usize, sends: Vec<Message>, wanted: &[Key]) -> Vec<Message> {
        let mut state = self.act(rank);
        let overhead = state.network.overhead;
        let Rank { clock: start, depth, .. } = state.ranks[rank];
        let mut exchange = Exchange { unsent: sends.len(), ..Exchange::default() };
        for mut message in sends {
            message.depth += depth;
            exchange.outbox.push_back(state.store(message));
        }
        for &key in wanted {
            let lane = state.ranks[rank].inbox.entry(key).or_default();
            lane.wanted += 1;
            exchange.missing += usize::from(lane.wanted > lane.arrived.len());
        }
        let posted = start + exchange.unsent as u64 * overhead;
        let is_complete = exchange.missing + exchange.unsent == 0;
        if exchange.unsent > 0 {
            state.schedule(start + overhead, Event::Enqueue(rank));
        }
        state.ranks[rank].exchange = Some(exchange);
        if !is_complete {
            state = self.block(state, rank);
        }
        let sent_at = state.ranks[rank].exchange.take().map_or(0, |exchange| exchange.sent_at);
        let mut received: Vec<(Picoseconds, Message)> = Vec::with_capacity(wanted.len());
        for key in wanted {
            let lane = state.ranks[rank].inbox.get_mut(key);
            let arrived = lane.and_then(|lane| {
                lane.wanted -= 1;
                lane.arrived.pop_front()
            });
            received.extend(arrived.and_then(|(at, id)| Some((at, state.take(id)?))));
        }
        let mut arrivals: Vec<Picoseconds> = received.iter().map(|(at, _)| *at).collect();
        arrivals.sort_unstable();
        let own = &mut state.ranks[rank];
        // The rank handles what has arrived one message after the other.
        own.clock = arrivals.into_iter().fold(posted, |clock, at| clock.max(at) + overhead).max(sent_at);
        let deepest = received.iter().map(|(_, message)| message.depth).max().unwrap_or(0);
        own.depth = own.depth.max(deepest);
        received.into_iter().map(|(_, message)| message).collect()
    }

    /// The simulation, once this rank's own time includes its passes over memory since the last call. That time may be ahead of the
    /// simulation's: what the rank does then are events to come.
    fn act(&self, rank: usize) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        let work = state.network.in_memory(meter::take());
        let now = state.now;
        let own = &mut state.ranks[rank];
        own.clock = own.clock.max(now) + work;
        state
    }

    /// Lets other ranks run until this one is woken.
    fn block<'a>(&'a self, state: MutexGuard<'a, State>, rank: usize) -> MutexGuard<'a, State> {
        self.pass_on(state);
        self.wait_for_turn(rank)
    }

    fn pass_on(&self, mut state: MutexGuard<'_, State>) {
        state.turn = None;
        state.advance();
        let next = state.turn;
        state.is_stuck |= next.is_none() && state.unfinished > 0;
        let is_stuck = state.is_stuck;
        drop(state);
        let woken =
            next.map_or(if is_stuck { &self.threads[..] } else { &[] }, |next| &self.threads[next..=next]);
        woken.iter().filter_map(OnceLock::get).for_each(Thread::unpark);
    }

    fn wait_for_turn(&self, rank: usize) -> MutexGuard<'_, State> {
        loop {
            let state = self.lock();
            if state.turn == Some(rank) {
                return state;
            }
            assert!(!state.is_stuck, "rank {rank} waits for a message or a step that no rank will make");
            drop(state);
            std::thread::park();
        }
    }
}

impl State {
    fn store(&mut self, message: Message) -> MessageId {
        let id = self.free.pop().unwrap_or(self.messages.len());
        if id == self.messages.len() {
            self.messages.push(None);
        }
        self.messages[id] = Some(message);
        id
    }

    fn take(&mut self, id: MessageId) -> Option<Message> {
        self.free.push(id);
        self.messages[id].take()
    }

    fn schedule(&mut self, at: Picoseconds, event: Event) {
        self.created += 1;
        self.events.push(Reverse(Scheduled { at, number: self.created, event }));
    }

    /// Processes events until it is a rank's turn, or none are left.
    fn advance(&mut self) {
        while self.turn.is_none()
            && let Some(Reverse(Scheduled { at, event, .. })) = self.events.pop()
        {
            self.now = at;
            self.process(event);
        }
    }

    fn process(&mut self, event: Event) {
        match event {
            Event::Wake(rank) => self.turn = Some(rank),
            Event::Enqueue(rank) => self.enqueue(rank),
            Event::Left(host) => {
                self.nics[host].sends = false;
                self.send_next(host);
            }
            Event::Arrive(id) => {
                let Some(message) = &self.messages[id] else { return };
                let nic = &mut self.nics[self.hosts[message.to]];
                nic.receives_until = nic.receives_until.max(self.now) + self.network.on_wire(message.bytes);
                let at = nic.receives_until;
                self.schedule(at, Event::Deliver(id));
            }
            Event::Deliver(id) => self.deliver(id),
            Event::Sent(rank) => {
                let now = self.now;
                if let Some(exchange) = &mut self.ranks[rank].exchange {
                    exchange.unsent -= 1;
                    exchange.sent_at = now;
                }
                self.wake_if_complete(rank);
            }
        }
    }

    fn enqueue(&mut self, rank: usize) {
        let outbox = self.ranks[rank].exchange.as_mut().map(|exchange| &mut exchange.outbox);
        let (id, is_last) = outbox.map_or((None, true), |outbox| (outbox.pop_front(), outbox.is_empty()));
        if !is_last {
            self.schedule(self.now + self.network.overhead, Event::Enqueue(rank));
        }
        let Some((id, message)) = id.and_then(|id| Some((id, self.messages[id].as_ref()?))) else { return };
        let (from, to, bytes) = (self.hosts[message.from], self.hosts[message.to], message.bytes);
        if from == to {
            let at = self.now + self.network.local_latency + self.network.in_memory(bytes);
            self.schedule(at, Event::Sent(rank));
            return self.schedule(at, Event::Deliver(id));
        }
        let counts = &mut self.ranks[rank].counts;
        (counts.messages, counts.bytes) = (counts.messages + 1, counts.bytes + bytes);
        counts.peers.insert(message.to);
        self.nics[from].queue.push_back(id);
        self.send_next(from);
    }

    /// Starts the next message of a host, if its NIC is idle.
    fn send_next(&mut self, host: usize) {
        let nic = &mut self.nics[host];
        if nic.sends {
            return;
        }
        let Some(id) = nic.queue.pop_front() else { return };
        let Some(message) = &self.messages[id] else { return };
        nic.sends = true;
        let (from, end) = (message.from, self.now + self.network.on_wire(message.bytes));
        self.schedule(end, Event::Left(host));
        self.schedule(end, Event::Sent(from));
        self.schedule(self.now + self.network.latency, Event::Arrive(id));
    }

    fn deliver(&mut self, id: MessageId) {
        let Some(message) = &self.messages[id] else { return };
        let (to, key) = (message.to, (message.from, message.context, message.tag));
        let rank = &mut self.ranks[to];
        if self.hosts[message.from] != self.hosts[to] {
            rank.counts.received_messages += 1;
            rank.counts.received_bytes += message.bytes;
        }
        let lane = rank.inbox.entry(key).or_default();
        lane.arrived.push_back((self.now, id));
        if lane.arrived.len() <= lane.wanted
            && let Some(exchange) = &mut rank.exchange
        {
            exchange.missing -= 1;
            self.wake_if_complete(to);
        }
    }

    fn wake_if_complete(&mut self, rank: usize) {
        let exchange = self.ranks[rank].exchange.as_ref();
        if exchange.is_some_and(|exchange| exchange.missing + exchange.unsent == 0) {
            self.schedule(self.now, Event::Wake(rank));
        }
    }

    /// The last member has entered a step: all of them go on.
    fn complete_step(&mut self, context: u32, entered: &[(usize, usize)]) {
        let deepest = entered.iter().map(|&(rank, _)| self.ranks[rank].depth).max().unwrap_or(0);
        let now = entered.iter().map(|&(rank, _)| self.ranks[rank].clock).max().unwrap_or(self.now);
        if context == MEASUREMENT {
            let ranks = self.ranks.iter_mut().map(|rank| std::mem::take(&mut rank.counts)).collect();
            let (time, hosts) = (now - self.started, self.hosts.clone());
            self.measured.push(Measurement { time, steps: deepest, ranks, hosts });
            self.started = now;
        }
        for &(rank, bytes) in entered {
            let (latency, work) = (self.network.local_latency, self.network.in_memory(bytes));
            let (depth, pause) = if context == MEASUREMENT { (0, 0) } else { (deepest, latency + work) };
            self.ranks[rank].depth = depth;
            self.ranks[rank].clock = now + pause;
            self.schedule(now + pause, Event::Wake(rank));
        }
    }
}
