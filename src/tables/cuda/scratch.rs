//! Scratch memory: what a rank's calls on a table need of a device besides the table. That is lanes to the host, room for lists
//! and for sorting them, and a place where kernels note what is wrong.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytemuck::{Pod, Zeroable};

use super::kernels::RowKernels;
use super::lanes::Lanes;
use crate::cuda::{Argument, Device, DeviceMemory, PinnedMemory, Stream};
use crate::error::Result;

/// What a piece of device memory is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Ids,
    Rows,
    Scales,
    Sorting,
}

/// What kernels noted: the position of the first wrong row id and of the first NaN. All ones: nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Faults {
    pub row: u64,
    pub nan: u64,
}

impl Faults {
    pub const NONE: Faults = Faults { row: u64::MAX, nan: u64::MAX };
}

/// One device's part.
pub(super) struct Scratch {
    pub device: Arc<Device>,
    pub lanes: Lanes,
    kernels: Option<RowKernels>,
    rooms: [Option<DeviceMemory>; 4],
    faults: DeviceMemory,
    noted: PinnedMemory,
}

impl Scratch {
    fn new(device: Arc<Device>) -> Result<Scratch> {
        Ok(Scratch {
            lanes: Lanes::new(&device)?,
            kernels: None,
            rooms: Default::default(),
            faults: DeviceMemory::new(&device, size_of::<Faults>())?,
            noted: PinnedMemory::new(&device, size_of::<Faults>())?,
            device,
        })
    }

    /// Where its kernels are launched. Nobody orders work of users on it.
    pub fn stream(&self) -> &Stream {
        &self.lanes.main
    }

    /// Device memory of at least so many bytes, which keeps what was put there until it is asked for again.
    pub fn room(&mut self, room: Room, bytes: usize) -> Result<u64> {
        let place = &mut self.rooms[room as usize];
        if place.as_ref().is_none_or(|memory| memory.bytes() < bytes) {
            // First the old one goes; the driver waits for work that uses it.
            *place = None;
            *place = Some(DeviceMemory::new(&self.device, bytes.next_power_of_two())?);
        }
        Ok(place.as_ref().map_or(0, DeviceMemory::address))
    }

    /// The kernels for lists, compiled when the first one is needed.
    pub fn kernels(&mut self) -> Result<RowKernels> {
        match self.kernels {
            Some(known) => Ok(known),
            None => Ok(*self.kernels.insert(RowKernels::new(&self.device)?)),
        }
    }

    /// Row ids of the host's, on the device.
    pub fn put_ids(&mut self, ids: &[i64]) -> Result<u64> {
        let room = self.room(Room::Ids, size_of_val(ids))?;
        // SAFETY: the room is large enough, and this rank's alone.
        unsafe { self.lanes.upload(room, bytemuck::cast_slice(ids))? };
        Ok(room)
    }

    /// Where kernels of one call note faults: cleared first.
    pub fn clear_faults(&self) -> Result<Argument<'static>> {
        // SAFETY: the memory is this rank's alone.
        unsafe { self.stream().fill(self.faults.address(), 0xff, size_of::<Faults>())? };
        Ok(Argument::Address(self.faults.address()))
    }

    /// Waits for the device; then says what was noted, if anybody was to note anything.
    pub fn finish(&mut self, noted: bool) -> Result<Faults> {
        let stream = self.stream();
        if noted {
            // SAFETY: both are this rank's alone, and the stream is waited for below.
            unsafe { stream.copy(self.noted.address(), self.faults.address(), size_of::<Faults>())? };
        }
        stream.wait(&|| Ok(()))?;
        Ok(if noted { bytemuck::pod_read_unaligned(&self.noted) } else { Faults::NONE })
    }
}

/// What a rank has on each device for one table, made when it is needed.
#[derive(Default)]
pub(in crate::tables) struct ScratchByDevice(Mutex<BTreeMap<u32, Scratch>>);

/// A device's part that this call has for itself.
pub(super) struct Taken<'a> {
    all: MutexGuard<'a, BTreeMap<u32, Scratch>>,
    ordinal: u32,
}

impl ScratchByDevice {
    pub(super) fn take(&self, ordinal: u32) -> Result<Taken<'_>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let std::collections::btree_map::Entry::Vacant(free) = all.entry(ordinal) {
            free.insert(Scratch::new(Device::get(ordinal)?)?);
        }
        Ok(Taken { all, ordinal })
    }
}

impl Taken<'_> {
    pub fn scratch(&mut self) -> &mut Scratch {
        self.all.get_mut(&self.ordinal).expect("it was there when it was taken")
    }
}
