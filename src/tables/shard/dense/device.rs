//! A table's rows on a device, for callers whose arrays are in host memory: through pinned memory, chunk by chunk.

use super::row_batch::RowRef;
use super::storage::Storage;
use crate::cuda::Argument;
use crate::error::{Error, Result};
use crate::tables::engine::checkpointable::TableSection;
use crate::tables::shard::cuda::DeviceShard;
use crate::tables::shard::cuda::launch::{DeviceRowIds, UpdateArgs};
use crate::tables::shard::cuda::scratch::{KernelFaults, Scratch, ScratchBuffer};
use crate::tables::shard::cuda::transfer::CHUNK_BYTES;
use crate::tables::updater::UpdateContext;
use crate::transport::Call;

/// Bytes of listed rows per batch.
const BATCH_BYTES: usize = 64 << 20;

/// The rows that a host caller lists, and their positions in its list.
fn split(row_refs: impl Iterator<Item = RowRef>) -> (Vec<i64>, Vec<usize>) {
    row_refs.map(|row_ref| (i64::from(row_ref.row), row_ref.position as usize)).unzip()
}

/// No device-side check was requested, so no fault can be reported.
fn expect_no_faults(faults: KernelFaults) -> Result<()> {
    match faults == KernelFaults::NONE {
        true => Ok(()),
        false => Err(Error::internal("table", "a fault that no check looks for")),
    }
}

impl Storage {
    /// Runs `work` on the shard: under the table's lock, with the rank's scratch memory, while the owner of the shard is alive.
    /// The scratch stream never waits for user work, because other ranks wait for the lock.
    pub(crate) fn with_shard<R>(
        &self,
        call: &Call,
        shard: &DeviceShard,
        work: impl FnOnce(&mut Scratch) -> Result<R>,
    ) -> Result<R> {
        let _guard = self.lock(call, 0)?;
        // The owner of the memory may have died while this call waited for the lock.
        shard.check(call, &self.endpoint)?;
        let mut guard = self.scratch.take(shard.device.ordinal())?;
        work(guard.scratch())
    }

    /// A worker's add in the form that kernels need.
    pub(crate) fn update_args(
        &self,
        shard: &DeviceShard,
        context: &UpdateContext,
        reject_nan: bool,
    ) -> UpdateArgs {
        UpdateArgs {
            memory: shard.memory(self.shared_planes(), self.worker_planes(context.worker)),
            numbers: shard.formula.numbers(context.options),
            reject_nan,
            sums_repeats: false,
        }
    }

    /// Copies listed rows to their positions in `out`.
    pub(crate) fn device_get_list(
        &self,
        call: &Call,
        shard: &DeviceShard,
        row_refs: impl Iterator<Item = RowRef>,
        mut take: impl FnMut(usize, &[u8]),
    ) -> Result<()> {
        let (rows, positions) = split(row_refs);
        let bytes = shard.shape.row_bytes;
        let step = (BATCH_BYTES / bytes).max(1);
        self.with_shard(call, shard, |scratch| {
            for (rows, positions) in rows.chunks(step).zip(positions.chunks(step)) {
                let list =
                    DeviceRowIds { address: scratch.upload_ids(rows)?, count: rows.len(), unchecked: false };
                let buffer = scratch.buffer(ScratchBuffer::Rows, rows.len() * bytes)?;
                expect_no_faults(shard.gather(scratch, list, buffer)?)?;
                let chunk = (CHUNK_BYTES / bytes).max(1) * bytes;
                // SAFETY: the buffer holds the rows, and this call alone uses it.
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

    /// Adds to all rows; `begin` is called under the table's lock, before any row changes.
    pub(crate) fn device_add(
        &self,
        call: &Call,
        shard: &DeviceShard,
        delta: &[u8],
        context: &UpdateContext,
        begin: impl FnOnce(),
    ) -> Result<()> {
        let args = self.update_args(shard, context, false);
        let size = shard.dtype.size();
        // Neither rows nor packs are split across chunks, because adds are counted per row.
        let unit = if shard.shape.counts_stripes { 16 } else { shard.shape.row_bytes };
        let step = (CHUNK_BYTES / unit).max(1) * unit;
        self.with_shard(call, shard, |scratch| {
            let null_faults = Argument::Address(0);
            // Once the adds are counted, applying them must not fail for lack of memory.
            scratch.transfer.reserve(step.min(delta.len()))?;
            begin();
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

    /// Adds to listed rows, in the order of the list, and raises their versions if the table has any; `begin` is called under
    /// the table's lock, before any row changes.
    pub(crate) fn device_add_list(
        &self,
        call: &Call,
        shard: &DeviceShard,
        row_refs: impl Iterator<Item = RowRef>,
        delta: &[u8],
        context: &UpdateContext,
        begin: impl FnOnce(),
    ) -> Result<()> {
        let (rows, positions) = split(row_refs);
        let bytes = shard.shape.row_bytes;
        let step = (BATCH_BYTES / bytes).max(1);
        let args = self.update_args(shard, context, false);
        self.with_shard(call, shard, |scratch| {
            begin();
            if let Some(versions) = self.versions() {
                rows.iter().for_each(|&row| versions.change(row as usize));
            }
            for (rows, positions) in rows.chunks(step).zip(positions.chunks(step)) {
                let list =
                    DeviceRowIds { address: scratch.upload_ids(rows)?, count: rows.len(), unchecked: false };
                let buffer = scratch.buffer(ScratchBuffer::Rows, rows.len() * bytes)?;
                let chunk = (CHUNK_BYTES / bytes).max(1) * bytes;
                let fill = |start: usize, part: &mut [u8]| {
                    let places = &positions[start / bytes..];
                    for (&place, row) in places.iter().zip(part.chunks_exact_mut(bytes)) {
                        row.copy_from_slice(&delta[place * bytes..][..bytes]);
                    }
                    Ok(())
                };
                scratch.transfer.upload_chunks(
                    rows.len() * bytes,
                    chunk,
                    fill,
                    |_, staging, start, length| {
                        // SAFETY: the buffer is large enough, and this call alone uses it.
                        unsafe { staging.copy_to(buffer + start as u64, length) }
                    },
                )?;
                expect_no_faults(shard.update_rows(scratch, &args, list, buffer)?)?;
            }
            Ok(())
        })
    }

    /// Copies bytes of a section, starting at `start`.
    pub(crate) fn device_read(
        &self,
        call: &Call,
        shard: &DeviceShard,
        section: TableSection,
        start: usize,
        out: &mut [u8],
    ) -> Result<()> {
        self.with_shard(call, shard, |scratch| {
            // SAFETY: a part of the section, whose lock is held.
            unsafe { scratch.transfer.download(shard.range(section, start, out.len()), out) }
        })
    }

    /// Overwrites bytes of a section, starting at `start`.
    pub(crate) fn device_write(
        &self,
        call: &Call,
        shard: &DeviceShard,
        section: TableSection,
        start: usize,
        bytes: &[u8],
    ) -> Result<()> {
        self.with_shard(call, shard, |scratch| {
            // SAFETY: a part of the section, whose lock is held.
            unsafe { scratch.transfer.upload(shard.range(section, start, bytes.len()), bytes) }
        })
    }
}
