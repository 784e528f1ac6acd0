//! How packed parcels get from one rank's device memory to another's: read in place, or staged through the host.
//!
//! If every neighbour can open this rank's buffer, in the same process or through CUDA IPC handles, a call sends only
//! tokens: a rank packs, waits for its device and sends a token to its neighbours, which read directly from the buffer.
//! There are two buffers, used alternately. A rank that has a neighbour's token of one call knows that the neighbour has
//! read everything of the previous call, so the buffer of the call before last may be overwritten without further
//! synchronisation.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::super::neighbours::StartedCall;
use super::super::packing::{PackWith, UnpackWith};
use super::super::wire::{Neighbour, Wire};
use super::all_or_none::all_or_none;
use super::box_copy::MemoryBase;
use crate::cuda::{self, Device, DeviceMemory, Exported, Mapped, Stream};
use crate::error::{Error, Result};
use crate::memory::{DType, ReduceOp};
use crate::transport::Call;
use crate::world::Group;

/// Bytes that go to a neighbour, and bytes that come from it.
#[derive(Debug, Clone, Copy)]
pub(super) struct NeighbourParcels {
    pub member: usize,
    pub to: usize,
    pub from: usize,
    /// The index of the neighbour that gets the same parcel, whose space this one shares; often its own.
    pub same: usize,
}

/// The context of a call, for errors and for the wire.
#[derive(Clone, Copy)]
pub(super) struct HaloCallContext<'a> {
    pub group: &'a Group,
    pub call: &'a Call<'a>,
    pub started: StartedCall,
    pub dtype: DType,
    pub fingerprint: u64,
}

/// Alignment of parcels, in bytes.
const ALIGNMENT: usize = 256;
/// Buffers of at least this many bytes are not doubled: ranks synchronise a second time instead.
const LARGE: i64 = 64 << 20;
/// Bytes of a token.
const TOKEN_BYTES: usize = 8;

/// The transport of one direction of a plan.
pub(super) struct DeviceTransport {
    neighbours: Vec<NeighbourParcels>,
    wire: Wire,
    /// The offset of each neighbour's parcel in the buffer.
    offsets: Vec<usize>,
    memory: Arc<DeviceMemory>,
    /// Whether there are two buffers, and the distance between them in bytes.
    is_double: bool,
    flip: usize,
    parity: u32,
    access: PeerAccess,
}

enum PeerAccess {
    /// Each neighbour's parcel for this rank, and what keeps its address valid.
    Direct { parcels: Vec<MemoryBase>, _keep_alive: Vec<KeepAlive> },
    /// Where parcels that were staged through the host are put, in this rank's own memory.
    Staged { memory: DeviceMemory, offsets: Vec<usize> },
}

#[allow(dead_code)] // Kept for their `Drop`.
enum KeepAlive {
    Own(Arc<DeviceMemory>),
    PeerBuffer(PeerBuffer),
}

/// A neighbour's buffer. It serves a single exchange, so it does not stay open afterwards.
struct PeerBuffer(Arc<Mapped>);

impl Drop for PeerBuffer {
    fn drop(&mut self) {
        cuda::release_mapping(&self.0);
    }
}

/// How a rank describes its buffer to another: plain numbers, sent as they are.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct BufferDescriptor {
    /// The rank's process; zero if its buffer cannot be exported.
    process: u64,
    /// Its exported buffer, and the address at which the buffer begins in that process.
    exported: Exported,
    start: u64,
    /// The address of the parcel for the receiver, in the exporting process, and the distance to the second buffer.
    address: u64,
    flip: u64,
}

const NUMBERS: usize = size_of::<BufferDescriptor>() / 8;

