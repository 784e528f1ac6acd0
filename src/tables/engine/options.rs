//! Options for creating a table.

use crate::tables::{AddOptions, Compression, Consistency, Eviction, Init, Repeats, UpdaterChoice};

/// What may differ from table to table. By default a table is zero-initialized and its updater adds.
///
/// ```
/// use unisono::tables::{Consistency, TableOptions, UpdaterChoice};
/// let options = TableOptions {
///     name: Some("weights".into()),
///     updater: UpdaterChoice::named("adam")?,
///     consistency: Consistency::Ssp { bound: 3 },
///     ..TableOptions::default()
/// };
/// assert_eq!(options.consistency.to_string(), "ssp:3");
/// # Ok::<(), unisono::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct TableOptions {
    /// The name by which a restarted rank and a checkpoint find the table; by default its kind and number, such as "array-1".
    pub name: Option<String>,
    /// Initial values, if no worker passes any.
    pub init: Init,
    /// The update rule of adds.
    pub updater: UpdaterChoice,
    /// The consistency model: how far workers may drift apart.
    pub consistency: Consistency,
    /// The updater's options, for adds that do not pass their own.
    pub add: AddOptions,
    /// What an add does with a row, or a key, that it lists more than once. By default it is one step with the sum, unless the
    /// updater only adds (`add`, `sgd`, a custom one with [`is_linear`](crate::tables::Updater::is_linear)). A round of `bsp` that
    /// is one step of the updater sums repeats in any case. An array has no rows to repeat.
    pub repeats: Option<Repeats>,
    /// Whether adds that contain a NaN are rejected.
    pub reject_nan: bool,
    /// How adds are compressed between hosts.
    pub compression: Compression,
    /// The CUDA device whose memory holds the table, by its ordinal in this process; by default the table is in host memory.
    ///
    /// The first rank of each host allocates the memory; the host's other ranks must name the same device. The memory is released
    /// with that rank's process: calls of other ranks then fail with `PeerLost`.
    pub device: Option<u32>,
    /// The maximum number of rows of a key-value table on all hosts together; by default it grows without limit. Every server has an
    /// equal share for its keys, and evicts a row for a new key if its share is used up.
    pub max_rows: Option<usize>,
    /// Which row is evicted; by default the least recently used. Only with `max_rows`.
    pub eviction: Option<Eviction>,
}
