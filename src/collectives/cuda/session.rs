//! What the ranks of a group agreed on for their devices, kept from one call to the next.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytemuck::{Pod, Zeroable};

use super::kernels::MOST_BUFFERS;
use super::meeting::{Meeting, nonsense};
use super::nccl::Nccl;
use super::order::{Order, Workers};
use super::path::{Abilities, Facts, Path, Wish, choose};
use super::staged::Staging;
use crate::cuda::{self, Device, DeviceMemory, Exported, Mapped, NCCL, PinnedMemory, Span, Stream};
use crate::error::{Error, Result};
use crate::world::Group;

/// What a rank shows at the beginning of a call.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Shown {
    pub facts: Facts,
    pub input: Exported,
    pub output: Exported,
}

/// The agreement of a group's ranks, each with one device.
pub(super) struct Session {
    pub facts: Vec<Facts>,
    pub path: Path,
    pub me: usize,
    pub device: Arc<Device>,
    pub stream: Stream,
    pub workers: Workers,
    kept: Mutex<Kept>,
    staging: OnceLock<Option<Staging>>,
    nccl: OnceLock<Nccl>,
}

/// Memory that is made when it is needed, and kept.
#[derive(Default)]
pub(super) struct Kept {
    /// Stand for users' memory that other processes cannot open.
    proxies: [Option<DeviceMemory>; 2],
    pub pinned: [Option<PinnedMemory>; 2],
}

/// Kept memory comes in multiples of this.
const GRAIN: usize = 2 << 20;

/// A buffer that is at least as long, made anew if the one there is not.
pub(super) fn at_least<M>(
    kept: &mut Option<M>,
    bytes: usize,
    length: impl Fn(&M) -> usize,
    make: impl FnOnce(usize) -> Result<M>,
) -> Result<&mut M> {
    if kept.as_ref().is_none_or(|memory| length(memory) < bytes) {
        // First the old one goes: both may not fit.
        *kept = None;
        *kept = Some(make(bytes.next_multiple_of(GRAIN))?);
    }
    kept.as_mut().ok_or_else(|| nonsense("memory was not kept"))
}

/// What this rank says of itself.
pub(super) fn facts(group: &Group, device: &Device) -> Result<Facts> {
    let wish = std::env::var("UNISONO_CUDA_PATH").ok();
    let rank = group.members()[group.rank()];
    Ok(Facts {
        device: device.uuid(),
        process: cuda::process_number(),
        host: group.core.common.hosts[rank] as u32,
        wish: Wish::parse(wish.as_deref())?,
    })
}

impl Session {
    /// The group's session, agreed on anew if any rank has another device or process than last time; and what all ranks
    /// show for this call, with the counts of all_to_all.
    pub fn join(
        meeting: &Meeting,
        device: &Arc<Device>,
        order: &Order,
    ) -> Result<(Arc<Session>, Vec<Shown>, Vec<u64>)> {
        let mine = facts(meeting.group, device)?;
        let counts = order.counts_to_show();
        loop {
            let known = recall(meeting.group).filter(|session| session.facts[session.me] == mine);
            let shown = match &known {
                Some(session) => session.show(meeting, mine, order)?,
                None => Shown { facts: mine, ..Shown::zeroed() },
            };
            let mut bytes = bytemuck::bytes_of(&shown).to_vec();
            bytes.extend_from_slice(bytemuck::cast_slice(&counts));
            let all = meeting.meet(&bytes)?;
            let (mut everybody, mut all_counts) = (Vec::new(), Vec::new());
            for one in all.chunks_exact(bytes.len()) {
                let (shown, counts) = one.split_at(size_of::<Shown>());
                everybody.push(bytemuck::pod_read_unaligned::<Shown>(shown));
                let counts = counts.chunks_exact(size_of::<u64>());
                all_counts.extend(counts.map(bytemuck::pod_read_unaligned::<u64>));
            }
            meeting.compare(&all_counts)?;
            let facts: Vec<Facts> = everybody.iter().map(|one| one.facts).collect();
            match known.filter(|session| session.facts == facts) {
                Some(session) => return Ok((session, everybody, all_counts)),
                None => keep(meeting.group, Arc::new(Session::agree(meeting, device, facts)?)),
            }
        }
    }

