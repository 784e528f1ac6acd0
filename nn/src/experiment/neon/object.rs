//! One `!obj:` of a neon file: its class, and its keys by name.

use unisono::Result;

use super::super::node::{Node, Place, Value};
use unisono::error::nearest::advice;

pub(super) struct Object<'a> {
    pub(super) class: &'static str,
    pub(super) node: &'a Node,
}

/// The class in a tag: the last part of its path, without the suffix that says that it is spread over processes.
fn class(tag: &str) -> &str {
    tag.strip_prefix("!obj:").unwrap_or(tag).rsplit('.').next().unwrap_or_default()
}

impl<'a> Object<'a> {
    /// An object of one of these classes. `FooDist` is `Foo`, unless it is listed itself.
    pub(super) fn of(node: &'a Node, classes: &[&'static str]) -> Result<Object<'a>> {
        let Some(tag) = &node.tag else {
            let expected = format!("an !obj: of {}", classes.join(", "));
            return Err(node.place.error("neon file", expected, node.to_string(), "add its tag"));
        };
        let given = class(tag);
        let plain = given.strip_suffix("Dist").unwrap_or(given);
        match classes.iter().find(|class| **class == given || **class == plain) {
            Some(class) => Ok(Object { class, node }),
            None => {
                let advice = advice(given, classes.iter().copied(), "this program does not know it");
                Err(node.place.error(
                    "neon file",
                    format!("one of {}", classes.join(", ")),
                    format!("`{given}`"),
                    advice,
                ))
            }
        }
    }

    pub(super) fn maybe(&self, key: &str) -> Option<&'a Node> {
        self.node.get(key)
    }

    pub(super) fn need(&self, key: &str) -> Result<&'a Node> {
        self.maybe(key)
            .ok_or_else(|| self.node.place.error(self.class, format!("a key `{key}`"), "none", "add it"))
    }

    /// Refuses keys that are not of this list.
    pub(super) fn only(&self, keys: &[&str]) -> Result<()> {
        for (key, value) in self.node.entries() {
            if !keys.contains(&key.as_str()) {
                let advice = advice(key, keys.iter().copied(), "this program does not know it");
                return Err(value.place.error(self.class, "a known key", format!("`{key}`"), advice));
            }
        }
        Ok(())
    }
}

pub(super) fn text(word: &str, place: &Place) -> Node {
    Node::new(Value::Text(word.into()), place.clone())
}

pub(super) fn number(value: f64, place: &Place) -> Node {
    Node::new(Value::Number(value), place.clone())
}

pub(super) fn map(entries: Vec<(&'static str, Node)>, place: &Place) -> Node {
    let entries = entries.into_iter().map(|(key, node)| (key.to_string(), node)).collect();
    Node::new(Value::Map(entries), place.clone())
}
