//! Benchmark cases for halos: full exchanges, halos alone, halos overlapped with computation, and copies of as many bytes.

use std::hint::black_box;

use unisono::halo::{Exchange, ExchangeOptions, Plan, Region};
use unisono::{DType, Result, World};

use crate::bandwidth::MemoryKernel;
use crate::bench::measure::Cases;

/// A part, its padded array, and the expected content of the padded array after an exchange.
struct Arrays {
    exchange: Exchange,
    part: Vec<f32>,
    padded: Vec<f32>,
    expected: Vec<f32>,
    /// How often each element of the part occurs in the padded arrays of all ranks: the adjoint of an array of ones.
    counts: Vec<f32>,
}

pub(super) struct ExchangeCases {
    arrays: Arrays,
    other: Vec<f32>,
    gradient: Vec<f32>,
}

/// The elements of a region: integers that encode their index, and zeros outside the array.
fn values(region: &Region, shape: &[usize]) -> Vec<f32> {
    let last = shape.len() - 1;
    let rows: Vec<_> = (0..last).map(|dimension| region.range(dimension)).collect();
    let mut values = Vec::with_capacity(region.elements());
    for row in Region::new(&rows).indices() {
        let inside = row.iter().zip(shape).all(|(at, &extent)| (0..extent as i64).contains(at));
        let start = row.iter().fold(0i64, |sum, at| (sum * 31 + at) % 65_521);
        values.extend(region.range(last).map(|at| match inside && (0..shape[last] as i64).contains(&at) {
            true => ((start * 31 + at) % 65_521) as f32,
            false => 0.0,
        }));
    }
    values
}

impl ExchangeCases {
    pub(super) const NAMES: [&str; 4] = ["copy", "forward", "copy_part", "adjoint"];

    pub(super) fn new(world: &World, plan: Plan) -> Result<ExchangeCases> {
        let shape = plan.inputs().shape();
        let (part, expected) = (values(plan.own(), shape), values(plan.needed(), shape));
        let padded = vec![0.0; expected.len()];
        let mut gradient = vec![0.0; part.len()];
        let mut exchange = Exchange::new(world.group(), plan, ExchangeOptions::of(DType::F32))?;
        exchange.adjoint(&vec![1.0; expected.len()], &mut gradient)?;
        let counts = gradient.clone();
        let other = expected.clone();
        Ok(ExchangeCases { arrays: Arrays { exchange, part, padded, expected, counts }, other, gradient })
    }

    pub(super) fn halos_alone(mut self) -> HaloCases {
        self.arrays.padded.clone_from(&self.arrays.expected);
        let elements: usize = self.arrays.exchange.plan().sources().map(|(_, elements)| elements).sum();
        HaloCases { x: vec![1.0; elements], y: vec![0.0; elements], arrays: self.arrays, room: Vec::new() }
    }
}

impl Cases for ExchangeCases {
    fn count(&self) -> usize {
        ExchangeCases::NAMES.len()
    }

    fn prepare(&mut self, case: usize) -> Result<()> {
        match case {
            0 | 1 => self.arrays.padded.fill(-1.0),
            2 => self.gradient.fill(-1.0),
            _ => {
                self.other.fill(1.0);
                self.gradient.fill(-1.0);
            }
        }
        Ok(())
    }

    fn call(&mut self, case: usize) -> Result<()> {
        let Arrays { exchange, part, padded, expected, .. } = &mut self.arrays;
        match case {
            0 => MemoryKernel::Copy.run(black_box(padded), black_box(expected)),
            1 => exchange.forward(black_box(part), black_box(padded))?,
            2 => MemoryKernel::Copy.run(black_box(&mut self.gradient), black_box(part)),
            _ => exchange.adjoint(black_box(&self.other), black_box(&mut self.gradient))?,
        }
        Ok(())
    }

