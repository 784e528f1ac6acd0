//! Checkpoints that were truncated, changed or replaced by something else are rejected, in every kind of store.

use super::*;

fn files(fixture: &Fixture) -> Vec<String> {
    let names = fixture.names();
    assert_eq!(names.len(), 3, "a manifest and two data files: {names:?}");
    names
}

#[test]
fn truncated_at_every_length() {
    let fixture = Fixture::memory();
    let tensors = fixture.save(1);
    for name in files(&fixture) {
        let whole = fixture.read(&name);
        // The newline after the manifest's last brace may be missing: it carries no information.
        let needed = if name == MANIFEST { whole.len() - 1 } else { whole.len() };
        for length in 0..needed {
            fixture.write(&name, &whole[..length]);
            fixture.assert_rejected(&format!("{name} cut to {length} bytes"));
        }
        fixture.write(&name, &[&whole[..], b"0"].concat());
        fixture.assert_rejected(&format!("{name} and a byte more"));
        fixture.write(&name, &whole);
    }
    fixture.assert_holds(&tensors);
}

#[test]
fn every_bit_counts() {
    let fixture = Fixture::memory();
    let tensors = fixture.save(1);
    for name in files(&fixture) {
        let mut bytes = fixture.read(&name);
        let needed = if name == MANIFEST { bytes.len() - 1 } else { bytes.len() };
        for bit in 0..8 * needed {
            bytes[bit / 8] ^= 1 << (bit % 8);
            fixture.write(&name, &bytes);
            fixture.assert_rejected(&format!("{name} with bit {bit} changed"));
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        fixture.write(&name, &bytes);
    }
    fixture.assert_holds(&tensors);
}

#[test]
fn damage_in_a_folder() {
    let fixture = Fixture::folder();
    let tensors = fixture.save(1);
    for name in files(&fixture) {
        let whole = fixture.read(&name);
        for length in [0, 1, 7, 8, 9, whole.len() / 2, whole.len() - 2] {
            fixture.write(&name, &whole[..length]);
            fixture.assert_rejected(&format!("{name} cut to {length} bytes"));
        }
        let mut changed = whole.clone();
        changed[whole.len() / 2] ^= 0x10;
        fixture.write(&name, &changed);
        fixture.assert_rejected(&format!("{name} changed"));
        fixture.remove(&name);
        fixture.assert_rejected(&format!("without {name}"));
        std::fs::create_dir(fixture.folder.as_ref().unwrap().join(&name)).unwrap();
        fixture.assert_rejected(&format!("{name} is a folder"));
        std::fs::remove_dir(fixture.folder.as_ref().unwrap().join(&name)).unwrap();
        fixture.write(&name, &whole);
    }
    fixture.assert_holds(&tensors);
}

#[test]
fn foreign_manifests() {
    for fixture in Fixture::both() {
        fixture.save(1);
        let data = fixture.read(&fixture.content().files[0].name);
        let own = String::from_utf8(fixture.read(MANIFEST)).unwrap();
        let changed = |from: &str, to: &str| own.replacen(from, to, 1).into_bytes();
        let foreign: Vec<(&str, Vec<u8>)> = vec![
            ("empty", b"".to_vec()),
            ("a word", b"hello".to_vec()),
            ("a list", b"[]".to_vec()),
            ("another program's", br#"{"name": "app", "version": "1"}"#.to_vec()),
            ("another format", changed("unisono-tables", "unisono-models")),
            ("a safetensors file", data),
            ("not UTF-8", vec![0xff; 100]),
            ("deeply nested", "[".repeat(100_000).into_bytes()),
            ("twice the same key", changed("{", "{\"version\": 1, ")),
            ("an unknown key", changed("{", "{\"colour\": 1, ")),
            ("a checksum of another kind", changed("crc32:", "crc64:")),
            ("version 0", changed("\"version\": 1", "\"version\": 0")),
            ("version -1", changed("\"version\": 1", "\"version\": -1")),
        ];
        for (what, bytes) in foreign {
            fixture.write(MANIFEST, &bytes);
            fixture.assert_rejected(what);
        }
        fixture.write(MANIFEST, &changed("\"version\": 1", "\"version\": 2"));
        let text = fixture.assert_rejected("a later version");
        assert!(text.contains("expected version 1") && text.contains("received version 2"), "{text}");
    }
}

#[test]
fn missing_files_are_named() {
    for fixture in Fixture::both() {
        let text = fixture.assert_rejected("an empty place");
        assert!(text.contains(MANIFEST), "{text}");
        fixture.save(1);
        let name = fixture.content().files[1].name.clone();
        fixture.remove(&name);
        let text = fixture.assert_rejected("a data file is missing");
        assert!(text.contains(&name), "{text}");
    }
}
