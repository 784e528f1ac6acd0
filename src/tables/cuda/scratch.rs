//! Scratch memory: what a rank's calls on a table need of a device besides the table. That is lanes to the host, room for lists
//! and for sorting them, and a place where kernels note what is wrong.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytemuck::{Pod, Zeroable};

use super::kernels::RowKernels;
use super::transfer::HostTransfer;
use crate::cuda::{Argument, Device, DeviceMemory, PinnedMemory, Stream};
use crate::error::Result;

/// What a piece of device memory is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScratchBuffer {
    Ids,
    Rows,
    Scales,
    Sorting,
}

/// What kernels noted: the position of the first wrong row id and of the first NaN. All ones: nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct KernelFaults {
    pub row: u64,
    pub nan: u64,
}

impl KernelFaults {
    pub const NONE: KernelFaults = KernelFaults { row: u64::MAX, nan: u64::MAX };
}

/// One device's part.
pub(super) struct Scratch {
    pub device: Arc<Device>,
    pub transfer: HostTransfer,
    kernels: Option<RowKernels>,
    buffers: [Option<DeviceMemory>; 4],
    faults: DeviceMemory,
    host_faults: PinnedMemory,
}

impl Scratch {
    fn new(device: Arc<Device>) -> Result<Scratch> {
        Ok(Scratch {
            transfer: HostTransfer::new(&device)?,
            kernels: None,
            buffers: Default::default(),
            faults: DeviceMemory::new(&device, size_of::<KernelFaults>())?,
            host_faults: PinnedMemory::new(&device, size_of::<KernelFaults>())?,
            device,
        })
    }

    /// Where its kernels are launched. Nobody orders work of users on it.
    pub fn stream(&self) -> &Stream {
        &self.transfer.main
    }

    /// Device memory of at least so many bytes, which keeps what was put there until it is asked for again.
    pub fn buffer(&mut self, buffer: ScratchBuffer, bytes: usize) -> Result<u64> {
        let slot = &mut self.buffers[buffer as usize];
        if slot.as_ref().is_none_or(|memory| memory.bytes() < bytes) {
            // First the old one goes; the driver waits for work that uses it.
            *slot = None;
            *slot = Some(DeviceMemory::new(&self.device, bytes.next_power_of_two())?);
        }
        Ok(slot.as_ref().map_or(0, DeviceMemory::address))
    }

    /// The kernels for lists, compiled when the first one is needed.
    pub fn kernels(&mut self) -> Result<RowKernels> {
        match self.kernels {
            Some(known) => Ok(known),
            None => Ok(*self.kernels.insert(RowKernels::new(&self.device)?)),
        }
    }

    /// Row ids of the host's, on the device.
    pub fn upload_ids(&mut self, ids: &[i64]) -> Result<u64> {
        let buffer = self.buffer(ScratchBuffer::Ids, size_of_val(ids))?;
        // SAFETY: the room is large enough, and this rank's alone.
        unsafe { self.transfer.upload(buffer, bytemuck::cast_slice(ids))? };
        Ok(buffer)
    }

    /// Where kernels of one call note faults: cleared first.
    pub fn clear_faults(&self) -> Result<Argument<'static>> {
        // SAFETY: the memory is this rank's alone.
        unsafe { self.stream().fill(self.faults.address(), 0xff, size_of::<KernelFaults>())? };
        Ok(Argument::Address(self.faults.address()))
    }

    /// Waits for the device; then says what was noted, if anybody was to note anything.
    pub fn finish(&mut self, checked: bool) -> Result<KernelFaults> {
        let stream = self.stream();
        if checked {
            // SAFETY: both are this rank's alone, and the stream is waited for below.
            unsafe { stream.copy(self.host_faults.address(), self.faults.address(), size_of::<KernelFaults>())? };
        }
        stream.wait(&|| Ok(()))?;
        Ok(if checked { bytemuck::pod_read_unaligned(&self.host_faults) } else { KernelFaults::NONE })
    }
}

/// What a rank has on each device for one table, made when it is needed.
#[derive(Default)]
pub(in crate::tables) struct ScratchByDevice(Mutex<BTreeMap<u32, Scratch>>);

/// A device's part that this call has for itself.
pub(super) struct ScratchGuard<'a> {
    all: MutexGuard<'a, BTreeMap<u32, Scratch>>,
    ordinal: u32,
}

impl ScratchByDevice {
    pub(super) fn take(&self, ordinal: u32) -> Result<ScratchGuard<'_>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let std::collections::btree_map::Entry::Vacant(free) = all.entry(ordinal) {
            free.insert(Scratch::new(Device::get(ordinal)?)?);
        }
        Ok(ScratchGuard { all, ordinal })
    }
}

impl ScratchGuard<'_> {
    pub fn scratch(&mut self) -> &mut Scratch {
        self.all.get_mut(&self.ordinal).expect("it was there when it was taken")
    }
}
