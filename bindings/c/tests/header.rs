//! Checks that the committed headers match the source: `make header` writes them, and this test fails if they differ.

use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(builder: cbindgen::Builder, config: cbindgen::Config) -> String {
    let mut text = Vec::new();
    builder.with_config(config).generate().unwrap().write(&mut text);
    String::from_utf8(text).unwrap()
}

fn config() -> cbindgen::Config {
    cbindgen::Config::from_file(root().join("cbindgen.toml")).unwrap()
}

/// The header of Unisono: everything except Multiverso's functions.
fn own_header() -> String {
    let mut config = config();
    config.export.exclude = functions(&multiverso_header());
    config.export.exclude.push("TableHandler".into());
    text(cbindgen::Builder::new().with_crate(root()), config)
}

/// The header of Multiverso's functions.
fn multiverso_header() -> String {
    let mut config = config();
    config.header = Some(MULTIVERSO.into());
    config.include_guard = Some("MULTIVERSO_C_API_H".into());
    config.sys_includes.clear();
    config.export.include.clear();
    text(cbindgen::Builder::new().with_src(root().join("src/multiverso/mod.rs")), config)
}

const MULTIVERSO: &str = "/*
 * The C interface of Multiverso, as programs written for it know it; libmultiverso.so is libunisono.so.
 *
 * These functions return no status: an error is printed with the rank, and the program is aborted. The functions of
 * unisono.h work on the same world.
 */";

/// The names of the functions in a header.
fn functions(header: &str) -> Vec<String> {
    let names = header.split('(').filter_map(|text| text.rsplit([' ', '*', '\n']).next());
    names.filter(|name| name.starts_with("MV_")).map(str::to_owned).collect()
}

/// Compares a committed file with the expected text, or writes it on request.
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

/// The header for LuaJIT, which has no preprocessor: plain declarations and constants.
fn declarations() -> String {
    let header = own_header();
    let mut text = String::from(DECLARATIONS);
    let (mut in_comment, mut in_cpp) = (false, false);
    for line in header.lines() {
        let trimmed = line.trim();
        let is_comment = in_comment || trimmed.starts_with("/*");
        in_comment = is_comment && !trimmed.ends_with("*/");
        in_cpp |= trimmed.starts_with("#ifdef __cplusplus");
        let is_code = !is_comment && !in_cpp && !trimmed.is_empty() && !trimmed.starts_with('#');
        if let Some(constant) = constant(trimmed) {
            text.push_str(&constant);
        } else if is_code {
            text.push_str(line);
            text.push('\n');
        }
        in_cpp &= !trimmed.starts_with("#endif");
    }
    text + "]]\n"
}

/// A `#define` of a small integer, as a constant.
fn constant(line: &str) -> Option<String> {
    let (name, value) = line.strip_prefix("#define ")?.split_once(' ')?;
    let value: i32 = value.parse().ok()?;
    Some(format!("static const int {name} = {value};\n"))
}

const DECLARATIONS: &str = "-- Made from bindings/c/include/unisono.h: run `make header` after a change.
return [[
";

#[test]
fn the_headers_are_what_the_source_says() {
    compare(root().join("include/unisono.h"), &own_header());
    compare(root().join("include/multiverso/c_api.h"), &multiverso_header());
    compare(root().join("../lua/unisono/declarations.lua"), &declarations());
}

#[test]
fn all_functions_of_multiverso_are_there() {
    let mut names = functions(&multiverso_header());
    names.sort();
    let mut expected: Vec<String> = [
        "Init ShutDown Barrier NumWorkers WorkerId ServerId",
        "NewArrayTable GetArrayTable AddArrayTable AddAsyncArrayTable",
        "NewMatrixTable GetMatrixTableAll AddMatrixTableAll AddAsyncMatrixTableAll",
        "GetMatrixTableByRows AddMatrixTableByRows AddAsyncMatrixTableByRows",
    ]
    .iter()
    .flat_map(|line| line.split(' '))
    .map(|name| format!("MV_{name}"))
    .collect();
    expected.sort();
    assert_eq!(names, expected);
    assert_eq!(names.len(), 17);
}
