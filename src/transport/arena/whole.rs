//! The complete arena as raw memory, for higher layers that coordinate access to it themselves.

use std::sync::Arc;

use super::local_endpoint::LocalEndpoint;

/// The memory that the ranks of a host share, mapped as long as this value lives. Each rank maps it at its own address, so
/// ranks exchange offsets from its start.
///
/// ```
/// let world = unisono::World::threads(1)?.remove(0);
/// let (arena, buffer) = (world.arena()?, world.empty(1000)?);
/// let offset = buffer.as_ptr().addr() - arena.as_mut_ptr().addr();
/// assert!(offset + 1000 <= arena.len());
/// # Ok::<(), unisono::Error>(())
/// ```
#[expect(clippy::len_without_is_empty, reason = "an arena is never empty")]
pub struct WholeArena {
    endpoint: Arc<LocalEndpoint>,
}

impl WholeArena {
    pub(crate) fn new(endpoint: &Arc<LocalEndpoint>) -> WholeArena {
        WholeArena { endpoint: endpoint.clone() }
    }

    /// Pointer to the first byte. Before dereferencing it, the caller must make sure that no other rank uses those bytes.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.endpoint.arena.at(0)
    }

    /// Length in bytes; pages that were never touched take no memory.
    pub fn len(&self) -> usize {
        self.endpoint.arena.map.len()
    }
}
