//! Kernel launches on a table's rows in device memory. The caller holds the table's lock.

use super::formula::{NUMBERS, SCALES};
use super::kernels::{FLIGHT, THREADS, TILE};
use super::scratch::{KernelFaults, Scratch, ScratchBuffer};
use super::shard::{DeviceShard, step_units};
use crate::cuda::{Argument, Stream};
use crate::error::{Error, Result};
use crate::tables::engine::checkpointable::TableSection;

/// Null pointer instead of a fault record: the call performs no checks.
const NULL_FAULTS: Argument = Argument::Address(0);

/// The row ids of a call, in device memory.
#[derive(Clone, Copy)]
pub(crate) struct DeviceRowIds {
    pub address: u64,
    pub count: usize,
    /// Whether the ids still have to be checked against the table's rows.
    pub unchecked: bool,
}

/// An add in the form that kernels need.
pub(crate) struct UpdateArgs {
    /// Addresses of the values and of the state planes.
    pub memory: [u64; 3],
    pub numbers: [f64; NUMBERS],
    pub reject_nan: bool,
    /// Whether a row that is listed more than once is updated once, by the sum of its deltas.
    pub sums_repeats: bool,
}

impl UpdateArgs {
    pub fn summing(self, sums_repeats: bool) -> UpdateArgs {
        UpdateArgs { sums_repeats, ..self }
    }

    fn memory_at(&self, shard: &DeviceShard, element: usize) -> [u64; 3] {
        let state = shard.shape.state_row_bytes / (shard.shape.row_bytes / shard.dtype.size());
        let sizes = [shard.dtype.size(), state, state];
        let mut addresses = self.memory;
        addresses.iter_mut().zip(sizes).for_each(|(address, size)| *address += (element * size) as u64);
        addresses
    }
}

/// Blocks for this number of threads.
fn blocks(threads: usize) -> Result<u32> {
    let blocks = threads.div_ceil(THREADS as usize);
    i32::try_from(blocks).map(|blocks| blocks as u32).map_err(|_| {
        Error::usage("table", "a call on fewer elements", format!("{threads} at once"), "make several calls")
    })
}

/// The number of lanes of a warp that share a row of this many units.
fn lanes(units: usize) -> u32 {
    units.next_power_of_two().min(32) as u32
}

impl DeviceShard {
    /// Elements per row.
    fn cols(&self) -> usize {
        self.shape.row_bytes / self.dtype.size()
    }

    /// Launches the check of a list's row ids; faults are recorded on the device, at `faults`.
    fn check_list(&self, scratch: &mut Scratch, list: DeviceRowIds, faults: Argument<'static>) -> Result<()> {
        if !list.unchecked {
            return Ok(());
        }
        let arguments = [
            Argument::Address(list.address),
            Argument::U64(list.count as u64),
            Argument::U64(self.shape.rows as u64),
            faults,
        ];
        // SAFETY: the list has `count` ids; the fault record belongs to this rank alone.
        unsafe { scratch.kernels()?.check.launch(scratch.stream(), blocks(list.count)?, THREADS, &arguments) }
    }

    /// Copies rows to their positions in `out`.
    pub(crate) fn gather(&self, scratch: &mut Scratch, list: DeviceRowIds, out: u64) -> Result<KernelFaults> {
        if list.count == 0 {
            return Ok(KernelFaults::NONE);
        }
        let faults = if list.unchecked { scratch.clear_faults()? } else { NULL_FAULTS };
        self.check_list(scratch, list, faults)?;
        let bytes = self.shape.row_bytes;
        let fits = |unit: usize| bytes.is_multiple_of(unit) && out.is_multiple_of(unit as u64);
        let kernels = scratch.kernels()?;
        let kernel = kernels.gather.iter().find(|(unit, _)| fits(*unit));
        let (unit, kernel) = kernel.ok_or_else(|| Error::internal("get", "an array at an odd address"))?;
        let (units, lanes) = (bytes / unit, lanes(bytes / unit));
        let threads = list.count.div_ceil(FLIGHT) * lanes as usize;
        let arguments = [
            Argument::Address(self.section(TableSection::Values)),
            Argument::Address(list.address),
            Argument::U64(list.count as u64),
            Argument::U32(units as u32),
            Argument::U32(lanes),
            Argument::Address(out),
            faults,
        ];
        // SAFETY: the check has recorded ids that are no rows, in which case nothing is read; `out` has room for all rows.
        unsafe { kernel.launch(scratch.stream(), blocks(threads)?, THREADS, &arguments)? };
        scratch.finish(list.unchecked)
    }

