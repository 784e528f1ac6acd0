//! Packing adds: what an add loses is kept for the next add of the same rows (error feedback, arXiv 1901.09847).

use std::collections::HashMap;

use super::Compression;
use super::forms::{self, Real};
use crate::memory::DType;

/// Which rows an add is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Units<'a> {
    /// This row and those behind it, as many as the add has.
    From(i64),
    /// These, which may repeat.
    List(&'a [i64]),
}

impl Units<'_> {
    fn at(&self, index: usize) -> i64 {
        match self {
            Units::From(first) => first + index as i64,
            Units::List(rows) => rows[index],
        }
    }
}

/// Packs the adds of one worker to one table.
pub(crate) struct Packer {
    dtype: DType,
    compression: Compression,
    /// Elements of a row.
    row: usize,
    lost: Lost,
}

/// What rows had lost before an add took it along.
pub(crate) struct Remembered(Vec<(i64, Vec<f64>)>);

/// What earlier adds have lost, by row.
enum Lost {
    /// Nothing: this type always travels whole.
    Nothing,
    Singles(HashMap<i64, Vec<f32>>),
    Doubles(HashMap<i64, Vec<f64>>),
}

impl Packer {
    /// For a table with `row` elements in each row. An array is a matrix whose only row is the shard.
    pub fn new(dtype: DType, row: usize, compression: Compression) -> Packer {
        let lost = match (dtype, compression) {
            (_, Compression::None) => Lost::Nothing,
            (DType::F32, _) => Lost::Singles(HashMap::new()),
            (DType::F64, _) => Lost::Doubles(HashMap::new()),
            _ => Lost::Nothing,
        };
        Packer { dtype, compression, row: row.max(1), lost }
    }

    /// Whether it must be told which rows an add is for, because it remembers what they lost.
    pub fn remembers(&self) -> bool {
        !matches!(self.lost, Lost::Nothing)
    }

    /// The payload of an add of these rows, and whether it is packed: see `Request::packed`.
    pub fn pack(&mut self, units: Units, delta: &[u8]) -> (Vec<u8>, bool) {
        let packed = match &mut self.lost {
            Lost::Nothing => forms::without_zeros(self.dtype, delta),
            Lost::Singles(lost) => Some(with_feedback(lost, self.row, self.compression, units, delta)),
            Lost::Doubles(lost) => Some(with_feedback(lost, self.row, self.compression, units, delta)),
        };
        packed.map_or_else(|| (delta.to_vec(), false), |packed| (packed, true))
    }

    /// What these rows have lost so far, for [`Packer::restore`].
    pub fn remember(&self, units: Units, delta: &[u8]) -> Remembered {
        let rows = if self.remembers() { (delta.len() / self.dtype.size()).div_ceil(self.row) } else { 0 };
        Remembered((0..rows).map(|index| (units.at(index), self.lost(units.at(index)))).collect())
    }

    /// An add that was packed is not made: what its rows had lost before is lost again.
    pub fn restore(&mut self, before: &Remembered) {
        fn put<T: Real>(all: &mut HashMap<i64, Vec<T>>, row: i64, lost: &[f64]) {
            match lost.is_empty() {
                true => drop(all.remove(&row)),
                false => drop(all.insert(row, lost.iter().map(|lost| T::narrow(*lost)).collect())),
            }
        }
        for (row, lost) in &before.0 {
            match &mut self.lost {
                Lost::Nothing => {}
                Lost::Singles(all) => put(all, *row, lost),
                Lost::Doubles(all) => put(all, *row, lost),
            }
        }
    }

    /// What has been lost of this row so far; nothing where all of it has arrived.
    pub fn lost(&self, row: i64) -> Vec<f64> {
        match &self.lost {
            Lost::Nothing => Vec::new(),
            Lost::Singles(lost) => lost.get(&row).into_iter().flatten().map(|lost| lost.wide()).collect(),
            Lost::Doubles(lost) => lost.get(&row).into_iter().flatten().map(|lost| lost.wide()).collect(),
        }
    }
}

fn with_feedback<T: Real>(
    lost: &mut HashMap<i64, Vec<T>>,
    row: usize,
    compression: Compression,
    units: Units,
    delta: &[u8],
) -> Vec<u8> {
    let mut values: Vec<T> = forms::collect(delta);
    for (index, values) in values.chunks_mut(row).enumerate() {
        if let Some(lost) = lost.get_mut(&units.at(index)) {
            for (value, lost) in values.iter_mut().zip(lost) {
                *value = T::narrow(value.wide() + std::mem::take(lost).wide());
            }
        }
    }
    let Some(packed) = forms::lossy(&values, compression, row) else {
        // All of it travels as it is, and nothing is left over.
        let whole = bytemuck::cast_slice(&values);
        return forms::without_zeros(T::DTYPE, whole).unwrap_or_else(|| forms::plain(T::DTYPE, whole));
    };
    let arrives = forms::unpack(&packed, T::DTYPE, size_of_val(values.as_slice())).unwrap_or_default();
    let arrives: Vec<T> = forms::collect(&arrives);
    for (index, (values, arrives)) in values.chunks(row).zip(arrives.chunks(row)).enumerate() {
        let left = |value: &T, arrives: &T| value.wide() - arrives.wide();
        if values == arrives {
            continue;
        }
        let lost = lost.entry(units.at(index)).or_insert_with(|| vec![T::default(); row]);
        for ((lost, value), arrives) in lost.iter_mut().zip(values).zip(arrives) {
            *lost = T::narrow(lost.wide() + left(value, arrives));
        }
    }
    packed
}
