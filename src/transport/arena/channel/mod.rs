//! A group's meeting place in the arena: collectives without messages. See README.md beside this file for the protocol.

mod access;
mod all_reduce;
mod parts;
mod call_record;
mod share;
mod slot_writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use access::Access;
use call_record::{RecordCell, CallRecord};
use slot_writer::SlotWriter;

use super::exposure::Exposed;
use super::flag::Flag;
use super::{Arena, LocalEndpoint};
use crate::error::{Error, Kind, Lost, Missing, Result};
use crate::transport::wait::Awaited;
use crate::transport::{Call, GAVE_UP, Signature, process};

/// Bytes of a window: what a member shows at once. Large enough that meeting costs little, small enough that it stays in
/// the cache until it is read.
const WINDOW: usize = 256 * 1024;

/// How many slots a member uses in turn. Writing to memory that another core has just read is slow, because the core must
/// first be told to forget it: several times slower than writing to memory that has left the other core's own cache.
/// Sixteen windows are more than such a cache holds.
const SLOTS: u32 = 16;

/// How many steps a member may publish after a step that it still reads.
const LAG: u32 = 2;

/// Bytes between neighbouring slots. The extra bytes make slots begin at different places within a page: loads and stores
/// at equal places are mistaken for each other by the processor and slow down.
const SLOT: usize = WINDOW + 256;

/// Where in its page the first slot begins: far from the first bytes, where most users' buffers begin.
const SLOT_START: usize = 2048;

/// How long a failed call waits for members that touch its memory before it detaches the memory: most end sooner, and then
/// the memory stays in the arena.
const GRACE: Duration = Duration::from_millis(100);

/// How often such a wait looks.
const POLL: Duration = Duration::from_micros(500);

/// One member's notices.
#[repr(C, align(128))]
struct ControlBlock {
    /// How many steps this member has published.
    step: Flag,
    /// What it shows, one for each slot.
    records: [RecordCell; SLOTS as usize],
    /// Whether it touches what others expose, and whether it takes part at all.
    access: Access,
    /// The core that it ran on when it published its last step, plus one.
    core: AtomicU32,
}

/// The core that this thread runs on, plus one: zero is nobody's.
fn this_core() -> u32 {
    rustix::thread::sched_getcpu() as u32 + 1
}

/// Bytes that a channel of so many members needs.
pub(crate) fn bytes(members: usize) -> usize {
    slots_start(members) + members * SLOTS as usize * SLOT
}

fn slots_start(members: usize) -> usize {
    (members * size_of::<ControlBlock>()).next_multiple_of(4096) + SLOT_START
}

/// Which of its slots a step uses.
fn slot_index(step: u32) -> usize {
    (step % SLOTS) as usize
}

/// Bytes that another member shows.
#[derive(Clone, Copy)]
pub(crate) struct RawSlice {
    pub pointer: *const u8,
    pub bytes: usize,
}

impl RawSlice {
    pub fn of(bytes: &[u8]) -> RawSlice {
        RawSlice { pointer: bytes.as_ptr(), bytes: bytes.len() }
    }

    /// Copies the piece to the bytes of `output` that begin at `start`.
    ///
    /// # Safety
    /// The piece is valid for reading and does not overlap `output`.
    pub unsafe fn copy_to(self, output: &mut [u8], start: usize) {
        if self.bytes > 0 {
            let target = &mut output[start..start + self.bytes];
            // SAFETY: the target has exactly the piece's length; the caller vouches for the piece.
            unsafe { target.as_mut_ptr().copy_from_nonoverlapping(self.pointer, self.bytes) };
        }
    }
}

/// One member's end of the channel. Its calls are made one at a time, in the same order by every member.
pub(crate) struct Channel {
    endpoint: Arc<LocalEndpoint>,
    base: usize,
    /// The seat of each member.
    members: Vec<usize>,
    me: usize,
    /// Steps published by this member.
    step: AtomicU32,
    writer: SlotWriter,
    /// Whether the area comes from this seat's heap.
    owns_memory: bool,
    /// Whether this is the channel of all, which a rank that was started again takes up where it had stopped.
    host_wide: bool,
}

impl Channel {
    /// The channel of the group of all seats, which every arena has.
    pub fn host_wide(endpoint: &Arc<LocalEndpoint>) -> Channel {
        let members = (0..endpoint.arena.local_size()).collect();
        let mut channel = Channel::new(endpoint, endpoint.arena.layout.channel(), members);
        channel.host_wide = true;
        *channel.step.get_mut() = channel.member(channel.me).step.load();
        channel
    }

