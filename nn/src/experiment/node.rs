//! A value of an experiment file, which knows the line that it comes from.

use std::fmt;
use std::sync::Arc;

use unisono::Error;

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file, or another source of settings.
    pub file: Arc<str>,
    /// The line, the first being 1; 0 where there are no lines.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}", self.file),
            line => write!(f, "{}:{line}", self.file),
        }
    }
}

impl Place {
    /// What is wrong here.
    pub fn error(
        &self,
        what: &str,
        expected: impl Into<String>,
        received: impl Into<String>,
        advice: impl Into<String>,
    ) -> Error {
        Error::usage(format!("{self}: {what}"), expected, received, advice)
    }

    /// An error of something that is named here, with this place in front unless it says a line already.
    pub fn locate(&self, mut error: Error) -> Error {
        if let Error::Usage { operation, .. } | Error::Io { operation, .. } = &mut error
            && !operation.starts_with(&*self.file)
        {
            *operation = format!("{self}: {operation}");
        }
        error
    }
}

/// What a value is.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing.
    Null,
    /// True or false.
    Flag(bool),
    /// A whole number.
    Whole(i64),
    /// A number.
    Number(f64),
    /// Text.
    Text(String),
    /// Some values.
    List(Vec<Node>),
    /// Values with names, in their order.
    Map(Vec<(String, Node)>),
}

/// A value with its place, and its tag if it has one.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// What it is.
    pub value: Value,
    /// Where it is.
    pub place: Place,
    /// The tag before it, with its exclamation mark.
    pub tag: Option<String>,
}

impl Node {
    /// A value without a tag.
    pub fn new(value: Value, place: Place) -> Node {
        Node { value, place, tag: None }
    }

    /// The value of a name, where this is a map that has it.
    pub fn get(&self, name: &str) -> Option<&Node> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|(key, _)| key == name).map(|(_, node)| node),
            _ => None,
        }
    }

    /// Sets the value of a name in a map.
    pub fn set(&mut self, name: &str, node: Node) {
        if let Value::Map(entries) = &mut self.value {
            match entries.iter_mut().find(|(key, _)| key == name) {
                Some((_, old)) => *old = node,
                None => entries.push((name.into(), node)),
            }
        }
    }

    /// The entries of a map; none where it is no map.
    pub fn entries(&self) -> &[(String, Node)] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The values of a list; none where it is no list.
    pub fn items(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// As text, where it is text.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// As a number, where it is one.
    pub fn number(&self) -> Option<f64> {
        match self.value {
            Value::Number(number) => Some(number),
            Value::Whole(number) => Some(number as f64),
            _ => None,
        }
    }

    /// As a whole number, where it is one.
    pub fn whole(&self) -> Option<i64> {
        match self.value {
            Value::Whole(number) => Some(number),
            _ => None,
        }
    }

    /// As a flag, where it is one.
    pub fn flag(&self) -> Option<bool> {
        match self.value {
            Value::Flag(flag) => Some(flag),
            _ => None,
        }
    }
}

/// As messages show it: scalars as they are, the others by their kind.
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
