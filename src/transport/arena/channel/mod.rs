//! Collectives through shared memory, without messages, for a group whose members share an arena. Protocol: README.md.

mod access;
mod all_reduce;
mod call_record;
#[cfg(all(test, not(unisono_loom)))]
mod counted;
mod parts;
mod share;
mod slot_writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use access::Access;
use call_record::{CallRecord, RecordCell};
#[cfg(all(test, not(unisono_loom)))]
pub(crate) use counted::CountedSteps;
use slot_writer::SlotWriter;

use super::exposure::Exposed;
use super::flag::Flag;
use super::{Arena, LocalEndpoint};
use crate::error::{Error, Kind, Lost, Missing, Result};
use crate::transport::wait::Awaited;
use crate::transport::{Call, REVOKED, Signature, process};

/// The slots that a member uses in rotation, and the bytes of a window: what it publishes at once, in one slot.
#[derive(Clone, Copy)]
struct Rotation {
    slots: u32,
    window: usize,
}

/// For ranks that share cores: fewer switches between them for the same bytes, and a rank gets further before it must wait. Every
/// channel has room for it.
const SHARED_CORES: Rotation = Rotation { slots: 16, window: 256 * 1024 };

/// For ranks with a core each: what a member writes before it uses a slot again should stay in its L2 cache, together with what it
/// reads from the others meanwhile.
const CORE_EACH: Rotation = Rotation { slots: 8, window: 64 * 1024 };

/// Bytes of all members' windows together, as long as each is between the two lengths above.
const WINDOWS_OF_ALL: usize = 512 * 1024;

impl Rotation {
    /// Few members have longer windows, and therefore fewer steps.
    fn core_each(members: usize) -> Rotation {
        let window = WINDOWS_OF_ALL / members.max(1) / 4096 * 4096;
        Rotation { window: window.clamp(CORE_EACH.window, SHARED_CORES.window), ..CORE_EACH }
    }
}

/// Steps that a member may publish beyond a step that it still reads.
const LAG: u32 = 2;

// Steps are counted modulo 2³², and a member must be able to write a slot while others still read as many steps as they may.
const _: () = assert!(CORE_EACH.slots.is_power_of_two() && SHARED_CORES.slots.is_power_of_two());
const _: () = assert!(CORE_EACH.slots > LAG + 1 && SHARED_CORES.slots > LAG + 1);

/// Distance between adjacent slots in bytes. The padding makes slots start at different offsets within a page: the processor
/// mistakes loads and stores at equal offsets for each other (4K aliasing) and slows down.
const SLOT: usize = SHARED_CORES.window + 256;

/// Page offset of the first slot: far from offset 0, where most users' buffers start.
const SLOT_START: usize = 2048;

/// How long a failed call waits for members that touch its memory before it detaches the memory: most finish sooner, and then
/// the memory stays in the arena.
const GRACE: Duration = Duration::from_millis(100);

/// Poll interval of that wait.
const POLL: Duration = Duration::from_micros(500);

/// One member's control block.
#[repr(C, align(128))]
struct ControlBlock {
    /// Steps that this member has published.
    step: Flag,
    /// Its call records, one per slot.
    records: [RecordCell; SHARED_CORES.slots as usize],
    /// Whether it touches exposed memory, and whether it still takes part.
    access: Access,
    /// The core on which it published its last step, plus one; zero if none.
    core: AtomicU32,
}

/// The core that runs this thread, plus one.
fn this_core() -> u32 {
    rustix::thread::sched_getcpu() as u32 + 1
}

/// Bytes of a channel with `members` members.
pub(crate) fn bytes(members: usize) -> usize {
    slots_start(members) + members * SHARED_CORES.slots as usize * SLOT
}

fn slots_start(members: usize) -> usize {
    (members * size_of::<ControlBlock>()).next_multiple_of(4096) + SLOT_START
}

/// Bytes that a member has published, as a raw pointer and a length.
#[derive(Clone, Copy)]
pub(crate) struct RawSlice {
    pub pointer: *const u8,
    pub bytes: usize,
}

impl RawSlice {
    pub fn of(bytes: &[u8]) -> RawSlice {
        RawSlice { pointer: bytes.as_ptr(), bytes: bytes.len() }
    }

