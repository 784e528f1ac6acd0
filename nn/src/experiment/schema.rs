//! The format as a JSON schema, for editors that complete and check files.

use serde_json::{Map, Value as Json, json};

use super::describe::{Kind, Need, Object};
use super::format::EXPERIMENT;
use super::node::{Node, Value};
use super::yaml::scalar;

/// The JSON schema of experiment files.
///
/// ```
/// let schema = unisono_nn::schema();
/// assert_eq!(schema["properties"]["epochs"]["type"], "integer");
/// ```
pub fn schema() -> Json {
    let mut schema = object(&EXPERIMENT);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("An experiment of unisono train");
    schema["properties"]["_base_"] = json!({
        "description": "files below this one, relative to it",
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
    });
    // What a file lacks may be in its base.
    schema["anyOf"] = json!([{"required": ["_base_"]}, {"required": schema["required"]}]);
    if let Some(map) = schema.as_object_mut() {
        map.remove("required");
    }
    schema
}

fn object(object: &Object) -> Json {
    let mut properties = Map::new();
    let mut required = Vec::new();
    if !object.name.is_empty() {
        properties.insert("type".into(), json!({"const": object.name}));
        required.push(json!("type"));
    }
    for field in object.each() {
        let mut value = kind(&field.kind);
        value["description"] = json!(field.about);
        match field.need {
            Need::Required => required.push(json!(field.name)),
            Need::Optional => {}
            Need::Default(word) => value["default"] = json(&scalar(word)),
        }
        properties.insert(field.name.into(), value);
    }
    json!({
        "type": "object",
        "description": object.about,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn one_of(objects: &[&Object]) -> Vec<Json> {
    let words: Vec<&str> = objects
        .iter()
        .filter(|object| object.each().all(|field| !matches!(field.need, Need::Required)))
        .map(|object| object.name)
        .collect();
    let mut all: Vec<Json> = objects.iter().map(|one| self::object(one)).collect();
    if !words.is_empty() {
        all.push(json!({"enum": words}));
    }
    all
}

fn kind(kind: &Kind) -> Json {
    match kind {
        Kind::Whole(least) => json!({"type": "integer", "minimum": least}),
        Kind::Number => json!({"type": "number"}),
        Kind::Flag => json!({"type": "boolean"}),
        Kind::Text => json!({"type": "string"}),
        Kind::Pair(least) => {
            let one = json!({"type": "integer", "minimum": least});
            json!({"anyOf": [one, {"type": "array", "items": one, "minItems": 2, "maxItems": 2}]})
        }
        Kind::Sizes => {
            let one = json!({"type": "integer", "minimum": 1});
            let list =
                |count: usize| json!({"type": "array", "items": one, "minItems": count, "maxItems": count});
            json!({"anyOf": [one, list(1), list(3)]})
        }
        Kind::Choice(words) => json!({"enum": words}),
        Kind::OneOf(objects) => json!({"anyOf": one_of(objects)}),
        Kind::NumberOr(objects) => {
            let mut all = one_of(objects);
            all.insert(0, json!({"type": "number"}));
            json!({"anyOf": all})
        }
        Kind::Any => json!({}),
        Kind::Many(inner) => json!({"type": "array", "items": self::kind(inner)}),
    }
}

fn json(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Flag(flag) => json!(flag),
        Value::Whole(number) => json!(number),
        Value::Number(number) => json!(number),
        Value::Text(text) => json!(text),
        Value::List(items) => items.iter().map(|item| json(&item.value)).collect(),
        Value::Map(entries) => map(entries),
    }
}

fn map(entries: &[(String, Node)]) -> Json {
    Json::Object(entries.iter().map(|(key, node)| (key.clone(), json(&node.value))).collect())
}
