//! The jobs that implement a collective on device memory: the same list on every rank.

use super::super::spec::CollectiveSpec;
use crate::collectives::verbs;
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
pub(super) struct BufferOffset {
    pub rank: usize,
    pub offset: usize,
}

/// A unit of work, and the rank that does it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DeviceJob {
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
pub(super) struct Workers {
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

/// Parts of a fold that several workers share begin at multiples of this many bytes: no two touch the same cache line.
const GRAIN: usize = 4096;

impl DeviceCollective<'_> {
    /// What the other ranks must know beyond the signature: in all_to_all, this rank's counts.
    pub fn counts_to_publish(&self) -> Vec<u64> {
        let both = self.spec.counts.iter().chain(self.spec.receive_counts).map(|&count| count as u64);
        if self.spec.verb == verbs::ALL_TO_ALL { both.collect() } else { Vec::new() }
    }

    /// All jobs. `all_counts` is what the ranks published of [`DeviceCollective::counts_to_publish`], concatenated.
    pub fn jobs(&self, size: usize, workers: &Workers, all_counts: &[u64]) -> Vec<DeviceJob> {
        let element = self.spec.dtype.size();
        let parts = self.spec.part_ranges();
        let whole = self.input.bytes().max(self.output.bytes());
        let (root, ranks) = (self.spec.root_rank(), 0..size);
        let buffer_offset = |rank, offset| BufferOffset { rank, offset };
        let copy = |from: BufferOffset, to: BufferOffset, bytes| DeviceJob::Copy {
            worker: workers.of[to.rank],
            from,
            to,
            bytes,
        };
        let jobs: Vec<DeviceJob> = match self.spec.verb {
            verbs::ALL_REDUCE => {
                let share = whole.div_ceil(workers.all.len()).next_multiple_of(GRAIN);
                let part = |(at, &worker): (usize, &usize)| {
                    let offset = (at * share).min(whole);
                    let to = ranks.clone().map(|rank| buffer_offset(rank, offset)).collect();
                    DeviceJob::Fold { worker, offset, bytes: share.min(whole - offset), to }
                };
                workers.all.iter().enumerate().map(part).collect()
            }
            verbs::REDUCE => {
                vec![DeviceJob::Fold {
                    worker: workers.of[root],
                    offset: 0,
                    bytes: whole,
                    to: vec![buffer_offset(root, 0)],
                }]
            }
            verbs::REDUCE_SCATTER => ranks
                .map(|rank| {
                    let (offset, bytes) = (parts[rank].start, parts[rank].len());
                    DeviceJob::Fold {
                        worker: workers.of[rank],
                        offset,
                        bytes,
                        to: vec![buffer_offset(rank, 0)],
                    }
                })
                .collect(),
            verbs::BROADCAST => ranks
                .filter(|&rank| rank != root)
                .map(|rank| copy(buffer_offset(root, 0), buffer_offset(rank, 0), whole))
                .collect(),
            verbs::ALL_GATHER => ranks
                .clone()
                .flat_map(|to| ranks.clone().map(move |from| (from, to)))
                .map(|(from, to)| {
                    copy(buffer_offset(from, 0), buffer_offset(to, parts[from].start), parts[from].len())
                })
                .collect(),
            verbs::GATHER => ranks
                .map(|from| {
                    copy(buffer_offset(from, 0), buffer_offset(root, parts[from].start), parts[from].len())
                })
                .collect(),
            verbs::SCATTER => ranks
                .map(|to| copy(buffer_offset(root, parts[to].start), buffer_offset(to, 0), parts[to].len()))
                .collect(),
            verbs::ALL_TO_ALL => {
                let sent = |from: usize, to: usize| all_counts[2 * from * size + to] as usize * element;
                let before = |from: usize, to: usize| (0..to).map(|other| sent(from, other)).sum();
                let behind = |from: usize, to: usize| (0..from).map(|other| sent(other, to)).sum();
                ranks
                    .clone()
                    .flat_map(|to| ranks.clone().map(move |from| (from, to)))
                    .map(|(from, to)| {
                        copy(
                            buffer_offset(from, before(from, to)),
                            buffer_offset(to, behind(from, to)),
                            sent(from, to),
                        )
                    })
                    .collect()
            }
            // Nothing moves, as in a barrier.
            _ => Vec::new(),
        };
        let has_bytes = |job: &DeviceJob| match job {
            DeviceJob::Copy { bytes, .. } | DeviceJob::Fold { bytes, .. } => *bytes > 0,
        };
        jobs.into_iter().filter(has_bytes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{DType, ReduceOp};
    use crate::transport::Verb;

    fn collective(verb: Verb, counts: &[usize], bytes: usize) -> DeviceCollective<'_> {
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
            let jobs =
                collective(verbs::ALL_REDUCE, &[], bytes).jobs(3, &Workers::for_devices(&devices), &[]);
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
        let jobs = collective(verbs::SCATTER, &[2, 0, 3], 20).jobs(3, &Workers::each(3), &[]);
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
        let jobs = collective(verbs::ALL_TO_ALL, &[3, 4], 28).jobs(2, &Workers::each(2), &all_counts);
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
