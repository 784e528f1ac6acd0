//! What a verb asks for, and the jobs that it comes down to: the same list on every rank.

use super::super::ranges;
use crate::cuda::Span;
use crate::memory::{DType, ReduceOp};
use crate::transport::{Signature, Verb};

/// One call on device memory, seen from one rank. Counts are elements.
pub(super) struct Order<'a> {
    pub verb: Verb,
    pub dtype: DType,
    pub operation: Option<ReduceOp>,
    pub root: Option<usize>,
    /// How the elements are divided between ranks; in all_to_all, how many go to each.
    pub counts: &'a [usize],
    /// In all_to_all, how many come from each.
    pub receives: &'a [usize],
    /// What this rank gives; nothing where only others give.
    pub input: Span,
    /// Where its result goes; nothing where only others get one. It may be the input.
    pub output: Span,
}

/// Bytes of a rank's buffer, from an offset on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub rank: usize,
    pub offset: usize,
}

/// A piece of work, and the rank that does it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Job {
    /// Copies from a rank's input to a rank's output.
    Copy { by: usize, from: Place, to: Place, bytes: usize },
    /// Folds bytes of all inputs that begin at `offset`, and writes the result to outputs.
    Fold { by: usize, offset: usize, bytes: usize, to: Vec<Place> },
}

impl Job {
    pub fn by(&self) -> usize {
        match self {
            Job::Copy { by, .. } | Job::Fold { by, .. } => *by,
        }
    }
}

/// Who works for whom. Processes that share a device take turns on it, which costs more than the work: so one of them
/// works for all, and each device has one worker.
pub(super) struct Workers {
    /// The rank that works for each rank.
    pub of: Vec<usize>,
    /// All of them.
    pub all: Vec<usize>,
}

impl Workers {
    /// One for each of the devices that the ranks have.
    pub fn for_devices<D: PartialEq>(devices: &[D]) -> Workers {
        let first = |rank: usize| devices.iter().position(|device| *device == devices[rank]).unwrap_or(rank);
        let of: Vec<usize> = (0..devices.len()).map(first).collect();
        let all = (0..devices.len()).filter(|&rank| of[rank] == rank).collect();
        Workers { of, all }
    }

    /// Everybody works for itself.
    pub fn each(size: usize) -> Workers {
        Workers { of: (0..size).collect(), all: (0..size).collect() }
    }
}

/// Parts of a fold that several workers share begin at multiples of this: no two touch the same line of memory.
const GRAIN: usize = 4096;

