//! Composes files into one tree of settings: `_base_` files first, then the file, then overrides from the command line.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use unisono::{Error, Result};

use super::node::{Node, SourceLocation, Value};
use super::{aliases, yaml};

/// Reads a file and its base files.
pub fn read(path: &Path) -> Result<Node> {
    read_above(path, &mut Vec::new())
}

fn read_above(path: &Path, above: &mut Vec<PathBuf>) -> Result<Node> {
    let shown = path.display().to_string();
    let failed = |error| Error::io("read", shown.clone(), error, "give the path of an experiment file");
    let whole = path.canonicalize().map_err(failed)?;
    if above.contains(&whole) {
        let location = SourceLocation { file: shown.into(), line: 0 };
        return Err(location.error(
            "_base_",
            "base files without a cycle",
            "a file that is its own base",
            "remove the cycle",
        ));
    }
    let text = std::fs::read_to_string(&whole).map_err(failed)?;
    let mut node = yaml::parse(&shown, &text)?;
    aliases::resolve(&mut node)?;
    let Value::Map(entries) = &mut node.value else { return Ok(node) };
    let Some(at) = entries.iter().position(|(key, _)| key == "_base_") else { return Ok(node) };
    let (_, bases) = entries.remove(at);
    let bases = match &bases.value {
        Value::List(items) => items.clone(),
        _ => vec![bases],
    };
    above.push(whole);
    let mut result: Option<Node> = None;
    for base in bases {
        let Some(name) = base.text() else {
            return Err(base.location.error(
                "_base_",
                "the name of a file",
                base.to_string(),
                "name one or a list",
            ));
        };
        let below = read_above(&path.parent().unwrap_or(Path::new("")).join(name), above)?;
        result = Some(match result {
            Some(result) => merge(result, below),
            None => below,
        });
    }
    above.pop();
    Ok(match result {
        Some(below) => merge(below, node),
        None => node,
    })
}

/// The overriding value wins; maps are merged, unless the overriding map has another `type`.
fn merge(below: Node, above: Node) -> Node {
    let types = (below.get("type").map(|node| &node.value), above.get("type").map(|node| &node.value));
    let other_type = matches!(types, (Some(one), Some(other)) if one != other);
    match (below.value, above.value) {
        (Value::Map(mut entries), Value::Map(changes)) if !other_type => {
            for (key, change) in changes {
                match entries.iter().position(|(name, _)| *name == key) {
                    Some(at) => {
                        let old = entries.remove(at);
                        entries.insert(at, (key, merge(old.1, change)));
                    }
                    None => entries.push((key, change)),
                }
            }
            Node { value: Value::Map(entries), location: above.location, tag: above.tag.or(below.tag) }
        }
        (_, value) => Node { value, location: above.location, tag: above.tag },
    }
}

/// Applies one override: `model.layers.0.maps=16`.
pub fn change(node: &mut Node, setting: &str) -> Result<()> {
    change_as(node, &format!("--set {setting}"), setting)
}

