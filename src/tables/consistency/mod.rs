//! Clocks: which worker may proceed, which must wait, and how stale the values are that it reads.

pub(crate) mod clock;
pub(crate) mod round_slot;
pub(crate) mod ssp_clock;
pub(crate) mod staleness;
