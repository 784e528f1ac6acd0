//! All of the arena at once, for layers above that agree among themselves who touches which bytes of it.

use std::sync::Arc;

use super::local_endpoint::LocalEndpoint;

/// The memory that the ranks of a host share, mapped as long as this lives. Each rank has it at an address of its own;
/// what a rank tells another is how far from the start something lies.
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

    /// The first byte. Whoever follows the pointer must know that nobody else uses those bytes meanwhile.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.endpoint.arena.at(0)
    }

    /// How many bytes there are; most of them were never touched and take no memory.
    pub fn len(&self) -> usize {
        self.endpoint.arena.map.len()
    }
}
