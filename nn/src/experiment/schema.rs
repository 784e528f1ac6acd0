//! The file format as a JSON schema, for completion and validation in editors.

use serde_json::{Map, Value as Json, json};

use super::aliases;
use super::describe::{MAX_WHOLE, MapSchema, Presence, ValueType};
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
    let mut definitions = Definitions { found: Map::new(), is_change: true };
    let mut schema = definitions.object(&EXPERIMENT);
    definitions.is_change = false;
    let whole = definitions.object(&EXPERIMENT);
    schema["$defs"] = Json::Object(definitions.found);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("An experiment of unisono train");
    schema["properties"]["_base_"] = json!({
        "description": "base files, relative to this one",
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
    });
    // Keys that a file omits may be in its base file, also inside the maps that it overrides.
    let mut stricter = whole["properties"].clone();
    if let Some(map) = stricter.as_object_mut() {
        map.retain(|key, value| schema["properties"][key] != *value);
    }
    schema["if"] = json!({"required": ["_base_"]});
    schema["else"] = json!({"required": whole["required"], "properties": stricter});
    schema
}

/// Sets of map schemas, each defined once regardless of how often it is referenced.
struct Definitions {
    found: Map<String, Json>,
    /// Whether maps may be incomplete, since they override those of another file.
    is_change: bool,
}

impl Definitions {
    /// A reference to a set of map schemas.
    fn reference(&mut self, name: &str, objects: &[&MapSchema], or: Option<Json>) -> Json {
        let name = &if self.is_change { format!("change_of_{name}") } else { name.to_string() };
        if !self.found.contains_key(name.as_str()) {
            // The definition may be recursive.
            self.found.insert(name.into(), Json::Null);
            let words = objects
                .iter()
                .filter(|object| object.all_fields().all(|field| !matches!(field.need, Presence::Required)))
                .map(|object| object.name);
            let words: Vec<&str> = words.flat_map(type_names).collect();
            let mut all: Vec<Json> = or.into_iter().collect();
            all.extend(objects.iter().map(|object| self.object(object)));
            if !words.is_empty() {
                all.push(json!({"enum": words}));
            }
            self.found.insert(name.into(), json!({"anyOf": all}));
        }
        json!({"$ref": format!("#/$defs/{name}")})
    }

    fn object(&mut self, object: &MapSchema) -> Json {
        let mut properties = Map::new();
        let mut required = Vec::new();
        if !object.name.is_empty() {
            let names = type_names(object.name);
            let kind = if names.len() > 1 { json!({"enum": names}) } else { json!({"const": object.name}) };
            properties.insert("type".into(), kind);
            required.push(json!("type"));
        }
        for field in object.all_fields() {
            let mut value = self.kind(field.name, &field.kind);
            value["description"] = json!(field.about);
            match field.need {
                Presence::Required => required.push(json!(field.name)),
                Presence::Optional => {}
                Presence::Default(word) => value["default"] = json(&scalar(word)),
            }
            properties.insert(field.name.into(), value);
            for (alias, _) in aliases::KEYS.iter().filter(|(_, name)| *name == field.name) {
                let about = format!("another name of {}", field.name);
                properties.insert(alias.to_string(), json!({"description": about, "deprecated": true}));
            }
        }
        if properties.contains_key("beta1") {
            properties.insert("betas".into(), json!({"description": "[beta1, beta2]", "type": "array"}));
        }
        if self.is_change {
            required.clear();
        }
        json!({
            "type": "object",
            "description": object.about,
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        })
    }

    /// The schema of a key's value. A key refers to the same map schemas wherever it occurs.
    fn kind(&mut self, key: &str, kind: &ValueType) -> Json {
        let whole = |least: &i64| json!({"type": "integer", "minimum": least, "maximum": MAX_WHOLE});
        let size = || json!({"type": "number", "minimum": 0});
        match kind {
            ValueType::Whole(least) => whole(least),
            ValueType::Seed => json!({"type": "integer", "minimum": 0}),
            ValueType::Number => json!({"type": "number"}),
            ValueType::NotNegative => size(),
            ValueType::BelowOne => json!({"type": "number", "minimum": 0, "exclusiveMaximum": 1}),
            ValueType::Flag => json!({"type": "boolean"}),
            ValueType::Text => json!({"type": "string"}),
            ValueType::Pair(least) => {
                let one = whole(least);
                json!({"anyOf": [one, {"type": "array", "items": one, "minItems": 2, "maxItems": 2}]})
            }
            ValueType::Sizes => {
                let one = whole(&1);
                let list = |count: usize| json!({"type": "array", "items": one, "minItems": count, "maxItems": count});
                json!({"anyOf": [one, list(1), list(3)]})
            }
            ValueType::Choice(words) => json!({"enum": words}),
            ValueType::OneOf(objects) => self.reference(key, objects, None),
            ValueType::NumberOr(objects) => self.reference("schedule", objects, Some(size())),
            ValueType::Any => json!({}),
            ValueType::Many(inner) => {
                // A list replaces the one in the base file, so its items must be complete.
                let is_change = std::mem::replace(&mut self.is_change, false);
                let items = self.kind(key, inner);
                self.is_change = is_change;
                json!({"type": "array", "items": items})
            }
        }
    }
}

