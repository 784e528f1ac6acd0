//! What the ranks of a group agreed on for their devices, kept between calls.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytemuck::{Pod, Zeroable};

use super::jobs::{DeviceCollective, Workers};
use super::kernels::MAX_BUFFERS;
use super::nccl::Nccl;
use super::path::{Capabilities, Path, PathChoice, RankFacts, choose};
use super::rendezvous::{Rendezvous, internal_error};
use super::staged::Staging;
use crate::cuda::{self, Device, DeviceMemory, Exported, Mapped, NCCL, PinnedMemory, Span, Stream};
use crate::error::{Error, Result};
use crate::world::Group;

/// What a rank publishes at the beginning of a call.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct RankDescriptor {
    pub facts: RankFacts,
    pub input: Exported,
    pub output: Exported,
}

/// The agreement of a group's ranks, each with one device.
pub(super) struct DeviceSession {
    pub facts: Vec<RankFacts>,
    pub path: Path,
    pub me: usize,
    pub device: Arc<Device>,
    pub stream: Stream,
    pub workers: Workers,
    cache: Mutex<BufferCache>,
    staging: OnceLock<Option<Staging>>,
    nccl: OnceLock<Nccl>,
}

/// Memory that is allocated when it is needed, and reused.
#[derive(Default)]
pub(super) struct BufferCache {
    /// Stand-ins for users' memory that other processes cannot open.
    proxies: [Option<DeviceMemory>; 2],
    pub pinned: [Option<PinnedMemory>; 2],
}

/// Cached memory is allocated in multiples of this many bytes.
const GRAIN: usize = 2 << 20;

/// A buffer of at least this many bytes; reallocated if the cached one is too small.
pub(super) fn ensure_capacity<M>(
    cache: &mut Option<M>,
    bytes: usize,
    length: impl Fn(&M) -> usize,
    make: impl FnOnce(usize) -> Result<M>,
) -> Result<&mut M> {
    if cache.as_ref().is_none_or(|memory| length(memory) < bytes) {
        // The old one is freed first: both may not fit.
        *cache = None;
        *cache = Some(make(bytes.next_multiple_of(GRAIN))?);
    }
    cache.as_mut().ok_or_else(|| internal_error("memory was not kept"))
}

/// What this rank publishes about itself.
pub(super) fn facts(group: &Group, device: &Device) -> Result<RankFacts> {
    let choice = std::env::var("UNISONO_CUDA_PATH").ok();
    let rank = group.members()[group.rank()];
    Ok(RankFacts {
        device: device.uuid(),
        process: cuda::process_number(),
        host: group.host_numbers()[rank] as u32,
        choice: PathChoice::parse(choice.as_deref())?,
    })
}

impl DeviceSession {
    /// The group's session, renegotiated if any rank has another device or process than last time; and all ranks'
    /// descriptors for this call, with the counts of all_to_all.
    pub fn join(
        rendezvous: &Rendezvous,
        device: &Arc<Device>,
        collective: &DeviceCollective,
    ) -> Result<(Arc<DeviceSession>, Vec<RankDescriptor>, Vec<u64>)> {
        let mine = facts(rendezvous.group, device)?;
        let counts = collective.counts_to_publish();
        loop {
            let known = stored_session(rendezvous.group).filter(|session| session.facts[session.me] == mine);
            let descriptor = match &known {
                Some(session) => session.describe(rendezvous, mine, collective)?,
                None => RankDescriptor { facts: mine, ..RankDescriptor::zeroed() },
            };
            let mut bytes = bytemuck::bytes_of(&descriptor).to_vec();
            bytes.extend_from_slice(bytemuck::cast_slice(&counts));
            let all = rendezvous.all_gather_bytes(&bytes)?;
            let (mut descriptors, mut all_counts) = (Vec::new(), Vec::new());
            for one in all.chunks_exact(bytes.len()) {
                let (descriptor, counts) = one.split_at(size_of::<RankDescriptor>());
                descriptors.push(bytemuck::pod_read_unaligned::<RankDescriptor>(descriptor));
                let counts = counts.chunks_exact(size_of::<u64>());
                all_counts.extend(counts.map(bytemuck::pod_read_unaligned::<u64>));
            }
            rendezvous.compare(&all_counts)?;
            let facts: Vec<RankFacts> = descriptors.iter().map(|one| one.facts).collect();
            match known.filter(|session| session.facts == facts) {
                Some(session) => return Ok((session, descriptors, all_counts)),
                None => store_session(
                    rendezvous.group,
                    Arc::new(DeviceSession::negotiate(rendezvous, device, facts)?),
                ),
            }
        }
    }

