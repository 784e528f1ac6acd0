//! The jobs that implement a collective on device memory: the same list on every rank.

use std::ops::Range;

use super::super::spec::{CollectiveSpec, Lengths};
use crate::cuda::Span;

/// One collective on device memory, as one rank calls it.
pub(super) struct DeviceCollective<'a> {
    pub spec: CollectiveSpec<'a>,
    /// This rank's input; empty if only other ranks have one.
    pub input: Span,
    /// This rank's output; empty if only other ranks have one. It may be the input.
    pub output: Span,
}

/// An offset in a rank's buffer, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::collectives) struct BufferOffset {
    pub rank: usize,
    pub offset: usize,
}

/// A unit of work, and the rank that does it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::collectives) enum DeviceJob {
    /// Copies from a rank's input to a rank's output.
    Copy { worker: usize, from: BufferOffset, to: BufferOffset, bytes: usize },
    /// Folds bytes of all inputs that begin at `offset`, and writes the result to outputs.
    Fold { worker: usize, offset: usize, bytes: usize, to: Vec<BufferOffset> },
}

impl DeviceJob {
    pub fn worker(&self) -> usize {
        match self {
            DeviceJob::Copy { worker, .. } | DeviceJob::Fold { worker, .. } => *worker,
        }
    }
}

/// Which rank works for which. Processes that share a device are time-sliced, which costs more than the work: so one of them
/// works for all, and each device has one worker.
pub(in crate::collectives) struct Workers {
    /// The worker of each rank.
    pub of: Vec<usize>,
    /// All workers.
    pub all: Vec<usize>,
}

impl Workers {
    /// One worker for each distinct device of the ranks.
    pub fn for_devices<D: PartialEq>(devices: &[D]) -> Workers {
        let first = |rank: usize| devices.iter().position(|device| *device == devices[rank]).unwrap_or(rank);
        let of: Vec<usize> = (0..devices.len()).map(first).collect();
        let all = (0..devices.len()).filter(|&rank| of[rank] == rank).collect();
        Workers { of, all }
    }

    /// Every rank works for itself.
    pub fn each(size: usize) -> Workers {
        Workers { of: (0..size).collect(), all: (0..size).collect() }
    }
}

/// What the jobs of a collective are made from; lengths are in bytes.
pub(in crate::collectives) struct JobPlan<'a> {
    pub size: usize,
    pub root: usize,
    /// The size of an element.
    pub element: usize,
    /// The length of the longer of a rank's buffers.
    pub bytes: usize,
    /// The range of each rank's part.
    pub parts: Vec<Range<usize>>,
    pub workers: &'a Workers,
    /// What the ranks published of [`DeviceCollective::counts_to_publish`], concatenated.
    pub all_counts: &'a [u64],
}

impl JobPlan<'_> {
    /// A copy from a rank's input to a rank's output, each with an offset.
    pub fn copy(&self, from: (usize, usize), to: (usize, usize), bytes: usize) -> DeviceJob {
        let [from, to] = [from, to].map(|(rank, offset)| BufferOffset { rank, offset });
        DeviceJob::Copy { worker: self.workers.of[to.rank], from, to, bytes }
    }

    /// Copies of all ranks' parts to one rank.
    pub fn gather_at(&self, to: usize) -> impl Iterator<Item = DeviceJob> {
        let parts = self.parts.iter().enumerate();
        parts.map(move |(from, part)| self.copy((from, 0), (to, part.start), part.len()))
    }

    /// A fold of this range of all inputs, to the beginning of a rank's output.
    pub fn fold(&self, rank: usize, range: &Range<usize>) -> DeviceJob {
        let to = vec![BufferOffset { rank, offset: 0 }];
        DeviceJob::Fold { worker: self.workers.of[rank], offset: range.start, bytes: range.len(), to }
    }
}

