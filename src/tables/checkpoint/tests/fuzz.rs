//! Damaged checkpoints: never a panic, and never a checkpoint that differs from the one that was saved.

use super::super::{checksum, header};
use super::*;
use crate::testing::{fuzz, mutate};

/// The contents of a manifest as text; equal manifests have equal text.
fn as_text(content: &Manifest) -> String {
    serde_json::to_string(content).unwrap()
}

#[test]
fn damaged_manifests() {
    let fixture = Fixture::memory();
    fixture.save(1);
    let good = [fixture.read(MANIFEST)];
    let saved = as_text(&fixture.content());
    fuzz!(|script: &[u8]| {
        // The only changes that the checksum misses are spaces outside the content that it covers.
        if let Ok(content) = manifest::decode("load", "here", &mutate(&good, script)) {
            assert_eq!(as_text(&content), saved);
        }
    });
}

/// The same with a valid checksum, so that the checks behind it are reached.
#[test]
fn forged_manifests() {
    let fixture = Fixture::memory();
    fixture.save(1);
    let good = [serde_json::to_vec(&fixture.content()).unwrap()];
    fuzz!(|script: &[u8]| {
        let Ok(text) = String::from_utf8(mutate(&good, script)) else { return };
        let sum = checksum::of(text.as_bytes());
        let whole = format!(
            "{{\"format\": \"{}\", \"version\": 1, \"checksum\": \"{sum}\", \"content\": {text}}}",
            manifest::FORMAT
        );
        if let Ok(content) = manifest::decode("load", "here", whole.as_bytes()) {
            assert_eq!(manifest::check(&content), Ok(()));
            for stored in &content.tensors {
                let tensor = stored.tensor().expect("a known type");
                let rows: usize = stored.pieces.iter().map(|piece| piece.rows).sum();
                assert_eq!(rows, tensor.rows(), "each row once");
            }
        }
    });
}

#[test]
fn damaged_headers() {
    let fixture = Fixture::memory();
    fixture.save(1);
    let content = fixture.content();
    let files: Vec<Vec<u8>> = content.files.iter().map(|file| fixture.read(&file.name)).collect();
    let headers: Vec<&[u8]> = files
        .iter()
        .map(|file| {
            let length = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
            &file[header::LENGTH_BYTES..header::LENGTH_BYTES + length]
        })
        .collect();
    let data = |file: &[u8], header: &[u8]| (file.len() - header::LENGTH_BYTES - header.len()) as u64;
    fuzz!(|script: &[u8]| {
        let bytes = mutate(&headers, script);
        for (file, header) in files.iter().zip(&headers) {
            if let Ok(entries) = header::decode(&bytes, data(file, header)) {
                // The tensors cover the data without gaps.
                let ends = entries.iter().map(|entry| entry.end);
                assert_eq!(ends.max().unwrap_or(0), data(file, header));
            }
        }
    });
}

#[test]
fn damaged_data_files() {
    let fixture = Fixture::memory();
    let tensors = fixture.save(1);
    let names: Vec<String> = fixture.content().files.iter().map(|file| file.name.clone()).collect();
    let good: Vec<Vec<u8>> = names.iter().map(|name| fixture.read(name)).collect();
    fuzz!(|script: &[u8]| {
        let choice = usize::from(script.first().copied().unwrap_or(0)) % names.len();
        let bytes = mutate(&good, script);
        let damaged = bytes != good[choice];
        fixture.write(&names[choice], &bytes);
        match fixture.open() {
            Ok(_) => assert!(!damaged, "a damaged file was opened"),
            Err(_) => assert!(damaged, "a good file was rejected"),
        }
        fixture.write(&names[choice], &good[choice]);
    });
    fixture.assert_holds(&tensors);
}
