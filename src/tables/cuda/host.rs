//! A table's rows on a device, for callers whose arrays are in host memory: through pinned memory, chunk by chunk.

use super::transfer::CHUNK_BYTES;
use super::scratch::{KernelFaults, ScratchBuffer, Scratch};
use super::shard::DeviceShard;
use super::launch::{UpdateArgs, DeviceRowIds};
use crate::cuda::Argument;
use crate::error::{Error, Result};
use crate::tables::picks::Pick;
use crate::tables::storage::{Section, Storage};
use crate::tables::updater::UpdateContext;
use crate::transport::Call;

/// Bytes of listed rows that are handled at once.
const BATCH_BYTES: usize = 64 << 20;

/// Rows that a host's caller names, and where they stand in its list.
fn split(picks: impl Iterator<Item = Pick>) -> (Vec<i64>, Vec<usize>) {
    picks.map(|pick| (i64::from(pick.row), pick.position as usize)).unzip()
}

/// No check was asked for on the device, so there is nothing to find.
fn expect_no_faults(faults: KernelFaults) -> Result<()> {
    match faults == KernelFaults::NONE {
        true => Ok(()),
        false => Err(Error::internal("table", "a fault that nobody looked for")),
    }
}

impl Storage {
    /// Does something with the shard: under the table's lock, with the rank's scratch, while its owner is there. The
    /// scratch's stream waits for nobody's work: others wait for the lock.
    pub(super) fn with_shard<R>(
        &self,
        call: &Call,
        shard: &DeviceShard,
        work: impl FnOnce(&mut Scratch) -> Result<R>,
    ) -> Result<R> {
        shard.check(call, &self.seat)?;
        let _guard = self.lock(call, 0)?;
        let mut guard = self.scratch.take(shard.device.ordinal())?;
        work(guard.scratch())
    }

    /// An add of a worker, as kernels need it.
    pub(super) fn update_args(&self, shard: &DeviceShard, context: &UpdateContext, reject_nan: bool) -> UpdateArgs {
        UpdateArgs {
            memory: shard.memory(self.shared_planes(), self.worker_planes(context.worker)),
            numbers: shard.formula.numbers(context.options),
            reject_nan,
        }
    }

    /// Copies listed rows to their places in `out`.
    pub(in crate::tables) fn device_get_list(
        &self,
        call: &Call,
        shard: &DeviceShard,
        picks: impl Iterator<Item = Pick>,
        mut take: impl FnMut(usize, &[u8]),
    ) -> Result<()> {
        let (rows, positions) = split(picks);
        let bytes = shard.shape.row_bytes;
        let step = (BATCH_BYTES / bytes).max(1);
        self.with_shard(call, shard, |scratch| {
            for (rows, positions) in rows.chunks(step).zip(positions.chunks(step)) {
                let list = DeviceRowIds { address: scratch.upload_ids(rows)?, count: rows.len(), unchecked: false };
                let buffer = scratch.buffer(ScratchBuffer::Rows, rows.len() * bytes)?;
                expect_no_faults(shard.gather(scratch, list, buffer)?)?;
                let chunk = (CHUNK_BYTES / bytes).max(1) * bytes;
                // SAFETY: the room holds the rows, and nobody else has it.
                unsafe {
                    scratch.transfer.download_chunks(buffer, rows.len() * bytes, chunk, |start, part| {
                        let places = &positions[start / bytes..];
                        places
                            .iter()
                            .zip(part.chunks_exact(bytes))
                            .for_each(|(&place, row)| take(place, row));
                        Ok(())
                    })?;
                }
            }
            Ok(())
        })
    }

    /// Adds to all rows.
    pub(in crate::tables) fn device_add(
        &self,
        call: &Call,
        shard: &DeviceShard,
        delta: &[u8],
        context: &UpdateContext,
    ) -> Result<()> {
        let args = self.update_args(shard, context, false);
        let size = shard.dtype.size();
        // Rows are not cut, and packs neither: counts of adds are those of rows.
        let unit = if shard.shape.counts_stripes { 16 } else { shard.shape.row_bytes };
        let step = (CHUNK_BYTES / unit).max(1) * unit;
        self.with_shard(call, shard, |scratch| {
            let null_faults = Argument::Address(0);
            // Once adds are counted, nothing may be missing to make them.
            scratch.transfer.reserve(step.min(delta.len()))?;
            let scales = shard.count_all(scratch, &args, null_faults)?;
            let fill = |start: usize, chunk: &mut [u8]| {
                chunk.copy_from_slice(&delta[start..][..chunk.len()]);
                Ok(())
            };
            scratch.transfer.upload_chunks(delta.len(), step, fill, |device, staging, start, length| {
                let sent = staging.copy_to_own(device, length)?;
                let range = (start / size, length / size);
                shard.update_range(&staging.stream, &args, range, sent, scales, null_faults)
            })
        })
    }

    /// Adds to listed rows, in the order of the list; `done` is called before others see them.
    pub(in crate::tables) fn device_add_list(
        &self,
        call: &Call,
        shard: &DeviceShard,
        picks: impl Iterator<Item = Pick>,
        delta: &[u8],
        context: &UpdateContext,
        done: impl FnOnce(),
    ) -> Result<()> {
        let (rows, positions) = split(picks);
        let bytes = shard.shape.row_bytes;
        let step = (BATCH_BYTES / bytes).max(1);
        let args = self.update_args(shard, context, false);
        self.with_shard(call, shard, |scratch| {
            for (rows, positions) in rows.chunks(step).zip(positions.chunks(step)) {
                let list = DeviceRowIds { address: scratch.upload_ids(rows)?, count: rows.len(), unchecked: false };
                let buffer = scratch.buffer(ScratchBuffer::Rows, rows.len() * bytes)?;
                let chunk = (CHUNK_BYTES / bytes).max(1) * bytes;
                let fill = |start: usize, part: &mut [u8]| {
                    let places = &positions[start / bytes..];
                    for (&place, row) in places.iter().zip(part.chunks_exact_mut(bytes)) {
                        row.copy_from_slice(&delta[place * bytes..][..bytes]);
                    }
                    Ok(())
                };
                scratch.transfer.upload_chunks(rows.len() * bytes, chunk, fill, |_, staging, start, length| {
                    // SAFETY: the room is large enough, and nobody else has it.
                    unsafe { staging.copy_to(buffer + start as u64, length) }
                })?;
                expect_no_faults(shard.update_rows(scratch, &args, list, buffer)?)?;
            }
            done();
            Ok(())
        })
    }

    /// Copies bytes of a section, from `start` on.
    pub(in crate::tables) fn device_read(
        &self,
        call: &Call,
        shard: &DeviceShard,
        section: Section,
        start: usize,
        out: &mut [u8],
    ) -> Result<()> {
        self.with_shard(call, shard, |scratch| {
            // SAFETY: a part of the section, whose lock is held.
            unsafe { scratch.transfer.download(shard.range(section, start, out.len()), out) }
        })
    }

    /// Overwrites bytes of a section, from `start` on.
    pub(in crate::tables) fn device_write(
        &self,
        call: &Call,
        shard: &DeviceShard,
        section: Section,
        start: usize,
        bytes: &[u8],
    ) -> Result<()> {
        self.with_shard(call, shard, |scratch| {
            // SAFETY: a part of the section, whose lock is held.
            unsafe { scratch.transfer.upload(shard.range(section, start, bytes.len()), bytes) }
        })
    }
}