    /// Copies the bytes to `output`, starting at `start`.
    ///
    /// # Safety
    /// The slice is valid for reading and does not overlap `output`.
    pub unsafe fn copy_to(self, output: &mut [u8], start: usize) {
        if self.bytes > 0 {
            let target = &mut output[start..start + self.bytes];
            // SAFETY: the target has exactly the slice's length; the caller vouches for the slice.
            unsafe { target.as_mut_ptr().copy_from_nonoverlapping(self.pointer, self.bytes) };
        }
    }
}

/// One member's handle to a channel. Every member makes the same calls in the same order, one at a time.
pub(crate) struct Channel {
    endpoint: Arc<LocalEndpoint>,
    base: usize,
    /// Local rank of each member.
    members: Vec<usize>,
    me: usize,
    /// Steps that this member has published.
    step: AtomicU32,
    writer: SlotWriter,
    /// How the members use their slots if each has a core.
    core_each: Rotation,
    /// Whether the channel's memory comes from this rank's heap.
    owns_memory: bool,
    /// Whether this is the host-wide channel, in which a restarted rank continues at the step where it stopped.
    host_wide: bool,
    /// The steps of a modelled machine, where this is not a real channel.
    #[cfg(all(test, not(unisono_loom)))]
    counted: Option<Box<dyn CountedSteps>>,
}

impl Channel {
    /// The channel of the group of all local ranks; every arena has one.
    pub fn host_wide(endpoint: &Arc<LocalEndpoint>) -> Channel {
        let members = (0..endpoint.arena.local_size()).collect();
        let mut channel = Channel::new(endpoint, endpoint.arena.layout.channel(), members);
        channel.host_wide = true;
        *channel.step.get_mut() = channel.member(channel.me).step.load();
        channel
    }

    /// Creates a channel in this rank's heap, which the other members [`Channel::join`] at its [`Channel::offset`].
    pub fn create(endpoint: &Arc<LocalEndpoint>, members: Vec<usize>) -> Result<Channel> {
        let base = endpoint.reserve(bytes(members.len()))?;
        // SAFETY: the area was just reserved and is large enough; no other rank knows of it yet.
        unsafe { endpoint.arena.at(base).write_bytes(0, slots_start(members.len())) };
        let mut channel = Channel::new(endpoint, base, members);
        channel.owns_memory = true;
        Ok(channel)
    }

    /// Opens a channel that another member created.
    pub fn join(endpoint: &Arc<LocalEndpoint>, base: usize, members: Vec<usize>) -> Channel {
        Channel::new(endpoint, base, members)
    }

    fn new(endpoint: &Arc<LocalEndpoint>, base: usize, members: Vec<usize>) -> Channel {
        assert!(base + bytes(members.len()) <= endpoint.arena.layout.total() && base.is_multiple_of(4096));
        let me = members
            .iter()
            .position(|&member| member == endpoint.local_rank)
            .expect("only members open a channel");
        let core_each = Rotation::core_each(members.len());
        Channel {
            endpoint: endpoint.clone(),
            base,
            members,
            core_each,
            me,
            step: AtomicU32::new(0),
            writer: SlotWriter::default(),
            owns_memory: false,
            host_wide: false,
            #[cfg(all(test, not(unisono_loom)))]
            counted: None,
        }
    }

