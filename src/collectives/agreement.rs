//! Agreement: an operation that each rank performs for itself succeeds on all ranks or fails on all.
//!
//! One all_gather carries every rank's outcome; a second one carries the report of the failure, if it has one.

use bytemuck::{Pod, Zeroable};

use super::all_gather::ALL_GATHER;
use crate::error::{Error, Kind, Result};
use crate::memory::DType;
use crate::transport::Verb;
use crate::world::Group;

/// The failure that the ranks of a group attribute theirs to.
#[doc(hidden)]
pub struct RankFailure {
    /// The group rank.
    pub rank: usize,
    /// The kind of its error.
    pub kind: Kind,
    /// What it reports to the other ranks, or why the report did not arrive.
    pub(crate) report: Result<Vec<u8>>,
}

/// Precedes a rank's value.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Outcome {
    /// The number of the error's [`Kind`]; 0 for success.
    kind: u32,
    /// The length of its report, in bytes.
    report: u32,
}

impl Group {
    /// Exchanges the outcome of an operation: `None` if no rank passes an error. Collective. Among several errors, the first
    /// one that is a root cause counts.
    #[doc(hidden)]
    pub fn find_failure(&self, error: Option<&Error>) -> Result<Option<RankFailure>> {
        self.exchange_outcomes(ALL_GATHER.descriptor.verb, &[], error, &[]).map(Result::err)
    }

    /// Exchanges the outcome of an operation, and all ranks' values if it succeeded everywhere. Values have the same length on
    /// all ranks. The outer result is that of the exchange: on an outer error, it is unknown what the other ranks received.
    pub(crate) fn exchange_outcomes(
        &self,
        verb: Verb,
        value: &[u8],
        error: Option<&Error>,
        report: &[u8],
    ) -> Result<Result<Vec<Vec<u8>>, RankFailure>> {
        let gather = |mine: &[u8], counts: &[usize]| {
            let mut all = vec![0; counts.iter().sum()];
            self.raw().named(verb).all_gather(mine, &mut all, counts, DType::U8).map(|()| all)
        };
        let kind = error.map_or(0, |error| error.kind() as u32);
        let mut mine = bytemuck::bytes_of(&Outcome { kind, report: report.len() as u32 }).to_vec();
        mine.extend_from_slice(value);
        let all = gather(&mine, &vec![mine.len(); self.size()])?;
        let (outcomes, values): (Vec<Outcome>, Vec<Vec<u8>>) = all
            .chunks_exact(mine.len())
            .map(|one| one.split_at(size_of::<Outcome>()))
            .map(|(outcome, value)| (bytemuck::pod_read_unaligned::<Outcome>(outcome), value.to_vec()))
            .unzip();
        let kinds: Vec<Option<Kind>> =
            outcomes.iter().map(|outcome| Kind::from_number(outcome.kind as i32)).collect();
        let is_cause = |kind: &Option<Kind>| kind.is_some_and(Kind::is_root_cause);
        let first = kinds.iter().position(is_cause).or_else(|| kinds.iter().position(Option::is_some));
        let Some((rank, kind)) = first.and_then(|rank| Some((rank, kinds[rank]?))) else {
            return Ok(Ok(values));
        };
        let mut counts = vec![0; self.size()];
        counts[rank] = outcomes[rank].report as usize;
        let report = match counts[rank] {
            0 => Ok(Vec::new()),
            _ => gather(if rank == self.rank() { report } else { &[] }, &counts),
        };
        Ok(Err(RankFailure { rank, kind, report }))
    }
}

#[cfg(all(test, not(unisono_loom)))]
mod tests {
    use super::*;
    use crate::testing::spawn;

    #[test]
    fn all_ranks_get_the_values_or_the_same_failure_with_its_report() {
        let internal = || Error::internal("wait", "no rank arrived");
        let usage = || Error::usage("read", "a file", "none", "write it");
        for (errors, expected) in [
            ([None, None, None], None),
            ([Some(internal()), None, Some(usage())], Some((2, Kind::Usage))),
            ([None, Some(internal()), None], Some((1, Kind::Internal))),
            ([None, Some(usage()), Some(usage())], Some((1, Kind::Usage))),
        ] {
            spawn(3, |group| {
                let own = errors[group.rank()].as_ref();
                let report = own.map_or(Vec::new(), |error| error.to_string().repeat(group.rank()).into());
                let value = [group.rank() as u8];
                match group.exchange_outcomes(ALL_GATHER.descriptor.verb, &value, own, &report).unwrap() {
                    Ok(values) => {
                        assert_eq!(expected, None);
                        assert_eq!(values, [[0], [1], [2]]);
                    }
                    Err(RankFailure { rank, kind, report }) => {
                        assert_eq!(expected, Some((rank, kind)));
                        let error = errors[rank].as_ref().unwrap();
                        assert_eq!(report.unwrap(), error.to_string().repeat(rank).as_bytes());
                    }
                }
                let found = group.find_failure(own).unwrap();
                assert_eq!(found.map(|failure| (failure.rank, failure.kind)), expected);
            });
        }
    }
}
