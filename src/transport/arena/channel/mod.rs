//! A group's meeting place in the arena: collectives without messages. See README.md beside this file for the protocol.

mod all_reduce;
mod parts;
mod record;
mod share;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use record::{Notice, Record};
use writer::Writer;

use super::flag::{Flag, reached};
use super::{Arena, Seat};
use crate::error::{Error, Lost, Result};
use crate::transport::{Call, Signature, process};

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

/// One member's notices.
#[repr(C, align(128))]
struct Member {
    /// How many steps this member has published.
    step: Flag,
    /// What it shows, one for each slot.
    records: [Notice; SLOTS as usize],
    /// Not zero when it will not take part any more.
    gave_up: AtomicU32,
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
    (members * size_of::<Member>()).next_multiple_of(4096) + SLOT_START
}

/// Which of its slots a step uses.
fn turn(step: u32) -> usize {
    (step % SLOTS) as usize
}

/// Bytes that another member shows.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    pub pointer: *const u8,
    pub bytes: usize,
}

impl Piece {
    pub fn of(bytes: &[u8]) -> Piece {
        Piece { pointer: bytes.as_ptr(), bytes: bytes.len() }
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
    seat: Arc<Seat>,
    base: usize,
    /// The seat of each member.
    members: Vec<usize>,
    me: usize,
    /// Steps published by this member.
    step: AtomicU32,
    writer: Writer,
    /// Whether the area comes from this seat's heap.
    founded: bool,
    /// Whether this is the channel of all, which a rank that was started again takes up where it had stopped.
    of_all: bool,
}

impl Channel {
    /// The channel of the group of all seats, which every arena has.
    pub fn of_all(seat: &Arc<Seat>) -> Channel {
        let members = (0..seat.arena.seats()).collect();
        let mut channel = Channel::new(seat, seat.arena.layout.channel(), members);
        channel.of_all = true;
        *channel.step.get_mut() = channel.member(channel.me).step.load();
        channel
    }

    /// A new channel in this seat's heap, for the other members to [`Channel::join`] at its [`Channel::offset`].
    pub fn found(seat: &Arc<Seat>, members: Vec<usize>) -> Result<Channel> {
        let base = seat.reserve(bytes(members.len()))?;
        // SAFETY: the area was just reserved and is large enough; nobody else knows of it yet.
        unsafe { seat.arena.at(base).write_bytes(0, slots_start(members.len())) };
        let mut channel = Channel::new(seat, base, members);
        channel.founded = true;
        Ok(channel)
    }

    /// This member's end of a channel that another member founded.
    pub fn join(seat: &Arc<Seat>, base: usize, members: Vec<usize>) -> Channel {
        Channel::new(seat, base, members)
    }

    fn new(seat: &Arc<Seat>, base: usize, members: Vec<usize>) -> Channel {
        assert!(base + bytes(members.len()) <= seat.arena.layout.total() && base.is_multiple_of(4096));
        let me =
            members.iter().position(|&member| member == seat.index).expect("only members open a channel");
        Channel {
            seat: seat.clone(),
            base,
            members,
            me,
            step: AtomicU32::new(0),
            writer: Writer::default(),
            founded: false,
            of_all: false,
        }
    }