    fn is_correct(&mut self, case: usize, _calls: usize) -> bool {
        match case {
            0 | 1 => self.arrays.padded == self.arrays.expected,
            2 => self.gradient == self.arrays.part,
            _ => self.gradient == self.arrays.counts,
        }
    }

    fn synchronizes(&self, case: usize) -> bool {
        case % 2 == 1
    }
}

/// Halos of an array that is stored in its padded form already.
pub(super) struct HaloCases {
    arrays: Arrays,
    /// As many contiguous bytes as this rank receives.
    x: Vec<f32>,
    y: Vec<f32>,
    /// Buffer for packed elements that are not sent.
    room: Vec<u8>,
}

impl HaloCases {
    pub(super) const NAMES: [&str; 3] = ["copy", "alone", "refresh"];
}

impl Cases for HaloCases {
    fn count(&self) -> usize {
        HaloCases::NAMES.len()
    }

    fn prepare(&mut self, case: usize) -> Result<()> {
        if case == 0 {
            self.y.fill(0.0);
        }
        Ok(())
    }

    fn call(&mut self, case: usize) -> Result<()> {
        match case {
            0 => MemoryKernel::Copy.run(black_box(&mut self.y), black_box(&self.x)),
            1 => self.arrays.exchange.copy_alone(black_box(&mut self.arrays.padded), &mut self.room)?,
            _ => self.arrays.exchange.refresh(black_box(&mut self.arrays.padded))?,
        }
        Ok(())
    }

    fn is_correct(&mut self, case: usize, _calls: usize) -> bool {
        let Arrays { exchange, padded, expected, .. } = &mut self.arrays;
        match case {
            0 => self.y == self.x,
            // Only the halos have changed: the exchange restores them.
            1 => padded != expected && exchange.refresh(padded).is_ok() && padded == expected,
            _ => padded == expected,
        }
    }

    fn synchronizes(&self, case: usize) -> bool {
        case == 2
    }
}

/// A computation on the part after an exchange, and the same computation overlapped with the exchange.
pub(super) struct OverlapCases {
    arrays: Arrays,
    work: Vec<f32>,
}

impl OverlapCases {
    pub(super) const NAMES: [&str; 3] = ["work", "one_after_the_other", "overlapped"];

    pub(super) fn new(halos: HaloCases) -> OverlapCases {
        let work = halos.arrays.part.clone();
        OverlapCases { arrays: halos.arrays, work }
    }
}

/// About as much arithmetic per element as a small stencil.
fn compute(values: &mut [f32]) {
    values.iter_mut().for_each(|value| {
        let x = *value;
        *value = (x * 0.5 + 1.0) * (x * 0.25 - 2.0) + (x * 0.125 + 3.0) * 0.5;
    });
}

impl Cases for OverlapCases {
    fn count(&self) -> usize {
        OverlapCases::NAMES.len()
    }

    fn prepare(&mut self, _case: usize) -> Result<()> {
        self.work.copy_from_slice(&self.arrays.part);
        Ok(())
    }

    fn call(&mut self, case: usize) -> Result<()> {
        let Arrays { exchange, part, padded, .. } = &mut self.arrays;
        let parts = [bytemuck::cast_slice(part.as_slice())];
        let padded: &mut [u8] = bytemuck::cast_slice_mut(padded.as_mut_slice());
        match case {
            0 => compute(black_box(&mut self.work)),
            1 => {
                exchange.forward_fields(&parts, &mut [padded])?;
                compute(black_box(&mut self.work));
            }
            _ => {
                exchange.begin(&parts, &mut [&mut *padded])?;
                compute(black_box(&mut self.work));
                exchange.end(&mut [padded])?;
            }
        }
        Ok(())
    }

    fn is_correct(&mut self, case: usize, _calls: usize) -> bool {
        case == 0 || self.arrays.padded == self.arrays.expected
    }

    fn synchronizes(&self, case: usize) -> bool {
        case > 0
    }
}
