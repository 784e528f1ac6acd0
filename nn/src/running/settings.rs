//! The settings that may change when a run is resumed.

use std::collections::BTreeMap;

use unisono::{Error, Result};

use crate::experiment::{Experiment, Node, NodeValue, flow};

const MAY_CHANGE: &[&str] = &["epochs", "threads", "test_every", "save_every", "keep", "distributed"];

/// Rejects resuming a run with different settings: `old` is the text of the file `name` in its folder.
pub(super) fn must_continue(name: &str, old: &str, experiment: &Experiment) -> Result<()> {
    let rejected = |[expected, received]: [String; 2], advice: String| {
        Err(Error::usage(format!("resume {name}"), expected, received, advice))
    };
    // Both are parsed from text, so that both have the same rounding and order.
    let read = |file: &str, text: &str| Experiment::parse_with(file, text, &[], &experiment.extensions);
    let (before, after) = (read(name, old)?, read("this run", &experiment.resolved_text())?);
    // An explicit value on the command line is intended; a forgotten one is not.
    let is_explicit =
        experiment.resolved.get("epochs").is_some_and(|node| node.location.file.starts_with("--set"));
    if after.epochs < before.epochs && !is_explicit {
        let [before, after] = [before.epochs, after.epochs];
        let words = [format!("at least `epochs: {before}`, as before"), format!("`epochs: {after}`")];
        return rejected(words, format!("pass --set epochs={before} again, or give another --out"));
    }
    let [old, new] = [before.resolved, after.resolved].map(|mut settings| {
        if let NodeValue::Map(entries) = &mut settings.value {
            entries.retain(|(key, _)| !MAY_CHANGE.contains(&key.as_str()));
        }
        settings
    });
    match first_difference("", Some(&old), Some(&new)) {
        Some(words) => {
            rejected(words, format!("only {} may change, or give another --out", MAY_CHANGE.join(", ")))
        }
        None => Ok(()),
    }
}

/// The children of a setting: by key for a map, by index for a list, counted from 0.
fn inside(node: &Node) -> BTreeMap<String, &Node> {
    let items = node.items().iter().enumerate().map(|(number, item)| (number.to_string(), item));
    node.entries().iter().map(|(key, entry)| (key.clone(), entry)).chain(items).collect()
}

/// The first setting that differs, as text on each side.
fn first_difference(path: &str, one: Option<&Node>, other: Option<&Node>) -> Option<[String; 2]> {
    if let (Some(one), Some(other)) = (one, other) {
        let (ours, theirs) = (inside(one), inside(other));
        if !ours.is_empty() && !theirs.is_empty() {
            return ours.keys().chain(theirs.keys()).find_map(|key| {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                first_difference(&path, ours.get(key).copied(), theirs.get(key).copied())
            });
        }
        if one.value == other.value {
            return None;
        }
    }
    let shown = |node: Option<&Node>| match node {
        Some(node) => format!("`{path}: {}`", flow(node)),
        None => format!("no `{path}`"),
    };
    Some([shown(one), shown(other)])
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "
        epochs: 3
        batch_size: 7
        data: {type: iris, sample: 50}
        model: {type: network, cost: sum_of_squares, layers: [{type: fully_connected, name: a, outputs: 3}]}";

    fn shown(before: &[&str], after: &[&str]) -> Option<String> {
        let experiment = |changes: &[&str]| {
            let changes: Vec<String> = changes.iter().map(|change| change.to_string()).collect();
            Experiment::parse("x.yaml", BEFORE, &changes).expect("it is right")
        };
        let old = experiment(before).resolved_text();
        must_continue("old.yaml", &old, &experiment(after)).err().map(|error| error.to_string())
    }

    #[test]
    fn a_setting_that_differs_is_named_with_both_its_values() {
        let layer = "model.layers.0.rule={type: adam}";
        for (before, after, expected, received) in [
            (&[][..], &["deterministic=false"][..], "no `deterministic`", "`deterministic: false`"),
            (&["deterministic=false"], &[], "`deterministic: false`", "no `deterministic`"),
            (&[], &["batch_size=9"], "`batch_size: 7`", "`batch_size: 9`"),
            (&[], &["data.sample=40"], "`data.sample: 50", "`data.sample: 40"),
            (
                &[],
                &["model.layers.0.outputs=4"],
                "`model.layers.0.outputs: 3`",
                "`model.layers.0.outputs: 4`",
            ),
            (&[], &[layer], "no `model.layers.0.rule`", "`model.layers.0.rule: {type: adam"),
            (&["epochs=4"], &[], "at least `epochs: 4`", "`epochs: 3`"),
        ] {
            let message = shown(before, after).expect("it must be rejected");
            let (start, end) = message.split_once("received").expect("all errors say it");
            assert!(start.contains(expected) && end.contains(received), "{message}");
        }
        assert_eq!(shown(&["epochs=2"], &["keep=9", "threads=2", "distributed=halo"]), None);
        assert_eq!(shown(&["epochs=4"], &["epochs=2"]), None);
    }
}
