//! Lines of sparse samples, parts of files, mistakes, damaged files.

use std::collections::HashSet;
use std::fmt::Write;
use std::io::Write as _;
use std::path::PathBuf;

use unisono::testing::mutate;

use super::*;
use crate::fuzz::fuzz;
use crate::random::RandomStream;

const PLAIN: FeatureIds = FeatureIds { hash_bits: None };

/// A file that is removed when the value is dropped.
struct Text(PathBuf);

impl Text {
    fn new(contents: &[u8]) -> Text {
        static NUMBER: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("unisono-sparse-{}-{number}", std::process::id()));
        std::fs::File::create(&path).unwrap().write_all(contents).unwrap();
        Text(path)
    }

    fn part(
        &self,
        format: SparseFormat,
        ids: FeatureIds,
        part: usize,
        parts: usize,
    ) -> Result<SparseSamples> {
        let mut reader = SparseReader::open(&self.0, format, ids, part, parts)?;
        let mut all = SparseSamples::default();
        loop {
            let batch = reader.read(3)?;
            if batch.labels.is_empty() {
                let (read, size) = reader.progress();
                assert_eq!(read, size, "the part was read to its end");
                return Ok(all);
            }
            assert_eq!(batch.offsets[0], 0);
            for (sample, label) in batch.labels.iter().enumerate() {
                for feature in batch.offsets[sample]..batch.offsets[sample + 1] {
                    all.add(batch.ids[feature as usize], batch.values[feature as usize]);
                }
                all.end(*label);
            }
        }
    }

    fn all(&self, format: SparseFormat, ids: FeatureIds) -> Result<SparseSamples> {
        self.part(format, ids, 0, 1)
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

#[test]
fn lines_of_libsvm_files() {
    let text = Text::new(
        b"+1 3:0.5 7:1 # a comment 9:9\r\n\n-1\n  # nothing\n0.25 qid:4 0:-1e-3 9223372036854775807:2",
    );
    let samples = text.all(SparseFormat::Libsvm, PLAIN).unwrap();
    assert_eq!(samples.labels, [1.0, -1.0, 0.25]);
    assert_eq!(samples.offsets, [0, 2, 2, 4]);
    assert_eq!(samples.ids, [3, 7, 0, i64::MAX]);
    assert_eq!(samples.values, [0.5, 1.0, -1e-3, 2.0]);
}

/// A line of Criteo's logs with these fields first and last, and all others missing.
fn log(label: &str, first: &str, last: &str) -> String {
    format!("{label}\t{first}{}{last}\n", "\t".repeat(38))
}

#[test]
fn lines_of_criteos_logs() {
    let lines = [
        log("1", "5", "68fd1e64"),
        log("0", "", "68FD1E64"),
        log("0", "6", ""),
        log("0", "1", ""),
        log("1", "-1", ""),
        log("0", "2000000", ""),
        log("0", "2000001", ""),
    ];
    let text = Text::new(lines.concat().as_bytes());
    for ids in [PLAIN, FeatureIds { hash_bits: Some(20) }] {
        let samples = text.all(SparseFormat::Criteo, ids).unwrap();
        assert_eq!(samples.labels, [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
        assert_eq!(samples.offsets, [0, 2, 3, 4, 5, 6, 7, 8]);
        assert!(samples.values.iter().all(|value| *value == 1.0));
        let same = |one: usize, other: usize| samples.ids[one] == samples.ids[other];
        assert!(same(1, 2), "upper and lower case are the same category");
        assert!(same(6, 7), "large counts that differ little are the same feature");
        assert!(!same(0, 3) && !same(3, 4) && !same(4, 5) && !same(0, 1));
        assert!(ids.hash_bits.is_none() || samples.ids.iter().all(|id| *id < 1 << 20));
    }
}

#[test]
fn a_mistake_is_named_with_its_line() {
    let criteo = log("1", "x", "");
    for (format, bad, words) in [
        (SparseFormat::Libsvm, "1 3", "features as id:value, received \"3\""),
        (SparseFormat::Libsvm, "1 -3:1", "an id from 0 up, below 2**63, received \"-3\""),
        (SparseFormat::Libsvm, "1 9223372036854775808:1", "received \"9223372036854775808\""),
        (SparseFormat::Libsvm, "1 :1", "an id from 0 up, below 2**63, received nothing"),
        (SparseFormat::Libsvm, "1 3:nan", "a finite number as value, received \"nan\""),
        (SparseFormat::Libsvm, "yes 3:1", "a number as label, received \"yes\""),
        (SparseFormat::Criteo, "1\t2\t3", "40 fields separated by tabs"),
        (SparseFormat::Criteo, &criteo, "an integer of 64 bits, received \"x\""),
    ] {
        let good =
            if format == SparseFormat::Libsvm { "1 2:3\n".repeat(4) } else { log("1", "1", "f").repeat(4) };
        let text = Text::new(format!("{good}{bad}").as_bytes());
        for part in [0, 1] {
            let error = match text.part(format, PLAIN, part, 2) {
                Ok(_) => continue,
                Err(error) => error.to_string(),
            };
            assert!(error.contains(words), "{error}");
            assert!(error.contains(&format!("{}:5)", text.0.display())), "{error}");
        }
        assert!(text.all(format, PLAIN).is_err());
    }
}

#[test]
fn arguments_and_files_are_checked() {
    let open = |path: &Path, bits, part| {
        let ids = FeatureIds { hash_bits: bits };
        SparseReader::open(path, SparseFormat::Libsvm, ids, part, 2).map(drop).unwrap_err().to_string()
    };
    let text = Text::new(b"1 2:3");
    assert!(open(&text.0, Some(0), 0).contains("hash_bits from 1 to 63"));
    assert!(open(&text.0, Some(64), 0).contains("hash_bits from 1 to 63"));
    assert!(open(&text.0, None, 2).contains("part 2 of 2"));
    assert!(open(Path::new("/nowhere/at/all"), None, 0).contains("/nowhere/at/all"));
    assert!(open(&std::env::temp_dir(), None, 0).contains("a regular file"));
}

#[test]
fn a_file_without_lines_is_rejected_before_it_fills_the_memory() {
    let text = Text::new(&vec![b' '; LINE + 1]);
    let error = text.all(SparseFormat::Libsvm, PLAIN).unwrap_err().to_string();
    assert!(error.contains("a line of at most 16 MiB"), "{error}");
}

const LINE: usize = 16 << 20;

#[test]
fn parts_have_every_line_once() {
    for case in 0..60u64 {
        let (stream, mut drawn) = (RandomStream::new(case, "lines"), 0);
        let mut below = |limit: u64| {
            drawn += 1;
            stream.bits(drawn) % limit
        };
        let mut contents = String::new();
        let mut expected = SparseSamples::default();
        for number in 0..below(40) {
            write!(contents, "{number}").unwrap();
            for _ in 0..below(6) {
                let (id, value) = (below(1 << 40) as i64, below(18) as f32 - 9.0);
                write!(contents, " {id}:{value}").unwrap();
                expected.add(id, value);
            }
            contents.push('\n');
            expected.end(number as f32);
        }
        if case % 2 == 0 {
            contents.pop();
        }
        let text = Text::new(contents.as_bytes());
        for parts in [1, 2, 3, 8, contents.len() + 1] {
            let mut together = SparseSamples::default();
            for part in 0..parts {
                let read = text.part(SparseFormat::Libsvm, PLAIN, part, parts).unwrap();
                let before = together.ids.len() as i64;
                together.labels.extend(&read.labels);
                together.offsets.extend(read.offsets[1..].iter().map(|offset| offset + before));
                together.ids.extend(&read.ids);
                together.values.extend(&read.values);
            }
            assert_eq!(together, expected, "{parts} parts of {contents:?}");
        }
    }
}

#[test]
fn hashes_have_the_number_of_bits_and_spread() {
    for bits in 1..=63 {
        let ids = FeatureIds { hash_bits: Some(bits) };
        for first in [0, 1 << 20, u64::MAX - 63] {
            let hashes: HashSet<i64> = (0..64).map(|step| ids.hash(1, first + step)).collect();
            assert!(hashes.iter().all(|hash| *hash >= 0 && hash >> (bits - 1) >> 1 == 0));
            let least = if bits < 20 { 64.min(1 << bits) / 2 } else { 64 };
            assert!(hashes.len() >= least, "{} of 64 hashes of {bits} bits differ", hashes.len());
        }
    }
}

#[test]
fn damaged_sparse_samples() {
    let logs = [log("1", "5", "68fd1e64"), log("0", "", "")].concat();
    let good = vec![b"1 3:0.5 7:1\n-1 2:3\n0 qid:1 5:1e9 # x\n".to_vec(), logs.into_bytes()];
    fuzz!(|script: &[u8]| {
        let damaged = mutate(&good, script);
        for (format, parse) in [
            (SparseFormat::Libsvm, libsvm::parse as fn(_, _, &mut _) -> _),
            (SparseFormat::Criteo, criteo::parse),
        ] {
            let mut samples = SparseSamples::default();
            for line in damaged.split(|byte| *byte == b'\n') {
                match parse(line, FeatureIds { hash_bits: Some(10) }, &mut samples) {
                    Ok(Some(label)) => samples.end(label),
                    Ok(None) => samples.discard(),
                    Err(mistake) => {
                        assert!(!mistake.received.is_empty(), "{format:?}");
                        samples.discard();
                    }
                }
            }
            let end = samples.ids.len();
            assert_eq!((end, samples.labels.len() + 1), (samples.values.len(), samples.offsets.len()));
            assert!(samples.offsets.is_sorted() && samples.offsets.last() == Some(&(end as i64)));
            assert!(samples.ids.iter().all(|id| (0..1 << 10).contains(id)));
            assert!(samples.values.iter().all(|value| value.is_finite()));
        }
    });
}
