//! Box copies and cells in the binary layout that the kernels of boxes.cu read.

use bytemuck::{Pod, Zeroable};

use super::box_copy::{BoxCopy, BoxSide, BoxSource, MemoryBase, cut};
use super::cells::Cell;
use crate::error::{Error, Result};

/// The most outer dimensions, those of the rows.
const OUTER: usize = 7;
/// The most dimensions in which a boundary may repeat an element.
const REPEATS: usize = 4;
/// The most arrays of one call: inputs, outputs, and partial sums.
pub(super) const ARRAYS: usize = 34;
/// Threads per block.
pub(super) const THREADS: u32 = 256;

/// Units of a long row per warp, and units of short rows per block.
const CHUNK: u32 = 1024;
const FLAT: u32 = 2048;
const WARPS: u32 = THREADS / 32;
/// Rows of fewer units are short.
const LONG: u32 = 32;

const FILLS: u32 = 1;
const SHORT: u32 = 2;
const WIDE: u32 = 4;

#[repr(C)]
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
pub(super) struct BoxAddress {
    pub address: u64,
    pub flip: u64,
    pub step: i64,
    pub strides: [i64; OUTER],
    pub array: u32,
    pub unused: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
pub(super) struct Frame {
    pub extents: [u32; OUTER],
    pub outer: u32,
    pub rows: u32,
    pub length: u32,
    pub first: u32,
    pub chunks: u32,
    pub turns: u32,
    pub unit: u32,
    pub flags: u32,
    pub unused: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
pub(super) struct CopyJob {
    pub from: BoxAddress,
    pub to: BoxAddress,
    pub frame: Frame,
    pub pattern: [u32; 4],
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
pub(super) struct SumJob {
    pub to: BoxAddress,
    pub frame: Frame,
    pub source: u32,
    pub sources: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
pub(super) struct SumSource {
    pub from: BoxAddress,
    pub strides: [i64; REPEATS],
    pub repeats: [u32; REPEATS],
    pub flags: u32,
    pub unused: u32,
}

/// The jobs of one launch, and the number of blocks that they take.
#[derive(Debug, Default)]
pub(super) struct Jobs<Job> {
    pub list: Vec<Job>,
    pub blocks: u32,
}

fn too_many(dimensions: usize) -> Error {
    let what = format!("boxes of {dimensions} dimensions that cannot be merged");
    Error::unsupported(
        "halo in CUDA memory",
        what,
        format!("use arrays of {} dimensions or fewer", OUTER + 1),
    )
}

/// A frame without its blocks: rows of a box whose last dimension is counted in units.
fn frame(extents: &[usize], unit: usize, element: usize) -> Result<Frame> {
    let (&last, outer) = extents.split_last().unwrap_or((&1, &[]));
    if outer.len() > OUTER {
        return Err(too_many(extents.len()));
    }
    let mut frame = Frame {
        outer: outer.len() as u32,
        rows: outer.iter().product::<usize>() as u32,
        length: (last * element / unit) as u32,
        unit: unit as u32,
        chunks: 1,
        turns: 1,
        ..Frame::default()
    };
    frame.extents.iter_mut().zip(outer.iter().rev()).for_each(|(to, &extent)| *to = extent as u32);
    Ok(frame)
}

/// The address of a box whose rows are counted in units of one or more elements.
fn box_address(end: &BoxSide, unit: usize, element: usize) -> BoxAddress {
    let (&last, outer) = end.strides.split_last().unwrap_or((&0, &[]));
    let step = if unit == element { last } else { unit as i64 };
    let mut box_address = BoxAddress { step, ..BoxAddress::default() };
    (box_address.array, box_address.address, box_address.flip) = match end.base {
        MemoryBase::Array(number) => (number + 1, end.offset as u64, 0),
        MemoryBase::Buffer { address, flip } => (0, address.wrapping_add_signed(end.offset), flip),
    };
    box_address.strides.iter_mut().zip(outer.iter().rev()).for_each(|(to, &stride)| *to = stride);
    box_address
}

/// The largest unit, in bytes and up to `alignment`, that divides every row and its addresses.
fn widest(extents: &[usize], ends: &[&BoxSide], element: usize, alignment: usize) -> usize {
    let contiguous = ends.iter().all(|end| end.strides.last() == Some(&(element as i64)));
    if !contiguous {
        return element;
    }
    let mut common = alignment as u64 | (extents[extents.len() - 1] * element) as u64;
    for end in ends {
        let outer = &end.strides[..end.strides.len() - 1];
        outer.iter().for_each(|stride| common |= stride.unsigned_abs());
        common |= match end.base {
            MemoryBase::Array(_) => end.offset as u64,
            MemoryBase::Buffer { address, flip } => address.wrapping_add_signed(end.offset) | flip,
        };
    }
    (1 << common.trailing_zeros()).max(element)
}

impl Jobs<CopyJob> {
    /// Adds a box; the call's arrays are aligned to `alignment` bytes.
    pub fn push(&mut self, box_copy: &BoxCopy, element: usize, alignment: usize) -> Result<()> {
        let ends: Vec<&BoxSide> = match &box_copy.from {
            BoxSource::Side(from) => vec![&box_copy.to, from],
            BoxSource::Pattern(_) => vec![&box_copy.to],
        };
        for (extents, ends) in cut(&box_copy.extents, &ends) {
            let ends: Vec<&BoxSide> = ends.iter().collect();
            let unit = widest(&extents, &ends, element, alignment);
            let mut frame = frame(&extents, unit, element)?;
            let straight = ends.iter().all(|end| end.strides.last() == Some(&(element as i64)));
            let blocks = match straight && frame.length >= LONG {
                true => {
                    frame.chunks = frame.length.div_ceil(CHUNK);
                    frame.turns = (CHUNK / 2 / frame.length).max(1);
                    (frame.rows * frame.chunks).div_ceil(frame.turns * WARPS)
                }
                false => {
                    frame.flags |= SHORT;
                    (frame.rows * frame.length).div_ceil(FLAT)
                }
            };
            frame.first = self.blocks;
            let mut job = CopyJob { to: box_address(ends[0], unit, element), frame, ..CopyJob::default() };
            match &box_copy.from {
                BoxSource::Side(_) => job.from = box_address(ends[1], unit, element),
                BoxSource::Pattern(pattern) => {
                    job.pattern = bytemuck::pod_read_unaligned(pattern);
                    job.frame.flags |= FILLS;
                }
            }
            self.list.push(job);
            self.blocks += blocks;
        }
        Ok(())
    }
}

impl Jobs<SumJob> {
    /// Adds a cell, and appends its sources to `list`.
    pub fn push(&mut self, cell: &Cell, element: usize, list: &mut Vec<SumSource>) -> Result<()> {
        let ends: Vec<&BoxSide> =
            std::iter::once(&cell.to).chain(cell.sources.iter().map(|one| &one.from)).collect();
        for (extents, ends) in cut(&cell.extents, &ends) {
            let mut frame = frame(&extents, element, element)?;
            frame.first = self.blocks;
            frame.flags = if cell.is_wide { WIDE } else { 0 };
            self.blocks += (frame.rows * frame.length).div_ceil(FLAT);
            let (source, sources) = (list.len() as u32, cell.sources.len() as u32);
            self.list.push(SumJob { to: box_address(&ends[0], element, element), frame, source, sources });
            for (end, summand) in ends[1..].iter().zip(&cell.sources) {
                if summand.repeats.len() > REPEATS {
                    let what = format!("elements that are repeated in {} dimensions", summand.repeats.len());
                    let advice = format!("use such a boundary in {REPEATS} dimensions or fewer");
                    return Err(Error::unsupported("halo in CUDA memory", what, advice));
                }
                let mut one = SumSource {
                    from: box_address(end, element, element),
                    repeats: [1; REPEATS],
                    ..SumSource::default()
                };
                one.flags = if summand.is_wide { WIDE } else { 0 };
                for (at, &(extent, stride)) in summand.repeats.iter().enumerate() {
                    (one.repeats[at], one.strides[at]) = (extent as u32, stride);
                }
                list.push(one);
            }
        }
        Ok(())
    }
}
