//! Samples in files of fixed-size records: MNIST, CIFAR-10 and `.npy` arrays.

use std::io::Read;
use std::ops::Range;
use std::path::Path;

use unisono::Result;

use super::file::{DataSetFile, damaged};
use super::number_type::NumberType;
use super::{Inputs, Store};
use crate::memory;

/// Ranges with gaps smaller than this, in bytes, are read with one call: the disk reads full pages anyway.
const PAGE: usize = 4096;

/// The record format of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordFormat {
    /// The length of the file header, in bytes.
    pub(super) head: usize,
    /// The length of the record prefix before a sample's elements, in bytes.
    pub(super) lead: usize,
    /// The number of elements per sample.
    pub(super) width: usize,
    pub(super) kind: NumberType,
    /// Whether the elements are big-endian.
    pub(super) swapped: bool,
    /// The divisor of the elements.
    pub(super) divisor: f64,
}

impl RecordFormat {
    /// The length of a record in bytes.
    pub(super) fn stride(&self) -> usize {
        self.lead + self.width * self.kind.size()
    }
}

#[derive(Debug)]
pub(super) struct Records {
    /// Each file with its number of samples.
    files: Vec<(DataSetFile, usize)>,
    form: RecordFormat,
}

/// Rejects a NaN or an infinity, which would destroy the weights of any model trained on it.
pub(super) fn reject_non_finite(path: &Path, sample: usize, values: &[f64]) -> Result<()> {
    match values.iter().position(|value| !value.is_finite()) {
        None => Ok(()),
        Some(at) => {
            let received = format!("{} at index {at} of sample {sample}", values[at]);
            Err(damaged(path, "finite numbers", received))
        }
    }
}

impl Records {
    /// Opens files with their numbers of samples. Compressed files are checked when they are read.
    pub(super) fn new(files: Vec<(DataSetFile, usize)>, form: RecordFormat) -> Result<Records> {
        for (file, count) in &files {
            if file.compressed {
                // Only the header has been read, and it may claim any size: checks the memory per sample and for one sample.
                check_fits(file, count.saturating_add(form.width).saturating_mul(size_of::<f64>()))?;
                continue;
            }
            let expected = count.checked_mul(form.stride()).map(|bytes| (bytes + form.head) as u64);
            let length = file.length()?;
            if expected != Some(length) {
                let expected =
                    format!("{count} samples of {} bytes after the first {}", form.stride(), form.head);
                return Err(damaged(&file.path, expected, format!("{length} bytes")));
            }
        }
        Ok(Records { files, form })
    }

    /// The file of a sample, and the offset of its elements in bytes.
    fn locate(&self, sample: usize) -> (&DataSetFile, u64) {
        let mut inside = sample;
        for (file, count) in &self.files {
            if inside < *count {
                return (file, (self.form.head + inside * self.form.stride() + self.form.lead) as u64);
            }
            inside -= count;
        }
        panic!("sample {sample}, which the data set does not have");
    }
}

impl Store for Records {
    fn read(&self, sample: usize, places: &[Range<usize>], mut values: &mut [f64]) -> Result<()> {
        let (file, at) = self.locate(sample);
        let (kind, divisor) = (self.form.kind, self.form.divisor);
        let size = kind.size();
        let near = |one: &Range<usize>, next: &Range<usize>| {
            next.start.checked_sub(one.end).is_some_and(|between| between * size < PAGE)
        };
        let mut bytes = Vec::new();
        for runs in places.chunk_by(near) {
            let first = runs[0].start;
            bytes.resize((runs[runs.len() - 1].end - first) * size, 0);
            file.read_at(&mut bytes, at + (first * size) as u64)?;
            if self.form.swapped {
                kind.swap(&mut bytes);
            }
            for run in runs {
                let (own, rest) = values.split_at_mut(run.len());
                kind.doubles(&bytes[(run.start - first) * size..(run.end - first) * size], own);
                values = rest;
                if divisor != 1.0 {
                    own.iter_mut().for_each(|value| *value /= divisor);
                }
            }
        }
        Ok(())
    }

    fn check(&self, samples: &[usize]) -> Result<()> {
        if !self.form.kind.is_float() {
            return Ok(());
        }
        let whole = 0..self.form.width;
        let mut values = vec![0.0; self.form.width];
        for sample in samples {
            self.read(*sample, std::slice::from_ref(&whole), &mut values)?;
            reject_non_finite(&self.locate(*sample).0.path, *sample, &values)?;
        }
        Ok(())
    }

    /// Decompresses compressed files once, and keeps the requested part in memory.
    fn keep(&self, samples: &[usize], places: &[Range<usize>]) -> Result<Option<Inputs>> {
        if self.files.iter().all(|(file, _)| !file.compressed) {
            return Ok(None);
        }
        let RecordFormat { head, lead, width, kind, .. } = self.form;
        let size = kind.size();
        let own = size * places.iter().map(|run| run.len()).sum::<usize>();
        let all = samples.len().saturating_mul(own);
        self.files.iter().try_for_each(|(file, _)| check_fits(file, all))?;
        let mut kept = vec![0; all];
        let mut order: Vec<usize> = (0..samples.len()).collect();
        order.sort_by_key(|at| samples[*at]);
        let mut wanted = order.into_iter().peekable();
        let (mut record, mut numbers) = (vec![0; self.form.stride()], vec![0.0; width]);
        let mut sample = 0;
        for (file, count) in &self.files {
            let mut reader = file.reader()?;
            let mut next = |bytes: &mut [u8]| reader.read_exact(bytes).map_err(|error| file.failed(error));
            next(&mut vec![0; head])?;
            for _ in 0..*count {
                next(&mut record)?;
                if self.form.swapped {
                    kind.swap(&mut record[lead..]);
                }
                let bytes = &record[lead..];
                if kind.is_float() {
                    kind.doubles(bytes, &mut numbers);
                    reject_non_finite(&file.path, sample, &numbers)?;
                }
                while let Some(at) = wanted.next_if(|at| samples[*at] == sample) {
                    let mut rest = &mut kept[at * own..(at + 1) * own];
                    for run in places {
                        let (part, after) = rest.split_at_mut(run.len() * size);
                        part.copy_from_slice(&bytes[run.start * size..run.end * size]);
                        rest = after;
                    }
                }
                sample += 1;
            }
            check_end(file, &mut reader)?;
        }
        Ok(Some(kind.values(kept).into()))
    }
}

fn check_fits(file: &DataSetFile, bytes: usize) -> Result<()> {
    let operation = format!("load {}", file.path.display());
    memory::check_fits(&operation, "unpacked samples", bytes, "unpack the file, or write it again")
}

/// Rejects trailing bytes; reaching the end also verifies that a compressed file is complete.
fn check_end(file: &DataSetFile, reader: &mut dyn Read) -> Result<()> {
    match reader.read(&mut [0]) {
        Ok(0) => Ok(()),
        Ok(_) => Err(damaged(&file.path, "nothing after the last sample", "more bytes")),
        Err(error) => Err(file.failed(error)),
    }
}