    /// A new channel in this seat's heap, for the other members to [`Channel::join`] at its [`Channel::offset`].
    pub fn create(endpoint: &Arc<LocalEndpoint>, members: Vec<usize>) -> Result<Channel> {
        let base = endpoint.reserve(bytes(members.len()))?;
        // SAFETY: the area was just reserved and is large enough; nobody else knows of it yet.
        unsafe { endpoint.arena.at(base).write_bytes(0, slots_start(members.len())) };
        let mut channel = Channel::new(endpoint, base, members);
        channel.owns_memory = true;
        Ok(channel)
    }

    /// This member's end of a channel that another member founded.
    pub fn join(endpoint: &Arc<LocalEndpoint>, base: usize, members: Vec<usize>) -> Channel {
        Channel::new(endpoint, base, members)
    }

    fn new(endpoint: &Arc<LocalEndpoint>, base: usize, members: Vec<usize>) -> Channel {
        assert!(base + bytes(members.len()) <= endpoint.arena.layout.total() && base.is_multiple_of(4096));
        let me =
            members.iter().position(|&member| member == endpoint.local_rank).expect("only members open a channel");
        Channel {
            endpoint: endpoint.clone(),
            base,
            members,
            me,
            step: AtomicU32::new(0),
            writer: SlotWriter::default(),
            owns_memory: false,
            host_wide: false,
        }
    }

