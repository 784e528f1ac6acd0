//! One `!obj:` of a neon file: its class, and its keys by name.

use unisono::{Error, Result};

use super::super::node::{Node, SourceLocation, Value};
use unisono::error::nearest::advice;

pub(super) struct NeonObject<'a> {
    pub(super) class: &'static str,
    pub(super) node: &'a Node,
}

/// The class in a tag: the last component of its path.
fn class(tag: &str) -> &str {
    tag.strip_prefix("!obj:").unwrap_or(tag).rsplit('.').next().unwrap_or_default()
}

impl<'a> NeonObject<'a> {
    /// An object of one of these classes, separated by spaces. `FooDist` is treated as `Foo`, if that is listed.
    pub(super) fn of(node: &'a Node, classes: &'static str) -> Result<NeonObject<'a>> {
        let Some(tag) = &node.tag else {
            let expected = format!("an !obj: of {}", listed(classes));
            return Err(node.location.error("neon file", expected, node.to_string(), "add its tag"));
        };
        let given = class(tag);
        let plain = given.strip_suffix("Dist").unwrap_or(given);
        let word = if classes.split(' ').any(|class| class == plain) { plain } else { given };
        Ok(NeonObject { class: one_of(node, "neon file", word, classes)?, node })
    }

    pub(super) fn maybe(&self, key: &str) -> Option<&'a Node> {
        self.node.get(key)
    }

    /// The value of a key, if present and not null.
    pub(super) fn given(&self, key: &str) -> Option<&'a Node> {
        self.maybe(key).filter(|node| node.value != Value::Null)
    }

    pub(super) fn need(&self, key: &str) -> Result<&'a Node> {
        self.maybe(key).ok_or_else(|| self.missing(key))
    }

    /// The error for a required key without a value.
    pub(super) fn missing(&self, key: &str) -> Error {
        self.node.location.error(self.class, format!("a key `{key}`"), "none", "add it")
    }

    /// Rejects keys that are not among these, separated by spaces.
    pub(super) fn only(&self, keys: &str) -> Result<()> {
        only(self.node, self.class, keys)
    }

    /// The value of a Boolean key; `None` if absent or null.
    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.maybe(key).map_or(Ok(None), |node| flag(node, key))
    }
}

/// Words separated by spaces, for an error.
fn listed(words: &str) -> String {
    words.replace(' ', ", ")
}

/// The one of these words, separated by spaces, that matches; or an error.
pub(super) fn one_of(node: &Node, what: &str, word: &str, words: &'static str) -> Result<&'static str> {
    words.split(' ').find(|known| *known == word).ok_or_else(|| {
        let advice = advice(word, words.split(' '), "this program does not support it");
        node.location.error(what, format!("one of {}", listed(words)), format!("`{word}`"), advice)
    })
}

/// Rejects keys of a map that are not among these, separated by spaces.
pub(super) fn only(node: &Node, what: &str, keys: &str) -> Result<()> {
    let keys = keys.trim_start();
    for (key, value) in node.entries() {
        if !keys.split(' ').any(|known| known == key) {
            let otherwise = format!("its keys are {}", listed(keys));
            let advice = advice(key, keys.split(' '), &otherwise);
            return Err(value.location.error(what, "a known key", format!("`{key}`"), advice));
        }
    }
    Ok(())
}

/// Parses a Boolean in any of the spellings of Python's YAML; `None` if null.
pub(super) fn flag(node: &Node, key: &str) -> Result<Option<bool>> {
    let word = node.text().map(str::to_lowercase);
    match (&node.value, word.as_deref()) {
        (Value::Null, _) => Ok(None),
        (Value::Flag(flag), _) => Ok(Some(*flag)),
        (Value::Whole(1), _) | (_, Some("yes" | "on" | "true")) => Ok(Some(true)),
        (Value::Whole(0), _) | (_, Some("no" | "off" | "false")) => Ok(Some(false)),
        _ => {
            let what = format!("`{key}`");
            Err(node.location.error(&what, "True or False", node.to_string(), "write one of the two"))
        }
    }
}

pub(super) fn text(word: &str, location: &SourceLocation) -> Node {
    Node::new(Value::Text(word.into()), location.clone())
}

pub(super) fn number(value: f64, location: &SourceLocation) -> Node {
    Node::new(Value::Number(value), location.clone())
}

pub(super) fn map(entries: Vec<(&'static str, Node)>, location: &SourceLocation) -> Node {
    let entries = entries.into_iter().map(|(key, node)| (key.to_string(), node)).collect();
    Node::new(Value::Map(entries), location.clone())
}