    /// All ranks try what they support, exchange the results, and derive the same path from them.
    fn negotiate(
        rendezvous: &Rendezvous,
        device: &Arc<Device>,
        facts: Vec<RankFacts>,
    ) -> Result<DeviceSession> {
        let me = rendezvous.group.rank();
        let trial = DeviceMemory::new(device, 1)?;
        // SAFETY: nothing reads or writes it; it lives until all ranks have synchronised again.
        let exported = cuda::export(device, &unsafe { trial.span() });
        let descriptor = exported.as_ref().copied().unwrap_or_else(|_| Exported::zeroed());
        let all = rendezvous.all_gather_bytes(bytemuck::bytes_of(&descriptor))?;
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
        // A large library: loaded only if it may be used.
        let wants_nccl = facts[me].choice == PathChoice::NCCL || workers.all.len() == facts.len();
        let nccl = facts.len() > 1 && wants_nccl && NCCL.load().is_ok();
        let alone = facts.iter().all(|other| other.process == facts[me].process);
        // Ranks that access each other's memory must be able to take it back: see `Rendezvous::lend`.
        let can_withdraw = rendezvous.group.channel().is_some();
        let ipc = can_open && can_withdraw && (alone || exported.is_ok());
        let mine = Capabilities { nccl: nccl.into(), ipc: ipc.into() };
        let all = rendezvous.all_gather_bytes(bytemuck::bytes_of(&mine))?;
        let capabilities: Vec<Capabilities> =
            all.chunks_exact(size_of::<Capabilities>()).map(bytemuck::pod_read_unaligned).collect();
        let path = choose(&facts, &capabilities, MAX_BUFFERS)?;
        tracing::debug!(%path, "agreed on the way between devices");
        let stream = Stream::new(device)?;
        let (cache, staging, nccl) = (Mutex::default(), OnceLock::new(), OnceLock::new());
        Ok(DeviceSession { facts, path, me, device: device.clone(), stream, workers, cache, staging, nccl })
    }

    /// The group's pinned memory, created collectively at first use; `None` if the ranks cannot share any.
    pub fn staging(&self, rendezvous: &Rendezvous) -> Result<Option<&Staging>> {
        if self.staging.get().is_none() {
            let staging = Staging::create(rendezvous, self)?;
            let _ = self.staging.set(staging);
        }
        Ok(self.staging.get().and_then(Option::as_ref))
    }

    /// The group's communicator, created collectively at first use.
    pub fn nccl(&self, rendezvous: &Rendezvous) -> Result<&Nccl> {
        if self.nccl.get().is_none() {
            let _ = self.nccl.set(Nccl::create(rendezvous, self)?);
        }
        self.nccl.get().ok_or_else(|| internal_error("a communicator was not kept"))
    }

    /// What this rank publishes for a call: its buffers, or their stand-ins.
    fn describe(
        &self,
        rendezvous: &Rendezvous,
        facts: RankFacts,
        collective: &DeviceCollective,
    ) -> Result<RankDescriptor> {
        let mut cache = self.cache();
        let mut describe = |at: usize, span: &Span, is_input: bool| -> Result<Exported> {
            if span.bytes() == 0 || !matches!(self.path, Path::Direct | Path::Ipc) {
                return Ok(Exported::zeroed());
            }
            if self.path == Path::Direct {
                return Ok(Exported::local(span));
            }
            cuda::export(&self.device, span).or_else(|_| {
                let make = |bytes| DeviceMemory::new(&self.device, bytes);
                let proxy = ensure_capacity(&mut cache.proxies[at], span.bytes(), DeviceMemory::bytes, make)?;
                if is_input {
                    // SAFETY: the proxy belongs to this session and is as long; the span is lent for the call.
                    unsafe { self.stream.copy(proxy.address(), span.address(), span.bytes())? };
                    self.stream.wait(&|| rendezvous.go_on())?;
                }
                // SAFETY: the proxy lives as long as the session.
                cuda::export(&self.device, &unsafe { proxy.span() })
            })
        };
        let input = describe(0, &collective.input, true)?;
        let in_place = collective.input == collective.output;
        let output = if in_place { input } else { describe(1, &collective.output, false)? };
        Ok(RankDescriptor { facts, input, output })
    }

    /// After the work: copies the result from the output's stand-in to the output itself.
    pub fn copy_back(
        &self,
        rendezvous: &Rendezvous,
        collective: &DeviceCollective,
        descriptor: &RankDescriptor,
    ) -> Result<()> {
        let cache = self.cache();
        let stood = cache.proxies.iter().flatten().find(|proxy| descriptor.output.is_at(proxy.address()));
        let Some(proxy) = stood.filter(|_| collective.output.bytes() > 0) else { return Ok(()) };
        // SAFETY: the proxy is as long as the output was; nothing else writes to it after the ranks have synchronised.
        unsafe { self.stream.copy(collective.output.address(), proxy.address(), collective.output.bytes())? };
        self.stream.wait(&|| rendezvous.go_on())
    }

    /// The address of another rank's buffer in this process; the second value keeps the mapping open.
    pub fn address(&self, rank: usize, exported: &Exported) -> Result<(u64, Option<Arc<Mapped>>)> {
        let process = self.facts[rank].process;
        if process == self.facts[self.me].process {
            return Ok((exported.address(), None));
        }
        cuda::open(&self.device, process, exported).map(|(address, mapped)| (address, Some(mapped)))
    }

    pub fn cache(&self) -> MutexGuard<'_, BufferCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes memory of lost ranks' processes: while it is open here, it is not freed, not even for a rank that is restarted.
pub(super) fn close_lost(group: &Group, error: &Error) {
    let (Error::PeerLost { lost, .. }, Some(session)) = (error, stored_session(group)) else { return };
    let members = group.members().iter().zip(&session.facts);
    let processes = members.filter(|(rank, _)| lost.iter().any(|one| one.rank == **rank));
    processes.for_each(|(_, facts)| cuda::release_process(facts.process));
}

fn stored_session(group: &Group) -> Option<Arc<DeviceSession>> {
    group.attachment()
}

fn store_session(group: &Group, session: Arc<DeviceSession>) {
    if let Some(before) = stored_session(group) {
        let gone = |one: &&RankFacts| session.facts.iter().all(|other| other.process != one.process);
        before.facts.iter().filter(gone).for_each(|one| cuda::release_process(one.process));
    }
    group.attach(session);
}