    /// Where the channel is, in bytes from the start of the arena.
    pub fn offset(&self) -> usize {
        self.base
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    fn member(&self, member: usize) -> &ControlBlock {
        assert!(member < self.members.len());
        let offset = self.base + member * size_of::<ControlBlock>();
        // SAFETY: the area has a notice block for each member; zeroes are valid; records are only touched as `record`
        // and `store` describe.
        unsafe { &*self.endpoint.arena.at(offset).cast() }
    }

    /// Where a member puts what it shows in the given step.
    fn slot(&self, member: usize, step: u32) -> *mut u8 {
        let index = member * SLOTS as usize + slot_index(step);
        self.endpoint.arena.at(self.base + slots_start(self.members.len()) + index * SLOT)
    }

    /// The step that this member publishes next.
    fn next(&self) -> u32 {
        self.current().wrapping_add(1)
    }

    /// The step that this member published last.
    fn current(&self) -> u32 {
        self.step.load(Ordering::Relaxed)
    }

    /// Waits until the slot of the next step may be overwritten: its last content belonged to the step `SLOTS` before, and
    /// whoever has published more than `LAG` steps after that one does not read it any more.
    fn writable(&self, call: &Call) -> Result<()> {
        self.wait_all(call, self.next().wrapping_sub(SLOTS - LAG - 1))
    }

    /// Publishes the next step: what was written into its slot and record is there for the others.
    fn publish(&self) {
        let step = self.next();
        self.step.store(step, Ordering::Relaxed);
        let me = self.member(self.me);
        me.core.store(this_core(), Ordering::Relaxed);
        me.step.raise(step);
    }

    fn wait_all(&self, call: &Call, step: u32) -> Result<()> {
        (0..self.size()).try_for_each(|member| self.wait_for(call, member, step))
    }

    #[inline]
    fn wait_for(&self, call: &Call, member: usize, step: u32) -> Result<()> {
        let flag = &self.member(member).step;
        let shares_core = || self.member(member).core.load(Ordering::Relaxed) == this_core();
        self.endpoint.backoff.wait(call, flag, || flag.reached(step), || self.check(call, step), shares_core)
    }

    /// Fails if there is no sense in waiting for this step any longer.
    fn check(&self, call: &Call, step: u32) -> Result<()> {
        let late = LateMembers { channel: self, step };
        call.check(&late, || Ok(late.awaited().is_empty())).map(drop)
    }

    /// How a member was lost to this group. One that ended between two calls on the group of all may be started again.
    fn lost_to_group(&self, member: usize) -> Option<Lost> {
        let rank = self.endpoint.ranks[self.members[member]];
        let gave_up = self.member(member).access.gave_up();
        let because = || self.endpoint.lost_because(rank, cause(gave_up));
        // The process ends soon after such an error, and its end alone would not say why.
        if gave_up == REPEATS {
            return Some(because());
        }
        let lost = if self.host_wide { self.endpoint.permanently_lost(rank) } else { self.endpoint.unreachable(rank) };
        lost.or_else(|| (gave_up != 0).then(because))
    }

    /// How a member was lost to calls that go on between two of the channel's: whoever was started again is.
    pub fn lost(&self, member: usize) -> Option<Lost> {
        self.endpoint.unreachable(self.endpoint.ranks[self.members[member]]).or_else(|| self.lost_to_group(member))
    }

    /// The first step of every call: shows what the call is and `fill`s the slot, waits for everybody, and compares.
    fn enter(&self, call: &Call, mine: CallRecord, fill: impl FnOnce(*mut u8)) -> Result<()> {
        let step = self.next();
        self.writable(call)?;
        fill(self.slot(self.me, step));
        self.member(self.me).records[slot_index(step)].store(mine);
        self.publish();
        self.wait_all(call, step)?;
        if (0..self.size()).all(|member| self.record(member).signature == mine.signature) {
            return Ok(());
        }
        let words =
            |member| (self.endpoint.ranks[self.members[member]], self.record(member).signature.to_string());
        Err(call.mismatch((0..self.size()).map(words).collect()))
    }

    /// What a member showed in the current step. Valid until this member publishes the next one.
    fn record(&self, member: usize) -> CallRecord {
        self.member(member).records[slot_index(self.current())].read()
    }

    /// One step without data: afterwards nobody reads anything that was shown before.
    fn settle(&self, call: &Call) -> Result<()> {
        self.writable(call)?;
        self.publish();
        self.wait_all(call, self.current())
    }

    /// Waits until everybody is here.
    pub fn barrier(&self, call: &Call, signature: Signature) -> Result<()> {
        self.enter(call, CallRecord::new(signature), |_| {})
    }

    /// Lets this member touch memory that others expose: does `work`, unless a member has given up on the call that all have
    /// just entered; its memory is its caller's again. `work` waits for no other member, because a member that gives up
    /// meanwhile waits for `work`.
    pub fn touch<R>(&self, call: &Call, work: impl FnOnce() -> Result<R>) -> Result<R> {
        let _touching = self.member(self.me).access.touch();
        let gave_up = |member: usize| self.member(member).access.gave_up();
        match (0..self.size()).find(|&member| gave_up(member) != 0) {
            None => work(),
            Some(member) => {
                let rank = self.endpoint.ranks[self.members[member]];
                Err(call.lost(vec![self.endpoint.lost_because(rank, cause(gave_up(member)))]))
            }
        }
    }

    /// Makes a call whose others may touch memory of this member: what is `exposed` of it in the arena, or memory on a
    /// device. After an error this returns when none of them does so any more, nor ever will.
    pub fn with_exposed<R>(&self, exposed: Option<&Exposed>, work: impl FnOnce() -> Result<R>) -> Result<R> {
        let mut failed = ReclaimOnError { channel: self, exposed, kind: Some(Kind::Internal) };
        let result = work();
        // Calls that differ touch nothing.
        failed.kind = result.as_ref().err().map(Error::kind).filter(|&kind| kind != Kind::Usage);
        result
    }

    /// Takes this member's memory back. Members that touch it are waited for, beyond the call's deadline, because they wait
    /// for nothing but their own work; after [`GRACE`] the memory is detached instead where it can be.
    fn reclaim(&self, exposed: Option<&Exposed>, kind: Kind) {
        self.member(self.me).access.give_up(kind as u32);
        let detach_at = Instant::now() + GRACE;
        for member in (0..self.size()).filter(|&member| member != self.me) {
            let ended = || self.endpoint.arena.peer_slot(self.members[member]).process_ended();
            while self.member(member).access.is_touching() && !ended() {
                if Instant::now() >= detach_at && exposed.is_some_and(Exposed::detach) {
                    return;
                }
                std::thread::sleep(POLL);
            }
        }
    }

    /// Tells the others that this member will not take part any more, so that they need not wait for it.
    pub fn give_up(&self, error: &Error) {
        self.give_up_with(error.kind() as u32);
    }

    /// The same, for a process that was started again and would repeat calls of the one before it.
    pub fn give_up_as_restarted(&self) {
        self.give_up_with(REPEATS);
    }

    fn give_up_with(&self, cause: u32) {
        if self.host_wide {
            self.endpoint.own_slot().process.mark_group_failed();
        }
        self.member(self.me).access.give_up(cause);
    }
}

/// Takes a member's memory back when its call has failed, or panicked.
struct ReclaimOnError<'a> {
    channel: &'a Channel,
    exposed: Option<&'a Exposed<'a>>,
    /// How the call has failed; none when it has not.
    kind: Option<Kind>,
}

impl Drop for ReclaimOnError<'_> {
    fn drop(&mut self) {
        if let Some(kind) = self.kind {
            self.channel.reclaim(self.exposed, kind);
        }
    }
}

/// The members that have not published a step.
struct LateMembers<'a> {
    channel: &'a Channel,
    step: u32,
}

