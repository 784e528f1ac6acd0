//! The device memory of a table on this host: taken by the host's first rank, opened by the others.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::{Pod, Zeroable};

use super::formula::Formula;
use super::kernels::UpdateKernels;
use crate::cuda::{Device, DeviceMemory, Exported, Mapped, export, forget, open, process_number};
use crate::error::{Error, Result};
use crate::memory::DType;
use crate::tables::header::Header;
use crate::tables::layout::Shape;
use crate::tables::storage::Section;
use crate::transport::Call;
use crate::transport::arena::{Extent, Seat};
use crate::world::Watcher;

/// Where sections begin: enough for every element type and for wide accesses.
const ALIGNED: usize = 512;

/// What the first rank tells the others of its host, in the table's part of the job's memory.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(in crate::tables) struct Published {
    exported: Exported,
    /// Where the memory is in the process that took it.
    address: u64,
    /// That process, and its name on locks.
    process: u64,
    token: u32,
    rank: u32,
    uuid: [u8; 16],
    /// Whether other processes can open it.
    shown: u64,
}

/// Offsets in bytes from the beginning of a shard.
struct Sections {
    planes: Vec<usize>,
    steps: usize,
    total: usize,
}

impl Sections {
    fn of(shape: &Shape) -> Sections {
        let mut end = 0;
        let mut section = |bytes: usize| {
            let start = end;
            end = (end + bytes).next_multiple_of(ALIGNED);
            start
        };
        let _values = section(shape.rows * shape.row_bytes);
        let planes = (0..shape.planes).map(|_| section(shape.rows * shape.state_row_bytes)).collect();
        let steps = section(if shape.planes > 0 { 8 * units(shape) } else { 0 });
        Sections { planes, steps, total: end }
    }
}

/// How many counts of adds there are: an array is changed as a whole.
pub(super) fn units(shape: &Shape) -> usize {
    if shape.counts_stripes { 1 } else { shape.rows }
}

/// Whose memory it is.
enum Holding {
    /// This rank's, which gives it back when nobody has the table any more.
    Own(Option<DeviceMemory>),
    /// Another process's.
    Opened(Arc<Mapped>),
    /// Another rank's of this process.
    Beside,
}

/// A table's memory on a device.
pub(in crate::tables) struct Shard {
    pub(super) device: Arc<Device>,
    pub(super) formula: Formula,
    pub(super) kernels: UpdateKernels,
    pub(super) shape: Shape,
    pub(super) dtype: DType,
    sections: Sections,
    address: u64,
    published: Published,
    holding: Holding,
    /// The table's part of the job's memory, and where in it the shard is published.
    place: (Extent, usize),
    parked: Arc<Parked>,
}

impl Shard {
    /// Takes the memory of a shard, all zeroes. For the first rank of a host.
    pub fn found(ordinal: u32, shape: &Shape, parked: &Parked) -> Result<DeviceMemory> {
        parked.clear_out();
        let device = Device::get(ordinal)?;
        let memory = DeviceMemory::new(&device, Sections::of(shape).total)?;
        // SAFETY: the memory is new, and the stream is waited for.
        unsafe { device.courier().fill(memory.address(), 0, memory.bytes())? };
        device.courier().synchronize()?;
        Ok(memory)
    }

    /// Tells the other ranks of this host where the memory is.
    pub fn publish(memory: &DeviceMemory, ordinal: u32, seat: &Seat, rank: usize, place: (&Extent, usize)) {
        let Ok(device) = Device::get(ordinal) else { return };
        // SAFETY: the span is only looked up.
        let exported = export(&device, &unsafe { memory.span() });
        let published = Published {
            shown: u64::from(exported.is_ok()),
            exported: exported.unwrap_or_else(|_| Exported::zeroed()),
            address: memory.address(),
            process: process_number(),
            token: seat.token(),
            rank: rank as u32,
            uuid: device.uuid(),
        };
        let target = place.0.range(place.1, size_of::<Published>());
        // SAFETY: the layout keeps these bytes for it, and nobody else sees the table's memory yet.
        unsafe { target.cast::<Published>().write_unaligned(published) };
    }

    /// The shard, from the memory that this rank took or that another one published.
    pub fn open(
        ordinal: u32,
        memory: Option<DeviceMemory>,
        (updater, dtype, shape): (&str, DType, Shape),
        seat: &Seat,
        place: (&Extent, usize),
        parked: &Arc<Parked>,
    ) -> Result<Shard> {
        let device = Device::get(ordinal)?;
        let published = read(place);
        let formula =
            Formula::of(updater).ok_or_else(|| Error::internal("table", "an updater without kernels"))?;
        let kernels = UpdateKernels::new(&device, &formula, dtype)?;
        let gone = seat.is_dead(published.token);
        let (address, holding) = match memory {
            Some(memory) => (memory.address(), Holding::Own(Some(memory))),
            None if gone => return Err(ended(published.rank)),
            None if published.uuid != device.uuid() => return Err(elsewhere(&published, &device)),
            None if published.process == process_number() => (published.address, Holding::Beside),
            None if published.shown == 0 => {
                let what = "device memory that other processes cannot open, on this machine";
                return Err(Error::unsupported(
                    "table",
                    what,
                    "leave `device` out, or use ranks that are threads",
                ));
            }
            None => {
                let (address, mapped) = open(&device, published.process, &published.exported)?;
                (address, Holding::Opened(mapped))
            }
        };
        let sections = Sections::of(&shape);
        let (place, parked) = ((place.0.clone(), place.1), parked.clone());
        Ok(Shard {
            device,
            formula,
            kernels,
            shape,
            dtype,
            sections,
            address,
            published,
            holding,
            place,
            parked,
        })
    }