impl DeviceTransport {
    /// Collective over the group.
    pub fn new(
        group: &Group,
        device: &Arc<Device>,
        neighbours: Vec<NeighbourParcels>,
        fingerprint: u64,
        direct: bool,
    ) -> Result<DeviceTransport> {
        let (offsets, bytes) = offsets(neighbours.iter().enumerate().map(|(at, one)| match one.same == at {
            true => one.to,
            false => 0,
        }));
        let offsets: Vec<usize> = neighbours.iter().map(|one| offsets[one.same]).collect();
        // All ranks decide alike, whatever each has to send.
        let mut most = [bytes as i64];
        group.all_reduce(&mut most, ReduceOp::Max)?;
        let is_double = most[0] < LARGE;
        let flip = if is_double { bytes } else { 0 };
        let memory = Arc::new(all_or_none(group, DeviceMemory::new(device, bytes + flip))?);
        register_buffer(&memory);
        // SAFETY: the memory lives as long as this transport, and neighbours read it only between its tokens.
        let exported = cuda::export(device, &unsafe { memory.span() }).ok();
        let endpoint = group.endpoint();
        let is_local = |one: &NeighbourParcels| {
            endpoint.is_some_and(|endpoint| endpoint.local_rank_of(group.members()[one.member]).is_some())
        };
        let supports_direct = exported.is_some() && neighbours.iter().all(is_local) && !is_staging_wanted();
        let mut descriptors = vec![<BufferDescriptor as bytemuck::Zeroable>::zeroed(); group.size()];
        for (one, offset) in neighbours.iter().zip(&offsets) {
            descriptors[one.member].address = memory.address() + *offset as u64;
        }
        for one in &mut descriptors {
            one.process = if supports_direct { cuda::process_number() } else { 0 };
            (one.start, one.flip) = (memory.address(), flip as u64);
            if let Some(exported) = exported {
                one.exported = exported;
            }
        }
        let mut theirs = vec![0i64; NUMBERS * group.size()];
        group.all_to_all(bytemuck::cast_slice::<BufferDescriptor, i64>(&descriptors), &mut theirs)?;
        let theirs: &[BufferDescriptor] = bytemuck::cast_slice(&theirs);
        let opened: Result<Vec<(MemoryBase, KeepAlive)>> =
            neighbours.iter().map(|one| open(device, &theirs[one.member])).collect();
        let mut works = [i64::from(supports_direct && opened.is_ok())];
        group.all_reduce(&mut works, ReduceOp::Min)?;
        let is_direct = works[0] == 1;
        let tokens_or_parcels = |one: &NeighbourParcels| match is_direct {
            // Tokens go both ways: see the top of this file.
            true => Neighbour { member: one.member, to: TOKEN_BYTES, from: TOKEN_BYTES },
            false => Neighbour { member: one.member, to: one.to, from: one.from },
        };
        let connections = neighbours.iter().map(tokens_or_parcels).collect();
        let wire = Wire::new(group, connections, fingerprint, direct || is_direct)?;
        let access = match opened {
            Ok(opened) if is_direct => {
                let (parcels, _keep_alive) = opened.into_iter().unzip();
                PeerAccess::Direct { parcels, _keep_alive }
            }
            _ => {
                let (offsets, bytes) = self::offsets(neighbours.iter().map(|one| one.from));
                PeerAccess::Staged { memory: all_or_none(group, DeviceMemory::new(device, bytes))?, offsets }
            }
        };
        Ok(DeviceTransport { neighbours, wire, offsets, memory, is_double, flip, parity: 0, access })
    }

    /// Where this rank packs the parcel of a neighbour; `None` if an earlier neighbour has the same parcel.
    pub fn packed(&self, neighbour: usize) -> Option<MemoryBase> {
        let (address, flip) = (self.memory.address() + self.offsets[neighbour] as u64, self.flip as u64);
        (self.neighbours[neighbour].same == neighbour).then_some(MemoryBase::Buffer { address, flip })
    }

    /// Where the parcel that came from a neighbour is.
    pub fn arrived(&self, neighbour: usize) -> MemoryBase {
        match &self.access {
            PeerAccess::Direct { parcels, .. } => parcels[neighbour],
            PeerAccess::Staged { memory, offsets } => {
                MemoryBase::Buffer { address: memory.address() + offsets[neighbour] as u64, flip: 0 }
            }
        }
    }

    /// Whether neighbours read this rank's buffer in place.
    pub fn is_direct(&self) -> bool {
        matches!(self.access, PeerAccess::Direct { .. })
    }

    /// Switches to the other buffer, for a new call.
    pub fn flip_parity(&mut self) -> u32 {
        self.parity ^= 1;
        self.parity
    }

    pub fn parity(&self) -> u32 {
        self.parity
    }

    /// Sends what the stream packs.
    pub fn send(&mut self, call_context: HaloCallContext, stream: &Stream) -> Result<()> {
        let DeviceTransport { neighbours, wire, offsets, memory, flip, parity, access, .. } = self;
        let HaloCallContext { group, call, started, dtype, fingerprint } = call_context;
        if matches!(access, PeerAccess::Direct { .. }) {
            stream.wait(&|| call.check_wait())?;
            let mut tokens = PackWith(|_| (TOKEN_BYTES, TOKEN_BYTES), |_, _: &mut [u8]| ());
            return wire.send(group, call, (started, dtype, fingerprint), &mut tokens, false);
        }
        let start = memory.address() + u64::from(*parity) * *flip as u64;
        let mut copied = Ok(());
        let lengths = |neighbour: usize| (neighbours[neighbour].to, neighbours[neighbour].from);
        let pack = |neighbour: usize, room: &mut [u8]| {
            let from = start + offsets[neighbour] as u64;
            // SAFETY: the room and the packed parcel belong to this rank until it has waited for the copy.
            let copy = unsafe { stream.copy(room.as_mut_ptr().addr() as u64, from, room.len()) };
            let done = copy.and_then(|()| stream.synchronize());
            copied = std::mem::replace(&mut copied, Ok(())).and(done);
        };
        wire.send(group, call, (started, dtype, fingerprint), &mut PackWith(lengths, pack), false)?;
        copied
    }