    /// All ranks try what they can do, tell each other, and draw the same conclusion.
    fn agree(meeting: &Meeting, device: &Arc<Device>, facts: Vec<Facts>) -> Result<Session> {
        let me = meeting.group.rank();
        let trial = DeviceMemory::new(device, 1)?;
        // SAFETY: nobody reads or writes it; it lives until all have met again.
        let exported = cuda::export(device, &unsafe { trial.span() });
        let shown = exported.as_ref().copied().unwrap_or_else(|_| Exported::zeroed());
        let all = meeting.meet(bytemuck::bytes_of(&shown))?;
        let can_open = all.chunks_exact(size_of::<Exported>()).zip(&facts).all(|(bytes, other)| {
            if other.host != facts[me].host {
                return true;
            }
            if other.process == facts[me].process {
                return device.reach(&other.device).is_ok();
            }
            cuda::open(device, other.process, &bytemuck::pod_read_unaligned(bytes)).is_ok()
        });
        let devices: Vec<_> = facts.iter().map(|one| (one.host, one.device)).collect();
        let workers = Workers::for_devices(&devices);
        // A large library: looked for only where it may serve.
        let wants_nccl = facts[me].wish == Wish::NCCL || workers.all.len() == facts.len();
        let nccl = facts.len() > 1 && wants_nccl && NCCL.load().is_ok();
        let alone = facts.iter().all(|other| other.process == facts[me].process);
        // Ranks that work on each other's memory must be able to take it back: see `Meeting::lend`.
        let can_withdraw = meeting.group.core.channel.is_some();
        let ipc = can_open && can_withdraw && (alone || exported.is_ok());
        let mine = Abilities { nccl: nccl.into(), ipc: ipc.into() };
        let all = meeting.meet(bytemuck::bytes_of(&mine))?;
        let abilities: Vec<Abilities> =
            all.chunks_exact(size_of::<Abilities>()).map(bytemuck::pod_read_unaligned).collect();
        let path = choose(&facts, &abilities, MOST_BUFFERS)?;
        tracing::debug!(%path, "agreed on the way between devices");
        let stream = Stream::new(device)?;
        let (kept, staging, nccl) = (Mutex::default(), OnceLock::new(), OnceLock::new());
        Ok(Session { facts, path, me, device: device.clone(), stream, workers, kept, staging, nccl })
    }

    /// The group's pinned memory, made by all ranks together at first use; `None` where they cannot share any.
    pub fn staging(&self, meeting: &Meeting) -> Result<Option<&Staging>> {
        if self.staging.get().is_none() {
            let staging = Staging::found(meeting, self)?;
            let _ = self.staging.set(staging);
        }
        Ok(self.staging.get().and_then(Option::as_ref))
    }

    /// The group's communicator, made by all ranks together at first use.
    pub fn nccl(&self, meeting: &Meeting) -> Result<&Nccl> {
        if self.nccl.get().is_none() {
            let _ = self.nccl.set(Nccl::found(meeting, self)?);
        }
        self.nccl.get().ok_or_else(|| nonsense("a communicator was not kept"))
    }

    /// What this rank shows for a call: its buffers, or what stands for them.
    fn show(&self, meeting: &Meeting, facts: Facts, order: &Order) -> Result<Shown> {
        let mut kept = self.kept();
        let mut show = |at: usize, span: &Span, is_input: bool| -> Result<Exported> {
            if span.bytes() == 0 || !matches!(self.path, Path::Direct | Path::Ipc) {
                return Ok(Exported::zeroed());
            }
            if self.path == Path::Direct {
                return Ok(Exported::here(span));
            }
            cuda::export(&self.device, span).or_else(|_| {
                let make = |bytes| DeviceMemory::new(&self.device, bytes);
                let proxy = at_least(&mut kept.proxies[at], span.bytes(), DeviceMemory::bytes, make)?;
                if is_input {
                    // SAFETY: the proxy is this session's, and as long; the span is lent for the call.
                    unsafe { self.stream.copy(proxy.address(), span.address(), span.bytes())? };
                    self.stream.wait(&|| meeting.go_on())?;
                }
                // SAFETY: the proxy lives as long as the session.
                cuda::export(&self.device, &unsafe { proxy.span() })
            })
        };
        let input = show(0, &order.input, true)?;
        let in_place = order.input == order.output;
        let output = if in_place { input } else { show(1, &order.output, false)? };
        Ok(Shown { facts, input, output })
    }

    /// After the work: brings the result from what stood for the output to the output itself.
    pub fn take(&self, meeting: &Meeting, order: &Order, shown: &Shown) -> Result<()> {
        let kept = self.kept();
        let stood = kept.proxies.iter().flatten().find(|proxy| shown.output.is_at(proxy.address()));
        let Some(proxy) = stood.filter(|_| order.output.bytes() > 0) else { return Ok(()) };
        // SAFETY: the proxy is as long as the output was; nobody else writes to it after the ranks have met.
        unsafe { self.stream.copy(order.output.address(), proxy.address(), order.output.bytes())? };
        self.stream.wait(&|| meeting.go_on())
    }

    /// Where another rank's buffer is for this process; the second keeps it there.
    pub fn address(&self, rank: usize, exported: &Exported) -> Result<(u64, Option<Arc<Mapped>>)> {
        let process = self.facts[rank].process;
        if process == self.facts[self.me].process {
            return Ok((exported.address(), None));
        }
        cuda::open(&self.device, process, exported).map(|(address, mapped)| (address, Some(mapped)))
    }

    pub fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes memory of the processes of lost ranks: while it is open here, it is taken, also for a rank that is started again.
pub(super) fn forget_lost(group: &Group, error: &Error) {
    let (Error::PeerLost { lost, .. }, Some(session)) = (error, recall(group)) else { return };
    let members = group.members().iter().zip(&session.facts);
    let processes = members.filter(|(rank, _)| lost.iter().any(|one| one.rank == **rank));
    processes.for_each(|(_, facts)| cuda::forget_process(facts.process));
}

fn recall(group: &Group) -> Option<Arc<Session>> {
    let kept = group.core.device.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
    kept.downcast().ok()
}

fn keep(group: &Group, session: Arc<Session>) {
    if let Some(before) = recall(group) {
        let gone = |one: &&Facts| session.facts.iter().all(|other| other.process != one.process);
        before.facts.iter().filter(gone).for_each(|one| cuda::forget_process(one.process));
    }
    let session: Arc<dyn Any + Send + Sync> = session;
    *group.core.device.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
}
