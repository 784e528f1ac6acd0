//! Parses and writes YAML.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::sync::Arc;

use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, Span, Tag};
use unisono::{Error, Result};

use super::node::{Node, SourceLocation, Value};

/// The maximum number of values after expanding aliases: a small file can describe a huge tree.
const MOST_VALUES: usize = 1_000_000;
const DEEPEST: usize = 100;

/// Parses one document.
pub fn parse(file: &str, text: &str) -> Result<Node> {
    let file: Arc<str> = file.into();
    let mut reader = Reader { file: file.clone(), events: Vec::new(), anchors: HashMap::new(), values: 0 };
    for event in Parser::new_from_str(text) {
        match event {
            Ok((event, span)) => reader.events.push((event, span)),
            Err(error) => {
                let location = SourceLocation { file, line: error.marker().line() };
                return Err(location.error(
                    "read",
                    "YAML",
                    error.info(),
                    "correct this line or the one above it",
                ));
            }
        }
    }
    reader.events.reverse();
    let mut documents = Vec::new();
    while let Some((event, span)) = reader.events.pop() {
        match event {
            Event::StreamStart | Event::StreamEnd | Event::DocumentStart(..) | Event::DocumentEnd => {}
            event => documents.push(reader.node(event, span, 0)?),
        }
    }
    match documents.len() {
        1 => Ok(documents.remove(0)),
        count => {
            let location = SourceLocation { file, line: 0 };
            Err(location.error(
                "read",
                "one YAML document",
                count.to_string(),
                "keep one experiment in a file",
            ))
        }
    }
}

struct Reader<'a> {
    file: Arc<str>,
    events: Vec<(Event<'a>, Span)>,
    anchors: HashMap<usize, (Node, usize)>,
    values: usize,
}

impl Reader<'_> {
    fn next(&mut self) -> Result<(Event<'_>, Span)> {
        self.events.pop().ok_or_else(|| Error::internal("read YAML", "the document has no end"))
    }

    /// The value that starts with this event, consuming all of its events.
    fn node(&mut self, event: Event<'_>, span: Span, depth: usize) -> Result<Node> {
        let location = SourceLocation { file: self.file.clone(), line: span.start.line() };
        let before = self.values;
        self.values += 1;
        if self.values > MOST_VALUES || depth > DEEPEST {
            return Err(location.error(
                "read",
                "a file of moderate size",
                "more values",
                "check its aliases",
            ));
        }
        let (value, anchor, tag) = match event {
            Event::Alias(anchor) => {
                let Some((node, size)) = self.anchors.get(&anchor).cloned() else {
                    return Err(location.error(
                        "read",
                        "an alias of an earlier anchor",
                        "an alias of its own parent",
                        "remove it",
                    ));
                };
                self.values += size;
                return Ok(node);
            }
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain && tag.is_none();
                (if plain { scalar(&text) } else { Value::Text(text.into_owned()) }, anchor, tag.map(name))
            }
            Event::SequenceStart(_, anchor, tag) => {
                let tag = tag.map(name);
                (Value::List(self.list(depth)?), anchor, tag)
            }
            Event::MappingStart(_, anchor, tag) => {
                let tag = tag.map(name);
                (Value::Map(self.map(depth)?), anchor, tag)
            }
            other => return Err(Error::internal("read YAML", format!("{other:?} in a document"))),
        };
        let node = Node { value, location, tag };
        if anchor > 0 {
            self.anchors.insert(anchor, (node.clone(), self.values - before));
        }
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>> {
        let mut items = Vec::new();
        loop {
            let Some((event, span)) = self.events.pop() else { return self.next().map(|_| items) };
            if matches!(event, Event::SequenceEnd) {
                return Ok(items);
            }
            items.push(self.node(event, span, depth + 1)?);
        }
    }

    fn map(&mut self, depth: usize) -> Result<Vec<(String, Node)>> {
        let mut entries: Vec<(String, Node)> = Vec::new();
        let (mut below, mut keys) = (Vec::new(), HashSet::new());
        loop {
            let Some((event, span)) = self.events.pop() else { return self.next().map(|_| entries) };
            let location = SourceLocation { file: self.file.clone(), line: span.start.line() };
            let key = match event {
                Event::MappingEnd => {
                    // The map's own entries take precedence, then the first of the merged maps.
                    entries
                        .extend(below.into_iter().filter(|(key, _): &(String, _)| keys.insert(key.clone())));
                    return Ok(entries);
                }
                Event::Scalar(text, ScalarStyle::Plain, ..) if text == "<<" => {
                    let Some((event, span)) = self.events.pop() else { return self.next().map(|_| entries) };
                    merged(self.node(event, span, depth + 1)?, &mut below)?;
                    continue;
                }
                Event::Scalar(text, ..) => text.into_owned(),
                _ => {
                    return Err(location.error(
                        "read",
                        "a name",
                        "a list or a map as a key",
                        "give the value a name",
                    ));
                }
            };
            if !keys.insert(key.clone()) {
                return Err(location.error(
                    "read",
                    "each key once",
                    format!("`{key}` again"),
                    "remove one of them",
                ));
            }
            let Some((event, span)) = self.events.pop() else { return self.next().map(|_| entries) };
            entries.push((key, self.node(event, span, depth + 1)?));
        }
    }
}

