//! Compression of adds with error feedback (arXiv 1901.09847): the residual of an add is added to the next add of the same rows.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use super::Compression;
use super::encodings::{self, LossyElement};
use crate::memory::DType;
use crate::tables::remote::RowList;

/// The rows of an add.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RowIds<'a> {
    /// Consecutive rows from this one on, as many as the add has.
    From(i64),
    /// These rows, which may repeat.
    List(&'a [i64]),
}

impl RowIds<'_> {
    fn at(&self, index: usize) -> i64 {
        match self {
            RowIds::From(first) => first + index as i64,
            RowIds::List(rows) => rows[index],
        }
    }
}

/// Compresses the adds of one worker to one table.
pub(crate) struct Packer {
    dtype: DType,
    compression: Compression,
    /// Elements per row.
    row: usize,
    residual: Residuals,
}

/// Residuals of rows as they were before an add consumed them.
#[derive(Default)]
pub(crate) struct SavedResiduals(Vec<(i64, Vec<f64>)>);

/// One worker's packers for each other host, with the residuals of its adds, which are carried over to later adds to the same rows
/// or keys (error feedback).
#[derive(Default)]
pub(crate) struct Packers {
    by_host: BTreeMap<usize, Packer>,
    /// Numbers that stand for byte-string keys in the packers.
    numbers: HashMap<Vec<u8>, i64>,
}

impl Packers {
    /// The packer for a host, for rows of `row` elements.
    pub fn of(&mut self, host: usize, dtype: DType, row: usize, compression: Compression) -> &mut Packer {
        self.by_host.entry(host).or_insert_with(|| Packer::new(dtype, row, compression))
    }

    /// The numbers that stand for these keys.
    pub fn numbers_of(&mut self, keys: &[Vec<u8>]) -> Vec<i64> {
        let number = |key: &Vec<u8>| {
            let next = self.numbers.len() as i64;
            *self.numbers.entry(key.clone()).or_insert(next)
        };
        keys.iter().map(number).collect()
    }

    /// Discards all residuals if they are those of more rows than this.
    pub fn limit(&mut self, rows: usize) {
        let kept: usize = self.by_host.values().map(Packer::rows_with_residuals).sum();
        if kept > rows || self.numbers.len() > rows {
            *self = Packers::default();
        }
    }

    /// Discards the residuals of rows or keys, whose values are replaced.
    pub fn discard(&mut self, host: usize, rows: &RowList) {
        let Some(packer) = self.by_host.get_mut(&host).filter(|packer| packer.has_feedback()) else { return };
        match rows {
            RowList::All => {}
            RowList::List(rows) => rows.iter().for_each(|row| packer.discard(*row)),
            RowList::Keys(keys) => {
                let numbers = keys.iter().filter_map(|key| self.numbers.get(key));
                numbers.for_each(|number| packer.discard(*number));
            }
        }
    }

    /// Undoes compressions whose add did not take place: restores the residuals of each host's rows.
    pub fn restore(&mut self, residuals: &[(usize, SavedResiduals)]) {
        for (host, before) in residuals {
            self.by_host.get_mut(host).into_iter().for_each(|packer| packer.restore(before));
        }
    }
}

/// Residuals of earlier adds, by row.
enum Residuals {
    /// None: this type is always sent without loss.
    Nothing,
    Singles(HashMap<i64, Vec<f32>>),
    Doubles(HashMap<i64, Vec<f64>>),
}

impl Packer {
    /// For a table with `row` elements per row. An array is a matrix whose only row is the shard.
    pub fn new(dtype: DType, row: usize, compression: Compression) -> Packer {
        let residual = match (dtype, compression) {
            (_, Compression::None) => Residuals::Nothing,
            (DType::F32, _) => Residuals::Singles(HashMap::new()),
            (DType::F64, _) => Residuals::Doubles(HashMap::new()),
            _ => Residuals::Nothing,
        };
        Packer { dtype, compression, row: row.max(1), residual }
    }

    /// Whether it keeps residuals, and therefore needs to know the rows of an add.
    pub fn has_feedback(&self) -> bool {
        !matches!(self.residual, Residuals::Nothing)
    }

