//! How staged work is cut into windows: which bytes each rank publishes in each window, and how they are used.

use std::ops::Range;

use super::jobs::{BufferOffset, DeviceCollective, DeviceJob, Workers};

/// One pass over the data: every rank publishes bytes of its source, and works on what other ranks publish.
pub(super) struct Stage {
    pub jobs: Vec<DeviceJob>,
    /// The bytes of its source that each rank publishes; empty if no other rank needs them.
    pub published: Vec<Range<usize>>,
    /// Whether the source is the output, which an earlier stage has filled.
    pub from_output: bool,
}

impl Stage {
    fn new(size: usize, jobs: Vec<DeviceJob>, from_output: bool) -> Stage {
        let mut published = vec![0..0; size];
        for job in &jobs {
            match *job {
                DeviceJob::Copy { worker, from, bytes, .. } if worker != from.rank => {
                    widen(&mut published[from.rank], from.offset..from.offset + bytes);
                }
                DeviceJob::Copy { .. } => {}
                // All ranks publish the same bytes in the same window, from the start on.
                DeviceJob::Fold { worker, offset, bytes, .. } => {
                    let others = published.iter_mut().enumerate().filter(|(rank, _)| *rank != worker);
                    others.for_each(|(_, published)| *published = 0..published.end.max(offset + bytes));
                }
            }
        }
        Stage { jobs, published, from_output }
    }

    /// The number of windows: a rank that folds reaches the end of its bytes even if no rank publishes any.
    pub fn windows(&self, window: usize) -> usize {
        let folded = self.jobs.iter().map(|job| match job {
            DeviceJob::Fold { offset, bytes, .. } => offset + bytes,
            DeviceJob::Copy { .. } => 0,
        });
        let longest = self.published.iter().map(Range::len).chain(folded).max().unwrap_or(0);
        longest.div_ceil(window).max(1)
    }

    /// The bytes that a rank publishes in a window.
    pub fn published_window(&self, rank: usize, window: usize, number: usize) -> Range<usize> {
        let all = &self.published[rank];
        let start = (all.start + number * window).min(all.end);
        start..(start + window).min(all.end)
    }
}

fn widen(range: &mut Range<usize>, other: Range<usize>) {
    let all = range.start.min(other.start)..range.end.max(other.end);
    *range = if range.start == range.end { other } else { all };
}

/// The intersection of two ranges, if it is not empty.
pub(super) fn common(one: &Range<usize>, other: &Range<usize>) -> Option<Range<usize>> {
    let both = one.start.max(other.start)..one.end.min(other.end);
    (!both.is_empty()).then_some(both)
}

/// The stages of a collective. Every rank works for itself, because it cannot access other ranks' memory. Folds for all ranks, as in
/// all_reduce, are folds for one rank each and copies to the others, unless there are only two ranks: then each reads all of the
/// other's data.
pub(super) fn stages(collective: &DeviceCollective, size: usize, counts: &[u64]) -> Vec<Stage> {
    let jobs = collective.jobs(size, &Workers::each(size), counts);
    let is_for_one = |job: &DeviceJob| !matches!(job, DeviceJob::Fold { to, .. } if to.len() > 1);
    if jobs.iter().all(is_for_one) {
        return vec![Stage::new(size, jobs, false)];
    }
    let at = |rank: usize, offset: usize| BufferOffset { rank, offset };
    if size <= 2 {
        let bytes = collective.input.bytes();
        let whole =
            (0..size).map(|worker| DeviceJob::Fold { worker, offset: 0, bytes, to: vec![at(worker, 0)] });
        return vec![Stage::new(size, whole.collect(), false)];
    }
    let parts = jobs.into_iter().filter_map(|job| match job {
        DeviceJob::Fold { worker, offset, bytes, .. } => Some((worker, offset, bytes)),
        DeviceJob::Copy { .. } => None,
    });
    let parts: Vec<(usize, usize, usize)> = parts.collect();
    let fold = |&(worker, offset, bytes): &(usize, usize, usize)| DeviceJob::Fold {
        worker,
        offset,
        bytes,
        to: vec![at(worker, offset)],
    };
    let collect = |&(from, offset, bytes): &(usize, usize, usize)| {
        let others = (0..size).filter(move |&worker| worker != from);
        others.map(move |worker| DeviceJob::Copy {
            worker,
            from: at(from, offset),
            to: at(worker, offset),
            bytes,
        })
    };
    vec![
        Stage::new(size, parts.iter().map(fold).collect(), false),
        Stage::new(size, parts.iter().flat_map(collect).collect(), true),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectives::all_reduce::ALL_REDUCE;
    use crate::collectives::broadcast::BROADCAST;
    use crate::collectives::reduce::REDUCE;
    use crate::collectives::scatter::SCATTER;
    use crate::collectives::spec::{CollectiveSpec, CollectiveVerb};
    use crate::cuda::Span;
    use crate::memory::{DType, ReduceOp};

    fn collective<'a>(
        verb: &'static CollectiveVerb,
        counts: &'a [usize],
        bytes: usize,
    ) -> DeviceCollective<'a> {
        let spec = CollectiveSpec::new(verb, DType::U8).operation(ReduceOp::Sum).root(0).counts(counts);
        // SAFETY: the address is never dereferenced.
        let span = unsafe { Span::lent(0, 4096, bytes) };
        DeviceCollective { spec, input: span, output: span }
    }

    #[test]
    fn only_what_others_need_is_shown() {
        let stage = stages(&collective(&REDUCE, &[], 100), 3, &[]).remove(0);
        assert_eq!(stage.published, [0..0, 0..100, 0..100], "the root keeps its own");
        let stage = stages(&collective(&SCATTER, &[10, 20, 30], 60), 3, &[]).remove(0);
        assert_eq!(stage.published, [10..60, 0..0, 0..0], "only the root shows, and only others' parts");
        assert_eq!((stage.windows(20), stage.published_window(0, 20, 2)), (3, 50..60));
        assert_eq!(stage.published_window(0, 20, 9), 60..60);
        let stage = stages(&collective(&BROADCAST, &[], 0), 2, &[]).remove(0);
        assert_eq!(stage.windows(20), 1, "ranks meet once even for nothing");
        let stage = stages(&collective(&REDUCE, &[], 100), 1, &[]).remove(0);
        assert!(stage.published[0].is_empty() && stage.windows(20) == 5, "one rank folds all of its own");
    }

    #[test]
    fn a_sum_for_many_is_made_in_parts_and_collected() {
        let passes = stages(&collective(&ALL_REDUCE, &[], 3 * 4096), 3, &[]);
        assert_eq!(passes.len(), 2);
        assert_eq!(passes[0].published, [0..12288, 0..12288, 0..8192]);
        assert_eq!(passes[1].published, [0..4096, 4096..8192, 8192..12288]);
        assert!(passes[1].from_output && passes[1].jobs.len() == 6);
        let passes = stages(&collective(&ALL_REDUCE, &[], 3 * 4096), 2, &[]);
        assert_eq!((passes.len(), passes[0].published.clone()), (1, vec![0..12288, 0..12288]));
    }

    #[test]
    fn ranges_have_bytes_in_common_or_not() {
        assert_eq!(common(&(0..10), &(5..20)), Some(5..10));
        assert_eq!(common(&(0..10), &(10..20)), None);
    }
}
