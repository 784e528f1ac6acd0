//! The device memory of a table on this host: allocated by the host's first rank, opened by the other ranks.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::{Pod, Zeroable};

use super::formula::Formula;
use super::kernels::UpdateKernels;
use crate::cuda::{Device, DeviceMemory, Exported, Mapped, export, open, process_number, release_mapping};
use crate::error::{Error, Result};
use crate::memory::DType;
use crate::tables::engine::checkpointable::TableSection;
use crate::tables::engine::header::TableHeader;
use crate::tables::shard::shape::TableShape;
use crate::transport::Call;
use crate::transport::arena::lock::LockOwners;
use crate::transport::arena::{Extent, LocalEndpoint};
use crate::world::Watcher;

/// Alignment of sections: sufficient for every element type and for wide accesses.
const SECTION_ALIGN: usize = 512;

/// Published by the host's first rank for the other ranks, in the table's extent of the shared heap.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct PublishedShard {
    exported: Exported,
    /// The address of the memory in the process that allocated it.
    address: u64,
    /// That process, and its token on locks.
    process: u64,
    token: u32,
    rank: u32,
    uuid: [u8; 16],
    /// Whether other processes can open it.
    exportable: u64,
}

/// Offsets in bytes from the beginning of a shard.
struct Sections {
    planes: Vec<usize>,
    steps: usize,
    total: usize,
}

impl Sections {
    fn of(shape: &TableShape) -> Sections {
        let mut end = 0;
        let mut section = |bytes: usize| {
            let start = end;
            end = (end + bytes).next_multiple_of(SECTION_ALIGN);
            start
        };
        let _values = section(shape.rows * shape.row_bytes);
        let planes = (0..shape.planes).map(|_| section(shape.rows * shape.state_row_bytes)).collect();
        let steps = section(if shape.planes > 0 { 8 * step_units(shape) } else { 0 });
        Sections { planes, steps, total: end }
    }
}

/// The number of step counters: an array has one for all of its elements.
pub(crate) fn step_units(shape: &TableShape) -> usize {
    if shape.counts_stripes { 1 } else { shape.rows }
}

/// Who owns the memory.
enum Ownership {
    /// This rank, which frees it when no rank uses the table any more.
    Own(Option<DeviceMemory>),
    /// Another process.
    Opened(Arc<Mapped>),
    /// Another rank of this process.
    SameProcess,
}

/// A table's device memory.
pub(crate) struct DeviceShard {
    pub(crate) device: Arc<Device>,
    pub(crate) formula: Formula,
    pub(crate) kernels: UpdateKernels,
    pub(crate) shape: TableShape,
    pub(crate) dtype: DType,
    sections: Sections,
    address: u64,
    published: PublishedShard,
    ownership: Ownership,
    /// The table's extent of the shared heap, and the offset of the published record in it.
    record: (Extent, usize),
    retained_memory: Arc<RetainedMemory>,
}

impl DeviceShard {
    /// Allocates the memory of a shard, zeroed. Called by the first rank of a host.
    pub fn allocate(
        ordinal: u32,
        shape: &TableShape,
        retained_memory: &RetainedMemory,
    ) -> Result<DeviceMemory> {
        retained_memory.free_unused();
        let device = Device::get(ordinal)?;
        let memory = DeviceMemory::new(&device, Sections::of(shape).total)?;
        // SAFETY: the memory is new, and the stream is waited for.
        unsafe { device.copy_stream().fill(memory.address(), 0, memory.bytes())? };
        device.copy_stream().synchronize()?;
        Ok(memory)
    }

    /// Publishes the memory to the other ranks of this host.
    pub fn publish(
        memory: &DeviceMemory,
        ordinal: u32,
        endpoint: &LocalEndpoint,
        rank: usize,
        record: (&Extent, usize),
    ) {
        let Ok(device) = Device::get(ordinal) else { return };
        // SAFETY: the span is only looked up.
        let exported = export(&device, &unsafe { memory.span() });
        let published = PublishedShard {
            exportable: u64::from(exported.is_ok()),
            exported: exported.unwrap_or_else(|_| Exported::zeroed()),
            address: memory.address(),
            process: process_number(),
            token: endpoint.token(),
            rank: rank as u32,
            uuid: device.uuid(),
        };
        let target = record.0.range(record.1, size_of::<PublishedShard>());
        // SAFETY: the layout reserves these bytes for the record, and no other rank sees the table's extent yet.
        unsafe { target.cast::<PublishedShard>().write_unaligned(published) };
    }

    /// Opens the shard, from the memory that this rank allocated or that another rank published.
    pub fn open(
        ordinal: u32,
        memory: Option<DeviceMemory>,
        (updater, dtype, shape): (&str, DType, TableShape),
        endpoint: &LocalEndpoint,
        record: (&Extent, usize),
        retained_memory: &Arc<RetainedMemory>,
    ) -> Result<DeviceShard> {
        let device = Device::get(ordinal)?;
        let published = read(record);
        let formula =
            Formula::of(updater).ok_or_else(|| Error::internal("table", "an updater without kernels"))?;
        let kernels = UpdateKernels::new(&device, &formula, dtype)?;
        let owner_dead = endpoint.has_ended(published.token);
        let (address, ownership) = match memory {
            Some(memory) => (memory.address(), Ownership::Own(Some(memory))),
            None if owner_dead => return Err(owner_ended(published.rank)),
            None if published.uuid != device.uuid() => return Err(wrong_device(&published, &device)),
            None if published.process == process_number() => (published.address, Ownership::SameProcess),
            None if published.exportable == 0 => {
                let what = "device memory that other processes cannot open, on this machine";
                return Err(Error::unsupported(
                    "table",
                    what,
                    "leave `device` out, or use ranks that are threads",
                ));
            }
            None => {
                let (address, mapped) = open(&device, published.process, &published.exported)?;
                (address, Ownership::Opened(mapped))
            }
        };
        let sections = Sections::of(&shape);
        let (record, retained_memory) = ((record.0.clone(), record.1), retained_memory.clone());
        Ok(DeviceShard {
            device,
            formula,
            kernels,
            shape,
            dtype,
            sections,
            address,
            published,
            ownership,
            record,
            retained_memory,
        })
    }