    /// Fails if the process is gone that had the memory: it went with it.
    pub fn check(&self, call: &Call, seat: &Seat) -> Result<()> {
        let lost = matches!(self.holding, Holding::Opened(_)) && seat.is_dead(self.published.token);
        match lost {
            false => Ok(()),
            true => {
                let how = "its process ended, and with it the device memory that it held of this table";
                Err(call.lost(vec![seat.lost_because(self.published.rank as usize, how)]))
            }
        }
    }

    /// The address of a section's first byte.
    pub(super) fn section(&self, section: Section) -> u64 {
        let offset = match section {
            Section::Values => 0,
            Section::Plane(plane) => self.sections.planes[plane],
            Section::Steps => self.sections.steps,
        };
        self.address + offset as u64
    }

    /// The address of some bytes of a section.
    pub(super) fn range(&self, section: Section, start: usize, bytes: usize) -> u64 {
        let length = match section {
            Section::Values => self.shape.rows * self.shape.row_bytes,
            Section::Plane(_) => self.shape.rows * self.shape.state_row_bytes,
            Section::Steps => 8 * units(&self.shape),
        };
        assert!(start + bytes <= length, "outside the section");
        self.section(section) + start as u64
    }

    /// The address of the values, and those of the planes that an add of a worker changes: none is zero.
    pub(super) fn memory(&self, shared: Range<usize>, own: Range<usize>) -> [u64; 3] {
        let mut addresses = [self.section(Section::Values), 0, 0];
        for (place, plane) in addresses[1..].iter_mut().zip(shared.chain(own)) {
            *place = self.section(Section::Plane(plane));
        }
        addresses
    }
}

fn read((extent, offset): (&Extent, usize)) -> Published {
    let source = extent.range(offset, size_of::<Published>());
    // SAFETY: the layout keeps these bytes for it; whoever reads has waited until they were written.
    unsafe { source.cast::<Published>().read_unaligned() }
}

fn ended(rank: u32) -> Error {
    Error::unsupported(
        "table",
        format!(
            "a table in device memory after a restart: that memory ended with the process of rank {rank}"
        ),
        "start the whole job again from a checkpoint",
    )
}

fn elsewhere(published: &Published, device: &Device) -> Error {
    let words = |uuid: [u8; 16]| uuid.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let expected = format!("device {} as on rank {}", words(published.uuid), published.rank);
    let received = format!("device {} ({})", words(device.uuid()), device.name());
    let advice = "name the same device on every rank of a host, or leave `device` out";
    Error::usage("table", expected, received, advice)
}

impl Drop for Shard {
    fn drop(&mut self) {
        match &mut self.holding {
            Holding::Own(memory) => {
                let place = self.place.clone();
                memory
                    .take()
                    .into_iter()
                    .for_each(|memory| self.parked.keep(Left { memory, place: place.clone() }));
            }
            Holding::Opened(mapped) => forget(mapped),
            Holding::Beside => {}
        }
    }
}

/// Memory of a table that this rank has dropped and others may still use.
struct Left {
    memory: DeviceMemory,
    place: (Extent, usize),
}

impl Left {
    /// Whether anybody uses it: the table's part of the job's memory is cleared when the last one has dropped it.
    fn is_used(&self) -> bool {
        let (extent, offset) = (&self.place.0, self.place.1);
        Header::of(extent).is_used() && read((extent, offset)).address == self.memory.address()
    }
}

/// Device memory that this rank took, while others may still use it.
#[derive(Default)]
pub(in crate::tables) struct Parked(Mutex<Vec<Left>>);

impl Parked {
    fn keep(&self, left: Left) {
        if left.is_used() {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(left);
        }
    }

    /// Gives back what nobody uses any more.
    fn clear_out(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(Left::is_used);
    }
}

/// The last one to drop a table does not tell the others: the rank that took the memory looks at its calls on the world.
impl Watcher for Parked {
    fn enter(&self, _number: u64) {
        self.clear_out();
    }

    fn leave(&self) {}
}

impl Drop for Parked {
    fn drop(&mut self) {
        self.clear_out();
        // Others may still use it: it ends with the process.
        let rest = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        rest.into_iter().for_each(|left| std::mem::forget(left.memory));
    }
}
