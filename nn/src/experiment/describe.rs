//! Declarative description of the file format, used to check files, to fill in defaults and to generate the schema.

use unisono::Result;

use super::node::{Node, Value};
use super::yaml::scalar;
use unisono::error::nearest::advice;

/// The largest integer in a file, except for seeds: larger sizes and counts are typing errors.
pub(super) const MAX_WHOLE: i64 = 1 << 31;

/// The type of a value.
#[derive(Debug)]
pub(super) enum ValueType {
    /// An integer, at least this and at most [`MAX_WHOLE`].
    Whole(i64),
    /// An integer of at least 0, without an upper bound.
    Seed,
    /// Any number.
    Number,
    /// A number of at least 0.
    NotNegative,
    /// A number of at least 0 and below 1: the decay of a running average.
    BelowOne,
    /// True or false.
    Flag,
    /// Text.
    Text,
    /// One integer of at least this for both rows and columns, or two integers.
    Pair(i64),
    /// One to three integers: a size, or maps, rows and columns.
    Sizes,
    /// One of a set of words.
    Choice(&'static [&'static str]),
    /// A map whose `type` selects its schema.
    OneOf(&'static [&'static MapSchema]),
    /// A number of at least 0, or a map whose `type` selects its schema.
    NumberOr(&'static [&'static MapSchema]),
    /// Any value, checked by its consumer.
    Any,
    /// A list.
    Many(&'static ValueType),
}

/// A key of a map.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) kind: ValueType,
    pub(super) need: Presence,
    pub(super) about: &'static str,
}

/// The meaning of a missing key.
#[derive(Debug)]
pub(super) enum Presence {
    Required,
    Optional,
    /// The default value, as text.
    Default(&'static str),
}

/// The schema of a map: its `type` (empty if it has none), a description, and its keys in groups.
#[derive(Debug)]
pub(super) struct MapSchema {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) fields: &'static [&'static [Field]],
}

impl MapSchema {
    pub(super) fn all_fields(&self) -> impl Iterator<Item = &'static Field> {
        self.fields.iter().flat_map(|group| group.iter())
    }
}

/// The key being read, and the map that contains it.
#[derive(Clone, Copy)]
struct Key<'a> {
    field: &'static Field,
    owner: &'a str,
}

impl Key<'_> {
    fn what(self) -> String {
        format!("`{}` of {}", self.field.name, self.owner)
    }

    /// Advice on what to write instead of an invalid value.
    fn advice(self) -> String {
        let value = match (&self.field.need, &self.field.kind) {
            (Presence::Default(word), _) => word,
            (_, ValueType::Whole(_)) => "10",
            (_, ValueType::Flag) => "true",
            (_, ValueType::Pair(_)) => "[3, 3]",
            (_, ValueType::Sizes) => "[3, 32, 32]",
            _ => "0.1",
        };
        format!("write, for example, `{}: {value}`", self.field.name)
    }
}

/// Validates a map and fills in its defaults.
pub(super) fn complete(node: &Node, object: &'static MapSchema) -> Result<Node> {
    let Value::Map(entries) = &node.value else {
        let expected = format!("a map: {}", object.about);
        return Err(node.location.error("read", expected, node.to_string(), "write `key: value` lines"));
    };
    let what = if object.name.is_empty() { "experiment" } else { object.name };
    for (key, value) in entries {
        let known = key == "type" && !object.name.is_empty();
        if !known && !object.all_fields().any(|field| field.name == key) {
            let names: Vec<&str> = object.all_fields().map(|field| field.name).collect();
            let otherwise = format!("its keys are {}", names.join(", "));
            let advice = advice(key, names, &otherwise);
            return Err(value.location.error(what, "a known key", format!("`{key}`"), advice));
        }
    }
    let mut result = Node { value: Value::Map(Vec::new()), location: node.location.clone(), tag: None };
    if let Some(name) = node.get("type") {
        result.set("type", name.clone());
    }
    for field in object.all_fields() {
        let key = Key { field, owner: what };
        let value = match (node.get(field.name).filter(|value| value.value != Value::Null), &field.need) {
            (Some(value), _) => complete_value(value, &field.kind, key)?,
            (None, Presence::Required) => {
                let expected = format!("a key `{}`: {}", field.name, field.about);
                return Err(node.location.error(what, expected, "none", "add it"));
            }
            (None, Presence::Optional) => continue,
            (None, Presence::Default(word)) => {
                complete_value(&Node::new(scalar(word), node.location.clone()), &field.kind, key)?
            }
        };
        result.set(field.name, value);
    }
    Ok(result)
}

