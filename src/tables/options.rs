//! How a table is made.

use super::{AddOptions, Compression, Consistency, Init, UpdaterChoice};

/// What may differ from table to table. The default is a table of zeros that adds.
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
    /// The name by which a restarted rank finds it and a checkpoint stores it; else kind and number: "array-1".
    pub name: Option<String>,
    /// What it holds at first, where no worker brings values.
    pub init: Init,
    /// What an add does.
    pub updater: UpdaterChoice,
    /// How far workers may drift apart.
    pub consistency: Consistency,
    /// The updater's options, for adds that do not bring their own.
    pub add: AddOptions,
    /// Whether an add that holds a NaN is refused.
    pub reject_nan: bool,
    /// How adds travel between hosts.
    pub compression: Compression,
    /// The CUDA device whose memory holds it, by its number in this process; by default the host's memory does.
    ///
    /// Of each host the first rank takes the memory; its other ranks name the same device. It ends with that rank's
    /// process: calls of others then fail with `PeerLost`.
    pub device: Option<u32>,
}
