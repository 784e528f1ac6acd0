//! The shape of a host's rows and of their state, in host or device memory.

/// The parameters that determine a layout.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableShape {
    /// Number of rows on this host.
    pub rows: usize,
    pub row_bytes: usize,
    /// Bytes per row of state.
    pub state_row_bytes: usize,
    /// Number of state arrays (planes), including those of each worker.
    pub planes: usize,
    /// Whether only full stripes are updated, so that adds are counted per stripe instead of per row.
    pub counts_stripes: bool,
    pub workers: usize,
    /// For a sparse matrix, the number of readers whose views are tracked.
    pub readers: usize,
    /// Whether values and state are in device memory; a single lock then guards them all.
    pub on_device: bool,
}