    /// Fails if the process that owned the memory has died: the memory died with it.
    pub fn check(&self, call: &Call, endpoint: &LocalEndpoint) -> Result<()> {
        let lost = matches!(self.ownership, Ownership::Opened(_)) && endpoint.has_ended(self.published.token);
        match lost {
            false => Ok(()),
            true => {
                let how = "its process ended, and with it the device memory that it held of this table";
                Err(call.lost(vec![endpoint.lost_because(self.published.rank as usize, how)]))
            }
        }
    }

    /// The address of a section's first byte.
    pub(crate) fn section(&self, section: TableSection) -> u64 {
        let offset = match section {
            TableSection::Values => 0,
            TableSection::Plane(plane) => self.sections.planes[plane],
            TableSection::Steps => self.sections.steps,
        };
        self.address + offset as u64
    }

    /// The address of some bytes of a section.
    pub(crate) fn range(&self, section: TableSection, start: usize, bytes: usize) -> u64 {
        let length = match section {
            TableSection::Values => self.shape.rows * self.shape.row_bytes,
            TableSection::Plane(_) => self.shape.rows * self.shape.state_row_bytes,
            TableSection::Steps => 8 * step_units(&self.shape),
        };
        assert!(start + bytes <= length, "outside the section");
        self.section(section) + start as u64
    }

    /// The addresses of the values and of the planes that a worker's add changes; zero for a plane that does not exist.
    pub(crate) fn memory(&self, shared: Range<usize>, own: Range<usize>) -> [u64; 3] {
        let mut addresses = [self.section(TableSection::Values), 0, 0];
        for (address, plane) in addresses[1..].iter_mut().zip(shared.chain(own)) {
            *address = self.section(TableSection::Plane(plane));
        }
        addresses
    }
}

fn read((extent, offset): (&Extent, usize)) -> PublishedShard {
    let source = extent.range(offset, size_of::<PublishedShard>());
    // SAFETY: the layout reserves these bytes for the record; every reader has waited until it was written.
    unsafe { source.cast::<PublishedShard>().read_unaligned() }
}

fn owner_ended(rank: u32) -> Error {
    Error::unsupported(
        "table",
        format!(
            "a table in device memory after a restart: that memory ended with the process of rank {rank}"
        ),
        "start the whole job again from a checkpoint",
    )
}

fn wrong_device(published: &PublishedShard, device: &Device) -> Error {
    let words = |uuid: [u8; 16]| uuid.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let expected = format!("device {} as on rank {}", words(published.uuid), published.rank);
    let received = format!("device {} ({})", words(device.uuid()), device.name());
    let advice = "name the same device on every rank of a host, or leave `device` out";
    Error::usage("table", expected, received, advice)
}

impl Drop for DeviceShard {
    fn drop(&mut self) {
        match &mut self.ownership {
            Ownership::Own(memory) => {
                let record = self.record.clone();
                memory.take().into_iter().for_each(|memory| {
                    self.retained_memory.retain(Retained { memory, record: record.clone() })
                });
            }
            Ownership::Opened(mapped) => release_mapping(mapped),
            Ownership::SameProcess => {}
        }
    }
}

/// Memory of a table that this rank has dropped and that other ranks may still use.
struct Retained {
    memory: DeviceMemory,
    record: (Extent, usize),
}

impl Retained {
    /// Whether any rank uses it: the table's extent is cleared when the last rank has dropped the table.
    fn is_used(&self) -> bool {
        let (extent, offset) = (&self.record.0, self.record.1);
        TableHeader::of(extent).is_used() && read((extent, offset)).address == self.memory.address()
    }
}

/// Device memory that this rank allocated and that other ranks may still use.
#[derive(Default)]
pub(crate) struct RetainedMemory(Mutex<Vec<Retained>>);

impl RetainedMemory {
    fn retain(&self, retained: Retained) {
        if retained.is_used() {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(retained);
        }
    }

    /// Frees the memory that no rank uses any more.
    fn free_unused(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(Retained::is_used);
    }
}

/// The last rank to drop a table does not notify the others: the rank that allocated the memory checks whenever it enters a call
/// on the world.
impl Watcher for RetainedMemory {
    fn enter(&self, _number: u64) {
        self.free_unused();
    }

    fn leave(&self) {}
}

impl Drop for RetainedMemory {
    fn drop(&mut self) {
        self.free_unused();
        // Other ranks may still use it: it is freed when the process ends.
        let rest = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        rest.into_iter().for_each(|retained| std::mem::forget(retained.memory));
    }
}
