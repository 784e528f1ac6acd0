//! Many processes: who has which samples and which part of them, and what they tell each other.

mod arrangement;
mod build;
mod company;
mod convolution;
mod divided;
mod failure;
mod faults;
mod halos;
mod held;
mod shared;
mod sums;
mod tower;

pub use arrangement::{Arrangement, Mode};
pub(crate) use build::{Built, build};
pub(crate) use company::Company;
pub use failure::Failure;
pub(crate) use held::Held;
pub(crate) use shared::{Shared, Sharing};
