//! A value of an experiment file, with its source location.

use std::fmt;
use std::sync::Arc;

use unisono::Error;

/// A source location: a line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLocation {
    /// The file, or another source of settings.
    pub file: Arc<str>,
    /// The line number, starting at 1; 0 if the source has no lines.
    pub line: usize,
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}", self.file),
            line => write!(f, "{}:{line}", self.file),
        }
    }
}

impl SourceLocation {
    /// A usage error at this location.
    pub fn error(
        &self,
        what: &str,
        expected: impl Into<String>,
        received: impl Into<String>,
        advice: impl Into<String>,
    ) -> Error {
        Error::usage(format!("{self}: {what}"), expected, received, advice)
    }

    /// Prefixes an error with this location, unless it already names this file.
    pub fn locate(&self, mut error: Error) -> Error {
        if let Error::Usage { operation, .. } | Error::Io { operation, .. } = &mut error
            && !operation.starts_with(&*self.file)
        {
            *operation = format!("{self}: {operation}");
        }
        error
    }
}

/// The kinds of values.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Null.
    Null,
    /// A Boolean.
    Flag(bool),
    /// An integer.
    Whole(i64),
    /// A number.
    Number(f64),
    /// Text.
    Text(String),
    /// A list of values.
    List(Vec<Node>),
    /// Named values, in file order.
    Map(Vec<(String, Node)>),
}

/// A value with its location and optional tag.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Its location.
    pub location: SourceLocation,
    /// The tag in front of it, with its exclamation mark.
    pub tag: Option<String>,
}

impl Node {
    /// A value without a tag.
    pub fn new(value: Value, location: SourceLocation) -> Node {
        Node { value, location, tag: None }
    }

    /// The value of a key, if this is a map that contains it.
    pub fn get(&self, name: &str) -> Option<&Node> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|(key, _)| key == name).map(|(_, node)| node),
            _ => None,
        }
    }

    /// Sets the value of a key in a map.
    pub fn set(&mut self, name: &str, node: Node) {
        if let Value::Map(entries) = &mut self.value {
            match entries.iter_mut().find(|(key, _)| key == name) {
                Some((_, old)) => *old = node,
                None => entries.push((name.into(), node)),
            }
        }
    }

    /// The entries of a map; empty for other values.
    pub fn entries(&self) -> &[(String, Node)] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The items of a list; empty for other values.
    pub fn items(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// The value as text, if it is text.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value as a number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self.value {
            Value::Number(number) => Some(number),
            Value::Whole(number) => Some(number as f64),
            _ => None,
        }
    }

    /// The value as an integer, if it is one.
    pub fn whole(&self) -> Option<i64> {
        match self.value {
            Value::Whole(number) => Some(number),
            _ => None,
        }
    }

    /// The value as a Boolean, if it is one.
    pub fn flag(&self) -> Option<bool> {
        match self.value {
            Value::Flag(flag) => Some(flag),
            _ => None,
        }
    }
}

/// The form used in messages: scalars literally, other values by their kind.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Value::Null => f.write_str("nothing"),
            Value::Flag(flag) => write!(f, "{flag}"),
            Value::Whole(number) => write!(f, "{number}"),
            Value::Number(number) => write!(f, "{number}"),
            Value::Text(text) => write!(f, "`{text}`"),
            Value::List(items) => write!(f, "a list of {}", items.len()),
            Value::Map(_) => f.write_str("a map of keys"),
        }
    }
}