/// The entries merged by `<<`: those of a map, or of a list of maps.
fn merged(node: Node, below: &mut Vec<(String, Node)>) -> Result<()> {
    let shown = node.to_string();
    match node.value {
        Value::Map(entries) => below.extend(entries),
        Value::List(items) if items.iter().all(|item| matches!(item.value, Value::Map(_))) => {
            below.extend(items.iter().flat_map(|item| item.entries().iter().cloned()));
        }
        _ => return Err(node.location.error("read", "a map after `<<`", shown, "name the anchor of a map")),
    }
    Ok(())
}

fn name(tag: std::borrow::Cow<'_, Tag>) -> String {
    format!("{}{}", tag.handle(), tag.suffix())
}

/// The value of a plain scalar. `True` and `1e-3` are parsed as Python writes them.
pub(super) fn scalar(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "None" => return Value::Null,
        "true" | "True" => return Value::Flag(true),
        "false" | "False" => return Value::Flag(false),
        _ => {}
    }
    let looks_like_a_number = text.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first));
    if !looks_like_a_number {
        return Value::Text(text.into());
    }
    match (text.parse::<i64>(), text.parse::<f64>()) {
        (Ok(whole), _) => Value::Whole(whole),
        (_, Ok(number)) if number.is_finite() => Value::Number(number),
        _ => Value::Text(text.into()),
    }
}

/// Writes a value so that [`parse`] reads it back.
pub fn write(node: &Node) -> String {
    let mut text = String::new();
    block(&mut text, node, 0);
    text
}

fn is_flat(node: &Node) -> bool {
    match &node.value {
        Value::Map(entries) => entries.is_empty(),
        Value::List(items) => items.iter().all(|item| !matches!(item.value, Value::Map(_) | Value::List(_))),
        _ => true,
    }
}

fn block(text: &mut String, node: &Node, depth: usize) {
    let margin = "  ".repeat(depth);
    match &node.value {
        Value::Map(entries) if !entries.is_empty() => {
            for (key, value) in entries {
                let _ = write!(text, "{margin}{}:", word(key));
                child(text, value, depth);
            }
        }
        Value::List(items) if !is_flat(node) => {
            for item in items {
                let _ = write!(text, "{margin}-");
                child(text, item, depth);
            }
        }
        _ => {
            let _ = writeln!(text, "{margin}{}", flow(node));
        }
    }
}

fn child(text: &mut String, node: &Node, depth: usize) {
    if is_flat(node) {
        let _ = writeln!(text, " {}", flow(node));
    } else {
        text.push('\n');
        block(text, node, depth + 1);
    }
}

