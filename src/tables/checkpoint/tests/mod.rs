//! Checkpoints in a folder and in memory: readers get exactly what was written, and reject everything else.

mod crashes;
mod damage;
mod forgeries;
mod fuzz;
mod round_trips;
mod stores;

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::manifest::{self, Manifest};
use super::names::MANIFEST;
use super::open::open;
use super::store::{NewFile, open_store};
use super::{Checkpoint, PartManifest, PieceSource, TensorPiece, TensorSpec, commit, new_id, write_part};
use crate::error::{Error, Result};
use crate::memory::DType;

/// A separate checkpoint location for each test; a folder is removed on drop.
struct Fixture {
    target: String,
    folder: Option<PathBuf>,
}

impl Fixture {
    fn memory() -> Fixture {
        Fixture { target: format!("memory://{}", Fixture::fresh()), folder: None }
    }

    fn folder() -> Fixture {
        let path = std::env::temp_dir().join(Fixture::fresh());
        Fixture { target: path.to_str().expect("a plain path").into(), folder: Some(path) }
    }

    fn both() -> [Fixture; 2] {
        [Fixture::memory(), Fixture::folder()]
    }

    fn fresh() -> String {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        format!("unisono-checkpoint-{}-{number}", std::process::id())
    }

    fn read(&self, name: &str) -> Vec<u8> {
        let blob = open_store("load", &self.target).unwrap().open(name).unwrap().expect("the file is there");
        let mut bytes = vec![0; blob.length() as usize];
        blob.read_at(0, &mut bytes).unwrap();
        bytes
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let store = open_store("save", &self.target).unwrap();
        let partial = format!("{name}.partial");
        let file = NewFile { name, partial: &partial, bytes: bytes.len() as u64, replace: true };
        let mut upload = store.create(file).unwrap();
        upload.write(bytes).unwrap();
        upload.finish().unwrap();
    }

    fn remove(&self, name: &str) {
        open_store("save", &self.target).unwrap().remove(name).unwrap();
    }

    fn names(&self) -> Vec<String> {
        let mut names = open_store("load", &self.target).unwrap().names().unwrap();
        names.sort();
        names
    }

    fn content(&self) -> Manifest {
        manifest::decode("load", "here", &self.read(MANIFEST)).unwrap()
    }

    /// Saves a checkpoint of two tensors in two parts, with values derived from `seed`.
    fn save(&self, seed: u8) -> Vec<(TensorSpec, Vec<u8>)> {
        let id = new_id();
        let (parts, tensors) = self.write_parts(&id, seed);
        commit(&self.target, &id, &parts, &json!({ "seed": seed })).unwrap();
        tensors
    }

    fn write_parts(&self, id: &str, seed: u8) -> (Vec<PartManifest>, Vec<(TensorSpec, Vec<u8>)>) {
        let tensors = vec![
            filled(TensorSpec { name: "weights".into(), dtype: DType::F32, shape: vec![5, 3] }, seed),
            filled(TensorSpec { name: "bias".into(), dtype: DType::F64, shape: vec![2] }, seed),
        ];
        let cuts: [&[(usize, usize, usize)]; 2] = [&[(0, 0, 2), (1, 0, 2)], &[(0, 2, 3)]];
        let parts = cuts.iter().enumerate().map(|(part, pieces)| {
            write_part_of(&self.target, id, part, &tensors, pieces).expect("the part is written")
        });
        (parts.collect(), tensors)
    }

    /// Asserts that a reader gets exactly these tensors.
    fn assert_holds(&self, tensors: &[(TensorSpec, Vec<u8>)]) {
        let checkpoint = self.open().expect("the checkpoint is whole");
        assert_eq!(checkpoint.tensors().len(), tensors.len());
        for (tensor, values) in tensors {
            assert_eq!(checkpoint.tensor(&tensor.name), Some(tensor));
            assert_eq!(&read(&checkpoint, &tensor.name, 0, tensor.rows()), values, "{}", tensor.name);
        }
    }

    fn open(&self) -> Result<Checkpoint> {
        open(&self.target)
    }

    /// Asserts that a reader gets a complete error of an expected kind, and returns its text.
    fn assert_rejected(&self, why: &str) -> String {
        let error = self.open().err().unwrap_or_else(|| panic!("{why}: it was opened"));
        let text = error.to_string();
        match &error {
            Error::Usage { operation, expected, received, advice, .. } => {
                let empty = [operation, expected, received, advice].into_iter().any(String::is_empty);
                assert!(operation == "load" && !empty, "{why}: {text}");
            }
            Error::Io { operation, .. } => assert_eq!(operation, "load", "{why}: {text}"),
            other => panic!("{why}: {other}"),
        }
        assert!(text.contains(&self.target), "{why}: which file? {text}");
        text
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// Values that differ from byte to byte and from seed to seed.
fn filled(tensor: TensorSpec, seed: u8) -> (TensorSpec, Vec<u8>) {
    let bytes = tensor.rows() * tensor.row_bytes();
    let values = (0..bytes).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed).rotate_left(3)).collect();
    (tensor, values)
}

fn read(checkpoint: &Checkpoint, tensor: &str, first_row: usize, rows: usize) -> Vec<u8> {
    let mut out = vec![0; rows * checkpoint.tensor(tensor).expect("it is there").row_bytes()];
    checkpoint.read_rows(tensor, first_row, rows, &mut out).unwrap();
    out
}

/// Writes pieces given as (tensor, first row, rows).
fn write_part_of(
    target: &str,
    id: &str,
    part: usize,
    tensors: &[(TensorSpec, Vec<u8>)],
    cuts: &[(usize, usize, usize)],
) -> Result<PartManifest> {
    let piece = |&(tensor, first_row, rows): &(usize, usize, usize)| {
        let (tensor, values) = &tensors[tensor];
        let row = tensor.row_bytes();
        (TensorPiece { tensor, first_row, rows }, &values[first_row * row..(first_row + rows) * row])
    };
    let (pieces, values): (Vec<_>, Vec<_>) = cuts.iter().map(piece).unzip();
    write_part(target, id, part, &pieces, &Slices { values, reads_left: Cell::new(usize::MAX) })
}

/// Bytes in memory; reading fails after a number of reads.
struct Slices<'a> {
    values: Vec<&'a [u8]>,
    reads_left: Cell<usize>,
}

impl PieceSource for Slices<'_> {
    fn read(&self, piece: usize, offset: usize, out: &mut [u8]) -> Result<()> {
        if self.reads_left.replace(self.reads_left.get().saturating_sub(1)) == 0 {
            return Err(Error::usage("save", "a source that works", "one that fails", "try again"));
        }
        out.copy_from_slice(&self.values[piece][offset..offset + out.len()]);
        Ok(())
    }
}

fn nothing() -> Value {
    Value::Null
}
