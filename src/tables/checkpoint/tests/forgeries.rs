//! Malicious checkpoints: their checksums are valid, their contents are not.

use super::super::manifest::PieceLocation;
use super::super::{checksum, names};
use super::*;

/// Changes the manifest's contents, and its checksum accordingly.
fn forge(change: impl FnOnce(&mut Manifest)) -> (Fixture, String) {
    let fixture = Fixture::memory();
    fixture.save(1);
    let mut content = fixture.content();
    change(&mut content);
    fixture.write(MANIFEST, &manifest::encode(&content).unwrap());
    let text = fixture.assert_rejected("a forged manifest");
    (fixture, text)
}

#[test]
fn names_that_lead_elsewhere() {
    let id = new_id();
    let name = names::data_file(&id, 0);
    for wrong in ["", ".", "..", "/etc/passwd", "x.safetensors", &format!("../{name}"), &name] {
        let (_, text) = forge(|content| content.files[0].name = wrong.into());
        assert!(text.contains(&format!("`{wrong}`")), "{text}");
    }
    for wrong in ["", "..", "../../../../../../../../tmp/aaaaaaaa", &id.to_uppercase()] {
        forge(|content| {
            content.id = wrong.into();
            content
                .files
                .iter_mut()
                .zip(0..)
                .for_each(|(file, part)| file.name = names::data_file(wrong, part));
        });
    }
    forge(|content| content.files[1] = content.files[0].clone());
}

#[test]
fn pieces_that_do_not_fit() {
    let piece = |content: &mut Manifest, number: usize| content.tensors[0].pieces[number].clone();
    let set = |number: usize, change: &dyn Fn(&mut PieceLocation)| {
        forge(|content| change(&mut content.tensors[0].pieces[number])).1
    };
    assert!(forge(|content| drop(content.tensors[0].pieces.remove(0))).1.contains("none of rows 0..2"));
    assert!(forge(|content| drop(content.tensors[0].pieces.pop())).1.contains("none of rows 2..5"));
    assert!(set(1, &|piece| piece.first_row = 1).contains("row 1 twice"));
    set(1, &|piece| piece.first_row = 3);
    set(1, &|piece| piece.rows = 2);
    set(1, &|piece| piece.rows = 0);
    set(1, &|piece| piece.rows = usize::MAX);
    set(1, &|piece| piece.first_row = usize::MAX);
    set(0, &|piece| piece.file = 2);
    set(0, &|piece| piece.file = usize::MAX);
    set(0, &|piece| piece.file = 1);
    set(0, &|piece| piece.key = "bias".into());
    set(0, &|piece| piece.key = "nobody".into());
    set(0, &|piece| piece.key = "__metadata__".into());
    forge(|content| {
        let again = piece(content, 0);
        content.tensors[0].pieces.push(again);
    });
    forge(|content| {
        let again = PieceLocation { rows: 0, first_row: 5, ..piece(content, 0) };
        content.tensors[0].pieces.push(again);
    });
}

#[test]
fn tensors_that_cannot_be() {
    let shape = |shape: Vec<usize>| forge(|content| content.tensors[0].shape = shape);
    shape(vec![5, 4]);
    shape(vec![6, 3]);
    shape(vec![5]);
    shape(vec![]);
    shape(vec![5, 3, 1]);
    shape(vec![5, usize::MAX]);
    shape(vec![5, usize::MAX, 0]);
    shape(vec![5, 1 << 60]);
    shape(vec![usize::MAX, 3]);
    forge(|content| content.tensors[0].dtype = "float64".into());
    forge(|content| content.tensors[0].dtype = "complex64".into());
    forge(|content| content.tensors[0].name = String::new());
    forge(|content| content.tensors[0].name = content.tensors[1].name.clone());
    forge(|content| drop(content.tensors.pop()));
    forge(|content| content.files[0].bytes += 1);
    forge(|content| content.files[0].bytes = u64::MAX);
    forge(|content| content.files[0].bytes = 0);
    forge(|content| content.files[0].checksum = "crc32:00000000".into());
    forge(|content| content.files[0].checksum = String::new());
    forge(|content| drop(content.files.pop()));
}