impl Order<'_> {
    /// An order that moves nothing.
    pub fn nothing(span: Span) -> Order<'static> {
        Order {
            verb: Verb::Barrier,
            dtype: DType::U8,
            operation: None,
            root: None,
            counts: &[],
            receives: &[],
            input: span,
            output: span,
        }
    }

    /// What all ranks must agree on.
    pub fn signature(&self, signature: Signature, deterministic: bool) -> Signature {
        let parts = matches!(self.verb, Verb::AllGather | Verb::Gather | Verb::Scatter | Verb::ReduceScatter);
        let count = match self.verb {
            Verb::AllToAll => Signature::VARIES,
            _ if parts => self.counts.iter().sum::<usize>() as u64,
            _ => (self.input.bytes().max(self.output.bytes()) / self.dtype.size()) as u64,
        };
        let mut signature = signature.of(self.dtype, count);
        if parts {
            signature = signature.parts(self.counts);
        }
        if let Some(operation) = self.operation {
            signature = signature.operation(operation).deterministic(deterministic);
        }
        match self.root {
            Some(root) => signature.root(root),
            None => signature,
        }
    }

    /// What the others must know beyond the signature: in all_to_all, this rank's counts.
    pub fn counts_to_show(&self) -> Vec<u64> {
        let both = self.counts.iter().chain(self.receives).map(|&count| count as u64);
        if self.verb == Verb::AllToAll { both.collect() } else { Vec::new() }
    }

    /// The whole of the work. `shown` has what ranks showed of [`Order::counts_to_show`], one after another.
    pub fn jobs(&self, size: usize, workers: &Workers, shown: &[u64]) -> Vec<Job> {
        let element = self.dtype.size();
        let parts = if self.verb == Verb::AllToAll { Vec::new() } else { ranges(self.counts, element) };
        let whole = self.input.bytes().max(self.output.bytes());
        let (root, ranks) = (self.root.unwrap_or(0), 0..size);
        let place = |rank, offset| Place { rank, offset };
        let copy = |from: Place, to: Place, bytes| Job::Copy { by: workers.of[to.rank], from, to, bytes };
        let jobs: Vec<Job> = match self.verb {
            Verb::AllReduce => {
                let share = whole.div_ceil(workers.all.len()).next_multiple_of(GRAIN);
                let part = |(at, &by): (usize, &usize)| {
                    let offset = (at * share).min(whole);
                    let to = ranks.clone().map(|rank| place(rank, offset)).collect();
                    Job::Fold { by, offset, bytes: share.min(whole - offset), to }
                };
                workers.all.iter().enumerate().map(part).collect()
            }
            Verb::Reduce => {
                vec![Job::Fold { by: workers.of[root], offset: 0, bytes: whole, to: vec![place(root, 0)] }]
            }
            Verb::ReduceScatter => ranks
                .map(|rank| {
                    let (offset, bytes) = (parts[rank].start, parts[rank].len());
                    Job::Fold { by: workers.of[rank], offset, bytes, to: vec![place(rank, 0)] }
                })
                .collect(),
            Verb::Broadcast => ranks
                .filter(|&rank| rank != root)
                .map(|rank| copy(place(root, 0), place(rank, 0), whole))
                .collect(),
            Verb::AllGather => ranks
                .clone()
                .flat_map(|to| ranks.clone().map(move |from| (from, to)))
                .map(|(from, to)| copy(place(from, 0), place(to, parts[from].start), parts[from].len()))
                .collect(),
            Verb::Gather => ranks
                .map(|from| copy(place(from, 0), place(root, parts[from].start), parts[from].len()))
                .collect(),
            Verb::Scatter => {
                ranks.map(|to| copy(place(root, parts[to].start), place(to, 0), parts[to].len())).collect()
            }
            _ => {
                let sent = |from: usize, to: usize| shown[2 * from * size + to] as usize * element;
                let before = |from: usize, to: usize| (0..to).map(|other| sent(from, other)).sum();
                let behind = |from: usize, to: usize| (0..from).map(|other| sent(other, to)).sum();
                ranks
                    .clone()
                    .flat_map(|to| ranks.clone().map(move |from| (from, to)))
                    .map(|(from, to)| {
                        copy(place(from, before(from, to)), place(to, behind(from, to)), sent(from, to))
                    })
                    .collect()
            }
        };
        let has_bytes = |job: &Job| match job {
            Job::Copy { bytes, .. } | Job::Fold { bytes, .. } => *bytes > 0,
        };
        jobs.into_iter().filter(has_bytes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order<'a>(verb: Verb, counts: &'a [usize], bytes: usize) -> Order<'a> {
        // SAFETY: nobody follows the address.
        let span = unsafe { Span::lent(0, 4096, bytes) };
        Order {
            verb,
            dtype: DType::F32,
            operation: Some(ReduceOp::Sum),
            root: Some(1),
            counts,
            receives: &[],
            input: span,
            output: span,
        }
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
            let jobs = order(Verb::AllReduce, &[], bytes).jobs(3, &Workers::for_devices(&devices), &[]);
            let mut end = 0;
            for job in jobs {
                let Job::Fold { offset, bytes, to, .. } = job else { panic!("a sum") };
                assert_eq!(offset, end);
                assert_eq!(to.len(), 3);
                end += bytes;
            }
            assert_eq!(end, bytes);
        }
    }

    #[test]
    fn parts_go_where_ranks_expect_them() {
        let jobs = order(Verb::Scatter, &[2, 0, 3], 20).jobs(3, &Workers::each(3), &[]);
        let from = |offset| Place { rank: 1, offset };
        assert_eq!(
            jobs,
            [
                Job::Copy { by: 0, from: from(0), to: Place { rank: 0, offset: 0 }, bytes: 8 },
                Job::Copy { by: 2, from: from(8), to: Place { rank: 2, offset: 0 }, bytes: 12 },
            ]
        );
        // Rank 0 sends 1 and 2 elements, rank 1 sends 3 and 4.
        let shown = [1, 2, 1, 3, 3, 4, 2, 4];
        let jobs = order(Verb::AllToAll, &[3, 4], 28).jobs(2, &Workers::each(2), &shown);
        let expected = [(0, 0, 0, 0, 4), (1, 0, 0, 4, 12), (0, 4, 1, 0, 8), (1, 12, 1, 8, 16)];
        let expected = expected.map(|(from, start, to, end, bytes)| Job::Copy {
            by: to,
            from: Place { rank: from, offset: start },
            to: Place { rank: to, offset: end },
            bytes,
        });
        assert_eq!(jobs, expected);
    }
}
