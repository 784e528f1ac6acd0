//! NumPy's `.npy` files.

use std::io::Read;
use std::path::Path;

use unisono::{Error, Result};

use super::file::{DataSetFile, damaged, open_or};
use super::number_type::NumberType;

/// The elements of an array.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// `uint8`.
    Bytes(Vec<u8>),
    /// `float32`.
    Singles(Vec<f32>),
    /// `float64`, and integers.
    Doubles(Vec<f64>),
}

/// An array and its shape, in row-major order: the last axis varies fastest.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    /// The length of each axis.
    pub shape: Vec<usize>,
    /// The elements.
    pub values: Values,
}

impl Array {
    /// The elements in double precision.
    pub fn doubles(&self) -> Vec<f64> {
        match &self.values {
            Values::Bytes(values) => values.iter().map(|value| f64::from(*value)).collect(),
            Values::Singles(values) => values.iter().map(|value| f64::from(*value)).collect(),
            Values::Doubles(values) => values.clone(),
        }
    }
}

/// Reads a file.
pub fn read(path: &Path) -> Result<Array> {
    let file = open(path)?;
    parse(&file.path, &file.all()?)
}

/// Opens a file.
pub(super) fn open(path: &Path) -> Result<DataSetFile> {
    open_or(
        path,
        "give the path of a .npy file, relative to the file that names it, or to this folder after --set",
    )
}

/// The value of a key in the header, a Python dictionary literal: up to the next comma outside brackets.
fn entry<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let start = header.find(&format!("'{key}'"))? + key.len() + 2;
    let rest = header[start..].trim_start().strip_prefix(':')?.trim_start();
    let end = match rest.strip_prefix('(') {
        Some(inside) => inside.find(')')? + 2,
        None => rest.find([',', '}'])?,
    };
    Some(rest[..end].trim())
}

/// The header of a file.
pub(super) struct NpyHeader {
    pub(super) kind: NumberType,
    pub(super) shape: Vec<usize>,
    /// Whether the elements are big-endian.
    pub(super) swapped: bool,
    /// Whether the array is in Fortran order: the first axis varies fastest.
    pub(super) fortran: bool,
    /// The offset of the elements in bytes.
    pub(super) start: usize,
}

/// Reads the header of a file.
pub(super) fn read_header(path: &Path, reader: &mut dyn Read) -> Result<NpyHeader> {
    let wrong = |received: &str| damaged(path, "a .npy file", received);
    let mut next = |count: usize| -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        match reader.take(count as u64).read_to_end(&mut bytes) {
            Ok(read) if read == count => Ok(bytes),
            Ok(_) => Err(wrong("a truncated file")),
            Err(error) => Err(wrong(&error.to_string())),
        }
    };
    let first = next(8)?;
    if !first.starts_with(b"\x93NUMPY") {
        let advice = "save one array with numpy.save";
        let received = if first.starts_with(b"PK") { "a .npz archive" } else { "something else" };
        return Err(Error::usage(format!("load {}", path.display()), "a .npy file", received, advice));
    }
    let word = match first[6] {
        1 => next(2)?,
        2 | 3 => next(4)?,
        version => return Err(wrong(&format!("version {version} of the format"))),
    };
    let length = word.iter().rev().fold(0, |value, byte| value << 8 | usize::from(*byte));
    let header = next(length)?;
    let header = std::str::from_utf8(&header).map_err(|_| wrong("a header that is not text"))?;
    let find = |key: &str| entry(header, key).ok_or_else(|| wrong(&format!("a header without '{key}'")));
    let fortran = match find("fortran_order")? {
        "True" => true,
        "False" => false,
        other => return Err(wrong(&format!("'fortran_order': {other}"))),
    };
    let shape: Vec<usize> = find("shape")?
        .trim_matches(['(', ')'])
        .split(',')
        .map(str::trim)
        .filter(|axis| !axis.is_empty())
        .map(|axis| axis.parse().map_err(|_| wrong("a shape that does not consist of integers")))
        .collect::<Result<_>>()?;
    let name = find("descr")?.trim_matches('\'');
    let kind = NumberType::named(&name.replace('>', "<")).ok_or_else(|| {
        let advice = "save it as float32, float64, uint8 or an integer with a sign";
        Error::usage(
            format!("load {}", path.display()),
            "an array of numbers",
            format!("the type {name}"),
            advice,
        )
    })?;
    let size = shape.iter().try_fold(kind.size(), |size, axis| size.checked_mul(*axis));
    size.ok_or_else(|| wrong("a shape that no memory can hold"))?;
    let swapped = name.starts_with('>');
    Ok(NpyHeader { kind, shape, swapped, fortran, start: first.len() + word.len() + length })
}

pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Array> {
    let NpyHeader { kind, shape, swapped, fortran, start } = read_header(path, &mut &*bytes)?;
    let (count, data) = (shape.iter().product::<usize>(), &bytes[start..]);
    if data.len() != count * kind.size() {
        return Err(damaged(path, "a .npy file", format!("{} bytes for {count} numbers", data.len())));
    }
    let mut data = if fortran { last_axis_fastest(data, &shape, kind.size()) } else { data.to_vec() };
    if swapped {
        kind.swap(&mut data);
    }
    Ok(Array { shape, values: kind.values(data) })
}

/// Converts elements of `size` bytes from Fortran order to row-major order.
fn last_axis_fastest(data: &[u8], shape: &[usize], size: usize) -> Vec<u8> {
    let mut result = Vec::with_capacity(data.len());
    let mut place = vec![0; shape.len()];
    for _ in 0..data.len() / size {
        let at = place.iter().zip(shape).rev().fold(0, |at, (index, length)| at * length + index);
        result.extend_from_slice(&data[at * size..][..size]);
        // Advances the index, with the last axis fastest.
        for (index, length) in place.iter_mut().zip(shape).rev() {
            *index = (*index + 1) % length;
            if *index > 0 {
                break;
            }
        }
    }
    result
}

/// Writes elements in single or double precision.
pub fn write<T: crate::Number>(path: &Path, shape: &[usize], values: &[T]) -> std::io::Result<()> {
    let axes: Vec<String> = shape.iter().map(|axis| format!("{axis},")).collect();
    let kind = if T::NAME == "f32" { "<f4" } else { "<f8" };
    let mut header =
        format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({}), }}", axes.join(" "));
    while (header.len() + 11) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend_from_slice(&(header.len() as u16).to_le_bytes());
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(bytemuck::cast_slice(values));
    std::fs::write(path, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_come_back_as_they_were_written() {
        let path = std::env::temp_dir().join(format!("unisono-npy-{}.npy", std::process::id()));
        for shape in [vec![2, 3], vec![6], vec![0, 4]] {
            let count: usize = shape.iter().product();
            let values: Vec<f32> = (0..count).map(|value| value as f32 / 3.0).collect();
            write(&path, &shape, &values).expect("it can be written");
            assert_eq!(read(&path).expect("it is whole"), Array { shape, values: Values::Singles(values) });
        }
        std::fs::remove_file(&path).expect("it can be removed");
    }

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let length = (header.len() as u16).to_le_bytes();
        [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), data].concat()
    }

    #[test]
    fn other_orders_of_bytes_and_axes_are_the_same_arrays() {
        let shape = [2, 3, 4];
        let value = |row: usize, column: usize, depth: usize| (100 * row + 10 * column + depth) as i16;
        let mut numbers = Vec::new();
        (0..2).for_each(|row| {
            (0..3).for_each(|column| (0..4).for_each(|depth| numbers.push(value(row, column, depth))))
        });
        let mut turned = Vec::new();
        (0..4).for_each(|depth| {
            (0..3).for_each(|column| (0..2).for_each(|row| turned.push(value(row, column, depth))))
        });
        let expected = Values::Doubles(numbers.iter().copied().map(f64::from).collect());
        for (fortran, numbers) in [("False", &numbers), ("True", &turned)] {
            let header = |kind: &str| {
                format!("{{'descr': '{kind}', 'fortran_order': {fortran}, 'shape': (2, 3, 4), }}")
            };
            let little: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            let big: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
            for (kind, bytes) in [("<i2", little), (">i2", big)] {
                let array = parse(Path::new("x.npy"), &file(&header(kind), &bytes)).expect(kind);
                assert_eq!(
                    array,
                    Array { shape: shape.to_vec(), values: expected.clone() },
                    "{kind} {fortran}"
                );
            }
        }
        let empty = "{'descr': '>f8', 'fortran_order': True, 'shape': (0, 3), }";
        assert_eq!(parse(Path::new("x.npy"), &file(empty, &[])).expect("it is empty").shape, [0, 3]);
    }

    #[test]
    fn damage_is_rejected() {
        let path = Path::new("x.npy");
        let good = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }";
        assert!(parse(path, &file(good, &[0; 4])).is_ok());
        for bytes in [
            Vec::new(),
            b"\x93NUMPY\x01\x00\xff\xff1234".to_vec(),
            file(good, &[0; 3]),
            file(&good.replace("False", "Perhaps"), &[0; 4]),
            file(&good.replace("<f4", "|O"), &[0; 4]),
            file(&good.replace("(1,)", "(18446744073709551615, 9)"), &[0; 4]),
            file("{}", &[]),
        ] {
            assert!(parse(path, &bytes).is_err());
        }
    }
}