    /// Where the channel is, in bytes from the start of the arena.
    pub fn offset(&self) -> usize {
        self.base
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    fn member(&self, member: usize) -> &Member {
        assert!(member < self.members.len());
        let offset = self.base + member * size_of::<Member>();
        // SAFETY: the area has a notice block for each member; zeroes are valid; records are only touched as `record`
        // and `show` describe.
        unsafe { &*self.seat.arena.at(offset).cast() }
    }

    /// Where a member puts what it shows in the given step.
    fn slot(&self, member: usize, step: u32) -> *mut u8 {
        let index = member * SLOTS as usize + turn(step);
        self.seat.arena.at(self.base + slots_start(self.members.len()) + index * SLOT)
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
        let crowded = || self.member(member).core.load(Ordering::Relaxed) == this_core();
        self.seat.patience.wait(flag, || flag.reached(step), || self.check(call, step), crowded)
    }

    /// Fails if there is no sense in waiting for this step any longer.
    fn check(&self, call: &Call, step: u32) -> Result<()> {
        call.check_interrupt()?;
        let rank = |member: usize| self.seat.ranks[self.members[member]];
        // Read first who is gone, then who is late: a member that published and then left is not late.
        let gone: Vec<Option<Lost>> = (0..self.size()).map(|member| self.gone(member)).collect();
        let late: Vec<usize> =
            (0..self.size()).filter(|&member| !reached(self.member(member).step.load(), step)).collect();
        let lost: Vec<Lost> = late.iter().filter_map(|&member| gone[member].clone()).collect();
        if !lost.is_empty() {
            return Err(call.lost(lost));
        }
        if call.remaining().is_zero() && !late.is_empty() {
            return Err(call.timeout(self.seat.all_missing(late.iter().map(|&member| rank(member)))));
        }
        Ok(())
    }

    /// How a member was lost to this group. One that ended between two calls on the group of all may be started again.
    fn gone(&self, member: usize) -> Option<Lost> {
        let rank = self.seat.ranks[self.members[member]];
        let lost = if self.of_all { self.seat.lost_for_good(rank) } else { self.seat.unreachable(rank) };
        lost.or_else(|| {
            let gave_up = self.member(member).gave_up.load(Ordering::Acquire);
            let how = if gave_up == LEFT { LEFT_GROUP } else { GAVE_UP };
            (gave_up != 0).then(|| self.seat.lost_because(rank, how))
        })
    }

    /// How a member was lost to calls that go on between two of the channel's: whoever was started again is.
    pub fn lost(&self, member: usize) -> Option<Lost> {
        self.seat.unreachable(self.seat.ranks[self.members[member]]).or_else(|| self.gone(member))
    }

    /// The first step of every call: shows what the call is and `fill`s the slot, waits for everybody, and compares.
    fn enter(&self, call: &Call, mine: Record, fill: impl FnOnce(*mut u8)) -> Result<()> {
        let step = self.next();
        self.writable(call)?;
        fill(self.slot(self.me, step));
        self.member(self.me).records[turn(step)].show(mine);
        self.publish();
        self.wait_all(call, step)?;
        if (0..self.size()).all(|member| self.record(member).signature == mine.signature) {
            return Ok(());
        }
        let words =
            |member| (self.seat.ranks[self.members[member]], self.record(member).signature.to_string());
        Err(call.mismatch((0..self.size()).map(words).collect()))
    }

    /// What a member showed in the current step. Valid until this member publishes the next one.
    fn record(&self, member: usize) -> Record {
        self.member(member).records[turn(self.current())].read()
    }

    /// One step without data: afterwards nobody reads anything that was shown before.
    fn settle(&self, call: &Call) -> Result<()> {
        self.writable(call)?;
        self.publish();
        self.wait_all(call, self.current())
    }

    /// Waits until everybody is here.
    pub fn barrier(&self, call: &Call, signature: Signature) -> Result<()> {
        self.enter(call, Record::new(signature), |_| {})
    }

    /// Fails if somebody gave up on the call that all have just entered: its memory must not be touched any more.
    pub fn all_stay(&self, call: &Call) -> Result<()> {
        let gone = (0..self.size()).find(|&member| self.member(member).gave_up.load(Ordering::Acquire) != 0);
        match gone {
            None => Ok(()),
            Some(member) => {
                Err(call.lost(vec![self.seat.lost_because(self.seat.ranks[self.members[member]], GAVE_UP)]))
            }
        }
    }

    /// Tells the others that this member will not take part any more, so that they need not wait for it.
    pub fn give_up(&self, error: &Error) {
        // Somebody may still be about to read or write memory that this rank showed: it is not used for anything else.
        self.seat.keep_memory();
        if self.of_all {
            self.seat.place().stay.break_off();
        }
        self.member(self.me).gave_up.store(error.kind() as u32, Ordering::Release);
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // A forked child inherits its parent's end of the channel, but not the right to leave.
        // Of the channel of all, leaving the seat has told everything; another process may take it up.
        if self.seat.place().pid() != Some(process::own()) || self.of_all {
            return;
        }
        self.member(self.me).gave_up.store(LEFT, Ordering::Release);
        if self.founded {
            self.seat.retire(self.base, self.size());
        }
    }
}

/// Whether all members have left a channel, so that its memory may be used again.
pub(super) fn is_deserted(arena: &Arena, base: usize, members: usize) -> bool {
    (0..members).all(|member| {
        // SAFETY: the founder reserved this area for a channel of so many members and has not given it back.
        let member = unsafe { &*arena.at(base + member * size_of::<Member>()).cast::<Member>() };
        member.gave_up.load(Ordering::Acquire) == LEFT
    })
}

/// Set by a member that has dropped its end; other values are the kind of the error that made it give up.
const LEFT: u32 = u32::MAX;

const LEFT_GROUP: &str = "it has dropped this group";
const GAVE_UP: &str = "it gave up on this group after an error";