fn complete_value(node: &Node, kind: &'static ValueType, key: Key<'_>) -> Result<Node> {
    let rejected = |expected: &str, advice: &str| {
        Err(node.location.error(&key.what(), expected, node.to_string(), advice))
    };
    let wrong = |expected: &str| rejected(expected, &key.advice());
    let whole =
        |node: &Node, least: i64| node.whole().is_some_and(|number| (least..=MAX_WHOLE).contains(&number));
    let size = |node: &Node| node.number().is_some_and(|number| number >= 0.0);
    match kind {
        ValueType::Whole(least) if !whole(node, *least) => {
            wrong(&format!("an integer from {least} to {MAX_WHOLE}"))
        }
        ValueType::Seed if node.whole().is_none_or(|number| number < 0) => wrong("an integer of at least 0"),
        ValueType::Number if node.number().is_none() => wrong("a number"),
        ValueType::NotNegative if !size(node) => wrong("a number of at least 0"),
        ValueType::BelowOne if !node.number().is_some_and(|number| (0.0..1.0).contains(&number)) => {
            wrong("a number of at least 0 and below 1")
        }
        ValueType::Flag if node.flag().is_none() => wrong("true or false"),
        ValueType::Text if node.text().is_none() => rejected("text", "put it in quotes if that is intended"),
        ValueType::Pair(least) => match node.items() {
            _ if whole(node, *least) => {
                Ok(Node::new(Value::List(vec![node.clone(), node.clone()]), node.location.clone()))
            }
            [one, other] if whole(one, *least) && whole(other, *least) => Ok(node.clone()),
            _ => wrong(&format!("an integer from {least} to {MAX_WHOLE}, or two: [rows, columns]")),
        },
        ValueType::Sizes => match node.items() {
            _ if whole(node, 1) => Ok(Node::new(Value::List(vec![node.clone()]), node.location.clone())),
            [size] if whole(size, 1) => Ok(node.clone()),
            sizes @ [_, _, _] if sizes.iter().all(|size| whole(size, 1)) => Ok(node.clone()),
            _ => wrong("a size, or [maps, rows, columns]"),
        },
        ValueType::Choice(words) if !node.text().is_some_and(|text| words.contains(&text)) => {
            let expected = format!("one of {}", words.join(", "));
            rejected(&expected, &suggestion(node.text().unwrap_or_default(), words))
        }
        ValueType::NumberOr(_) if size(node) => Ok(node.clone()),
        ValueType::NumberOr(objects) if node.entries().is_empty() => {
            let names: Vec<&str> = objects.iter().map(|object| object.name).collect();
            wrong(&format!("a number of at least 0, or a map with a `type` of {}", names.join(", ")))
        }
        ValueType::OneOf(objects) | ValueType::NumberOr(objects) => one_of(node, objects, &key.what()),
        ValueType::Many(kind) => match &node.value {
            Value::List(items) => {
                let items =
                    items.iter().map(|item| complete_value(item, kind, key)).collect::<Result<_>>()?;
                Ok(Node::new(Value::List(items), node.location.clone()))
            }
            _ => rejected("a list", "write `- …` lines"),
        },
        _ => Ok(node.clone()),
    }
}

/// Names in other frameworks, and their equivalents here.
const SYNONYMS: [(&str, &str); 15] = [
    ("relu", "rectified"),
    ("leaky_relu", "leaky"),
    ("sigmoid", "logistic"),
    ("linear", "identity"),
    ("linear", "fully_connected"),
    ("dense", "fully_connected"),
    ("fc", "fully_connected"),
    ("conv", "convolution"),
    ("conv2d", "convolution"),
    ("batchnorm", "batch_norm"),
    ("batch_normalization", "batch_norm"),
    ("max_pool", "pooling"),
    ("mse", "sum_of_squares"),
    ("nll", "softmax_cross_entropy"),
    ("image_folder", "images"),
];

