//! One collective as a benchmark case: its buffers, one call, and the check of its result.

use std::ops::RangeInclusive;

use clap::ValueEnum;
use unisono::{DType, Group, ReduceOp, Result, World};

use super::measure::Cases;
use crate::bandwidth::MemoryKernel;

/// Elements repeat with this period: value = (rank + 1) · (1 + index mod period).
const PERIOD: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Collective {
    AllReduce,
    Barrier,
    Broadcast,
    Scatter,
    Gather,
    AllGather,
    Reduce,
    ReduceScatter,
    Scan,
    AllToAll,
    SendRecv,
}

impl Collective {
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_string())
    }
}

/// Private memory or arena memory.
enum Buffer {
    Private(Vec<f32>),
    Arena(unisono::ArenaBuffer),
}

impl Buffer {
    fn new(world: &World, elements: usize, arena: bool) -> Result<Buffer> {
        Ok(match arena {
            true => Buffer::Arena(world.empty(elements * size_of::<f32>())?),
            false => Buffer::Private(vec![0.0; elements]),
        })
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Buffer::Private(values) => bytemuck::cast_slice(values),
            Buffer::Arena(buffer) => buffer,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Buffer::Private(values) => bytemuck::cast_slice_mut(values),
            Buffer::Arena(buffer) => buffer,
        }
    }
}

/// A collective with its buffers. `elements` is the larger of a rank's input and output, rounded up to a multiple of the ranks.
struct Work {
    verb: Collective,
    group: Group,
    input: Buffer,
    output: Buffer,
    counts: Vec<usize>,
}

impl Work {
    fn new(world: &World, verb: Collective, elements: usize, arena: bool) -> Result<Work> {
        let (ranks, rank) = (world.size(), world.rank());
        let part = elements.div_ceil(ranks);
        let whole = part * ranks;
        let (input, output) = match verb {
            Collective::Barrier => (0, 0),
            Collective::AllReduce
            | Collective::Broadcast
            | Collective::Reduce
            | Collective::Scan
            | Collective::SendRecv => (elements, 0),
            Collective::Scatter => (if rank == 0 { whole } else { 0 }, part),
            Collective::Gather => (part, if rank == 0 { whole } else { 0 }),
            Collective::AllGather => (part, whole),
            Collective::ReduceScatter => (whole, part),
            Collective::AllToAll => (whole, whole),
        };
        Ok(Work {
            verb,
            group: world.group().clone(),
            input: Buffer::new(world, input, arena)?,
            output: Buffer::new(world, output, arena)?,
            counts: vec![part; ranks],
        })
    }

    /// Maximum number of consecutive calls for which the values stay finite.
    fn most_calls(&self) -> usize {
        // Each all_reduce multiplies the result of the previous one by the number of ranks.
        let growth = (self.group.size() as f64).log10();
        if self.verb == Collective::AllReduce && growth > 0.0 {
            ((30.0 / growth) as usize).max(1)
        } else if self.verb == Collective::Scan {
            10
        } else {
            1000
        }
    }

    /// Fills the input; not timed.
    fn prepare(&mut self) {
        let factor = (self.group.rank() + 1) as f32;
        let pattern: Vec<f32> = (0..PERIOD).map(|i| factor * (1 + i) as f32).collect();
        let values: &mut [f32] = bytemuck::cast_slice_mut(self.input.bytes_mut());
        values.chunks_mut(PERIOD).for_each(|chunk| chunk.copy_from_slice(&pattern[..chunk.len()]));
        self.output.bytes_mut().fill(0);
    }

    /// One call.
    fn call(&mut self) -> Result<()> {
        const TYPE: DType = DType::F32;
        let (raw, counts) = (self.group.raw(), &self.counts[..]);
        let at_root = self.group.rank() == 0;
        let (input, output) = (&mut self.input, &mut self.output);
        match self.verb {
            Collective::AllReduce => raw.all_reduce(input.bytes_mut(), TYPE, ReduceOp::Sum),
            Collective::Barrier => raw.barrier(),
            Collective::Broadcast => raw.broadcast(input.bytes_mut(), TYPE, 0),
            Collective::Scatter => {
                raw.scatter(at_root.then(|| input.bytes()), counts, output.bytes_mut(), TYPE, 0)
            }
            Collective::Gather => {
                raw.gather(input.bytes(), at_root.then(|| output.bytes_mut()), counts, TYPE, 0)
            }
            Collective::AllGather => raw.all_gather(input.bytes(), output.bytes_mut(), counts, TYPE),
            Collective::Reduce => raw.reduce(input.bytes_mut(), TYPE, ReduceOp::Sum, 0),
            Collective::ReduceScatter => {
                raw.reduce_scatter(input.bytes(), output.bytes_mut(), counts, TYPE, ReduceOp::Sum)
            }
            Collective::Scan => raw.scan(input.bytes_mut(), TYPE, ReduceOp::Sum),
            Collective::AllToAll => raw.all_to_all(input.bytes(), counts, output.bytes_mut(), counts, TYPE),
            Collective::SendRecv => match (self.group.rank(), self.group.rank() ^ 1) {
                // With an odd number of ranks, the last one has no partner.
                (_, partner) if partner >= self.group.size() => Ok(()),
                (rank, partner) if rank < partner => raw.send(input.bytes(), TYPE, partner, 0),
                (_, partner) => raw.recv(input.bytes_mut(), TYPE, partner, 0),
            },
        }
    }

