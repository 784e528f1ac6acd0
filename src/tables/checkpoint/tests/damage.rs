//! Checkpoints that were cut, changed or swapped for something else are refused, whatever the place.

use super::*;

fn files(place: &Place) -> Vec<String> {
    let names = place.names();
    assert_eq!(names.len(), 3, "a manifest and two data files: {names:?}");
    names
}

#[test]
fn truncated_at_every_length() {
    let place = Place::memory();
    let tensors = place.save(1);
    for name in files(&place) {
        let whole = place.read(&name);
        // The line's end after the manifest's last brace may go: it says nothing.
        let needed = if name == MANIFEST { whole.len() - 1 } else { whole.len() };
        for length in 0..needed {
            place.write(&name, &whole[..length]);
            place.refused(&format!("{name} cut to {length} bytes"));
        }
        place.write(&name, &[&whole[..], b"0"].concat());
        place.refused(&format!("{name} and a byte more"));
        place.write(&name, &whole);
    }
    place.holds(&tensors);
}

#[test]
fn every_bit_counts() {
    let place = Place::memory();
    let tensors = place.save(1);
    for name in files(&place) {
        let mut bytes = place.read(&name);
        let needed = if name == MANIFEST { bytes.len() - 1 } else { bytes.len() };
        for bit in 0..8 * needed {
            bytes[bit / 8] ^= 1 << (bit % 8);
            place.write(&name, &bytes);
            place.refused(&format!("{name} with bit {bit} changed"));
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        place.write(&name, &bytes);
    }
    place.holds(&tensors);
}

#[test]
fn damage_in_a_folder() {
    let place = Place::folder();
    let tensors = place.save(1);
    for name in files(&place) {
        let whole = place.read(&name);
        for length in [0, 1, 7, 8, 9, whole.len() / 2, whole.len() - 2] {
            place.write(&name, &whole[..length]);
            place.refused(&format!("{name} cut to {length} bytes"));
        }
        let mut changed = whole.clone();
        changed[whole.len() / 2] ^= 0x10;
        place.write(&name, &changed);
        place.refused(&format!("{name} changed"));
        place.remove(&name);
        place.refused(&format!("without {name}"));
        std::fs::create_dir(place.folder.as_ref().unwrap().join(&name)).unwrap();
        place.refused(&format!("{name} is a folder"));
        std::fs::remove_dir(place.folder.as_ref().unwrap().join(&name)).unwrap();
        place.write(&name, &whole);
    }
    place.holds(&tensors);
}

#[test]
fn foreign_manifests() {
    for place in Place::both() {
        place.save(1);
        let data = place.read(&place.content().files[0].name);
        let own = String::from_utf8(place.read(MANIFEST)).unwrap();
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
            ("a key that nobody knows", changed("{", "{\"colour\": 1, ")),
            ("a checksum of another kind", changed("crc32:", "crc64:")),
            ("version 0", changed("\"version\": 1", "\"version\": 0")),
            ("version -1", changed("\"version\": 1", "\"version\": -1")),
        ];
        for (what, bytes) in foreign {
            place.write(MANIFEST, &bytes);
            place.refused(what);
        }
        place.write(MANIFEST, &changed("\"version\": 1", "\"version\": 2"));
        let text = place.refused("a later version");
        assert!(text.contains("expected version 1") && text.contains("received version 2"), "{text}");
    }
}

#[test]
fn missing_files_are_named() {
    for place in Place::both() {
        let text = place.refused("an empty place");
        assert!(text.contains(MANIFEST), "{text}");
        place.save(1);
        let name = place.content().files[1].name.clone();
        place.remove(&name);
        let text = place.refused("a data file is missing");
        assert!(text.contains(&name), "{text}");
    }
}
