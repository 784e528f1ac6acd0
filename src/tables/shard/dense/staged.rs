//! Tables in host memory, for callers whose arrays are on a device: while the device copies one chunk, the host gets or adds
//! another.

use super::core::TableCore;
use crate::cuda::Span;
use crate::error::Result;
use crate::tables::shard::cuda::transfer::CHUNK_BYTES;
use crate::tables::updater::UpdateContext;
use crate::tables::{AddOptions, Rows};
use crate::transport::Call;

impl TableCore {
    /// Bytes per chunk. A call on all rows does not split stripes, because adds are counted per stripe.
    fn chunk(&self, rows: Rows) -> usize {
        let bytes = self.description.row_bytes();
        let unit = match rows {
            Rows::All => self.storage.layout.stripe_rows * bytes,
            Rows::List(_) => bytes,
        };
        (CHUNK_BYTES / unit).max(1) * unit
    }

    /// Copies rows, all of which are on this host, to a device.
    pub(crate) fn staged_get(&self, call: &Call, worker: usize, rows: Rows, out: Span) -> Result<()> {
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
            // SAFETY: a part of the span, which is borrowed for the call; the staging buffers are waited for.
            unsafe { staging.copy_to(out.address() + start as u64, length) }
        })
    }

    /// Applies a delta on a device to rows, all of which are on this host.
    pub(crate) fn staged_add(
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
        // SAFETY: the span is borrowed for the call.
        unsafe {
            guard.scratch().transfer.download_chunks(delta.address(), delta.bytes(), step, |start, chunk| {
                match rows {
                    Rows::All => self.storage.add(call, start / bytes, chunk, &context, &|_| false),
                    Rows::List(list) => {
                        let part = &list[start / bytes..][..chunk.len() / bytes];
                        self.write(call, worker, Rows::List(part), chunk, options)
                    }
                }
            })
        }
    }
}