    /// Counts an add to every row; returns the address of the scales that rules derive from the counts.
    pub(crate) fn count_all(
        &self,
        scratch: &mut Scratch,
        args: &UpdateArgs,
        faults: Argument,
    ) -> Result<u64> {
        if self.shape.planes == 0 {
            return Ok(0);
        }
        let (units, state) = (step_units(&self.shape), self.shape.state_row_bytes / self.cols());
        let scales = match self.formula.counts_steps() {
            true => scratch.buffer(ScratchBuffer::Scales, SCALES * state * units)?,
            false => 0,
        };
        let arguments = [
            Argument::Address(self.section(TableSection::Steps)),
            Argument::Address(scales),
            Argument::U64(units as u64),
            Argument::Bytes(bytemuck::bytes_of(&args.numbers)),
            faults,
        ];
        // SAFETY: there is a counter for each unit, and room for its scale.
        unsafe { self.kernels.count_all.launch(scratch.stream(), blocks(units)?, THREADS, &arguments)? };
        Ok(scales)
    }

    /// Updates `count` consecutive elements, starting at `first`, by a delta of the same length.
    pub(crate) fn update_range(
        &self,
        stream: &Stream,
        args: &UpdateArgs,
        (first, count): (usize, usize),
        delta: u64,
        scales: u64,
        faults: Argument,
    ) -> Result<()> {
        let (cols, pack) = (self.cols(), 16 / self.dtype.size());
        let scale = SCALES * (self.shape.state_row_bytes / cols);
        // An array has one step counter, and one scale derived from it, for all of its elements.
        let (cols, scales) = match self.shape.counts_stripes {
            true => (usize::MAX, scales),
            false if scales == 0 => (cols, 0),
            false => (cols, scales + (first / cols * scale) as u64),
        };
        let packable = !self.formula.counts_steps() || cols == usize::MAX || cols.is_multiple_of(pack);
        let wide = packable && delta.is_multiple_of(16) && first.is_multiple_of(pack);
        let threads = count.div_ceil(if wide { pack } else { 1 });
        let memory = args.memory_at(self, first);
        let arguments = [
            Argument::Bytes(bytemuck::cast_slice(&memory)),
            Argument::Address(delta),
            Argument::U64(count as u64),
            Argument::U64(cols as u64),
            Argument::Address(scales),
            Argument::Bytes(bytemuck::bytes_of(&args.numbers)),
            faults,
        ];
        // SAFETY: the elements belong to the table, whose lock is held; packs are aligned.
        unsafe { self.kernels.all.of(wide).launch(stream, blocks(threads)?, THREADS, &arguments) }
    }

    /// Records the position of the first NaN of a delta.
    fn check_nan(&self, stream: &Stream, delta: u64, count: usize, faults: Argument) -> Result<()> {
        let arguments = [Argument::Address(delta), Argument::U64(count as u64), faults];
        // SAFETY: the delta has `count` elements.
        unsafe { self.kernels.check_nan.launch(stream, blocks(count)?, THREADS, &arguments) }
    }

    /// Updates all rows by a delta on the device.
    pub(crate) fn update_all(
        &self,
        scratch: &mut Scratch,
        args: &UpdateArgs,
        delta: u64,
    ) -> Result<KernelFaults> {
        let count = self.shape.rows * self.cols();
        let faults = if args.reject_nan { scratch.clear_faults()? } else { NULL_FAULTS };
        if args.reject_nan {
            self.check_nan(scratch.stream(), delta, count, faults)?;
        }
        let scales = self.count_all(scratch, args, faults)?;
        self.update_range(scratch.stream(), args, (0, count), delta, scales, faults)?;
        scratch.finish(args.reject_nan)
    }