    /// Whether the buffers are correct after `calls` calls.
    fn is_correct(&self, calls: usize) -> bool {
        let (ranks, rank) = (self.group.size(), self.group.rank());
        let sum_of_ranks = (ranks * (ranks + 1) / 2) as f32;
        let own = (rank + 1) as f32;
        let part = self.counts[0];
        let whole = |buffer: &Buffer, factor: f32| matches(buffer.bytes(), 0, factor);
        match self.verb {
            Collective::Barrier => true,
            Collective::AllReduce => whole(&self.input, sum_of_ranks * (ranks as f32).powi(calls as i32 - 1)),
            Collective::Broadcast => whole(&self.input, 1.0),
            Collective::Scatter => matches(self.output.bytes(), rank * part, 1.0),
            Collective::Gather | Collective::AllGather => {
                let values: &[f32] = bytemuck::cast_slice(self.output.bytes());
                let mut parts = values.chunks(part.max(1)).enumerate();
                parts.all(|(from, values)| matches(bytemuck::cast_slice(values), 0, (from + 1) as f32))
            }
            Collective::Reduce if rank == 0 => whole(&self.input, 1.0 + calls as f32 * (sum_of_ranks - 1.0)),
            Collective::Reduce => whole(&self.input, own),
            Collective::ReduceScatter => matches(self.output.bytes(), rank * part, sum_of_ranks),
            Collective::Scan => {
                // Prefix sums of 1, 2, 3, … are binomial coefficients.
                let factors = (1..=rank).map(|i| (calls + 1 + i) as f64 / i as f64);
                whole(&self.input, factors.product::<f64>() as f32)
            }
            Collective::AllToAll => {
                let values: &[f32] = bytemuck::cast_slice(self.output.bytes());
                let mut parts = values.chunks(part.max(1)).enumerate();
                parts.all(|(from, values)| {
                    matches(bytemuck::cast_slice(values), rank * part, (from + 1) as f32)
                })
            }
            Collective::SendRecv => whole(&self.input, (rank & !1) as f32 + 1.0),
        }
    }
}

/// A collective on private and on arena memory, and the bandwidth kernels it is compared with.
pub(crate) struct CollectiveCases {
    works: [Work; 2],
    /// Private buffers of the same total size.
    y: Vec<f32>,
    x: Vec<f32>,
}

impl CollectiveCases {
    pub(crate) const NAMES: [&str; 4] = ["private", "arena", "copy", "add"];

    pub(crate) fn new(world: &World, verb: Collective, elements: usize) -> Result<CollectiveCases> {
        let half = (elements / 2).max(1);
        Ok(CollectiveCases {
            works: [Work::new(world, verb, elements, false)?, Work::new(world, verb, elements, true)?],
            y: vec![0.0; half],
            x: vec![1.0; half],
        })
    }
}

impl Cases for CollectiveCases {
    fn count(&self) -> usize {
        CollectiveCases::NAMES.len()
    }

    fn prepare(&mut self, case: usize) -> Result<()> {
        self.works.get_mut(case).into_iter().for_each(Work::prepare);
        Ok(())
    }

    fn call(&mut self, case: usize) -> Result<()> {
        match self.works.get_mut(case) {
            Some(work) => work.call()?,
            None => MemoryKernel::BOTH[case - 2]
                .run(std::hint::black_box(&mut self.y), std::hint::black_box(&self.x)),
        }
        Ok(())
    }

    fn is_correct(&mut self, case: usize, calls: usize) -> bool {
        self.works.get(case).is_none_or(|work| work.is_correct(calls))
    }

    fn calls(&self, case: usize) -> RangeInclusive<usize> {
        1..=self.works.get(case).map_or(1000, Work::most_calls)
    }

    fn synchronizes(&self, case: usize) -> bool {
        case < self.works.len()
    }
}

/// Whether these are the expected elements from index `first` on, scaled by a factor.
fn matches(bytes: &[u8], first: usize, factor: f32) -> bool {
    let expected: Vec<f32> = (0..PERIOD).map(|i| factor * (1 + (first + i) % PERIOD) as f32).collect();
    let values: &[f32] = bytemuck::cast_slice(bytes);
    let near = |(value, expected): (&f32, &f32)| (value - expected).abs() <= 1e-5 * expected.abs();
    // Counting instead of stopping at the first mismatch lets the compiler vectorise the loop.
    values
        .chunks(PERIOD)
        .all(|chunk| chunk.iter().zip(&expected).filter(|pair| near(*pair)).count() == chunk.len())
}
