//! Layer 5: tables that many workers share, and the rules by which their adds change values.

// The tables themselves call what is unused here.
#![allow(dead_code, unused_imports)]

mod add_options;
mod checkpoint;
mod nearest;
mod updater;

pub(crate) use crate::memory::contains_nan;
pub use crate::memory::{Real, State, TableElement};
pub use add_options::AddOptions;
pub(crate) use updater::Rule;
pub use updater::{UpdateContext, Updater, UpdaterChoice};
