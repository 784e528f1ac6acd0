//! The local part of an array or matrix: its memory on this host, and the reads and updates of a call there.

use std::borrow::Cow;
use std::ops::Deref;

use super::placement::RowPlacement;
use super::replica::Replica;
use super::row_batch::DeltaRows;
use super::storage::Storage;
use super::views::Views;
use crate::error::{Error, Result};
use crate::tables::engine::base::Base;
use crate::tables::updater::UpdateContext;
use crate::tables::{AddOptions, Rows};
use crate::transport::Call;

/// State shared by all handles of an array or matrix.
pub(crate) struct TableCore {
    pub(crate) base: Base,
    pub(crate) placement: RowPlacement,
    pub(crate) storage: Storage,
    /// This worker's own copy, for model averaging.
    pub(crate) replica: Option<Replica>,
    /// Sequence numbers of sparse gets, as requester and as server.
    pub(crate) views: Views,
    /// The device that holds the rows, if any.
    pub(crate) device: Option<u32>,
}

impl Deref for TableCore {
    type Target = Base;

    fn deref(&self) -> &Base {
        &self.base
    }
}

impl TableCore {
    /// Copies those of the given rows that this host holds to their positions in `out`, which has space for all of them.
    pub(crate) fn read(&self, call: &Call, worker: usize, rows: Rows, out: &mut [u8]) -> Result<()> {
        let bytes = self.description.row_bytes();
        match rows {
            Rows::All => self.placement.on_host(self.host()).try_for_each(|segment| {
                let part = &mut out[segment.first * bytes..segment.end * bytes];
                self.storage.get(call, worker, segment.local, part)
            }),
            Rows::List(&[row]) => match self.placement.locate(row as usize) {
                (host, local) if host == self.host() => self.storage.get(call, worker, local, out),
                _ => Ok(()),
            },
            Rows::List(list) => {
                self.storage.get_list(call, worker, self.placement.row_refs(list, self.host()), out)
            }
        }
    }

    /// Applies those rows of a delta that this host holds.
    pub(crate) fn write(
        &self,
        call: &Call,
        worker: usize,
        rows: Rows,
        delta: &[u8],
        options: &AddOptions,
    ) -> Result<()> {
        let bytes = self.description.row_bytes();
        let merged;
        let options = match options.is_empty() {
            true => &self.add,
            false => {
                merged = options.or(&self.add);
                &merged
            }
        };
        let context = UpdateContext { worker, step: 0, options };
        let empty = |row: &[u8]| row.iter().all(|&byte| byte == 0);
        match rows {
            Rows::All => {
                // All of this host's rows in one call, wherever they are in the table: an add is one step of each unit.
                let part = self.part_of(self.host(), delta);
                let skip = |row: usize| empty(&part[row * bytes..][..bytes]);
                self.storage.add(call, 0, &part, &context, &skip)
            }
            // One row needs no sorting; on a device it needs the kernels for lists.
            Rows::List(&[row]) if self.storage.device_shard.is_none() => {
                match self.placement.locate(row as usize) {
                    (host, local) if host == self.host() => {
                        self.storage.add(call, local, delta, &context, &|_| false)
                    }
                    _ => Ok(()),
                }
            }
            Rows::List(list) => {
                let row_refs = self.placement.row_refs(list, self.host());
                self.storage.add_list(call, row_refs, DeltaRows::new(&[delta], bytes), &context)
            }
        }
    }

    /// A host's rows of a delta for all rows, in that host's storage order.
    pub(crate) fn part_of<'a>(&self, host: usize, delta: &'a [u8]) -> Cow<'a, [u8]> {
        let bytes = self.description.row_bytes();
        let segments = self.placement.on_host(host);
        let parts: Vec<&[u8]> =
            segments.map(|segment| &delta[segment.first * bytes..segment.end * bytes]).collect();
        match parts.as_slice() {
            [] => Cow::Borrowed(&[]),
            [only] => Cow::Borrowed(only),
            several => Cow::Owned(several.concat()),
        }
    }

    /// The index of a worker's view of a sparse matrix.
    pub(crate) fn reader(&self, worker: usize, buffer: usize) -> Result<usize> {
        let workers = self.inner.roles.workers.len();
        let buffers = self.storage.layout.shape.readers / workers;
        if buffer < buffers {
            return Ok(buffer * workers + worker);
        }
        let (expected, received) = match buffers {
            0 => ("a sparse matrix".into(), format!("a table of kind {}", self.description.kind.name())),
            _ => (format!("a buffer below {buffers}"), buffer.to_string()),
        };
        let advice = "make a sparse matrix, pipelined for a second buffer";
        Err(Error::usage("get_changed", expected, received, advice).at_rank(self.inner.rank))
    }
}

#[cfg(test)]
mod tests {
    use crate::tables::{ArrayTable, Role, TableOptions, Tables, UpdaterChoice};
    use crate::testing::spawn_placed;

    #[test]
    fn an_add_is_one_step_wherever_a_host_has_its_rows() {
        let values = [&[0, 0, 0][..], &[0, 1, 0], &[0, 1, 1], &[0, 1, 0, 1, 0]].map(|hosts| {
            spawn_placed(hosts, |world| {
                let tables = Tables::join(world, Role::Both).unwrap();
                let options = TableOptions {
                    updater: UpdaterChoice::named("adam").unwrap(),
                    ..TableOptions::default()
                };
                let table = ArrayTable::<f64>::create(&tables, 10, None, options).unwrap();
                for step in 0..3 {
                    // From the host that holds several segments, and from another one.
                    if world.rank() == step % 2 {
                        table.add(&[0.5, 1.0, 2.0, -1.0, 3.0, 0.25, 1.5, -2.0, 1.0, 4.0]).unwrap();
                    }
                    tables.barrier().unwrap();
                }
                let mut values = [0.0; 10];
                table.get(&mut values).unwrap();
                tables.barrier().unwrap();
                values
            })
        });
        assert!(values.iter().flatten().all(|other| *other == values[0][0]), "{values:?}");
    }
}
