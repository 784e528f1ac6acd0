//! Rules on the pages and the Makefile: links resolve, targets explain themselves, the changelog is open.

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

/// Links from a page to files of the repository; `exists` is asked with a path relative to the root.
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
            if !in_code && !path.is_empty() && !path.contains(':') && !exists(&beside(&file.path, path)) {
                breaches.push(Breach::new(number + 1, format!("the link `{target}` leads nowhere")));
            }
        }
    }
    breaches
}

fn beside(page: &str, target: &str) -> String {
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
    assert_eq!(found, [Breach::new(1, "the link `gone.md` leads nowhere")]);
}

#[test]
fn a_closed_changelog_is_a_breach() {
    assert_eq!(check_changelog(&Source::new("CHANGELOG.md", "# Changelog\n\n## [0.1.0]\n")).len(), 1);
}