    /// Offset of the channel, in bytes from the start of the arena.
    pub fn offset(&self) -> usize {
        self.base
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    fn member(&self, member: usize) -> &ControlBlock {
        assert!(member < self.members.len());
        let offset = self.base + member * size_of::<ControlBlock>();
        // SAFETY: the area has a control block for each member; zeroes are valid; records are only accessed as
        // `RecordCell::read` and `RecordCell::store` describe.
        unsafe { &*self.endpoint.arena.at(offset).cast() }
    }

    /// How the members use their slots; the same on all.
    fn rotation(&self) -> Rotation {
        if self.endpoint.arena.is_oversubscribed() { SHARED_CORES } else { self.core_each }
    }

    /// The slot that a step uses.
    fn slot_index(&self, step: u32) -> usize {
        (step % self.rotation().slots) as usize
    }

    /// Where a member puts its data in the given step.
    fn slot(&self, member: usize, step: u32) -> *mut u8 {
        let index = member * SHARED_CORES.slots as usize + self.slot_index(step);
        self.endpoint.arena.at(self.base + slots_start(self.members.len()) + index * SLOT)
    }

    /// The next step that this member will publish.
    fn next(&self) -> u32 {
        self.current().wrapping_add(1)
    }

    /// The last step that this member has published.
    fn current(&self) -> u32 {
        self.step.load(Ordering::Relaxed)
    }

    /// Waits until the slot of the next step may be overwritten. Its content belongs to an earlier step, one rotation before, and a
    /// member that has published more than `LAG` steps after that one no longer reads it.
    fn writable(&self, call: &Call) -> Result<()> {
        self.wait_all(call, self.next().wrapping_sub(self.rotation().slots - LAG - 1))
    }

    /// Publishes the next step, which makes its slot and record visible to the other members.
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

    /// Fails if waiting for this step is pointless: an awaited member is lost, the deadline has passed, or the caller must stop.
    fn check(&self, call: &Call, step: u32) -> Result<()> {
        let late = LateMembers { channel: self, step };
        call.check(&late, || Ok(late.awaited().is_empty())).map(drop)
    }

    /// How a member was lost to this group. In the host-wide channel a member that ended between two calls may be restarted.
    fn lost_to_group(&self, member: usize) -> Option<Lost> {
        let rank = self.endpoint.ranks[self.members[member]];
        let gave_up = self.member(member).access.gave_up();
        let because = || self.endpoint.lost_because(rank, cause(gave_up));
        // The process exits soon after such an error, and its exit alone would not explain the cause.
        if gave_up == REPEATS {
            return Some(because());
        }
        let lost = if self.host_wide {
            self.endpoint.permanently_lost(rank)
        } else {
            self.endpoint.unreachable(rank)
        };
        lost.or_else(|| (gave_up != 0).then(because))
    }

    /// Why a member is unreachable across calls; restarted members always are.
    pub fn lost(&self, member: usize) -> Option<Lost> {
        self.endpoint
            .unreachable(self.endpoint.ranks[self.members[member]])
            .or_else(|| self.lost_to_group(member))
    }

    /// First step of every call: publishes the call record and the slot filled by `fill`, waits for all members, and compares
    /// the records.
    fn enter(&self, call: &Call, mine: CallRecord, fill: impl FnOnce(*mut u8)) -> Result<()> {
        let step = self.next();
        self.writable(call)?;
        fill(self.slot(self.me, step));
        self.member(self.me).records[self.slot_index(step)].store(mine);
        self.publish();
        self.wait_all(call, step)?;
        if (0..self.size()).all(|member| self.record(member).signature == mine.signature) {
            return Ok(());
        }
        let words =
            |member| (self.endpoint.ranks[self.members[member]], self.record(member).signature.to_string());
        Err(call.mismatch((0..self.size()).map(words).collect()))
    }

    /// A member's call record in the current step. Valid until this member publishes the next step.
    fn record(&self, member: usize) -> CallRecord {
        self.member(member).records[self.slot_index(self.current())].read()
    }

    /// One step without data: afterwards no member reads anything that was published before.
    fn settle(&self, call: &Call) -> Result<()> {
        self.writable(call)?;
        self.publish();
        self.wait_all(call, self.current())
    }

    /// Waits until all members have entered the call.
    pub fn barrier(&self, call: &Call, signature: Signature) -> Result<()> {
        #[cfg(all(test, not(unisono_loom)))]
        if self.count(0) {
            return Ok(());
        }
        self.enter(call, CallRecord::new(signature), |_| {})
    }

    /// Runs `work`, which touches memory that others expose, unless a member has given up on the call that all have just entered:
    /// that member's memory belongs to its caller again. `work` must not wait for another member, because a member that gives up
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

    /// Runs a call in which other members may touch this member's memory: its `exposed` memory in the arena, or memory on a
    /// device. After an error it returns only when no member touches that memory any more, nor ever will.
    pub fn with_exposed<R>(&self, exposed: Option<&Exposed>, work: impl FnOnce() -> Result<R>) -> Result<R> {
        let mut failed = ReclaimOnError { channel: self, exposed, kind: Some(Kind::Internal) };
        let result = work();
        // Mismatched calls touch nothing.
        failed.kind = result.as_ref().err().map(Error::kind).filter(|&kind| kind != Kind::Usage);
        result
    }

    /// Reclaims this member's memory. It waits for members that touch the memory, even beyond the call's deadline, because they
    /// wait for nothing but their own work; after [`GRACE`] the memory is detached instead if possible.
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

    /// Announces that this member no longer takes part, so that the others do not wait for it.
    pub fn give_up(&self, error: &Error) {
        self.give_up_with(error.kind() as u32);
    }

    /// As [`Channel::give_up`], for a restarted process that would repeat calls of its predecessor.
    pub fn give_up_as_restarted(&self) {
        self.give_up_with(REPEATS);
    }

    fn give_up_with(&self, cause: u32) {
        #[cfg(all(test, not(unisono_loom)))]
        if self.counted.is_some() {
            return;
        }
        if self.host_wide {
            self.endpoint.own_slot().process.mark_group_failed();
        }
        self.member(self.me).access.give_up(cause);
    }
}

/// Reclaims a member's memory when its call has failed or panicked.
struct ReclaimOnError<'a> {
    channel: &'a Channel,
    exposed: Option<&'a Exposed<'a>>,
    /// How the call failed; `None` if it succeeded.
    kind: Option<Kind>,
}