    /// The payload of an add of these rows, and whether it is compressed: see `RemoteRequest::packed`.
    pub fn pack<'a>(&mut self, units: RowIds, delta: impl Into<Cow<'a, [u8]>>) -> (Cow<'a, [u8]>, bool) {
        let whole = delta.into();
        let delta = &*whole;
        let packed = match &mut self.residual {
            Residuals::Nothing => encodings::without_zeros(self.dtype, delta),
            Residuals::Singles(residual) => {
                Some(with_feedback(residual, self.row, self.compression, units, delta))
            }
            Residuals::Doubles(residual) => {
                Some(with_feedback(residual, self.row, self.compression, units, delta))
            }
        };
        packed.map_or((whole, false), |packed| (Cow::Owned(packed), true))
    }

    /// The current residuals of these rows, for [`Packer::restore`].
    pub fn save_residuals(&self, units: RowIds, delta: &[u8]) -> SavedResiduals {
        let rows = if self.has_feedback() { (delta.len() / self.dtype.size()).div_ceil(self.row) } else { 0 };
        SavedResiduals((0..rows).map(|index| (units.at(index), self.residual(units.at(index)))).collect())
    }

    /// Undoes a compression whose add did not take place: restores the residuals of its rows.
    pub fn restore(&mut self, before: &SavedResiduals) {
        fn put<T: LossyElement>(all: &mut HashMap<i64, Vec<T>>, row: i64, residual: &[f64]) {
            match residual.is_empty() {
                true => drop(all.remove(&row)),
                false => {
                    drop(all.insert(row, residual.iter().map(|residual| T::from_f64(*residual)).collect()))
                }
            }
        }
        for (row, residual) in &before.0 {
            match &mut self.residual {
                Residuals::Nothing => {}
                Residuals::Singles(all) => put(all, *row, residual),
                Residuals::Doubles(all) => put(all, *row, residual),
            }
        }
    }

    fn rows_with_residuals(&self) -> usize {
        match &self.residual {
            Residuals::Nothing => 0,
            Residuals::Singles(all) => all.len(),
            Residuals::Doubles(all) => all.len(),
        }
    }

    fn discard(&mut self, row: i64) {
        match &mut self.residual {
            Residuals::Nothing => {}
            Residuals::Singles(all) => drop(all.remove(&row)),
            Residuals::Doubles(all) => drop(all.remove(&row)),
        }
    }

    /// The residual of this row; empty if nothing was lost.
    pub fn residual(&self, row: i64) -> Vec<f64> {
        match &self.residual {
            Residuals::Nothing => Vec::new(),
            Residuals::Singles(residual) => {
                residual.get(&row).into_iter().flatten().map(|residual| residual.to_f64()).collect()
            }
            Residuals::Doubles(residual) => {
                residual.get(&row).into_iter().flatten().map(|residual| residual.to_f64()).collect()
            }
        }
    }
}

fn with_feedback<T: LossyElement>(
    residual: &mut HashMap<i64, Vec<T>>,
    row: usize,
    compression: Compression,
    units: RowIds,
    delta: &[u8],
) -> Vec<u8> {
    let mut values: Vec<T> = encodings::collect(delta);
    for (index, values) in values.chunks_mut(row).enumerate() {
        if let Some(residual) = residual.get_mut(&units.at(index)) {
            for (value, residual) in values.iter_mut().zip(residual) {
                *value = T::from_f64(value.to_f64() + std::mem::take(residual).to_f64());
            }
        }
    }
    let Some(packed) = encodings::lossy(&values, compression, row) else {
        // All elements are sent without loss, so there is no residual.
        let whole = bytemuck::cast_slice(&values);
        return encodings::without_zeros(T::DTYPE, whole).unwrap_or_else(|| encodings::raw(T::DTYPE, whole));
    };
    let decoded = encodings::unpack(&packed, T::DTYPE, size_of_val(values.as_slice())).unwrap_or_default();
    let decoded: Vec<T> = encodings::collect(&decoded);
    for (index, (values, decoded)) in values.chunks(row).zip(decoded.chunks(row)).enumerate() {
        let left = |value: &T, decoded: &T| value.to_f64() - decoded.to_f64();
        if values == decoded {
            continue;
        }
        let residual = residual.entry(units.at(index)).or_insert_with(|| vec![T::default(); row]);
        for ((residual, value), decoded) in residual.iter_mut().zip(values).zip(decoded) {
            *residual = T::from_f64(residual.to_f64() + left(value, decoded));
        }
    }
    packed
}
