//! Offsets of a table's sections in its extent of the shared heap. All ranks of a host compute the same layout.

use crate::tables::consistency::clock::Clock;
use crate::tables::engine::header::TableHeader;
use crate::tables::shard::cuda::PublishedShard;
use crate::tables::shard::shape::TableShape;
use crate::transport::arena::lock::Lock;

/// Approximate number of bytes of values per lock.
const STRIPE: usize = 64 << 10;

const PAGE: usize = 4096;

/// More than any machine has; allocating it fails.
const UNALLOCATABLE: usize = usize::MAX / PAGE * PAGE;

/// Offsets in bytes from the beginning of the extent.
#[derive(Debug, Clone)]
pub(crate) struct TableLayout {
    pub shape: TableShape,
    pub stripe_rows: usize,
    pub stripes: usize,
    pub clock: usize,
    pub locks: usize,
    /// Number of adds per unit.
    pub steps: usize,
    /// The published description of values and state on a device.
    pub shard: usize,
    /// The version of each row, then the version that each reader last saw.
    pub versions: usize,
    pub values: usize,
    planes: usize,
    plane_bytes: usize,
    pub total: usize,
}

impl TableLayout {
    pub fn new(shape: TableShape) -> TableLayout {
        // A power of two makes the stripe of a row cheap to compute.
        let stripe_rows = match shape.on_device {
            true => shape.rows.next_power_of_two(),
            false => 1 << (STRIPE / shape.row_bytes.max(1)).max(1).ilog2(),
        };
        let stripes = shape.rows.div_ceil(stripe_rows);
        let mut end = 0usize;
        let mut section = |bytes: usize| {
            let start = end;
            end = end.saturating_add(bytes).checked_next_multiple_of(PAGE).unwrap_or(UNALLOCATABLE);
            start
        };
        let _header = section(size_of::<TableHeader>());
        let clock = section(Clock::bytes(shape.workers));
        let locks = section(stripes * size_of::<Lock>());
        let units = if shape.counts_stripes { stripes } else { shape.rows };
        let on_host = |bytes: usize| if shape.on_device { 0 } else { bytes };
        let shard = section(if shape.on_device { size_of::<PublishedShard>() } else { 0 });
        let steps = section(on_host(8 * units));
        let versions = section(4 * shape.rows * if shape.readers > 0 { 1 + shape.readers } else { 0 });
        let values = section(on_host(shape.rows * shape.row_bytes));
        // Arrays with the same offset within a page cost more to combine (cache-set conflicts): stagger them.
        let plane_bytes = (shape.rows * shape.state_row_bytes + 320).next_multiple_of(64);
        let planes = section(on_host(shape.planes.saturating_mul(plane_bytes).saturating_add(PAGE))) + 832;
        TableLayout {
            shape,
            stripe_rows,
            stripes,
            clock,
            locks,
            shard,
            steps,
            versions,
            values,
            planes,
            plane_bytes,
            total: end,
        }
    }

    /// The offset of a state array.
    pub fn plane(&self, index: usize) -> usize {
        assert!(index < self.shape.planes);
        self.planes + index * self.plane_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_number_can_count_is_too_much_and_never_little() {
        let shape = TableShape {
            rows: u32::MAX as usize,
            row_bytes: 1 << 25,
            state_row_bytes: 1 << 26,
            planes: 0,
            counts_stripes: false,
            workers: 64,
            readers: 0,
            on_device: false,
        };
        let mut before = 0;
        for planes in [0, 1, 16, 63, 64, 65, 128, 1000] {
            let total = TableLayout::new(TableShape { planes, ..shape }).total;
            assert!(total >= before, "{planes} planes");
            before = total;
        }
    }
}
