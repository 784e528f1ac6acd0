//! Sparse samples in text files, one per line: a label, and features with ids and values. Each process reads its own part of
//! a file.

mod criteo;
mod libsvm;
mod line_reader;

use std::path::Path;

use line_reader::LineReader;
use unisono::{Error, Result};

use crate::random::mix;

/// Sparse samples, as in a matrix in compressed sparse rows.
#[derive(Debug, Clone, PartialEq)]
pub struct SparseSamples {
    /// The label of each sample.
    pub labels: Vec<f32>,
    /// Where the features of each sample begin, and the number of all features.
    pub offsets: Vec<i64>,
    /// The id of each feature.
    pub ids: Vec<i64>,
    /// The value of each feature.
    pub values: Vec<f32>,
}

impl Default for SparseSamples {
    fn default() -> SparseSamples {
        SparseSamples { labels: Vec::new(), offsets: vec![0], ids: Vec::new(), values: Vec::new() }
    }
}

impl SparseSamples {
    fn add(&mut self, id: i64, value: f32) {
        self.ids.push(id);
        self.values.push(value);
    }

    /// Ends a sample, whose features have been added.
    fn end(&mut self, label: f32) {
        self.labels.push(label);
        self.offsets.push(self.ids.len() as i64);
    }

    /// Removes the features of a sample that has not ended.
    fn discard(&mut self) {
        let end = self.offsets.last().map_or(0, |end| *end as usize);
        self.ids.truncate(end);
        self.values.truncate(end);
    }
}

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SparseFormat {
    /// `label id:value id:value …`, as of LIBSVM. The rest of a line from `#` on is a comment.
    Libsvm,
    /// Criteo's logs: a label, 13 integers and 26 hexadecimal strings, separated by tabs; fields may be empty.
    Criteo,
}

/// How features become ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureIds {
    /// Ids are hashes of this many bits, from 1 to 63. Without it, those of LIBSVM files are as they stand there, and those of
    /// Criteo's logs have 63 bits.
    pub hash_bits: Option<u32>,
}

impl FeatureIds {
    /// The id of a value in a column.
    fn hash(self, column: u64, value: u64) -> i64 {
        (mix(value ^ mix(column + 1)) >> (64 - self.hash_bits.unwrap_or(63))) as i64
    }
}

/// Reads a part of a file, batch by batch.
///
/// ```
/// use unisono_nn::{FeatureIds, SparseFormat, SparseReader};
/// let path = std::env::temp_dir().join(format!("unisono-clicks-{}.txt", std::process::id()));
/// std::fs::write(&path, "1 3:0.5 7:1\n0 2:1\n").expect("the folder is writable");
/// let mut reader = SparseReader::open(&path, SparseFormat::Libsvm, FeatureIds { hash_bits: None }, 0, 1)?;
/// let samples = reader.read(100)?;
/// assert_eq!((samples.labels, samples.offsets, samples.ids), (vec![1.0, 0.0], vec![0, 2, 3], vec![3, 7, 2]));
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), unisono::Error>(())
/// ```
pub struct SparseReader {
    lines: LineReader,
    format: SparseFormat,
    ids: FeatureIds,
}

impl SparseReader {
    /// Opens one of `parts` parts of a file, which are of about the same size and together have every line once.
    pub fn open(
        path: &Path,
        format: SparseFormat,
        ids: FeatureIds,
        part: usize,
        parts: usize,
    ) -> Result<SparseReader> {
        if part >= parts {
            let expected = "a part below the number of parts";
            return Err(Error::usage("read", expected, format!("part {part} of {parts}"), "count from 0"));
        }
        if let Some(bits) = ids.hash_bits.filter(|bits| !(1..=63).contains(bits)) {
            return Err(Error::usage(
                "read",
                "hash_bits from 1 to 63",
                bits.to_string(),
                "use 22, for example",
            ));
        }
        Ok(SparseReader { lines: LineReader::open(path, part, parts)?, format, ids })
    }

    /// Reads up to `count` samples; none at the end of the part.
    pub fn read(&mut self, count: usize) -> Result<SparseSamples> {
        let mut samples = SparseSamples::default();
        while samples.labels.len() < count {
            let Some(line) = self.lines.next()? else { break };
            let parsed = match self.format {
                SparseFormat::Libsvm => libsvm::parse(line, self.ids, &mut samples),
                SparseFormat::Criteo => criteo::parse(line, self.ids, &mut samples),
            };
            match parsed {
                Ok(Some(label)) => samples.end(label),
                Ok(None) => samples.discard(),
                Err(mistake) => return Err(self.lines.error(&mistake)),
            }
        }
        Ok(samples)
    }

    /// Bytes of this part that have been read, and its size.
    pub fn progress(&self) -> (u64, u64) {
        self.lines.progress()
    }
}

/// What is wrong with a line: what was expected, and what stands there.
struct Mistake {
    expected: &'static str,
    received: String,
}

impl Mistake {
    /// Text that does not say what it should.
    fn new(expected: &'static str, received: &[u8]) -> Mistake {
        const LONGEST: usize = 60;
        let text = String::from_utf8_lossy(&received[..received.len().min(LONGEST)]).into_owned();
        Mistake { expected, received: if text.is_empty() { "nothing".into() } else { format!("{text:?}") } }
    }
}

/// A finite number.
fn number(text: &[u8], expected: &'static str) -> Result<f32, Mistake> {
    let parsed = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f32>().ok());
    parsed.filter(|value| value.is_finite()).ok_or_else(|| Mistake::new(expected, text))
}

#[cfg(test)]
mod tests;