impl Awaited for LateMembers<'_> {
    fn awaited(&self) -> Vec<usize> {
        let is_late = |&member: &usize| !self.channel.member(member).step.reached(self.step);
        (0..self.channel.size()).filter(is_late).collect()
    }

    fn lost(&self, member: usize) -> Option<Lost> {
        self.channel.lost_to_group(member)
    }

    fn missing(&self, members: Vec<usize>) -> Vec<Missing> {
        let Channel { endpoint, members: local_ranks, .. } = self.channel;
        endpoint.all_missing(members.into_iter().map(|member| endpoint.ranks[local_ranks[member]]))
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // A forked child inherits its parent's end of the channel, but not the right to leave.
        // Of the channel of all, leaving the seat has told everything; another process may take it up.
        if self.endpoint.own_slot().pid() != Some(process::own_pid()) || self.host_wide {
            return;
        }
        self.member(self.me).access.give_up(LEFT);
        if self.owns_memory {
            self.endpoint.retire_channel(self.base, self.size());
        }
    }
}

/// Whether all members have left a channel, so that its memory may be used again.
pub(super) fn all_left(arena: &Arena, base: usize, members: usize) -> bool {
    (0..members).all(|member| {
        // SAFETY: the founder reserved this area for a channel of so many members and has not given it back.
        let member = unsafe { &*arena.at(base + member * size_of::<ControlBlock>()).cast::<ControlBlock>() };
        member.access.gave_up() == LEFT
    })
}

/// Set by a member that has dropped its end; other values are the kind of the error that made it give up.
const LEFT: u32 = u32::MAX;

/// Set by a process that was started again and did not declare its position.
const REPEATS: u32 = u32::MAX - 1;

/// In words, why a member gave up.
fn cause(gave_up: u32) -> &'static str {
    match gave_up {
        LEFT => LEFT_GROUP,
        REPEATS => REPEATED,
        _ => GAVE_UP,
    }
}

const LEFT_GROUP: &str = "it has dropped this group";
const REPEATED: &str = "it was started again and would have repeated collectives that its earlier process had completed; \
    it must restore its state and call world.resume() before its first collective";

#[cfg(all(test, not(unisono_loom)))]
mod tests {
    use super::*;
    use crate::transport::local;

    #[test]
    fn memory_of_failed_groups_is_used_again() {
        let endpoints: Vec<Arc<LocalEndpoint>> = local::create(2).unwrap().into_iter().map(|one| one.endpoint).collect();
        let round = || {
            let first = Channel::create(&endpoints[0], vec![0, 1]).unwrap();
            let second = Channel::join(&endpoints[1], first.offset(), vec![0, 1]);
            let buffer = endpoints[0].allocate(1 << 20).unwrap();
            first.give_up(&Error::internal("barrier", "failed"));
            second.give_up(&Error::internal("barrier", "failed"));
            (first.offset(), buffer.offset())
        };
        let offsets = round();
        assert_eq!(round(), offsets);
        assert_eq!(round(), offsets);
    }

    /// Ranks that are threads cannot detach memory: a failed call returns when the others have stopped touching it.
    #[test]
    fn a_failed_call_outlasts_those_that_touch_its_memory() {
        let endpoints: Vec<Arc<LocalEndpoint>> = local::create(2).unwrap().into_iter().map(|one| one.endpoint).collect();
        let started = Instant::now();
        let call = |rank| Call {
            rank,
            operation: "all_reduce",
            number: 1,
            group: "world",
            members: &[0, 1],
            started,
            deadline: started,
            interrupt: None,
        };
        let (owner, peer) = (Channel::host_wide(&endpoints[0]), Channel::host_wide(&endpoints[1]));
        let buffer = endpoints[0].allocate(1 << 20).unwrap();
        let exposed = endpoints[0].arena.expose(RawSlice::of(&buffer)).unwrap();
        let (begun, ended) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let slow = || {
                    begun.store(1, Ordering::Release);
                    std::thread::sleep(3 * GRACE);
                    ended.store(1, Ordering::Release);
                    Ok(())
                };
                peer.touch(&call(1), slow).unwrap();
            });
            while begun.load(Ordering::Acquire) == 0 {
                std::thread::yield_now();
            }
            let error = owner.with_exposed(Some(&exposed), || Err::<(), _>(call(0).timeout(Vec::new()))).unwrap_err();
            assert_eq!((error.kind(), ended.load(Ordering::Acquire)), (Kind::Timeout, 1));
        });
        let write = || {
            ended.store(2, Ordering::Release);
            Ok(())
        };
        let late = peer.touch(&call(1), write).unwrap_err();
        assert_eq!((late.kind(), ended.load(Ordering::Acquire)), (Kind::PeerLost, 1), "{late}");
    }
}
