//! Layer 5: halo exchange. An array is partitioned over ranks; every rank receives what its outputs need of its neighbours'
//! parts.

mod adjoint;
mod bench_copies;
mod boundary;
mod box_pair;
mod chunks;
mod cuda;
mod exchange;
mod global_array;
mod grid;
mod in_place;
mod layout;
mod neighbours;
mod packing;
mod partition;
mod plan;
mod region;
mod segments;
pub(crate) mod verbs;
mod window;
mod wire;

pub use boundary::{Boundary, Edges};
pub use cuda::CudaExchange;
pub use exchange::{Exchange, ExchangeOptions};
pub use global_array::{GlobalArray, LocalView};
pub use grid::Grid;
pub use layout::Layout;
pub use partition::Partition;
pub use plan::Plan;
pub use region::Region;
pub use window::Window;
