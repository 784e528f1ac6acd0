//! Element types in data files.

use super::Inputs;
use super::npy::Values;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NumberType {
    U1,
    F4,
    F8,
    I1,
    I2,
    I4,
    U4,
    I8,
}

/// Converts chunks of `SIZE` little-endian bytes to values.
fn each<const SIZE: usize, V>(bytes: &[u8], convert: impl Fn([u8; SIZE]) -> V) -> impl Iterator<Item = V> {
    bytes.chunks_exact(SIZE).map(move |chunk| convert(chunk.try_into().expect("chunks have this size")))
}

impl NumberType {
    /// The type with this `descr` in NumPy files.
    pub(super) fn named(name: &str) -> Option<NumberType> {
        Some(match name {
            "|u1" => NumberType::U1,
            "<f4" => NumberType::F4,
            "<f8" => NumberType::F8,
            "|i1" => NumberType::I1,
            "<i2" => NumberType::I2,
            "<i4" => NumberType::I4,
            "<u4" => NumberType::U4,
            "<i8" => NumberType::I8,
            _ => return None,
        })
    }

    /// The size of an element in bytes.
    pub(super) fn size(self) -> usize {
        match self {
            NumberType::U1 | NumberType::I1 => 1,
            NumberType::I2 => 2,
            NumberType::F4 | NumberType::I4 | NumberType::U4 => 4,
            NumberType::F8 | NumberType::I8 => 8,
        }
    }

    /// Reverses the byte order of each element.
    pub(super) fn swap(self, bytes: &mut [u8]) {
        bytes.chunks_exact_mut(self.size()).for_each(<[u8]>::reverse);
    }

    /// Whether the type can represent NaN and infinity.
    pub(super) fn is_float(self) -> bool {
        matches!(self, NumberType::F4 | NumberType::F8)
    }

    /// Decodes bytes to double precision.
    pub(super) fn doubles(self, bytes: &[u8], values: &mut [f64]) {
        fn put(values: &mut [f64], numbers: impl Iterator<Item = f64>) {
            values.iter_mut().zip(numbers).for_each(|(value, number)| *value = number);
        }
        match self {
            NumberType::U1 => put(values, bytes.iter().map(|byte| f64::from(*byte))),
            NumberType::F4 => put(values, each(bytes, |value| f64::from(f32::from_le_bytes(value)))),
            NumberType::F8 => put(values, each(bytes, f64::from_le_bytes)),
            NumberType::I1 => put(values, each(bytes, |value| f64::from(i8::from_le_bytes(value)))),
            NumberType::I2 => put(values, each(bytes, |value| f64::from(i16::from_le_bytes(value)))),
            NumberType::I4 => put(values, each(bytes, |value| f64::from(i32::from_le_bytes(value)))),
            NumberType::U4 => put(values, each(bytes, |value| f64::from(u32::from_le_bytes(value)))),
            NumberType::I8 => put(values, each(bytes, |value| i64::from_le_bytes(value) as f64)),
        }
    }

    /// Decodes bytes to the smallest of the supported types.
    pub(super) fn values(self, bytes: Vec<u8>) -> Values {
        match self {
            NumberType::U1 => Values::Bytes(bytes),
            NumberType::F4 => Values::Singles(each(&bytes, f32::from_le_bytes).collect()),
            _ => {
                let mut values = vec![0.0; bytes.len() / self.size()];
                self.doubles(&bytes, &mut values);
                Values::Doubles(values)
            }
        }
    }
}

impl From<Values> for Inputs {
    fn from(values: Values) -> Inputs {
        match values {
            Values::Bytes(values) => Inputs::Bytes(values),
            Values::Singles(values) => Inputs::Singles(values),
            Values::Doubles(values) => Inputs::Doubles(values),
        }
    }
}
