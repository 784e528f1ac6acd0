//! What the engine needs to know of a kind of table.

use super::base::Base;
use super::rounds::{RoundAdds, RoundProgress};
use crate::error::Result;
use crate::transport::Call;

/// One host's share of a table.
pub(crate) trait Shard: Send + Sync {
    fn base(&self) -> &Base;

    /// Applies the adds of a complete round as one step of the updater. Kinds whose adds are never summed have no rounds.
    fn step(&self, _call: &Call, _adds: &RoundAdds, _progress: &RoundProgress) -> Result<()> {
        Ok(())
    }
}
