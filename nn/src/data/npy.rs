//! NumPy's `.npy` files.

use std::path::Path;

use unisono::Result;

use super::file::{damaged, read_or};

/// The numbers of an array.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// `uint8`.
    Bytes(Vec<u8>),
    /// `float32`.
    Singles(Vec<f32>),
    /// `float64`, and integers.
    Doubles(Vec<f64>),
}

/// An array and its shape, the last axis being the fastest.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    /// The length of each axis.
    pub shape: Vec<usize>,
    /// The numbers.
    pub values: Values,
}

impl Array {
    /// Its numbers in double precision.
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
    parse(path, &read_or(path, "give the path of a .npy file, relative to the file that names it")?)
}

/// The value of a key in the header, a Python dictionary: up to the next comma that is not in brackets.
fn entry<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let start = header.find(&format!("'{key}'"))? + key.len() + 2;
    let rest = header[start..].trim_start().strip_prefix(':')?.trim_start();
    let end = match rest.strip_prefix('(') {
        Some(inside) => inside.find(')')? + 2,
        None => rest.find([',', '}'])?,
    };
    Some(rest[..end].trim())
}

pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Array> {
    let wrong = |received: &str| damaged(path, "a .npy file", received);
    if bytes.len() < 12 || !bytes.starts_with(b"\x93NUMPY") {
        return Err(wrong("another first word"));
    }
    let (length, start) = match bytes[6] {
        1 => (usize::from(u16::from_le_bytes([bytes[8], bytes[9]])), 10),
        2 | 3 => (u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) as usize, 12),
        version => return Err(wrong(&format!("version {version} of the format"))),
    };
    let header = bytes.get(start..start + length).ok_or_else(|| wrong("a file that ends too early"))?;
    let header = std::str::from_utf8(header).map_err(|_| wrong("a header that is not text"))?;
    let find = |key: &str| entry(header, key).ok_or_else(|| wrong(&format!("a header without '{key}'")));
    if find("fortran_order")? != "False" {
        return Err(wrong("an array in Fortran's order; save numpy.ascontiguousarray of it"));
    }
    let shape: Vec<usize> = find("shape")?
        .trim_matches(['(', ')'])
        .split(',')
        .map(str::trim)
        .filter(|axis| !axis.is_empty())
        .map(|axis| axis.parse().map_err(|_| wrong("a shape that is not made of numbers")))
        .collect::<Result<_>>()?;
    let count = shape
        .iter()
        .try_fold(1_usize, |count, axis| count.checked_mul(*axis))
        .ok_or_else(|| wrong("a shape beyond all bounds"))?;
    let values = numbers(find("descr")?.trim_matches('\''), &bytes[start + length..], count)
        .map_err(|received| wrong(&received))?;
    Ok(Array { shape, values })
}

fn numbers(kind: &str, bytes: &[u8], count: usize) -> std::result::Result<Values, String> {
    fn each<const SIZE: usize, V>(
        bytes: &[u8],
        count: usize,
        convert: impl Fn([u8; SIZE]) -> V,
    ) -> std::result::Result<Vec<V>, String> {
        if Some(bytes.len()) != count.checked_mul(SIZE) {
            return Err(format!("{} bytes for {count} numbers", bytes.len()));
        }
        let element = |chunk: &[u8]| convert(chunk.try_into().expect("chunks have this size"));
        Ok(bytes.chunks_exact(SIZE).map(element).collect())
    }
    Ok(match kind {
        "|u1" => Values::Bytes(each(bytes, count, |[byte]: [u8; 1]| byte)?),
        "<f4" => Values::Singles(each(bytes, count, f32::from_le_bytes)?),
        "<f8" => Values::Doubles(each(bytes, count, f64::from_le_bytes)?),
        "|i1" => Values::Doubles(each(bytes, count, |value| f64::from(i8::from_le_bytes(value)))?),
        "<i2" => Values::Doubles(each(bytes, count, |value| f64::from(i16::from_le_bytes(value)))?),
        "<i4" => Values::Doubles(each(bytes, count, |value| f64::from(i32::from_le_bytes(value)))?),
        "<u4" => Values::Doubles(each(bytes, count, |value| f64::from(u32::from_le_bytes(value)))?),
        "<i8" => Values::Doubles(each(bytes, count, |value| i64::from_le_bytes(value) as f64)?),
        other => return Err(format!("the type {other}; save it as float32, float64, uint8 or an integer")),
    })
}

/// Writes numbers in single or double precision.
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

    #[test]
    fn damage_is_refused() {
        let path = Path::new("x.npy");
        let file = |header: &str, data: &[u8]| {
            let length = (header.len() as u16).to_le_bytes();
            [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), data].concat()
        };
        let good = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }";
        assert!(parse(path, &file(good, &[0; 4])).is_ok());
        for bytes in [
            Vec::new(),
            b"\x93NUMPY\x01\x00\xff\xff1234".to_vec(),
            file(good, &[0; 3]),
            file(&good.replace("False", "True"), &[0; 4]),
            file(&good.replace("<f4", "|O"), &[0; 4]),
            file(&good.replace("(1,)", "(18446744073709551615, 9)"), &[0; 4]),
            file("{}", &[]),
        ] {
            assert!(parse(path, &bytes).is_err());
        }
    }
}
