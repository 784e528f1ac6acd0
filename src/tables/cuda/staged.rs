//! Tables that live in the host, for callers whose arrays are on a device: while the device copies one chunk, the host gets or adds
//! another.

use super::transfer::CHUNK_BYTES;
use crate::cuda::Span;
use crate::error::Result;
use crate::tables::core::Core;
use crate::tables::updater::UpdateContext;
use crate::tables::{AddOptions, Rows};
use crate::transport::Call;

impl Core {
    /// Bytes of a chunk. Those of all rows do not cut stripes: each counts its adds.
    fn chunk(&self, rows: Rows) -> usize {
        let bytes = self.description.row_bytes();
        let unit = match rows {
            Rows::All => self.storage.layout.stripe_rows * bytes,
            Rows::List(_) => bytes,
        };
        (CHUNK_BYTES / unit).max(1) * unit
    }

    /// Copies rows, all of which this host holds, to a device.
    pub(super) fn staged_get(&self, call: &Call, worker: usize, rows: Rows, out: Span) -> Result<()> {
        let bytes = self.description.row_bytes();
        let mut guard = self.storage.scratch.take(out.device())?;
        let fill = |start: usize, chunk: &mut [u8]| match rows {
            Rows::All => self.storage.get(call, worker, start / bytes, chunk),
            Rows::List(list) => {
                let part = &list[start / bytes..][..chunk.len() / bytes];
                self.read(call, worker, Rows::List(part), chunk)
            }
        };
        let step = self.chunk(rows);
        guard.scratch().transfer.upload_chunks(out.bytes(), step, fill, |_, staging, start, length| {
            // SAFETY: a part of the span, which is lent for the call; the lanes are waited for.
            unsafe { staging.copy_to(out.address() + start as u64, length) }
        })
    }

    /// Applies a delta on a device to rows, all of which this host holds.
    pub(super) fn staged_add(
        &self,
        call: &Call,
        worker: usize,
        rows: Rows,
        delta: Span,
        options: &AddOptions,
    ) -> Result<()> {
        let bytes = self.description.row_bytes();
        let mut guard = self.storage.scratch.take(delta.device())?;
        let all = options.or(&self.add);
        let context = UpdateContext { worker, step: 0, options: &all };
        let step = self.chunk(rows);
        // SAFETY: the span is lent for the call.
        unsafe {
            guard.scratch().transfer.download_chunks(delta.address(), delta.bytes(), step, |start, chunk| match rows {
                Rows::All => self.storage.add(call, start / bytes, chunk, &context, &|_| false),
                Rows::List(list) => {
                    let part = &list[start / bytes..][..chunk.len() / bytes];
                    self.write(call, worker, Rows::List(part), chunk, options)
                }
            })
        }
    }
}
