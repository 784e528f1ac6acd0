//! The paths that a Rust file names, as full paths from the crate's root: `use crate::{a, b::c}`, `super::d`, `crate::e()`.

/// A path from the crate's root, and the line that names it.
#[derive(Debug, PartialEq)]
pub struct Named {
    pub line: usize,
    pub segments: Vec<String>,
}

/// The module path of a file under `src/`: `src/transport/shm/wait.rs` is `transport::shm::wait`.
pub fn module_of(path: &str) -> Vec<String> {
    let inside = path.strip_prefix("src/").unwrap_or(path).trim_end_matches(".rs");
    inside.split('/').filter(|part| *part != "mod" && *part != "lib").map(String::from).collect()
}

/// Every path in `code` that begins with `crate` or `super`, made absolute for a file that is the module `own`.
pub fn named(code: &str, own: &[String]) -> Vec<Named> {
    let tokens = tokens(code);
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let (word, line) = &tokens[at];
        let begins = at == 0 || tokens[at - 1].0 != "::";
        let base = match word.as_str() {
            "crate" if begins => Some(Vec::new()),
            "super" if begins => own.len().checked_sub(1).map(|keep| own[..keep].to_vec()),
            _ => None,
        };
        at += 1;
        if let Some(base) = base {
            tree(&tokens, &mut at, base, *line, &mut found);
        }
    }
    found
}

/// Reads `::a::{b, c::d}` from `at` and records each leaf.
fn tree(
    tokens: &[(String, usize)],
    at: &mut usize,
    mut base: Vec<String>,
    line: usize,
    found: &mut Vec<Named>,
) {
    while tokens.get(*at).is_some_and(|token| token.0 == "::") {
        *at += 1;
        let Some((word, _)) = tokens.get(*at) else { break };
        match word.as_str() {
            "{" => return group(tokens, at, &base, found),
            "super" => drop(base.pop()),
            "*" => {}
            word if is_word(word) => base.push(word.into()),
            _ => break, // `::<`: a turbofish
        }
        *at += 1;
    }
    found.push(Named { line, segments: base });
}

fn group(tokens: &[(String, usize)], at: &mut usize, base: &[String], found: &mut Vec<Named>) {
    *at += 1;
    while let Some((word, line)) = tokens.get(*at) {
        *at += 1;
        match word.as_str() {
            "}" => return,
            word if is_word(word) && word != "as" => {
                let mut path = base.to_vec();
                if word != "self" {
                    path.push(word.into());
                }
                tree(tokens, at, path, *line, found);
                if tokens.get(*at).is_some_and(|token| token.0 == "as") {
                    *at += 2;
                }
            }
            _ => {}
        }
    }
}

fn is_word(word: &str) -> bool {
    word.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Splits code into words, `::` and single signs, each with its line.
fn tokens(code: &str) -> Vec<(String, usize)> {
    let mut tokens = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            let length = if first.is_alphanumeric() || first == '_' {
                rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            if !first.is_whitespace() {
                tokens.push((rest[..length].to_string(), number + 1));
            }
            rest = &rest[length..];
        }
    }
    tokens
}

#[cfg(test)]
fn all(code: &str, own: &str) -> Vec<String> {
    let own: Vec<String> = own.split("::").map(String::from).collect();
    named(code, &own).into_iter().map(|named| named.segments.join("::")).collect()
}

#[test]
fn groups_and_supers_are_followed() {
    let code = "use crate::{a, b::{c, d as e}};\nuse super::super::world::X;\nlet y = crate::f::g::<u8>();";
    assert_eq!(all(code, "memory::copy"), ["a", "b::c", "b::d", "world::X", "f::g"]);
    assert_eq!(
        all("use super::shm::{self, wait};", "transport::mpi"),
        ["transport::shm", "transport::shm::wait"]
    );
}

#[test]
fn files_are_modules() {
    assert_eq!(module_of("src/transport/shm/mod.rs"), ["transport", "shm"]);
    assert!(module_of("src/lib.rs").is_empty());
}
