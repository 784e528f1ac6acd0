//! A dense array: get compared with a copy of as many bytes, add compared with `y += x`.

use std::hint::black_box;

use unisono::tables::{AddOptions, Rows, Table, TableOptions, Tables};
use unisono::{DType, Result};

use crate::bandwidth::MemoryKernel;
use crate::bench::measure::Cases;

/// Period of the added values: small integers, whose sums are exact.
const PERIOD: usize = 7;

pub(super) struct DenseCases {
    table: Table,
    workers: usize,
    /// The destination of a get, and the operand that the kernels update.
    y: Vec<f32>,
    /// The values that are added.
    x: Vec<f32>,
    /// Number of adds to the table by each worker.
    added: usize,
}

const COPY: usize = 0;
const SUM: usize = 1;
const ADD: usize = 2;
const GET: usize = 3;

impl DenseCases {
    /// Every get follows an add, and verifies it.
    pub(super) const NAMES: [&str; 4] = ["copy", "sum", "add", "get"];

    pub(super) fn new(tables: &Tables, elements: usize) -> Result<DenseCases> {
        Ok(DenseCases {
            table: Table::array(tables, elements, DType::F32, None, TableOptions::default())?,
            workers: tables.workers(),
            y: vec![0.0; elements],
            x: (0..elements).map(|index| (1 + index % PERIOD) as f32).collect(),
            added: 0,
        })
    }

    /// Whether `y` equals `times` times `x`.
    fn holds(&self, times: usize) -> bool {
        let times = times as f32;
        // Counting instead of stopping at the first mismatch lets the compiler vectorise the loop.
        self.y.iter().zip(&self.x).filter(|(y, x)| **y == times * **x).count() == self.y.len()
    }
}

impl Cases for DenseCases {
    fn count(&self) -> usize {
        DenseCases::NAMES.len()
    }

    fn prepare(&mut self, _case: usize) -> Result<()> {
        self.y.fill(0.0);
        Ok(())
    }

    fn call(&mut self, case: usize) -> Result<()> {
        let (y, x) = (black_box(&mut self.y[..]), black_box(&self.x[..]));
        match case {
            COPY => MemoryKernel::Copy.run(y, x),
            SUM => MemoryKernel::Add.run(y, x),
            ADD => {
                self.table.add(Rows::All, bytemuck::cast_slice(x), &AddOptions::default())?;
                self.added += 1;
            }
            _ => self.table.get(Rows::All, bytemuck::cast_slice_mut(y))?,
        }
        Ok(())
    }

    fn is_correct(&mut self, case: usize, calls: usize) -> bool {
        match case {
            COPY => self.holds(1),
            SUM => self.holds(calls),
            GET => self.holds(self.added * self.workers),
            _ => true,
        }
    }
}
