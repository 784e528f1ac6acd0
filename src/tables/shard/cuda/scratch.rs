//! Scratch memory: the resources on a device that a rank's calls on a table need besides the table itself: staging buffers to the
//! host, buffers for row lists and for sorting them, and a record where kernels report faults.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytemuck::{Pod, Zeroable};

use super::kernels::RowKernels;
use super::transfer::HostTransfer;
use crate::cuda::{Argument, Device, DeviceMemory, PinnedMemory, Stream};
use crate::error::Result;

/// The purpose of a scratch buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScratchBuffer {
    Ids,
    Rows,
    Scales,
    Sorting,
}

/// Faults that kernels reported: the position of the first invalid row id and of the first NaN; all ones if there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct KernelFaults {
    pub row: u64,
    pub nan: u64,
}

impl KernelFaults {
    pub const NONE: KernelFaults = KernelFaults { row: u64::MAX, nan: u64::MAX };
}

/// The scratch memory of one device.
pub(crate) struct Scratch {
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

    /// The stream on which its kernels are launched. No user work is enqueued on it.
    pub fn stream(&self) -> &Stream {
        &self.transfer.main
    }

    /// Device memory of at least `bytes` bytes; its contents stay valid until the same buffer is requested again.
    pub fn buffer(&mut self, buffer: ScratchBuffer, bytes: usize) -> Result<u64> {
        let slot = &mut self.buffers[buffer as usize];
        if slot.as_ref().is_none_or(|memory| memory.bytes() < bytes) {
            // Free the old buffer first; the driver waits for work that uses it.
            *slot = None;
            *slot = Some(DeviceMemory::new(&self.device, bytes.next_power_of_two())?);
        }
        Ok(slot.as_ref().map_or(0, DeviceMemory::address))
    }

    /// The kernels for row lists, compiled on first use.
    pub fn kernels(&mut self) -> Result<RowKernels> {
        match self.kernels {
            Some(known) => Ok(known),
            None => Ok(*self.kernels.insert(RowKernels::new(&self.device)?)),
        }
    }

    /// Uploads row ids from the host to the device.
    pub fn upload_ids(&mut self, ids: &[i64]) -> Result<u64> {
        let buffer = self.buffer(ScratchBuffer::Ids, size_of_val(ids))?;
        // SAFETY: the buffer is large enough, and belongs to this rank alone.
        unsafe { self.transfer.upload(buffer, bytemuck::cast_slice(ids))? };
        Ok(buffer)
    }

    /// Clears the fault record of a call and returns its address.
    pub fn clear_faults(&self) -> Result<Argument<'static>> {
        // SAFETY: the memory belongs to this rank alone.
        unsafe { self.stream().fill(self.faults.address(), 0xff, size_of::<KernelFaults>())? };
        Ok(Argument::Address(self.faults.address()))
    }

    /// Waits for the device, then returns the recorded faults if the call performed checks.
    pub fn finish(&mut self, checked: bool) -> Result<KernelFaults> {
        let stream = self.stream();
        if checked {
            // SAFETY: both belong to this rank alone, and the stream is waited for below.
            unsafe {
                stream.copy(self.host_faults.address(), self.faults.address(), size_of::<KernelFaults>())?
            };
        }
        stream.wait(&|| Ok(()))?;
        Ok(if checked { bytemuck::pod_read_unaligned(&self.host_faults) } else { KernelFaults::NONE })
    }
}

/// A rank's scratch memory for one table, by device, created on first use.
#[derive(Default)]
pub(crate) struct ScratchByDevice(Mutex<BTreeMap<u32, Scratch>>);

/// Exclusive access to the scratch memory of one device.
pub(crate) struct ScratchGuard<'a> {
    all: MutexGuard<'a, BTreeMap<u32, Scratch>>,
    ordinal: u32,
}

impl ScratchByDevice {
    pub(crate) fn take(&self, ordinal: u32) -> Result<ScratchGuard<'_>> {
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
