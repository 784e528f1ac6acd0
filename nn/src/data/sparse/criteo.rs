//! Lines of Criteo's logs.

use super::{FeatureIds, Mistake, SparseSamples, number};

const INTEGERS: usize = 13;
const CATEGORIES: usize = 26;

/// Adds the features of a line, each with the value 1; returns its label. A missing field is no feature.
///
/// An integer above 2 becomes the whole part of the square of its logarithm: large counts that differ little have the same
/// id.
pub(super) fn parse(
    line: &[u8],
    ids: FeatureIds,
    samples: &mut SparseSamples,
) -> Result<Option<f32>, Mistake> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let mut fields = line.strip_suffix(b"\r").unwrap_or(line).split(|byte| *byte == b'\t');
    let label = number(fields.next().unwrap_or_default(), "a number as label")?;
    for column in 1..=INTEGERS + CATEGORIES {
        let Some(field) = fields.next() else {
            return Err(Mistake::new("40 fields separated by tabs", line));
        };
        if field.is_empty() {
            continue;
        }
        let value = if column <= INTEGERS { bucket(field)? } else { category(field)? };
        samples.add(ids.hash(column as u64, value), 1.0);
    }
    match fields.next() {
        Some(_) => Err(Mistake::new("40 fields separated by tabs", line)),
        None => Ok(Some(label)),
    }
}

fn bucket(field: &[u8]) -> Result<u64, Mistake> {
    let parsed = std::str::from_utf8(field).ok().and_then(|text| text.parse::<i64>().ok());
    let value = parsed.ok_or_else(|| Mistake::new("an integer of 64 bits", field))?;
    Ok(if value <= 2 { value as u64 } else { (value as f64).ln().powi(2) as u64 + 3 })
}

fn category(field: &[u8]) -> Result<u64, Mistake> {
    let digits = std::str::from_utf8(field).ok().filter(|text| !text.starts_with('+'));
    let parsed = digits.and_then(|text| u64::from_str_radix(text, 16).ok());
    parsed.ok_or_else(|| Mistake::new("a hexadecimal number of at most 16 digits", field))
}
