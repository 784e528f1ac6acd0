//! Layer 5: halos. One array, divided between ranks in space; every rank gets what its outputs need of its neighbours' parts.

mod boundary;
mod copy;
mod grid;
mod layout;
mod partition;
mod plan;
mod region;
mod segments;
mod window;

pub use boundary::{Boundary, Edges};
pub use grid::Grid;
pub use layout::Layout;
pub use partition::Partition;
pub use plan::Plan;
pub use region::Region;
pub use window::Window;