/// Replaces the header before the data, and adjusts lengths and checksums.
fn forge_header(fixture: &Fixture, length: Option<u64>, json: &str) -> String {
    let mut content = fixture.content();
    let part = content.files.iter().position(|file| file.name.ends_with("-1.safetensors")).unwrap();
    let data = vec![0; 36];
    let length = length.unwrap_or(json.len() as u64).to_le_bytes();
    let bytes = [&length[..], json.as_bytes(), &data].concat();
    content.files[part].bytes = bytes.len() as u64;
    content.files[part].checksum = checksum::of(&bytes);
    fixture.write(&content.files[part].name, &bytes);
    fixture.write(MANIFEST, &manifest::encode(&content).unwrap());
    match fixture.open() {
        Ok(_) => String::new(),
        Err(_) => fixture.assert_rejected(json),
    }
}

#[test]
fn headers_that_cannot_be() {
    let fixture = Fixture::memory();
    fixture.save(1);
    let entry = |dtype: &str, shape: &str, offsets: &str| {
        format!(r#"{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}"#)
    };
    let good = entry("F32", "[3,3]", "[0,36]");
    let alone = |entry: &str| format!(r#"{{"weights[2..5]":{entry}}}"#);
    assert_eq!(
        forge_header(&fixture, None, &alone(&good)),
        "",
        "the header that all others differ from is accepted"
    );
    let two = |second: &str, offsets: &str| {
        format!(r#"{{"weights[2..5]":{good},"{second}":{}}}"#, entry("F32", "[3,3]", offsets))
    };
    let wrong = [
        "".to_string(),
        "{}".into(),
        "[]".into(),
        "null".into(),
        "{".into(),
        alone("{}"),
        alone("null"),
        alone(&entry("F32", "[3,3]", "[36,0]")),
        alone(&entry("F32", "[3,3]", "[-36,0]")),
        alone(&entry("F32", "[3,3]", "[0,35]")),
        alone(&entry("F32", "[3,3]", "[0,37]")),
        alone(&entry("F32", "[3,3]", "[1,37]")),
        alone(&entry("F32", "[3,3]", "[0,36,72]")),
        alone(&entry("F32", "[3,3]", "[0.0,36.0]")),
        alone(&entry("F32", "[3,3]", "[0,1e400]")),
        alone(&entry("F32", "[9]", "[0,36]")),
        alone(&entry("F32", "[3,-3]", "[0,36]")),
        alone(&entry("F32", "[3,4294967296,4294967296]", "[0,36]")),
        alone(&entry("F32", "[3,18446744073709551616]", "[0,36]")),
        alone(&entry("I32", "[3,3]", "[0,36]")),
        alone(&entry("F33", "[3,3]", "[0,36]")),
        alone(&good.replace("dtype", "type")),
        alone(&good.replacen('{', "{\"colour\":1,", 1)),
        alone(&good.replacen('{', "{\"dtype\":\"F32\",", 1)),
        alone(&"[".repeat(10_000)),
        two("weights[2..5]", "[0,36]"),
        two("other", "[0,36]"),
        two("other", "[36,72]"),
        two("other", "[18446744073709551600,18446744073709551636]"),
        format!(r#"{{"__metadata__":{{"a":1}},"weights[2..5]":{good}}}"#),
        format!(r#"{{"__metadata__":{{"a":"","a":""}},"weights[2..5]":{good}}}"#),
        format!(r#"{{"__metadata__":{{}},"__metadata__":{{}},"weights[2..5]":{good}}}"#),
        format!(r#"{{"weights[2..5]":{good}}} x"#),
    ];
    for json in wrong {
        assert_ne!(forge_header(&fixture, None, &json), "", "{json}");
    }
    let own = alone(&good);
    for length in
        [0, 1, own.len() as u64 - 1, own.len() as u64 + 1, own.len() as u64 + 37, 100_000_001, u64::MAX]
    {
        assert_ne!(forge_header(&fixture, Some(length), &own), "", "a header of {length} bytes");
    }
    assert_eq!(forge_header(&fixture, None, &format!("{own}   ")), "", "spaces may follow");
}
