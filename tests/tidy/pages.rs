//! Rules on the pages and the Makefile: links resolve, targets have help, the changelog has a section for unreleased changes.

use crate::tree::{Breach, Source};

pub fn check_makefile(file: &Source) -> Vec<Breach> {
    if file.path != "Makefile" {
        return Vec::new();
    }
    let name = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        let is_name = name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        (is_name && !rest.starts_with('=') && !rest.contains("##")).then(|| name.to_string())
    };
    let lines = file.text.lines().enumerate();
    lines
        .filter_map(|(number, line)| {
            Some(Breach::new(number + 1, format!("`{}` has no `##` help", name(line)?)))
        })
        .collect()
}

/// Checks links from a page to files of the repository; `exists` gets a path relative to the root.
pub fn check_links(file: &Source, exists: &dyn Fn(&str) -> bool) -> Vec<Breach> {
    if !file.is_page() {
        return Vec::new();
    }
    let mut breaches = Vec::new();
    let mut in_code = false;
    for (number, line) in file.text.lines().enumerate() {
        in_code ^= line.trim_start().starts_with("```");
        for target in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = target.split('#').next().unwrap_or_default();
            if !in_code && !path.is_empty() && !path.contains(':') && !exists(&relative_to(&file.path, path))
            {
                breaches.push(Breach::new(number + 1, format!("the link `{target}` does not exist")));
            }
        }
    }
    breaches
}

/// Pages that describe the source tree to contributors.
const MAPS: &[&str] = &["ARCHITECTURE.md", "CONTRIBUTING.md"];

/// Suffixes of file names; other words with a dot are code.
const SUFFIXES: &[&str] = &[".rs", ".py", ".pyi", ".cu", ".md", ".toml", ".yaml", ".c", ".h", ".lua", ".txt"];

/// Checks paths between backticks on these pages. They begin at the root, or in a folder that the same list item, row or paragraph names.
pub fn check_paths(file: &Source, exists: &dyn Fn(&str) -> bool) -> Vec<Breach> {
    if !MAPS.contains(&file.path.as_str()) {
        return Vec::new();
    }
    let mut breaches = Vec::new();
    let (mut in_code, mut item) = (false, Vec::new());
    for (number, line) in file.text.lines().enumerate() {
        in_code ^= line.trim_start().starts_with("```");
        if line.is_empty() || line.starts_with(['-', '|', '#']) {
            breaches.extend(check_item(&std::mem::take(&mut item), exists));
        }
        let spans = line.split('`').skip(1).step_by(2).filter(|_| !in_code);
        item.extend(spans.flat_map(alternatives).filter(|text| is_path(text)).map(|path| (number + 1, path)));
    }
    breaches.extend(check_item(&item, exists));
    breaches
}

fn check_item(paths: &[(usize, String)], exists: &dyn Fn(&str) -> bool) -> Vec<Breach> {
    let mut folders = vec![String::new()];
    // A name may come before its folder: names that were not found are looked up again.
    let mut open: Vec<_> = paths.iter().collect();
    for _ in 0..2 {
        open.retain(|(_, path)| {
            // A name with a gap, as in `with_….py`, only identifies its folder.
            let path =
                path.rsplit_once('/').filter(|_| path.contains('…')).map_or(&**path, |(folder, _)| folder);
            let found =
                folders.iter().rev().map(|folder| format!("{folder}{path}")).find(|path| exists(path));
            found.iter().for_each(|path| remember(path, &mut folders));
            found.is_none()
        });
    }
    open.iter().map(|(line, path)| Breach::new(*line, format!("`{path}` does not exist"))).collect()
}

/// Expands braces: `a/{b,c}.rs` is two files.
fn alternatives(text: &str) -> Vec<String> {
    let parts = text.split_once('{').and_then(|(head, rest)| Some((head, rest.split_once('}')?)));
    match parts {
        Some((head, (names, tail))) => {
            names.split(',').map(|name| format!("{head}{}{tail}", name.trim())).collect()
        }
        None => vec![text.to_string()],
    }
}

fn is_path(text: &str) -> bool {
    let written = |c: char| c.is_ascii_alphanumeric() || "_-./…".contains(c);
    text.chars().all(written) && (text.contains('/') || is_named(text))
}

/// Whether the text is a file name or ends with one.
fn is_named(text: &str) -> bool {
    SUFFIXES.iter().any(|suffix| text.ends_with(suffix) && text.len() > suffix.len())
}

/// The folder of a path and its parent folders; later names may begin there.
fn remember(path: &str, folders: &mut Vec<String>) {
    let folder = if is_named(path) { path.to_string() } else { format!("{}/", path.trim_end_matches('/')) };
    folders.extend(folder.match_indices('/').map(|(at, _)| folder[..=at].to_string()));
}

fn relative_to(page: &str, target: &str) -> String {
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    format!("{folder}/{target}").trim_start_matches('/').to_string()
}

pub fn check_changelog(file: &Source) -> Vec<Breach> {
    if file.path != "CHANGELOG.md" || file.text.lines().any(|line| line == "## [Unreleased]") {
        return Vec::new();
    }
    vec![Breach::new(1, "the changelog has no `## [Unreleased]` section")]
}

#[test]
fn a_target_without_help_is_a_breach() {
    let text =
        "PYTHON := python3\nhelp: ## Lists the targets.\n\t@cat\ntest: build\n\t@true\n$(STAMP): Makefile\n";
    let found = check_makefile(&Source::new("Makefile", text));
    assert_eq!((found.len(), found[0].line), (1, 4));
}

#[test]
fn a_broken_link_is_a_breach() {
    let exists = |path: &str| path == "docs/guide/here.md";
    let text =
        "[a](here.md#part) [b](gone.md) [c](https://example.org/x.md) [d](#part)\n```\n[e](code.md)\n```\n";
    let found = check_links(&Source::new("docs/guide/page.md", text), &exists);
    assert_eq!(found, [Breach::new(1, "the link `gone.md` does not exist")]);
}

#[test]
fn a_missing_path_is_a_breach() {
    let exists =
        |path: &str| ["src/a/b.rs", "src/a/c.rs", "src/d.rs", "src/a"].contains(&path.trim_end_matches('/'));
    let check = |text: &str| check_paths(&Source::new("CONTRIBUTING.md", text), &exists).len();
    assert_eq!(check("- `src/a/b.rs`, `c.rs` next to it, `d.rs`, `src/a/{b,c}.rs`, `cargo test`, `a::b`"), 0);
    assert_eq!(check("- `src/a`: `b.rs`\n  and `c.rs`\n```\n`gone/x.rs`\n```\n- `src/a/x_….rs`, `c.rs`"), 0);
    assert_eq!(check("- `b.rs` in `src/a/`"), 0, "the folder may come later");
    assert_eq!(check("- `src/a/b.rs`\n- `c.rs`"), 1, "another item");
    assert_eq!(check("`src/e.rs` and `src/a/{b,e}.rs` and `e.py`"), 3);
}

#[test]
fn a_changelog_without_an_unreleased_section_is_a_breach() {
    assert_eq!(check_changelog(&Source::new("CHANGELOG.md", "# Changelog\n\n## [0.1.0]\n")).len(), 1);
}
