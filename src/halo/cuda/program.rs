//! A program: the box copies and cells of one step of an exchange, processed with one launch of each kernel.

use std::sync::Arc;

use super::box_copy::BoxCopy;
use super::cells::Cell;
use super::job::{ARRAYS, CopyJob, Jobs, SumJob, THREADS};
use crate::cuda::{Argument, Device, DeviceMemory, Kernel, KernelSource, Stream};
use crate::error::Result;
use crate::memory::DType;

pub(super) static BOXES: KernelSource = KernelSource {
    name: "halo/boxes.cu",
    code: concat!(include_str!("../../cuda/halves.cu"), include_str!("boxes.cu")),
};

/// The kernels' name for an element type.
pub(super) fn kernel_type(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "TYPE=Plain<float>",
        DType::F64 => "TYPE=Plain<double>",
        DType::F16 => "TYPE=Half<f16>",
        DType::BF16 => "TYPE=Half<bf16>",
        DType::I8 | DType::U8 => "TYPE=Plain<u8>",
        DType::I32 => "TYPE=Plain<u32>",
        DType::I64 => "TYPE=Plain<u64>",
        _ => unreachable!("a halo of {dtype} was rejected"),
    }
}

/// The most bytes that a thread moves at once.
const WIDE: usize = 16;

/// The work, and its job tables on the device: one for aligned arrays, and one for all others if there are any.
#[derive(Default)]
pub(super) struct DeviceProgram {
    pub box_copies: Vec<BoxCopy>,
    pub cells: Vec<Cell>,
    tables: [Option<JobTable>; 2],
}

struct JobTable {
    _memory: DeviceMemory,
    copies: Option<Launch>,
    sums: Option<Launch>,
    sources: u64,
}

/// A kernel, and the address of its jobs.
struct Launch {
    kernel: Kernel,
    jobs: u64,
    count: u32,
    blocks: u32,
}

/// The job tables before they are copied to the device.
#[derive(Default)]
pub(super) struct JobLists {
    pub copies: Jobs<CopyJob>,
    pub sums: Jobs<SumJob>,
    pub sources: Vec<super::job::SumSource>,
}

impl DeviceProgram {
    /// Adds a cell.
    pub fn add(&mut self, cell: Cell) {
        match cell.box_copy() {
            Some(box_copy) => self.box_copies.push(box_copy),
            None => self.cells.push(cell),
        }
    }

    /// The jobs for arrays with this alignment.
    pub fn lists(&self, element: usize, alignment: usize) -> Result<JobLists> {
        let mut lists = JobLists::default();
        for box_copy in &self.box_copies {
            lists.copies.push(box_copy, element, alignment)?;
        }
        for cell in &self.cells {
            lists.sums.push(cell, element, &mut lists.sources)?;
        }
        Ok(lists)
    }

    /// Launches everything on a stream, for arrays at these addresses.
    ///
    /// # Safety
    /// The boxes lie inside these arrays and inside buffers that stay valid until the stream was waited for; nothing else
    /// accesses what is written, and nothing writes what is read.
    pub unsafe fn launch(
        &mut self,
        (device, stream): (&Arc<Device>, &Stream),
        dtype: DType,
        arrays: &[u64],
        parity: u32,
    ) -> Result<()> {
        let aligned = arrays.iter().all(|address| address.is_multiple_of(WIDE as u64));
        let alignment = if aligned { WIDE } else { dtype.size() };
        if self.tables[usize::from(aligned)].is_none() {
            let lists = self.lists(dtype.size(), alignment)?;
            self.tables[usize::from(aligned)] = Some(JobTable::new(device, stream, dtype, &lists)?);
        }
        let Some(table) = &self.tables[usize::from(aligned)] else { return Ok(()) };
        let mut addresses = [0u64; ARRAYS];
        addresses[..arrays.len()].copy_from_slice(arrays);
        let addresses = Argument::Bytes(bytemuck::cast_slice(&addresses));
        if let Some(Launch { kernel, jobs, count, blocks }) = &table.copies {
            let arguments =
                [Argument::Address(*jobs), Argument::U32(*count), Argument::U32(parity), addresses];
            // SAFETY: the arguments match the kernel's parameters; the caller vouches for the memory.
            unsafe { kernel.launch(stream, *blocks, THREADS, &arguments)? };
        }
        if let Some(Launch { kernel, jobs, count, blocks }) = &table.sums {
            let sources = Argument::Address(table.sources);
            let arguments =
                [Argument::Address(*jobs), Argument::U32(*count), sources, Argument::U32(parity), addresses];
            // SAFETY: as above.
            unsafe { kernel.launch(stream, *blocks, THREADS, &arguments)? };
        }
        Ok(())
    }
}

impl JobTable {
    fn new(device: &Arc<Device>, stream: &Stream, dtype: DType, lists: &JobLists) -> Result<JobTable> {
        let copies: &[u8] = bytemuck::cast_slice(&lists.copies.list);
        let sums: &[u8] = bytemuck::cast_slice(&lists.sums.list);
        let sources: &[u8] = bytemuck::cast_slice(&lists.sources);
        let bytes = [copies, sums, sources].concat();
        let memory = DeviceMemory::new(device, bytes.len())?;
        let start = memory.address();
        // SAFETY: nothing else uses the bytes and the new memory until the copy is done.
        unsafe { stream.copy(start, bytes.as_ptr().addr() as u64, bytes.len())? };
        stream.synchronize()?;
        let mut table = JobTable { _memory: memory, copies: None, sums: None, sources: 0 };
        if lists.copies.blocks > 0 {
            let (count, blocks) = (lists.copies.list.len() as u32, lists.copies.blocks);
            let kernel = device.kernel(&BOXES, "copy_boxes")?;
            table.copies = Some(Launch { kernel, jobs: start, count, blocks });
        }
        if lists.sums.blocks > 0 {
            let (count, blocks) = (lists.sums.list.len() as u32, lists.sums.blocks);
            let kernel = device.kernel_with(&BOXES, &[kernel_type(dtype)], "sum_boxes")?;
            table.sums = Some(Launch { kernel, jobs: start + copies.len() as u64, count, blocks });
            table.sources = start + (copies.len() + sums.len()) as u64;
        }
        Ok(table)
    }
}
