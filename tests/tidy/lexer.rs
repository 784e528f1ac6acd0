//! Rust text with comments, strings and test modules blanked out, so that rules see only code, line for line.

/// The same text, same length in lines, with comments and the insides of literals replaced by spaces.
pub fn code_only(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let mut code: Vec<char> = characters.clone();
    let mut position = 0;
    while position < characters.len() {
        let end = match literal_or_comment(&characters, position) {
            Some(end) => end,
            None => {
                position += 1;
                continue;
            }
        };
        for character in &mut code[position..end.min(characters.len())] {
            if *character != '\n' {
                *character = ' ';
            }
        }
        position = end;
    }
    code.into_iter().collect()
}

/// Returns the end of the comment or literal that begins at `at`, if one begins there.
fn literal_or_comment(text: &[char], at: usize) -> Option<usize> {
    let next = text.get(at + 1).copied();
    match (text[at], next) {
        ('/', Some('/')) => Some(find(text, at, |rest| rest[0] == '\n')),
        ('/', Some('*')) => Some(block_comment(text, at)),
        ('"', _) => Some(string(text, at + 1)),
        ('r', Some('"' | '#')) if !continues_a_word(text, at) => raw_string(text, at + 1),
        ('\'', Some('\\')) => Some(find(text, at + 3, |rest| rest[0] == '\'') + 1),
        ('\'', Some(_)) if text.get(at + 2) == Some(&'\'') => Some(at + 3),
        _ => None,
    }
}

fn continues_a_word(text: &[char], at: usize) -> bool {
    at > 0
        && (text[at - 1].is_alphanumeric() || text[at - 1] == '_')
        && text[at - 1] != 'b'
        && text[at - 1] != 'c'
}

fn find(text: &[char], from: usize, stop: impl Fn(&[char]) -> bool) -> usize {
    (from..text.len()).find(|&at| stop(&text[at..])).unwrap_or(text.len())
}

fn block_comment(text: &[char], mut at: usize) -> usize {
    let mut depth = 0;
    while at < text.len() {
        match (text[at], text.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn string(text: &[char], mut at: usize) -> usize {
    while at < text.len() && text[at] != '"' {
        at += if text[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

fn raw_string(text: &[char], at: usize) -> Option<usize> {
    let hashes = text[at..].iter().take_while(|&&character| character == '#').count();
    if text.get(at + hashes) != Some(&'"') {
        return None; // a raw identifier
    }
    let closes =
        |rest: &[char]| rest[0] == '"' && rest.len() > hashes && rest[1..=hashes].iter().all(|&c| c == '#');
    Some(find(text, at + hashes + 1, closes) + 1 + hashes)
}

/// The number of lines before the trailing `#[cfg(test)] mod …`; all lines if there is none.
pub fn lines_before_tests(code: &str) -> usize {
    let lines: Vec<&str> = code.lines().collect();
    let is_module = |line: &str| line.starts_with("mod ") && line.contains('{');
    (0..lines.len())
        .find(|&at| {
            lines[at].starts_with("#[cfg(")
                && lines[at].contains("test")
                && lines[at + 1..].iter().take(3).any(|line| is_module(line))
        })
        .unwrap_or(lines.len())
}

/// Code without comments, literals and the trailing test module.
pub fn product_code(text: &str) -> String {
    let code = code_only(text);
    let keep = lines_before_tests(&code);
    code.lines().take(keep).collect::<Vec<_>>().join("\n")
}

#[test]
fn literals_and_comments_are_removed_and_code_stays() {
    let text = "let a = \"x\\\"y\"; // unsafe\nlet b = r#\"unsafe\"#; /* unsafe /* in */ */ let c = '\"'; fn f<'a>() {}";
    let code = code_only(text);
    assert!(!code.contains("unsafe"), "{code}");
    for kept in ["let a", "let b", "let c", "fn f<'a>() {}"] {
        assert!(code.contains(kept), "{kept} in {code}");
    }
    assert_eq!(code.lines().count(), text.lines().count());
}

#[test]
fn the_test_module_is_not_product_code() {
    let text = "fn product() {}\n\n#[cfg(test)]\nmod tests {\n    use crate::world;\n}\n";
    assert_eq!(lines_before_tests(text), 2);
    assert!(!product_code(text).contains("world"));
}