    /// Updates listed rows by a delta on the device, with one row per id. A row that is listed more than once is updated by the
    /// sum of its deltas, or once for each of them.
    pub(crate) fn update_rows(
        &self,
        scratch: &mut Scratch,
        args: &UpdateArgs,
        list: DeviceRowIds,
        delta: u64,
    ) -> Result<KernelFaults> {
        if list.count == 0 {
            return Ok(KernelFaults::NONE);
        }
        let (cols, pack) = (self.cols(), 16 / self.dtype.size());
        let checks = list.unchecked || args.reject_nan;
        let faults = if checks { scratch.clear_faults()? } else { NULL_FAULTS };
        self.check_list(scratch, list, faults)?;
        if args.reject_nan {
            self.check_nan(scratch.stream(), delta, list.count * cols, faults)?;
        }
        let wide = cols.is_multiple_of(pack) && delta.is_multiple_of(16);
        let lanes = lanes(if wide { cols / pack } else { cols });
        let (count, cols) = (Argument::U64(list.count as u64), Argument::U64(cols as u64));
        let [values, ..] = args.memory.map(Argument::Address);
        let delta = Argument::Address(delta);
        let shared = Argument::U32(lanes);
        // These rules have no state, and a float table's sum would be rounded in another order.
        if let Some(scatter) = self.kernels.scatter.as_ref().filter(|_| !args.sums_repeats) {
            let threads = list.count.div_ceil(FLIGHT) * lanes as usize;
            let arguments = [values, delta, Argument::Address(list.address), count, cols, shared, faults];
            // SAFETY: the check has recorded ids that are no rows, in which case nothing is changed; the lock is held.
            unsafe { scatter.of(wide).launch(scratch.stream(), blocks(threads)?, THREADS, &arguments)? };
            return scratch.finish(checks);
        }
        let (rows, positions) = self.sort(scratch, list)?;
        let arguments = [
            Argument::Bytes(bytemuck::cast_slice(&args.memory)),
            Argument::Address(self.section(TableSection::Steps)),
            delta,
            Argument::Address(rows),
            Argument::Address(positions),
            count,
            cols,
            shared,
            Argument::U32(u32::from(args.sums_repeats)),
            Argument::Bytes(bytemuck::bytes_of(&args.numbers)),
            faults,
        ];
        let threads = list.count * lanes as usize;
        // SAFETY: as above; the sorted list is a permutation of the checked one.
        unsafe {
            self.kernels.rows.of(wide).launch(scratch.stream(), blocks(threads)?, THREADS, &arguments)?
        };
        scratch.finish(checks)
    }

    /// Stable sort of a list by row; returns the addresses of the rows and of their positions.
    fn sort(&self, scratch: &mut Scratch, list: DeviceRowIds) -> Result<(u64, u64)> {
        let (count, tiles) = (list.count, list.count.div_ceil(TILE));
        let buffer = scratch.buffer(ScratchBuffer::Sorting, 4 * (4 * count + 256 * tiles + 256))?;
        let part = |index: usize| buffer + (4 * index * count) as u64;
        let (mut from, mut to) = ((part(0), part(1)), (part(2), part(3)));
        let (counts, totals) = (part(4), part(4) + (4 * 256 * tiles) as u64);
        let (kernels, stream) = (scratch.kernels()?, scratch.stream());
        let (address, number) = (Argument::Address, Argument::U64(count as u64));
        let bits = usize::BITS - (self.shape.rows - 1).leading_zeros();
        // SAFETY: all lists have `count` entries and are adjacent; ids that are no rows are sorted by their low bits.
        unsafe {
            let begin = [address(list.address), number, address(from.0), address(from.1)];
            kernels.begin.launch(stream, blocks(count)?, THREADS, &begin)?;
            for shift in (0..bits.min(32)).step_by(8).map(Argument::U32) {
                let count_digits = [address(from.0), number, shift, address(counts)];
                kernels.count.launch(stream, tiles as u32, THREADS, &count_digits)?;
                let add_up = [address(counts), Argument::U32(tiles as u32), address(totals)];
                kernels.add_up.launch(stream, 256, THREADS, &add_up)?;
                let (source, target) = (from, to);
                let order = [source.0, source.1].map(address).into_iter().chain([number, shift]);
                let order = order.chain([counts, totals, target.0, target.1].map(address));
                kernels.order.launch(stream, tiles as u32, THREADS, &order.collect::<Vec<_>>())?;
                (from, to) = (to, from);
            }
        }
        Ok(from)
    }
}
