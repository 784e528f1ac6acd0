//! The files that the rules check, and the format of a breach.

use std::fs;
use std::path::{Path, PathBuf};

/// A text file of the repository; its path is relative to the root.
pub struct Source {
    pub path: String,
    pub text: String,
}

impl Source {
    /// A synthetic file for a rule's own tests.
    #[cfg(test)]
    pub fn new(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.into() }
    }

    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether it is a module or a script: scripts have no suffix but a first line that names Python.
    pub fn is_python(&self) -> bool {
        self.path.ends_with(".py")
            || self.text.lines().next().is_some_and(|line| line.starts_with("#!") && line.contains("python"))
    }

    pub fn is_page(&self) -> bool {
        self.path.ends_with(".md")
    }
}

/// A broken rule: the position and the reason.
#[derive(Debug, PartialEq)]
pub struct Breach {
    pub line: usize,
    pub what: String,
}

impl Breach {
    pub fn new(line: usize, what: impl Into<String>) -> Breach {
        Breach { line, what: what.into() }
    }

    pub fn at(&self, file: &Source) -> String {
        format!("{}:{}: {}", file.path, self.line, self.what)
    }
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn read(path: &str) -> Source {
    let text = fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    Source { path: path.into(), text }
}

/// Every text file under the root, except the output of builds and environments.
pub fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    collect(root(), &mut found);
    found.sort();
    found
        .into_iter()
        .filter_map(|path| Some(Source { text: fs::read_to_string(root().join(&path)).ok()?, path }))
        .collect()
}

fn collect(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("the repository can be read").flatten() {
        let path: PathBuf = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type().expect("a file has a type");
        if kind.is_dir() {
            let made = matches!(name.as_str(), "target" | "__pycache__" | "node_modules");
            let hidden = name.starts_with('.') && name != ".ci";
            if !made && !hidden {
                collect(&path, found);
            }
        } else if kind.is_file() && is_text(&name) {
            let relative = path.strip_prefix(root()).expect("it lies under the root");
            found.push(relative.to_string_lossy().into_owned());
        }
    }
}

/// Scripts have no suffix; a file with a suffix must be of a kind that people write.
fn is_text(name: &str) -> bool {
    match name.rsplit_once('.') {
        Some((_, suffix)) => {
            matches!(suffix, "rs" | "py" | "pyi" | "md" | "toml" | "txt" | "sh" | "h" | "c" | "lua" | "yaml")
        }
        None => true,
    }
}
