//! Corrupted experiment files, in our format and in neon's, yield an error with a location or an experiment, never a panic.

use std::path::Path;

use unisono::testing::mutate;

use super::node::{Node, Value};
use super::{Experiment, Extensions, yaml};
use crate::fuzz::fuzz;

/// The shipped experiments, in both formats.
fn files() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments");
    let names = |folder: &Path| {
        let mut paths: Vec<_> = std::fs::read_dir(folder)
            .expect("it is there")
            .map(|entry| entry.expect("it is there").path())
            .collect();
        paths.retain(|path| path.extension().is_some_and(|suffix| suffix == "yaml"));
        paths.sort();
        paths
    };
    let paths = names(&folder).into_iter().chain(names(&folder.join("distributed")));
    paths.map(|path| std::fs::read_to_string(path).expect("it is text")).collect()
}

#[test]
fn damaged_experiments() {
    let good = files();
    fuzz!(|script: &[u8]| {
        let Ok(text) = String::from_utf8(mutate(&good, script)) else { return };
        if let Ok(experiment) = Experiment::parse("damaged.yaml", &text, &[]) {
            // What was read can be written and read back.
            let written = experiment.resolved_text();
            let again = Experiment::parse("written.yaml", &written, &[]);
            assert!(
                again.is_ok(),
                "{}\n{written}",
                again.err().map(|error| error.to_string()).unwrap_or_default()
            );
        }
    });
}

#[test]
fn damaged_settings() {
    let text = files().remove(0);
    let good = ["epochs=3", "model.layers.0.maps=16", "rule={type: adam, beta1: 0.9}", "name=\"a b\""];
    fuzz!(|script: &[u8]| {
        if let Ok(setting) = String::from_utf8(mutate(&good, script)) {
            let _ = Experiment::parse("settings.yaml", &text, &[setting]);
        }
    });
}

/// All values of a tree, in pre-order.
fn all(node: &Node) -> Vec<&Node> {
    let below = node.entries().iter().map(|(_, node)| node).chain(node.items());
    std::iter::once(node).chain(below.flat_map(all)).collect()
}

/// The value with this pre-order number, as in [`all`].
fn at(node: &mut Node, number: usize) -> Option<&mut Node> {
    let mut left = number;
    let mut waiting = vec![node];
    while let Some(node) = waiting.pop() {
        if left == 0 {
            return Some(node);
        }
        left -= 1;
        match &mut node.value {
            Value::Map(entries) => waiting.extend(entries.iter_mut().rev().map(|(_, node)| node)),
            Value::List(items) => waiting.extend(items.iter_mut().rev()),
            _ => {}
        }
    }
    None
}

/// One structural mutation of a tree, encoded in six bytes: the target, the operation and the donor.
fn change(tree: &mut Node, step: &[u8], files: &[Node]) {
    let pick = |low: u8, high: u8, count: usize| (usize::from(low) | usize::from(high) << 8) % count.max(1);
    let size = all(tree).len();
    let donors = all(&files[usize::from(step[5]) % files.len()]);
    let donor = donors[pick(step[3], step[4], donors.len())].clone();
    let Some(node) = at(tree, pick(step[1], step[2], size)) else { return };
    let place = usize::from(step[3]);
    match (step[0] % 9, &mut node.value) {
        // A value from any file.
        (0, _) => *node = donor,
        (1, _) => node.tag = donor.tag,
        (2, _) => node.value = donor.value,
        (3, _) => *node = Node::new(Value::List(vec![node.clone(), donor]), node.location.clone()),
        (4, _) => {
            *node = Node::new(Value::Map(vec![("type".into(), node.clone())]), node.location.clone());
        }
        (5, Value::Map(entries)) if !entries.is_empty() => drop(entries.remove(place % entries.len())),
        (5, Value::List(items)) if !items.is_empty() => drop(items.remove(place % items.len())),
        (6, Value::Map(entries)) => {
            let named: Vec<&str> =
                donors.iter().flat_map(|node| node.entries()).map(|(name, _)| name.as_str()).collect();
            let name = named.get(pick(step[1], step[2], named.len())).copied().unwrap_or("name");
            if entries.iter().all(|(other, _)| other != name) {
                entries.push((name.into(), donor));
            }
        }
        (6, Value::List(items)) => items.push(donor),
        (7, Value::Map(entries)) => entries.reverse(),
        (7, Value::List(items)) => items.reverse(),
        (8, value) => {
            let numbers = [0, 1, -1, 2, 1 << 31, 1 << 32, i64::MAX, i64::MIN];
            *value = match place % 4 {
                0 => Value::Null,
                1 => Value::Number(f64::from(step[4]) * 1e300),
                2 => Value::Text("x,=:".repeat(usize::from(step[4]) % 4)),
                _ => Value::Whole(numbers[usize::from(step[4]) % numbers.len()]),
            };
        }
        _ => {}
    }
}

/// Files with valid lines but inconsistent structure, which single-byte mutations hardly reach.
#[test]
fn forged_structures() {
    let files: Vec<Node> =
        files().iter().map(|text| yaml::parse("forged.yaml", text).expect("it is YAML")).collect();
    fuzz!(|script: &[u8]| {
        let (choice, steps) = script.split_first().unwrap_or((&0, &[]));
        let mut tree = files[usize::from(*choice) % files.len()].clone();
        for step in steps.chunks_exact(6) {
            change(&mut tree, step, &files);
            if all(&tree).len() > 2000 {
                return;
            }
        }
        match Experiment::of(tree, &[], &Extensions::default()) {
            Ok(experiment) => {
                let written = experiment.resolved_text();
                let again = Experiment::parse("written.yaml", &written, &[]);
                let problem = again.err().map(|error| error.to_string());
                assert!(problem.is_none(), "{}\n{written}", problem.unwrap_or_default());
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    });
}
