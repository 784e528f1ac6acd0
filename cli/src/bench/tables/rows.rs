//! Random rows of a matrix, and as many keys of a key-value table, compared with a plain loop over private memory.

use std::hint::black_box;
use std::ops::RangeInclusive;

use unisono::tables::{AddOptions, KeyType, KeyValueTable, Keys, Rows, Table, TableOptions, Tables};
use unisono::{DType, Result};

use super::Sizes;
use crate::bandwidth::{gather, scatter_add};
use crate::bench::measure::Cases;

/// Period of the values added to a row: small integers, whose sums are exact.
const PERIOD: usize = 7;

pub(super) struct RowCases {
    matrix: Table,
    map: KeyValueTable,
    /// The matrix of the plain loop.
    own: Vec<f32>,
    columns: usize,
    rows: usize,
    worker: usize,
    workers: usize,
    /// The rows of this round: gets and adds use different rows, the loop and the tables the same ones.
    list: Vec<i64>,
    round: u64,
    out: Vec<f32>,
    delta: Vec<f32>,
    /// How often each row was added to: in the loop's matrix, and in the tables by all workers together.
    own_counts: Vec<u32>,
    counts: Vec<u32>,
}

const GATHER: usize = 0;
const GET: usize = 1;
const KEY_GET: usize = 2;
const SCATTER_ADD: usize = 3;
const ADD: usize = 4;

impl RowCases {
    pub(super) const NAMES: [&str; 6] = ["gather", "get", "key_get", "scatter_add", "add", "key_add"];

    pub(super) fn new(tables: &Tables, sizes: &Sizes) -> Result<RowCases> {
        let (rows, columns, listed) = (sizes.rows, sizes.columns, sizes.listed);
        let (worker, workers) = (tables.worker_id().unwrap_or(0), tables.workers());
        let options = TableOptions::default;
        let matrix = Table::matrix(tables, (rows, columns), DType::F32, None, options())?;
        let map = KeyValueTable::create(tables, KeyType::Int, columns, DType::F32, options())?;
        // Each worker inserts a share of the keys, so that the measured calls find all keys present.
        let keys: Vec<i64> = (worker..rows).step_by(workers).map(|row| row as i64).collect();
        for keys in keys.chunks(listed) {
            let nothing = vec![0u8; keys.len() * columns * size_of::<f32>()];
            map.add(Keys::Int(keys), &nothing, &AddOptions::default())?;
        }
        Ok(RowCases {
            matrix,
            map,
            own: vec![0.0; rows * columns],
            columns,
            rows,
            worker,
            workers,
            list: Vec::new(),
            round: 0,
            out: vec![0.0; listed * columns],
            delta: (0..listed * columns).map(|index| (1 + index % columns % PERIOD) as f32).collect(),
            own_counts: vec![0; rows],
            counts: vec![0; rows],
        })
    }

    /// The rows of a worker in this round.
    fn list_of(&self, worker: usize) -> impl Iterator<Item = i64> + use<> {
        let (round, rows, listed) = (self.round, self.rows as u64, self.delta.len() / self.columns);
        (0..listed as u64).map(move |index| (mix(mix(round << 16 | worker as u64) ^ index) % rows) as i64)
    }

    /// Whether every row returned by a get equals the sum of what was added to it.
    fn holds(&self, counts: &[u32]) -> bool {
        let row = &self.delta[..self.columns];
        self.list.iter().zip(self.out.chunks_exact(self.columns)).all(|(&at, out)| {
            let times = counts[at as usize] as f32;
            out.iter().zip(row).filter(|(out, delta)| **out == times * **delta).count() == row.len()
        })
    }
}

/// A hash: maps a number to a pseudo-random one.
fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let number = (number ^ number >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    number ^ number >> 32
}

impl Cases for RowCases {
    fn count(&self) -> usize {
        RowCases::NAMES.len()
    }

    fn prepare(&mut self, case: usize) -> Result<()> {
        if case == GATHER || case == SCATTER_ADD {
            self.round += 1;
            self.list = self.list_of(self.worker).collect();
        }
        self.out.fill(-1.0);
        Ok(())
    }

    fn call(&mut self, case: usize) -> Result<()> {
        let (list, columns) = (black_box(&self.list[..]), self.columns);
        let (own, out) = (black_box(&mut self.own), black_box(&mut self.out[..]));
        let delta = bytemuck::cast_slice(black_box(&self.delta[..]));
        match case {
            GATHER => gather(out, own, columns, list),
            GET => self.matrix.get(Rows::List(list), bytemuck::cast_slice_mut(out))?,
            KEY_GET => self.map.get(Keys::Int(list), bytemuck::cast_slice_mut(out))?,
            SCATTER_ADD => scatter_add(own, &self.delta, columns, list),
            ADD => self.matrix.add(Rows::List(list), delta, &AddOptions::default())?,
            _ => self.map.add(Keys::Int(list), delta, &AddOptions::default())?,
        }
        Ok(())
    }

    fn is_correct(&mut self, case: usize, _calls: usize) -> bool {
        match case {
            GATHER => return self.holds(&self.own_counts),
            GET | KEY_GET => return self.holds(&self.counts),
            SCATTER_ADD => self.list.iter().for_each(|&row| self.own_counts[row as usize] += 1),
            ADD => {
                for worker in 0..self.workers {
                    self.list_of(worker).for_each(|row| self.counts[row as usize] += 1);
                }
            }
            _ => {}
        }
        true
    }

    /// A second call would find the rows of the first one in the caches.
    fn calls(&self, _case: usize) -> RangeInclusive<usize> {
        1..=1
    }
}
