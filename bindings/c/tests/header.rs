//! Checks that the committed headers match the source: `make header` writes them, and this test fails if they differ.

use std::collections::HashSet;
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
        "{} differs from the source (line {}): run `make header`",
        path.display(),
        differs.unwrap_or_else(|| found.lines().count().min(expected.lines().count())) + 1
    );
}

/// What the Lua binding uses of the header, one declaration on a line: LuaJIT has no preprocessor.
fn declarations() -> String {
    let lua = root().join("../lua");
    let binding: String = ["unisono", "multiverso"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(lua.join(folder)).unwrap())
        .map(|file| file.unwrap().path())
        .filter(|path| !path.ends_with("declarations.lua"))
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    let used: HashSet<&str> = words(&binding).collect();
    let mut text = String::from(DECLARATIONS);
    for declaration in statements(&own_header()) {
        let name = declaration.split('(').next().unwrap().rsplit([' ', '*']).next().unwrap();
        let names_constant =
            || words(&declaration).any(|word| word.starts_with("UNISONO_") && used.contains(word));
        if used.contains(name) || declaration.starts_with("typedef uint64_t") || names_constant() {
            text.push_str(&declaration);
            text.push('\n');
        }
    }
    text + "]]\n"
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// The declarations of a header, without comments and preprocessor lines, each on one line.
fn statements(header: &str) -> Vec<String> {
    let (mut found, mut open) = (Vec::new(), String::new());
    let (mut in_comment, mut in_cpp) = (false, false);
    for line in header.lines().map(str::trim) {
        let is_comment = in_comment || line.starts_with("/*");
        in_comment = is_comment && !line.ends_with("*/");
        in_cpp |= line.starts_with("#ifdef __cplusplus");
        if !is_comment && !in_cpp && !line.is_empty() && !line.starts_with('#') {
            let space = if open.is_empty() || open.ends_with('(') { "" } else { " " };
            open = open + space + line;
            if line.ends_with(';') && open.matches('{').count() == open.matches('}').count() {
                found.push(std::mem::take(&mut open));
            }
        }
        in_cpp &= !line.starts_with("#endif");
    }
    found
}

const DECLARATIONS: &str =
    "-- What these files use of bindings/c/include/unisono.h: run `make header` after a change.
return [[
";

#[test]
fn headers_match_the_source() {
    compare(root().join("include/unisono.h"), &own_header());
    compare(root().join("include/multiverso/c_api.h"), &multiverso_header());
    compare(root().join("../lua/unisono/declarations.lua"), &declarations());
}

#[test]
fn every_multiverso_function_is_exported() {
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