/// The names of a type: that of the format, and its aliases.
fn type_names(name: &'static str) -> Vec<&'static str> {
    let aliases = aliases::TYPES.iter().filter(|(_, known)| *known == name);
    std::iter::once(name).chain(aliases.map(|(alias, _)| *alias)).collect()
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
        assert!(found.len() > 20 && schema.to_string().len() < 60_000, "{}", schema.to_string().len());
        for reference in found {
            let target = schema.pointer(reference.trim_start_matches('#'));
            assert!(target.is_some_and(|target| target["anyOf"].is_array()), "{reference}");
        }
        // Each name refers to one set of map schemas.
        let types = |name: &str| schema["$defs"][name]["anyOf"].as_array().map_or(0, Vec::len);
        // In addition to each type: a single word for types without required keys, or a number.
        for (name, set) in [("layers", LAYERS), ("schedule", SCHEDULES), ("rule", RULES)] {
            assert_eq!(types(name), set.len() + 1, "{name}");
        }
    }

    /// Whether a value is valid, for the subset of JSON schema used here.
    fn allows(schema: &Json, part: &Json, value: &Json) -> bool {
        let allows = |part: &Json, value: &Json| allows(schema, part, value);
        let Some(rules) = part.as_object() else { return true };
        rules.iter().all(|(rule, wanted)| match rule.as_str() {
            "$ref" => {
                let path = wanted.as_str().unwrap_or_default().trim_start_matches('#');
                allows(schema.pointer(path).expect("it leads somewhere"), value)
            }
            "type" => match wanted.as_str() {
                Some("integer") => value.is_i64(),
                Some("number") => value.is_number(),
                Some("boolean") => value.is_boolean(),
                Some("string") => value.is_string(),
                Some("array") => value.is_array(),
                _ => value.is_object(),
            },
            "const" => wanted == value,
            "enum" => wanted.as_array().is_some_and(|words| words.contains(value)),
            "minimum" => value.as_f64().is_none_or(|number| number >= wanted.as_f64().unwrap_or(0.0)),
            "maximum" => value.as_f64().is_none_or(|number| number <= wanted.as_f64().unwrap_or(0.0)),
            "anyOf" => wanted.as_array().is_some_and(|parts| parts.iter().any(|part| allows(part, value))),
            "items" => value.as_array().is_none_or(|items| items.iter().all(|item| allows(wanted, item))),
            "required" => {
                let keys = wanted.as_array().into_iter().flatten().filter_map(Json::as_str);
                keys.into_iter().all(|key| value.get(key).is_some())
            }
            "properties" => wanted
                .as_object()
                .into_iter()
                .flatten()
                .all(|(key, part)| value.get(key).is_none_or(|value| allows(part, value))),
            "additionalProperties" => {
                let known = &part["properties"];
                value.as_object().into_iter().flatten().all(|(key, _)| known.get(key).is_some())
            }
            "else" => allows(&part["if"], value) || allows(wanted, value),
            "minItems" => {
                value.as_array().is_none_or(|items| items.len() as u64 >= wanted.as_u64().unwrap_or(0))
            }
            "maxItems" => {
                value.as_array().is_none_or(|items| items.len() as u64 <= wanted.as_u64().unwrap_or(0))
            }
            "if" | "$defs" | "$schema" | "title" | "description" | "default" | "deprecated" => true,
            other => panic!("`{other}` is not understood"),
        })
    }

    #[test]
    fn a_file_with_a_base_says_only_what_differs() {
        let schema = schema();
        let right = |text: &str| {
            let node = super::super::yaml::parse("x.yaml", text).expect("it is YAML");
            allows(&schema, &schema, &json(&node.value))
        };
        let model =
            "model: {type: network, cost: sum_of_squares, layers: [{type: fully_connected, outputs: 3}]}";
        let whole = format!("epochs: 1\nbatch_size: 9\ndata: iris\n{model}\n");
        assert!(right(&whole));
        for change in [
            "epochs: 1\nrule: {lr: 0.02}",
            "rule: {rate: 0.02}",
            "data: {sample: 10}",
            "rule: {lr: {ratio: 0.5}}",
            "rule: adam",
            "model: {layers: [{type: fully_connected, outputs: 5}]}",
        ] {
            assert!(right(&format!("_base_: digits.yaml\n{change}\n")), "{change}");
            assert!(!right(change), "{change} is no whole file");
        }
        for wrong in [
            "rule: {rat: 0.02}",
            "epochs: many",
            "epochs: 9223372036854775807",
            "model: {layers: [{outputs: 5}]}",
        ] {
            assert!(!right(&format!("_base_: digits.yaml\n{wrong}\n")), "{wrong}");
        }
        assert!(!right(&format!("{whole}rule: {{rate: 0.02}}\n")));
    }
}
