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
    let mut definitions = Definitions::default();
    let mut schema = definitions.object(&EXPERIMENT);
    schema["$defs"] = Json::Object(definitions.found);
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

/// Sets of maps, each described once however often it is named.
#[derive(Default)]
struct Definitions {
    found: Map<String, Json>,
}

impl Definitions {
    /// A reference to one of some maps.
    fn reference(&mut self, name: &str, objects: &[&Object], or: Option<Json>) -> Json {
        if !self.found.contains_key(name) {
            // It may name itself.
            self.found.insert(name.into(), Json::Null);
            let words = objects
                .iter()
                .filter(|object| object.each().all(|field| !matches!(field.need, Need::Required)))
                .map(|object| object.name);
            let words: Vec<&str> = words.collect();
            let mut all: Vec<Json> = or.into_iter().collect();
            all.extend(objects.iter().map(|object| self.object(object)));
            if !words.is_empty() {
                all.push(json!({"enum": words}));
            }
            self.found.insert(name.into(), json!({"anyOf": all}));
        }
        json!({"$ref": format!("#/$defs/{name}")})
    }

    fn object(&mut self, object: &Object) -> Json {
        let mut properties = Map::new();
        let mut required = Vec::new();
        if !object.name.is_empty() {
            properties.insert("type".into(), json!({"const": object.name}));
            required.push(json!("type"));
        }
        for field in object.each() {
            let mut value = self.kind(field.name, &field.kind);
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

    /// What a value of a key may be. A key names the same maps wherever it stands.
    fn kind(&mut self, key: &str, kind: &Kind) -> Json {
        let whole = |least: &i64| json!({"type": "integer", "minimum": least});
        let size = || json!({"type": "number", "minimum": 0});
        match kind {
            Kind::Whole(least) => whole(least),
            Kind::Number => json!({"type": "number"}),
            Kind::NotNegative => size(),
            Kind::Flag => json!({"type": "boolean"}),
            Kind::Text => json!({"type": "string"}),
            Kind::Pair(least) => {
                let one = whole(least);
                json!({"anyOf": [one, {"type": "array", "items": one, "minItems": 2, "maxItems": 2}]})
            }
            Kind::Sizes => {
                let one = whole(&1);
                let list = |count: usize| json!({"type": "array", "items": one, "minItems": count, "maxItems": count});
                json!({"anyOf": [one, list(1), list(3)]})
            }
            Kind::Choice(words) => json!({"enum": words}),
            Kind::OneOf(objects) => self.reference(key, objects, None),
            Kind::NumberOr(objects) => self.reference("schedule", objects, Some(size())),
            Kind::Any => json!({}),
            Kind::Many(inner) => json!({"type": "array", "items": self.kind(key, inner)}),
        }
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

#[cfg(test)]
mod tests {
    use super::super::format::{LAYERS, RULES, SCHEDULES};
    use super::*;

    fn references(value: &Json, found: &mut Vec<String>) {
        match value {
            Json::Object(map) => map.iter().for_each(|(key, value)| match value.as_str() {
                Some(text) if key == "$ref" => found.push(text.into()),
                _ => references(value, found),
            }),
            Json::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_to_what_its_key_may_be() {
        let schema = schema();
        let mut found = Vec::new();
        references(&schema, &mut found);
        assert!(found.len() > 20 && schema.to_string().len() < 40_000, "{}", schema.to_string().len());
        for reference in found {
            let target = schema.pointer(reference.trim_start_matches('#'));
            assert!(target.is_some_and(|target| target["anyOf"].is_array()), "{reference}");
        }
        // A name stands for one set of maps.
        let types = |name: &str| schema["$defs"][name]["anyOf"].as_array().map_or(0, Vec::len);
        // Beside each type: a word alone for those that need no keys, or a number.
        for (name, set) in [("layers", LAYERS), ("schedule", SCHEDULES), ("rule", RULES)] {
            assert_eq!(types(name), set.len() + 1, "{name}");
        }
    }
}