/// A value in flow style, on one line.
pub(crate) fn flow(node: &Node) -> String {
    match &node.value {
        Value::Null => "null".into(),
        Value::Flag(flag) => flag.to_string(),
        Value::Whole(number) => number.to_string(),
        Value::Number(number) => format!("{number:?}"),
        Value::Text(text) => word(text),
        Value::List(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Map(entries) => {
            let entries = entries.iter().map(|(key, value)| format!("{}: {}", word(key), flow(value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Plain text if it reads back as such, otherwise in double quotes.
fn word(text: &str) -> String {
    let safe = |character: char| character.is_alphanumeric() || "_/.-~".contains(character);
    let plain = matches!(scalar(text), Value::Text(_))
        && text.chars().all(safe)
        && !text.starts_with(['-', '.', '~']);
    if plain { text.into() } else { quoted(text) }
}

/// Text in double quotes. Characters that a parser may reject, fold or not display are escaped by code point.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        let _ = match (character, u32::from(character)) {
            ('"' | '\\', _) => write!(quoted, "\\{character}"),
            (' '..='~', _) => write!(quoted, "{character}"),
            _ if character.is_alphanumeric() => write!(quoted, "{character}"),
            (_, code @ ..=0xff) => write!(quoted, "\\x{code:02x}"),
            (_, code @ ..=0xffff) => write!(quoted, "\\u{code:04x}"),
            (_, code) => write!(quoted, "\\U{code:08x}"),
        };
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_types_lines_and_tags() {
        let node = parse(
            "x.yaml",
            "a: !obj:some.Thing {b: 1, c: -0.5e-3, d: True}\ne: [x, '1', null]\nf: &g {h: i}\nj: *g\n",
        )
        .expect("it is YAML");
        let thing = node.get("a").expect("there is an a");
        assert_eq!(thing.tag.as_deref(), Some("!obj:some.Thing"));
        assert_eq!(thing.get("c").and_then(Node::number), Some(-0.0005));
        assert_eq!(thing.get("d").and_then(Node::flag), Some(true));
        let list = node.get("e").expect("there is an e");
        assert_eq!((list.location.line, list.items()[1].text()), (2, Some("1")));
        assert_eq!(node.get("j").and_then(|j| j.get("h")).and_then(Node::text), Some("i"));
    }

    #[test]
    fn maps_are_merged_below_what_a_map_says() {
        let text = "low: &low {a: 1, b: 2}\nother: &other {b: 3, c: 4}\nx: {a: 5, <<: [*low, *other], d: 6}\n\
                    y: {<<: *low, a: 7}\n";
        let node = parse("x.yaml", text).expect("it is YAML");
        let found = |name: &str| -> Vec<(String, Option<i64>)> {
            let entries = node.get(name).map(Node::entries).unwrap_or_default();
            let mut entries: Vec<_> =
                entries.iter().map(|(key, value)| (key.clone(), value.whole())).collect();
            entries.sort();
            entries
        };
        let expected = |pairs: &[(&str, i64)]| -> Vec<(String, Option<i64>)> {
            pairs.iter().map(|(key, value)| (key.to_string(), Some(*value))).collect()
        };
        assert_eq!(found("x"), expected(&[("a", 5), ("b", 2), ("c", 4), ("d", 6)]));
        assert_eq!(found("y"), expected(&[("a", 7), ("b", 2)]));
        let error = parse("x.yaml", "a: 1\nb: {<<: 3}").expect_err("3 is no map").to_string();
        assert!(error.starts_with("x.yaml:2"), "{error}");
        assert_eq!(parse("x.yaml", "'<<': 3").expect("in quotes it is a key").entries()[0].0, "<<");
    }

    #[test]
    fn what_is_written_reads_back() {
        let text = "a: {b: [1, 2.5], c: [{d: 'x: y'}, {e: \"1\"}], f: {}, g: [], h: -x, i: 1e300}";
        let node = parse("x", text).expect("it is YAML");
        let again = parse("x", &write(&node)).expect("what is written is YAML");
        fn same(one: &Node, other: &Node) -> bool {
            match (&one.value, &other.value) {
                (Value::Map(one), Value::Map(other)) => {
                    one.len() == other.len()
                        && one.iter().zip(other).all(|(a, b)| a.0 == b.0 && same(&a.1, &b.1))
                }
                (Value::List(one), Value::List(other)) => {
                    one.len() == other.len() && one.iter().zip(other).all(|(a, b)| same(a, b))
                }
                (one, other) => one == other,
            }
        }
        assert!(same(&node, &again), "{}", write(&node));
    }

    /// Asserts that texts read back as the items of a list, and short ones as the keys of a map.
    fn reads_back(texts: &[String]) {
        let location = SourceLocation { file: "x".into(), line: 0 };
        let node = |value: Value| Node::new(value, location.clone());
        let text = |text: &String| node(Value::Text(text.clone()));
        let list = write(&node(Value::List(texts.iter().map(text).collect())));
        let again = parse("x", &list).unwrap_or_else(|error| panic!("{error} near {:?}", texts[0]));
        let found: Vec<Option<&str>> = again.items().iter().map(Node::text).collect();
        assert!(found == texts.iter().map(|text| Some(text.as_str())).collect::<Vec<_>>(), "{:?}", texts[0]);
        // Implicit keys in YAML have at most 1024 characters.
        let keys = || texts.iter().filter(|key| key.len() < 100);
        let map = write(&node(Value::Map(keys().map(|key| (key.clone(), text(key))).collect())));
        let again = parse("x", &map).unwrap_or_else(|error| panic!("{error} near {:?}", texts[0]));
        assert!(keys().all(|key| again.get(key).and_then(Node::text) == Some(key)), "{:?}", texts[0]);
    }

    #[test]
    fn every_character_reads_back() {
        let all: Vec<char> = ('\0'..=char::MAX).collect();
        let (first, rest) = all.split_at(0x3100);
        for some in first.chunks(64) {
            reads_back(&some.iter().map(|one| one.to_string()).collect::<Vec<_>>());
            reads_back(&some.iter().map(|one| format!("a{one}b")).collect::<Vec<_>>());
        }
        reads_back(&rest.chunks(4000).map(|some| some.iter().collect()).collect::<Vec<_>>());
        let tricky =
            ["", " ", "  a  ", "\\n", "a\n  b", "e\u{301}", "no: 1 # x", "'", "null", "-1", "%a", "&a"];
        reads_back(&tricky.map(String::from));
    }

    #[test]
    fn broken_files_are_rejected_with_their_line() {
        for (text, line) in [
            ("a: [1, 2\nb: 3", ""),
            ("a: 1\na: 2", "x.yaml:2"),
            ("a: &b [*b]", "x.yaml:1"),
            ("", "x.yaml"),
            ("a: 1\n---\nb: 2", "x.yaml"),
        ] {
            let error = parse("x.yaml", text).expect_err("it is broken").to_string();
            assert!(error.starts_with("x.yaml") && error.contains(line), "{error}");
        }
        // Nine levels of ten aliases each would expand to a billion values.
        let mut bomb = String::from("a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n");
        for level in 1..9 {
            let item = format!("*a{}", level - 1);
            bomb += &format!("a{level}: &a{level} [{}]\n", vec![item; 10].join(","));
        }
        assert!(parse("x.yaml", &bomb).is_err());
    }
}