    /// Waits until all parcels have arrived; then kernels on the stream may read them.
    pub fn receive(&mut self, call_context: HaloCallContext, stream: &Stream) -> Result<()> {
        let DeviceTransport { neighbours, wire, access, .. } = self;
        let HaloCallContext { group, call, started, .. } = call_context;
        let PeerAccess::Staged { memory, offsets } = access else {
            return wire.receive(
                group,
                call,
                started,
                &mut UnpackWith(|_| TOKEN_BYTES, |_, _: &[u8]| ()),
                false,
            );
        };
        let mut copied = Ok(());
        let unpack = |neighbour: usize, bytes: &[u8]| {
            let (from, to) = (bytes.as_ptr().addr() as u64, memory.address() + offsets[neighbour] as u64);
            // SAFETY: the bytes are borrowed and the memory belongs to this rank until it has waited for the copy.
            let copy = unsafe { stream.copy(to, from, bytes.len()) };
            let done = copy.and_then(|()| stream.synchronize());
            copied = std::mem::replace(&mut copied, Ok(())).and(done);
        };
        let lengths = |neighbour: usize| neighbours[neighbour].from;
        wire.receive(group, call, started, &mut UnpackWith(lengths, unpack), false)?;
        copied
    }

    /// Waits for the kernels that read the parcels. With a single buffer, no rank goes on before all of its neighbours have
    /// read it.
    pub fn finish(&mut self, call_context: HaloCallContext, stream: &Stream) -> Result<()> {
        stream.wait(&|| call_context.call.check_wait())?;
        if self.is_double || !self.is_direct() {
            return Ok(());
        }
        self.send(call_context, stream)?;
        self.receive(call_context, stream)
    }

    /// Cancels: discards what was sent and not received.
    pub fn cancel(&mut self) {
        let (neighbours, is_direct) = (&self.neighbours, matches!(self.access, PeerAccess::Direct { .. }));
        self.wire.cancel(|neighbour| if is_direct { TOKEN_BYTES } else { neighbours[neighbour].from });
    }
}

/// The offsets of consecutive regions of these sizes, and their total size in bytes.
fn offsets(bytes: impl Iterator<Item = usize>) -> (Vec<usize>, usize) {
    let mut end = 0;
    let offset = |bytes: usize| {
        let offset = end;
        end = (end + bytes).next_multiple_of(ALIGNMENT);
        offset
    };
    let offsets = bytes.map(offset).collect();
    (offsets, end)
}

/// Opens the parcel that another rank has exported to this one.
fn open(device: &Arc<Device>, descriptor: &BufferDescriptor) -> Result<(MemoryBase, KeepAlive)> {
    let unknown_neighbour = || Error::internal("halo plan", "a neighbour that does not know of this rank");
    if descriptor.process == 0 || descriptor.address == 0 {
        return Err(unknown_neighbour());
    }
    if descriptor.process == cuda::process_number() {
        let memory = find_buffer(descriptor.start).ok_or_else(unknown_neighbour)?;
        if memory.device() != device.ordinal() {
            device.reach(&Device::get(memory.device())?.uuid())?;
        }
        return Ok((
            MemoryBase::Buffer { address: descriptor.address, flip: descriptor.flip },
            KeepAlive::Own(memory),
        ));
    }
    let (start, mapped) = cuda::open(device, descriptor.process, &descriptor.exported)?;
    let address = start + (descriptor.address - descriptor.start);
    Ok((MemoryBase::Buffer { address, flip: descriptor.flip }, KeepAlive::PeerBuffer(PeerBuffer(mapped))))
}

/// Buffers of all exchanges in this process: ranks that are threads keep each other's buffers alive.
static BUFFERS: Mutex<Vec<Weak<DeviceMemory>>> = Mutex::new(Vec::new());

fn register_buffer(memory: &Arc<DeviceMemory>) {
    let mut buffers = BUFFERS.lock().unwrap_or_else(PoisonError::into_inner);
    buffers.retain(|one| one.strong_count() > 0);
    buffers.push(Arc::downgrade(memory));
}

fn find_buffer(address: u64) -> Option<Arc<DeviceMemory>> {
    let buffers = BUFFERS.lock().unwrap_or_else(PoisonError::into_inner);
    buffers.iter().filter_map(Weak::upgrade).find(|memory| memory.address() == address)
}

fn is_staging_wanted() -> bool {
    std::env::var("UNISONO_CUDA_PATH").is_ok_and(|path| path == "staged")
}