/// [`change`] with the name that errors use for the override.
pub fn change_as(node: &mut Node, name: &str, setting: &str) -> Result<()> {
    let file: Arc<str> = name.into();
    let location = SourceLocation { file: file.clone(), line: 0 };
    let Some((path, value)) = setting.split_once('=') else {
        return Err(location.error("set", "key=value", "no `=`", "write for example --set epochs=3"));
    };
    let mut value = yaml::parse(&file, value)?;
    relocate(&mut value, &location);
    let mut at = &mut *node;
    let mut names = path.split('.').peekable();
    let mut is_in_rule = false;
    while let Some(name) = names.next() {
        let name = if is_in_rule { aliases::key(name) } else { name };
        is_in_rule = name == "rule";
        let missing = |expected: String| {
            location.error("set", expected, format!("`{name}`"), "look at the file's keys")
        };
        // A single word is shorthand for a map with only a `type`.
        if let Value::Text(word) = &mut at.value {
            let word = Value::Text(std::mem::take(word));
            at.value = Value::Map(vec![("type".into(), Node::new(word, at.location.clone()))]);
        }
        // Any error in the containing map may be caused by this override.
        let holds_it = path.contains('.') && names.peek().is_none() && matches!(at.value, Value::Map(_));
        if holds_it && at.location.file != file {
            at.location = SourceLocation { file: format!("{} with {file}", at.location).into(), line: 0 };
        }
        at = match &mut at.value {
            Value::List(items) => {
                let count = items.len();
                let index = name.parse::<usize>().ok().filter(|index| *index < count);
                let index = index.ok_or_else(|| missing(format!("a number below {count}")))?;
                &mut items[index]
            }
            Value::Map(entries) => {
                if !entries.iter().any(|(key, _)| key == name) {
                    let fresh = if names.peek().is_some() { Value::Map(Vec::new()) } else { Value::Null };
                    entries.push((name.into(), Node::new(fresh, location.clone())));
                }
                let found = entries.iter_mut().find(|(key, _)| key == name);
                found.map(|(_, node)| node).expect("it was found or added")
            }
            _ => return Err(missing("a map or a list above it".into())),
        };
    }
    *at = value;
    aliases::resolve(node)
}

fn relocate(node: &mut Node, location: &SourceLocation) {
    node.location = location.clone();
    match &mut node.value {
        Value::List(items) => items.iter_mut().for_each(|item| relocate(item, location)),
        Value::Map(entries) => entries.iter_mut().for_each(|(_, item)| relocate(item, location)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bases_lie_below_and_changes_above() {
        let folder = std::env::temp_dir().join(format!("unisono-base-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        let write =
            |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("it can be written");
        write("low.yaml", "a: 1\nb: {type: x, c: 2, d: 3}\ne: {type: y, f: 4}\n");
        write("high.yaml", "_base_: low.yaml\nb: {c: 5}\ne: {type: z}\n");
        write("ring.yaml", "_base_: [low.yaml, ring.yaml]\n");
        let mut node = read(&folder.join("high.yaml")).expect("both files are there");
        let number = |node: &Node, path: [&str; 2]| node.get(path[0])?.get(path[1])?.number();
        assert_eq!((number(&node, ["b", "c"]), number(&node, ["b", "d"])), (Some(5.0), Some(3.0)));
        assert_eq!(number(&node, ["e", "f"]), None, "another type has other keys");
        change(&mut node, "b.c=7").expect("there is a b.c");
        change(&mut node, "new.list=[1, 2]").expect("new keys are made");
        change(&mut node, "g=word").expect("it is a word");
        change(&mut node, "g.h=2").expect("a word is a map with a type");
        let word = node.get("g").and_then(|g| g.get("type")).and_then(Node::text);
        assert_eq!((word, number(&node, ["g", "h"])), (Some("word"), Some(2.0)));
        change(&mut node, "new.list.1=9").expect("lists are counted");
        assert_eq!(number(&node, ["b", "c"]), Some(7.0));
        assert_eq!(
            node.get("new").and_then(|n| n.get("list")).map(|l| l.items()[1].number()),
            Some(Some(9.0))
        );
        for bad in ["b", "a.b=1", "new.list.5=1", "x=[1"] {
            assert!(change(&mut node, bad).expect_err(bad).to_string().starts_with("--set"));
        }
        for base in ["5", "{a: 1}", "[low.yaml, true]"] {
            write("wrong.yaml", &format!("_base_: {base}\na: 2\n"));
            let error = read(&folder.join("wrong.yaml")).expect_err(base).to_string();
            assert!(error.contains("_base_") && error.contains("the name of a file"), "{error}");
        }
        assert!(
            read(&folder.join("ring.yaml")).expect_err("it is a ring").to_string().contains("its own base")
        );
        assert!(read(&folder.join("none.yaml")).is_err());
        std::fs::remove_dir_all(&folder).expect("it can be removed");
    }
}
