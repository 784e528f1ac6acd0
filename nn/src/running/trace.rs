//! Writes the trace file: where the time of all ranks went.

use std::path::Path;

use unisono::{Error, Result};

use super::files::write_atomically;
use crate::distributed::Topology;
use crate::timeline::Timeline;

/// Rejects a trace path that could not be written at the end of the run.
pub(super) fn check_writable(path: Option<&Path>) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if folder.is_dir() && !path.is_dir() {
        return Ok(());
    }
    let received = path.display().to_string();
    Err(Error::usage("--trace", "a file in a folder that exists", received, "make the folder first"))
}

/// Writes the spans of all ranks, on the root.
pub(super) fn write(path: &Path, timeline: &Timeline, topology: Option<&Topology>) -> Result<()> {
    let text = match topology {
        Some(topology) => timeline.gather(&topology.world.group)?,
        None => Some(timeline.trace()),
    };
    text.map_or(Ok(()), |text| write_atomically(path, text.as_bytes()))
}
