//! Rules on names: a type that leaves its file has a name of its own, and retired words do not come back.

use std::collections::BTreeMap;

use crate::lexer::product_code;
use crate::tree::{Breach, Source};

/// The crates whose types are compared. Bindings may mirror a type of the core on purpose.
const LIBRARIES: [&str; 3] = ["src/", "nn/src/", "cli/src/"];

/// Identifiers and phrases that the project no longer uses, and what replaces them. Joined here so that this file does not break
/// its own rule.
const RETIRED: &[(&str, &str)] = &[
    (concat!("who", "ever"), "the rank, the caller, the thread that …"),
    (concat!("no", "body "), "no rank, no caller"),
    (concat!("every", "body"), "all ranks, all workers"),
    (concat!("the processor's", " memory"), "host memory"),
    (concat!("without a", " word"), "silently"),
];

/// Types that other files can name, with the files that define them.
pub fn check_types(files: &[Source]) -> Vec<String> {
    let mut defined: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let codes: Vec<(&Source, String)> =
        files.iter().filter(|file| is_library(file)).map(|file| (file, product_code(&file.text))).collect();
    for (file, code) in &codes {
        let mut is_deprecated = false;
        for (number, line) in code.lines().enumerate() {
            if let Some(name) = visible_type(line).filter(|_| !is_deprecated) {
                defined.entry(name).or_default().push(format!("{}:{}", file.path, number + 1));
            }
            // The former name of a type may be another's by now; no new code uses it.
            is_deprecated = line.trim_start().starts_with("#[deprecated");
        }
    }
    let shared = defined.iter().filter(|(_, places)| places.len() > 1);
    let breach = |(name, places): (&&str, &Vec<String>)| {
        format!("`{name}` is defined in {}: give each type its own name", places.join(", "))
    };
    shared.map(breach).collect()
}

fn is_library(file: &Source) -> bool {
    file.is_rust()
        && LIBRARIES.iter().any(|folder| file.path.starts_with(folder))
        && !file.path.contains("/tests")
}

/// The name of the type that a line defines, if other files can use it.
fn visible_type(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub")?;
    let rest = match rest.strip_prefix('(') {
        Some(scope) => scope.split_once(')')?.1,
        None => rest,
    };
    let rest = rest.trim_start();
    let kinds = ["struct ", "enum ", "trait ", "union ", "type "];
    let kind = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
    let end = kind.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(kind.len());
    // A macro's definition has no name yet.
    (end > 0).then(|| &kind[..end])
}

/// Retired words in comments, docstrings and pages.
pub fn check_retired(file: &Source) -> Vec<Breach> {
    let openings: &[&str] = match (file.is_rust(), file.is_python(), file.is_page()) {
        (true, _, _) => &["//"],
        (_, true, _) => &["#", "\"\"\""],
        (_, _, true) => &[""],
        _ => return Vec::new(),
    };
    let found = |line: &str| {
        let line = line.trim_start().to_lowercase();
        let is_prose = openings.iter().any(|opening| line.starts_with(opening));
        RETIRED.iter().find(|(word, _)| is_prose && line.contains(word)).copied()
    };
    let lines = file.text.lines().enumerate();
    lines
        .filter_map(|(number, line)| {
            let (word, instead) = found(line)?;
            Some(Breach::new(number + 1, format!("`{}`: write {instead}", word.trim())))
        })
        .collect()
}

#[test]
fn two_visible_types_of_one_name_are_a_breach() {
    let files = |second: &str| {
        [Source::new("src/a.rs", "pub(crate) struct Queue {}\n"), Source::new("nn/src/b.rs", second)]
    };
    for second in ["pub enum Queue { A }\n", "pub type Queue<'a> = Other<'a>;\n"] {
        let found = check_types(&files(second));
        assert!(found[0].contains("src/a.rs:1") && found[0].contains("nn/src/b.rs:1"), "{found:?}");
    }
    let deprecated = "#[deprecated(note = \"use `Other`\")]\npub type Queue = Other;\n";
    for apart in ["struct Queue;\n", "pub struct Queues<T>(T);\n", "// pub struct Queue\n", deprecated] {
        assert_eq!(check_types(&files(apart)), [""; 0], "{apart}");
    }
}

#[test]
fn a_retired_word_is_a_breach() {
    let text = format!("//! {} reads it.\n", RETIRED[0].0);
    assert_eq!(check_retired(&Source::new("src/a.rs", &text)).len(), 1);
    assert_eq!(check_retired(&Source::new("src/a.rs", "//! The reader.\n")), []);
}
