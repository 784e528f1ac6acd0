//! The header is what the source says: `make header` writes it, and this test fails where it differs.

use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What the header must be.
fn generated() -> String {
    let config = cbindgen::Config::from_file(root().join("cbindgen.toml")).unwrap();
    let bindings = cbindgen::Builder::new().with_crate(root()).with_config(config).generate().unwrap();
    let mut text = Vec::new();
    bindings.write(&mut text);
    String::from_utf8(text).unwrap()
}

/// Compares a committed file, or writes it when asked to.
fn compare(path: PathBuf, expected: &str) {
    if std::env::var_os("UNISONO_WRITE_HEADER").is_some() {
        return std::fs::write(path, expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = found.lines().zip(expected.lines()).position(|(found, expected)| found != expected);
    assert!(
        found == expected,
        "{} differs from what the source says (line {}): run `make header`",
        path.display(),
        differs.unwrap_or_else(|| found.lines().count().min(expected.lines().count())) + 1
    );
}

#[test]
fn the_header_is_what_the_source_says() {
    compare(root().join("include/unisono.h"), &generated());
}
