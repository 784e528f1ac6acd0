//! Lines of LIBSVM files.

use super::{FeatureIds, Mistake, SparseSamples, number};

/// Adds the features of a line; returns its label, or `None` if the line has no sample.
pub(super) fn parse(
    line: &[u8],
    ids: FeatureIds,
    samples: &mut SparseSamples,
) -> Result<Option<f32>, Mistake> {
    let line = line.split(|byte| *byte == b'#').next().unwrap_or_default();
    let mut fields = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
    let Some(label) = fields.next() else { return Ok(None) };
    let label = number(label, "a number as label")?;
    for field in fields {
        let Some(colon) = field.iter().position(|byte| *byte == b':') else {
            return Err(Mistake::new("features as id:value", field));
        };
        let (name, value) = (&field[..colon], &field[colon + 1..]);
        if name == b"qid" {
            continue;
        }
        let id = index(name).ok_or_else(|| Mistake::new("an id from 0 up, below 2**63", name))?;
        let value = match value {
            b"1" => 1.0,
            _ => number(value, "a finite number as value")?,
        };
        samples.add(if ids.hash_bits.is_some() { ids.hash(0, id as u64) } else { id }, value);
    }
    Ok(Some(label))
}

/// A number that consists of digits.
fn index(text: &[u8]) -> Option<i64> {
    let mut index = 0i64;
    for byte in text {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        index = index.checked_mul(10)?.checked_add(i64::from(digit))?;
    }
    (!text.is_empty()).then_some(index)
}
