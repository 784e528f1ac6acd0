//! A small array, alone and among many tables: the fixed cost of a call.

use std::hint::black_box;
use std::ops::RangeInclusive;

use unisono::tables::{AddOptions, Rows, Table, TableOptions, Tables};
use unisono::{DType, Result};

use crate::bench::measure::Cases;

/// 100 floats.
pub(super) const BYTES: usize = 100 * size_of::<f32>();

const ELEMENTS: usize = BYTES / size_of::<f32>();

pub(super) struct ManyCases {
    tables: Tables,
    table: Table,
    /// The other tables, if any.
    others: Vec<Table>,
    number: usize,
    out: Vec<f32>,
    delta: Vec<f32>,
    /// Number of adds to the table by each worker.
    added: usize,
}

impl ManyCases {
    /// Every get follows an add, and verifies it. The cases with many tables come last.
    pub(super) const NAMES: [&str; 4] = ["add", "get", "add_many", "get_many"];

    pub(super) fn new(tables: &Tables, number: usize) -> Result<ManyCases> {
        Ok(ManyCases {
            tables: tables.clone(),
            table: small(tables)?,
            others: Vec::new(),
            number,
            out: vec![0.0; ELEMENTS],
            delta: vec![1.0; ELEMENTS],
            added: 0,
        })
    }
}

fn small(tables: &Tables) -> Result<Table> {
    Table::array(tables, ELEMENTS, DType::F32, None, TableOptions::default())
}

impl Cases for ManyCases {
    fn count(&self) -> usize {
        ManyCases::NAMES.len()
    }

    fn prepare(&mut self, case: usize) -> Result<()> {
        let wanted = if case < 2 { 0 } else { self.number - 1 };
        self.others.truncate(wanted);
        while self.others.len() < wanted {
            self.others.push(small(&self.tables)?);
        }
        self.out.fill(-1.0);
        Ok(())
    }

    fn call(&mut self, case: usize) -> Result<()> {
        match case % 2 {
            0 => {
                let delta = bytemuck::cast_slice(black_box(&self.delta[..]));
                self.added += 1;
                self.table.add(Rows::All, delta, &AddOptions::default())
            }
            _ => self.table.get(Rows::All, bytemuck::cast_slice_mut(black_box(&mut self.out[..]))),
        }
    }

    fn is_correct(&mut self, case: usize, _calls: usize) -> bool {
        // Sums of f32 are exact up to 2^24.
        let sum = self.added * self.tables.workers();
        case.is_multiple_of(2) || sum > 1 << 24 || self.out.iter().all(|value| *value == sum as f32)
    }

    /// Many calls, because workers do not begin at exactly the same time.
    fn calls(&self, _case: usize) -> RangeInclusive<usize> {
        1000..=1000
    }
}
