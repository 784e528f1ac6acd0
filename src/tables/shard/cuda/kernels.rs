//! The kernels of a table: compiled for its element type and its updater when the table is created.

use std::sync::Arc;

use super::formula::Formula;
use crate::cuda::{Device, Kernel, KernelSource};
use crate::error::Result;
use crate::memory::DType;

pub(crate) static ROWS: KernelSource = KernelSource {
    name: "tables/rows.cu",
    code: concat!(include_str!("common.cu"), include_str!("rows.cu")),
};

pub(crate) static UPDATE: KernelSource = KernelSource {
    name: "tables/update.cu",
    code: concat!(
        include_str!("common.cu"),
        include_str!("../../../cuda/halves.cu"),
        include_str!("types.cu"),
        include_str!("rules.cu"),
        include_str!("update.cu")
    ),
};

/// Threads per block, for all kernels.
pub(crate) const THREADS: u32 = 256;

/// Rows that a group of lanes has in flight; must match `common.cu`.
pub(crate) const FLIGHT: usize = 4;

/// Entries that a block sorts; must match `rows.cu`.
pub(crate) const TILE: usize = 4096;

/// Kernels that are independent of the element type.
#[derive(Clone, Copy)]
pub(crate) struct RowKernels {
    pub check: Kernel,
    /// By units of 16, 8, 4 and 2 bytes.
    pub gather: [(usize, Kernel); 4],
    pub begin: Kernel,
    pub count: Kernel,
    pub add_up: Kernel,
    pub order: Kernel,
}

impl RowKernels {
    pub fn new(device: &Arc<Device>) -> Result<RowKernels> {
        let find = |name: &str| device.kernel(&ROWS, name);
        let gather = |unit: usize| Ok((unit, find(&format!("gather_{unit}"))?));
        Ok(RowKernels {
            check: find("check_rows")?,
            gather: [gather(16)?, gather(8)?, gather(4)?, gather(2)?],
            begin: find("sort_begin")?,
            count: find("sort_count")?,
            add_up: find("sort_add_up")?,
            order: find("sort_move")?,
        })
    }
}

/// One kernel for single elements, and one for packs of 16 bytes.
pub(crate) struct KernelPair {
    narrow: Kernel,
    wide: Kernel,
}

impl KernelPair {
    pub fn of(&self, wide: bool) -> &Kernel {
        if wide { &self.wide } else { &self.narrow }
    }
}

/// The kernels of an updater, for one element type.
pub(crate) struct UpdateKernels {
    pub check_nan: Kernel,
    pub count_all: Kernel,
    pub all: KernelPair,
    pub rows: KernelPair,
    /// Adds to rows in any order, for updaters whose result does not depend on it.
    pub scatter: Option<KernelPair>,
}

impl UpdateKernels {
    pub fn new(device: &Arc<Device>, formula: &Formula, dtype: DType) -> Result<UpdateKernels> {
        let macros = formula.macros(dtype);
        let macros: Vec<&str> = macros.iter().map(String::as_str).collect();
        let find = |name: &str| device.kernel_with(&UPDATE, &macros, name);
        let pair = |narrow, wide| Ok(KernelPair { narrow: find(narrow)?, wide: find(wide)? });
        let scatter = formula.any_order(dtype).then(|| pair("scatter_narrow", "scatter_wide"));
        Ok(UpdateKernels {
            check_nan: find("check_nan")?,
            count_all: find("count_all")?,
            all: pair("update_all", "update_all_wide")?,
            rows: pair("update_rows", "update_rows_wide")?,
            scatter: scatter.transpose()?,
        })
    }
}
