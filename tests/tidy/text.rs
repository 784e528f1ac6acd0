//! Rules on the text of a file: its opening sentence, its size, and misplaced words and paths.

use std::path::Path;

use crate::lexer::{code_only, lines_before_tests};
use crate::tree::{Breach, Source, root};

/// A file is one idea: split it before it reaches this many lines (tests aside).
const MOST_LINES: usize = 500;

/// Unfinished work and paths of one machine. Joined here so that this file does not break its own rule.
const WORDS: &[&str] = &[
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
    concat!("FIX", "ME"),
    concat!("db", "g!("),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
];

pub fn check_opening(file: &Source) -> Vec<Breach> {
    if file.is_rust() && !file.text.starts_with("//! ") {
        return vec![Breach::new(
            1,
            "a Rust file opens with `//!` and a sentence that a newcomer understands",
        )];
    }
    if file.is_python() {
        let is_remark = |line: &&str| line.trim().is_empty() || line.starts_with('#');
        let first = file.text.lines().find(|line| !is_remark(line)).unwrap_or_default();
        if !["\"\"\"", "r\"\"\""].iter().any(|quote| first.starts_with(quote)) {
            return vec![Breach::new(1, "a Python file opens with a docstring that a newcomer understands")];
        }
    }
    Vec::new()
}

pub fn check_size(file: &Source) -> Vec<Breach> {
    let lines = match (file.is_rust(), file.is_python()) {
        (true, _) => lines_before_tests(&code_only(&file.text)),
        (_, true) => file.text.lines().count(),
        _ => 0,
    };
    if lines <= MOST_LINES {
        return Vec::new();
    }
    vec![Breach::new(
        MOST_LINES,
        format!("{lines} lines without its tests: split it by idea before {MOST_LINES}"),
    )]
}

pub fn check_words(file: &Source) -> Vec<Breach> {
    let here = surroundings(root());
    // A path begins here: elsewhere the same letters may be the end of another path.
    let begins = |before: &str| !before.ends_with(|c: char| c.is_alphanumeric() || "_-.}".contains(c));
    let is_from_here = |line: &str| line.match_indices(&here).any(|(at, _)| begins(&line[..at]));
    let words = |line: &str| {
        let word = WORDS.iter().copied().find(|word| line.contains(word));
        word.or_else(|| is_from_here(line).then_some(here.as_str()))
    };
    let lines = file.text.lines().enumerate();
    lines
        .filter_map(|(number, line)| {
            Some(Breach::new(number + 1, format!("`{}` does not belong here", words(line)?)))
        })
        .collect()
}

/// The folder that contains this repository; the repository's own folder if that name is too short to be unique.
fn surroundings(root: &Path) -> String {
    let folder = root.parent().filter(|parent| parent.components().count() > 2).unwrap_or(root);
    format!("{}/", folder.display())
}

/// The product must not look for files in the folder where it was built.
pub fn check_builders_paths(file: &Source) -> Vec<Breach> {
    let path = format!("/{}", file.path);
    if !file.is_rust() || !path.contains("/src/") || path.contains("/tests/") {
        return Vec::new();
    }
    let lines = file.text.lines().enumerate().filter(|(_, line)| line.contains("CARGO_MANIFEST_DIR"));
    let what = "the builder's folder is not on a user's machine: embed the file";
    lines.map(|(number, _)| Breach::new(number + 1, what)).collect()
}

#[test]
fn a_file_without_an_opening_is_a_breach() {
    assert_eq!(check_opening(&Source::new("src/a.rs", "use std::fs;\n")).len(), 1);
    assert_eq!(check_opening(&Source::new("src/a.rs", "//! Reads files.\n")), []);
    assert_eq!(check_opening(&Source::new("a.py", "# A remark.\n\nimport os\n")).len(), 1);
    assert_eq!(check_opening(&Source::new("scripts/a", "#!/usr/bin/env python3\nimport os\n")).len(), 1);
    assert_eq!(check_opening(&Source::new("a.py", "#!/usr/bin/env python3\n\"\"\"Reads files.\"\"\"\n")), []);
}

#[test]
fn a_long_file_is_a_breach_but_its_tests_do_not_count() {
    let long = "let x = 1;\n".repeat(MOST_LINES + 1);
    assert_eq!(check_size(&Source::new("src/a.rs", &long)).len(), 1);
    let tested = format!("fn f() {{}}\n#[cfg(test)]\nmod tests {{\n{long}}}\n");
    assert_eq!(check_size(&Source::new("src/a.rs", &tested)), []);
}

#[test]
fn a_misplaced_word_is_a_breach() {
    let found = check_words(&Source::new("src/a.rs", &format!("//! A.\nfn f() {{ {}) }}\n", WORDS[0])));
    assert_eq!((found.len(), found[0].line), (1, 2));
    let found = check_words(&Source::new("docs/a.md", &format!("see {}x.md", surroundings(root()))));
    assert_eq!(found.len(), 1, "a path of this machine");
    let places = ["/somewhere/unisono", "/some/where/unisono"].map(|root| surroundings(Path::new(root)));
    assert_eq!(places, ["/somewhere/unisono/", "/some/where/"]);
}

#[test]
fn a_build_path_is_a_breach_in_the_product() {
    let text = "//! A.\nconst ROOT: &str = env!(\"CARGO_MANIFEST_DIR\");\n";
    for path in ["src/a.rs", "nn/src/data/a.rs"] {
        let found = check_builders_paths(&Source::new(path, text));
        assert_eq!((found.len(), found[0].line), (1, 2), "{path}");
    }
    for path in ["cli/tests/a.rs", "src/transport/tests/a.rs", "nn/examples/a.rs", "build.rs"] {
        assert_eq!(check_builders_paths(&Source::new(path, text)), [], "{path}");
    }
}