impl DeviceCollective<'_> {
    /// What the other ranks must know beyond the signature: in [`Lengths::Exchange`], this rank's counts.
    pub fn counts_to_publish(&self) -> Vec<u64> {
        let both = self.spec.counts.iter().chain(self.spec.receive_counts).map(|&count| count as u64);
        if self.spec.verb.lengths == Lengths::Exchange { both.collect() } else { Vec::new() }
    }

    /// All jobs that have bytes.
    pub fn jobs(&self, size: usize, workers: &Workers, all_counts: &[u64]) -> Vec<DeviceJob> {
        let (element, root) = (self.spec.dtype.size(), self.spec.root_rank());
        let (bytes, parts) = (self.input.bytes().max(self.output.bytes()), self.spec.part_ranges());
        let plan = JobPlan { size, root, element, bytes, parts, workers, all_counts };
        let has_bytes = |job: &DeviceJob| match job {
            DeviceJob::Copy { bytes, .. } | DeviceJob::Fold { bytes, .. } => *bytes > 0,
        };
        self.spec.verb.jobs.map_or(Vec::new(), |jobs| jobs(&plan)).into_iter().filter(has_bytes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectives::all_reduce::ALL_REDUCE;
    use crate::collectives::all_to_all::ALL_TO_ALL;
    use crate::collectives::scatter::SCATTER;
    use crate::collectives::spec::CollectiveVerb;
    use crate::memory::{DType, ReduceOp};

    fn collective<'a>(
        verb: &'static CollectiveVerb,
        counts: &'a [usize],
        bytes: usize,
    ) -> DeviceCollective<'a> {
        let spec = CollectiveSpec::new(verb, DType::F32).operation(ReduceOp::Sum).root(1).counts(counts);
        // SAFETY: the address is never dereferenced.
        let span = unsafe { Span::lent(0, 4096, bytes) };
        DeviceCollective { spec, input: span, output: span }
    }

    #[test]
    fn one_rank_works_for_all_that_share_its_device() {
        let workers = Workers::for_devices(&['a', 'b', 'a', 'b']);
        assert_eq!((workers.of, workers.all), (vec![0, 1, 0, 1], vec![0, 1]));
    }

    #[test]
    fn a_sum_is_shared_out_between_devices_without_gaps() {
        for (bytes, devices) in [(0, 2), (4, 2), (100_000, 3), (4096 * 6, 3)] {
            let devices: Vec<usize> = (0..devices).collect();
            let jobs = collective(&ALL_REDUCE, &[], bytes).jobs(3, &Workers::for_devices(&devices), &[]);
            let mut end = 0;
            for job in jobs {
                let DeviceJob::Fold { offset, bytes, to, .. } = job else { panic!("a sum") };
                assert_eq!(offset, end);
                assert_eq!(to.len(), 3);
                end += bytes;
            }
            assert_eq!(end, bytes);
        }
    }

    #[test]
    fn parts_go_where_ranks_expect_them() {
        let jobs = collective(&SCATTER, &[2, 0, 3], 20).jobs(3, &Workers::each(3), &[]);
        let from = |offset| BufferOffset { rank: 1, offset };
        assert_eq!(
            jobs,
            [
                DeviceJob::Copy {
                    worker: 0,
                    from: from(0),
                    to: BufferOffset { rank: 0, offset: 0 },
                    bytes: 8
                },
                DeviceJob::Copy {
                    worker: 2,
                    from: from(8),
                    to: BufferOffset { rank: 2, offset: 0 },
                    bytes: 12
                },
            ]
        );
        // Rank 0 sends 1 and 2 elements, rank 1 sends 3 and 4.
        let all_counts = [1, 2, 1, 3, 3, 4, 2, 4];
        let jobs = collective(&ALL_TO_ALL, &[3, 4], 28).jobs(2, &Workers::each(2), &all_counts);
        let expected = [(0, 0, 0, 0, 4), (1, 0, 0, 4, 12), (0, 4, 1, 0, 8), (1, 12, 1, 8, 16)];
        let expected = expected.map(|(from, start, to, end, bytes)| DeviceJob::Copy {
            worker: to,
            from: BufferOffset { rank: from, offset: start },
            to: BufferOffset { rank: to, offset: end },
            bytes,
        });
        assert_eq!(jobs, expected);
    }
}
