//! Lists of rows, sorted by the stripes that hold them, so that each lock is acquired once.

use std::borrow::Cow;
use std::sync::Mutex;

use crate::tables::shard::group_sort::sort_by_group;

/// One row of a list: its local index, and its position in the caller's list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RowRef {
    pub row: u32,
    pub position: u32,
}

/// The rows of a delta, in pieces that all have the same number of rows, except the last.
#[derive(Clone, Copy)]
pub(crate) struct DeltaRows<'a> {
    pieces: &'a [&'a [u8]],
    row_bytes: usize,
    piece_rows: usize,
}

impl<'a> DeltaRows<'a> {
    pub fn new(pieces: &'a [&'a [u8]], row_bytes: usize) -> DeltaRows<'a> {
        let piece_rows = match pieces {
            [first, _, ..] => first.len() / row_bytes,
            _ => usize::MAX,
        };
        DeltaRows { pieces, row_bytes, piece_rows }
    }

    /// The row at this position of the list.
    #[inline(always)]
    pub fn row(&self, position: usize) -> &'a [u8] {
        let (piece, row) = (position / self.piece_rows, position % self.piece_rows);
        &self.pieces[piece][row * self.row_bytes..][..self.row_bytes]
    }

    /// The rows, if they are one piece.
    pub fn single(&self) -> Option<&'a [u8]> {
        match self.pieces {
            [only] => Some(only),
            _ => None,
        }
    }

    /// All rows as one piece.
    pub fn joined(&self) -> Cow<'a, [u8]> {
        match self.pieces {
            [only] => Cow::Borrowed(only),
            pieces => Cow::Owned(pieces.concat()),
        }
    }
}

/// The stripes of a table, as the sort needs them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stripes {
    /// Rows per stripe, a power of two.
    pub rows: usize,
    pub count: usize,
    /// The stripe to begin with.
    pub first: usize,
}

/// The rows of one stripe, and the rows after them, for prefetching.
pub(crate) struct StripeBatch<'a> {
    pub stripe: usize,
    row_refs: &'a [RowRef],
    count: usize,
}

impl<'a> StripeBatch<'a> {
    /// The number of rows of the stripe.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Calls `each` for every row of the stripe, each time after calling `ahead` for a row a little later in the list, perhaps in
    /// another stripe.
    #[inline(always)]
    pub fn each(&self, ahead: impl Fn(&RowRef), mut each: impl FnMut(&RowRef)) {
        let later = self.row_refs.get(PREFETCH_DISTANCE..).unwrap_or(&[]);
        for (index, row_ref) in self.row_refs[..self.count].iter().enumerate() {
            later.get(index).into_iter().for_each(&ahead);
            each(row_ref);
        }
    }
}

/// Prefetch distance in rows: far enough for the memory to arrive, near enough for it to be still in the cache.
const PREFETCH_DISTANCE: usize = 8;

/// Buffer for sorted rows, reused from call to call because fresh memory costs more than sorting.
#[derive(Debug, Default)]
pub(crate) struct BatchBuffer(Mutex<Vec<RowRef>>);

impl BatchBuffer {
    /// Sorts rows by stripe, stably, and passes every stripe's batch to `each`.
    pub fn by_stripe<E>(
        &self,
        row_refs: impl Iterator<Item = RowRef> + Clone,
        stripes: Stripes,
        mut each: impl FnMut(StripeBatch) -> Result<(), E>,
    ) -> Result<(), E> {
        let shift = stripes.rows.ilog2();
        let stripe = |row_ref: &RowRef| (u64::from(row_ref.row) >> shift) as usize;
        // Another thread's call may hold the buffer; after a panic its content does not matter.
        let mut shared = self.0.try_lock().ok();
        let mut own = Vec::new();
        let sorted =
            sort_by_group(row_refs, stripes.count, stripe, shared.as_deref_mut().unwrap_or(&mut own));
        let cut = sorted.partition_point(|row_ref| stripe(row_ref) < stripes.first);
        let (before, after) = sorted.split_at(cut);
        for mut rest in [after, before] {
            while let Some(first) = rest.first() {
                let number = stripe(first);
                let count = rest.iter().position(|row_ref| stripe(row_ref) != number).unwrap_or(rest.len());
                each(StripeBatch { stripe: number, row_refs: rest, count })?;
                rest = &rest[count..];
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_passed_on_once_in_the_order_of_the_list() {
        let buffer = BatchBuffer::default();
        for (count, rows, stripe_rows) in [(0, 5, 2), (1, 5, 2), (7, 3, 1), (5, 1000, 4), (500, 100, 8)] {
            let row = |position: usize| (position * 7919 + position * position) % rows;
            let list: Vec<RowRef> =
                (0..count).map(|at| RowRef { row: row(at) as u32, position: at as u32 }).collect();
            let stripes = rows.div_ceil(stripe_rows);
            for first in [0, stripes / 2, stripes - 1] {
                let (mut seen, mut order) = (Vec::new(), Vec::new());
                let announced = std::cell::RefCell::new(Vec::new());
                buffer
                    .by_stripe(
                        list.iter().copied(),
                        Stripes { rows: stripe_rows, count: stripes, first },
                        |group| {
                            let start = seen.len();
                            group.each(
                                |row_ref| announced.borrow_mut().push(*row_ref),
                                |row_ref| seen.push(*row_ref),
                            );
                            let row_refs: &[RowRef] = &seen[start..];
                            assert!(
                                row_refs
                                    .iter()
                                    .all(|row_ref| row_ref.row as usize / stripe_rows == group.stripe)
                            );
                            assert!(row_refs.is_sorted_by_key(|row_ref| row_ref.position));
                            order.push((group.stripe + stripes - first) % stripes);
                            Ok::<(), ()>(())
                        },
                    )
                    .unwrap();
                assert!(order.is_sorted_by(|one, other| one < other), "each stripe once: {order:?}");
                assert!(announced.borrow().iter().all(|row_ref| seen.contains(row_ref)));
                seen.sort_by_key(|row_ref| row_ref.position);
                assert_eq!(seen, list);
            }
        }
    }
}