/// Suggests the name that the user may have meant.
fn suggestion(given: &str, names: &[&'static str]) -> String {
    let given = given.to_lowercase();
    let same = SYNONYMS.iter().find(|(word, ours)| *word == given && names.contains(ours));
    same.map_or_else(
        || advice(&given, names.iter().copied(), "choose one"),
        |(_, ours)| format!("did you mean `{ours}`?"),
    )
}

fn one_of(node: &Node, objects: &'static [&'static MapSchema], what: &str) -> Result<Node> {
    let names = || objects.iter().map(|object| object.name);
    // A single word is shorthand for a map with only a `type`.
    let only_type;
    let node = match node.text() {
        Some(_) => {
            only_type = Node::new(Value::Map(vec![("type".into(), node.clone())]), node.location.clone());
            &only_type
        }
        None => node,
    };
    let list = names().collect::<Vec<_>>().join(", ");
    let Some(word) = node.get("type") else {
        let expected = format!("a map with a `type`: {list}");
        return Err(node.location.error(what, expected, node.to_string(), "add its `type`"));
    };
    let text = word.text().unwrap_or_default();
    match objects.iter().find(|object| object.name == text) {
        Some(object) => complete(node, object),
        None => {
            let advice = suggestion(text, &names().collect::<Vec<_>>());
            Err(word.location.error(what, format!("a `type` of {list}"), word.to_string(), advice))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::EXPERIMENT;
    use super::*;
    use crate::experiment::Experiment;

    /// Reads every value that advice suggests for a key of this map and of the maps inside it, and returns their number.
    fn try_advice(object: &'static MapSchema) -> usize {
        let mut tried = 0;
        for field in object.all_fields() {
            let key = Key { field, owner: object.name };
            let advice = key.advice();
            let value = advice.split_once(": ").expect("it shows a key and a value").1.trim_end_matches('`');
            let mut kind = &field.kind;
            while let ValueType::Many(inner) = kind {
                kind = inner;
            }
            if let ValueType::OneOf(objects) | ValueType::NumberOr(objects) = kind {
                tried += objects.iter().map(|object| try_advice(object)).sum::<usize>();
            }
            if !matches!(
                field.kind,
                ValueType::OneOf(_) | ValueType::Many(_) | ValueType::Text | ValueType::Choice(_)
            ) {
                let node = super::super::yaml::parse("advice", value).expect("it is YAML");
                complete_value(&node, &field.kind, key).expect(&advice);
                tried += 1;
            }
        }
        tried
    }

    #[test]
    fn what_advice_suggests_is_right() {
        assert!(try_advice(&EXPERIMENT) > 50);
    }

    #[test]
    fn wrong_values_come_with_an_example() {
        let text = "epochs: 1\nbatch_size: 10\ndata: {type: toy_images}\nmodel: {type: network, \
                    cost: sum_of_squares, layers: [{type: pooling, kernel: 2}, {type: contrast, kernel: 3}, \
                    {type: dropout}, {type: fully_connected, outputs: 2}]}\n";
        for (change, advice) in [
            ("batch_size=many", "`batch_size: 10`"),
            ("batch_size=2147483649", "`batch_size: 10`"),
            ("seed=-1", "`seed: 0`"),
            ("model.layers.0.kernel=[9223372036854775807, 2]", "`kernel: [3, 3]`"),
            ("keep=0", "`keep: 2`"),
            ("deterministic=perhaps", "`deterministic: true`"),
            ("data.sample=half", "`sample: 100`"),
            ("data.sample=0", "`sample: 10` for a tenth"),
            ("rule={type: momentum, rate: -1}", "`lr: 0.01`"),
            ("rule={type: adam, beta1: -3}", "`beta1: 0.9`"),
            ("rule={type: adam, beta2: 1}", "`beta2: 0.999`"),
            ("rule={type: adadelta, rho: 5}", "`rho: 0.9`"),
            ("rule={type: momentum, coefficient: 1}", "`momentum: 0.9`"),
            ("rule={type: sgd, nesterov: true}", "`momentum: 0.9`"),
            (
                "rule={type: nesterov, coefficient: {type: step, initial: 2, ratio: 1, epochs: 1}}",
                "`initial: 0.9`",
            ),
            (
                "rule={type: momentum, coefficient: {type: linear, initial: 0.5, saturate: 3, saturated: 1}}",
                "`saturated: 0.9`",
            ),
            ("weights={type: uniform, low: 1, high: -1}", "`low: -1`"),
            ("model.layers.0.kernel=wide", "`kernel: [3, 3]`"),
            ("model.layers.0.padding=2", "`padding: [1, 1]`"),
            ("model.layers.1.kernel=[4, 2]", "`kernel: [5, 3]`"),
            ("model.layers.2.keep=1.5", "`keep: 0.5`"),
            (
                "data={type: uniform_random, train: 9, test: 1, shape: [1, 2], classes: 2}",
                "`shape: [3, 32, 32]`",
            ),
        ] {
            let read = Experiment::parse("x.yaml", text, &[change.to_string()]);
            let error = read.and_then(|experiment| experiment.shapes(experiment.data()?.shape, 2));
            let message = error.expect_err(change).to_string();
            assert!(message.contains(&format!("write, for example, {advice}")), "{change}: {message}");
        }
    }

    #[test]
    fn words_of_other_frameworks_lead_to_ours() {
        let text = "epochs: 1\nbatch_size: 2\ndata: iris\nmodel: {type: network, cost: sum_of_squares, \
                    layers: [{type: fully_connected, outputs: 3}]}\n";
        for (change, ours) in [
            ("model.layers.0.activation=ReLU", "rectified"),
            ("model.layers.0.activation=linear", "identity"),
            ("model.layers.0.type=linear", "fully_connected"),
            ("rule=rmsprob", "rmsprop"),
            ("model.cost=mse", "sum_of_squares"),
            ("model.layers.0.activation=tahn", "tanh"),
        ] {
            let message =
                Experiment::parse("x.yaml", text, &[change.to_string()]).expect_err(change).to_string();
            assert!(message.contains(&format!("did you mean `{ours}`?")), "{change}: {message}");
        }
    }
}