impl Drop for ReclaimOnError<'_> {
    fn drop(&mut self) {
        if let Some(kind) = self.kind {
            self.channel.reclaim(self.exposed, kind);
        }
    }
}

/// The members that have not published a step yet.
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
        // A forked child inherits its parent's handle but must not leave on behalf of the parent.
        // The process record already records that the rank has left the host-wide channel, and a restarted process may reuse it.
        if self.endpoint.own_slot().pid() != Some(process::own_pid()) || self.host_wide {
            return;
        }
        self.member(self.me).access.give_up(GROUP_LEFT);
        if self.owns_memory {
            self.endpoint.retire_channel(self.base, self.size());
        }
    }
}

/// Whether all members have left a channel, so that its memory may be reused.
pub(super) fn all_left(arena: &Arena, base: usize, members: usize) -> bool {
    (0..members).all(|member| {
        // SAFETY: the creator reserved this area for a channel of `members` members and has not freed it.
        let member = unsafe { &*arena.at(base + member * size_of::<ControlBlock>()).cast::<ControlBlock>() };
        member.access.gave_up() == GROUP_LEFT
    })
}

/// Set by a member that has dropped its handle; other values are the kind of the error that made it give up.
const GROUP_LEFT: u32 = u32::MAX;

/// Set by a restarted process that did not declare its position.
const REPEATS: u32 = u32::MAX - 1;

/// Describes why a member gave up.
fn cause(gave_up: u32) -> &'static str {
    match gave_up {
        GROUP_LEFT => HAS_LEFT_GROUP,
        REPEATS => REPEATED,
        _ => REVOKED,
    }
}

const HAS_LEFT_GROUP: &str = "it has dropped this group";
const REPEATED: &str = "it was started again and would have repeated collectives that its earlier process had completed; \
    it must restore its state and call world.resume() before its first collective";

#[cfg(all(test, not(unisono_loom)))]
mod tests {
    use super::*;
    use crate::transport::{CallTime, local};

    #[test]
    fn memory_of_failed_groups_is_used_again() {
        let endpoints: Vec<Arc<LocalEndpoint>> =
            local::create(2).unwrap().into_iter().map(|one| one.endpoint).collect();
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

    /// Ranks that are threads cannot detach memory: a failed call returns once the others have stopped touching it.
    #[test]
    fn a_failed_call_outlasts_those_that_touch_its_memory() {
        let endpoints: Vec<Arc<LocalEndpoint>> =
            local::create(2).unwrap().into_iter().map(|one| one.endpoint).collect();
        let call = |rank| Call {
            rank,
            operation: "all_reduce",
            number: 1,
            group: "world",
            members: &[0, 1],
            hosts: &[],
            time: CallTime::new(Duration::ZERO),
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
            let error =
                owner.with_exposed(Some(&exposed), || Err::<(), _>(call(0).timeout(Vec::new()))).unwrap_err();
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
