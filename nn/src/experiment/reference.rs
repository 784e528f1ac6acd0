//! Generates the reference tables of the file format: every type, its keys and their purpose.

use super::describe::{Field, MapSchema, Presence, ValueType};
use super::format::{DATA, EXPERIMENT, LAYERS, MODELS, RULES, SCHEDULES, SPREADS, WEIGHTS};

/// The sets of types, by the word in their heading.
fn sets() -> [(&'static str, &'static [&'static MapSchema]); 7] {
    [
        ("data", DATA),
        ("models", MODELS),
        ("layers", LAYERS),
        ("rules", RULES),
        ("schedules", SCHEDULES),
        ("weights", WEIGHTS),
        ("distribution", SPREADS),
    ]
}

/// The reference of the experiment file format, in Markdown.
///
/// ```
/// assert!(unisono_nn::reference().contains("`softmax_cross_entropy`"));
/// ```
pub fn reference() -> String {
    let mut text = format!("### The file\n\n{}", keys(&[&EXPERIMENT]));
    for (title, objects) in sets() {
        text += &format!("\n### Types of {title}\n\n| `type` | meaning | keys |\n|---|---|---|\n");
        for object in objects {
            text += &format!("| `{}` | {} | {} |\n", object.name, object.about, list(object));
        }
        text += &format!("\n{}", keys(objects));
    }
    text
}

/// The keys of a type, with required keys in bold.
fn list(object: &MapSchema) -> String {
    let one = |field: &'static Field| match field.need {
        Presence::Required => format!("**`{}`**", field.name),
        _ => format!("`{}`", field.name),
    };
    object.all_fields().map(one).collect::<Vec<_>>().join(", ")
}

/// A table of keys, each listed once; a key with several meanings is listed once per meaning, with its types.
fn keys(objects: &[&MapSchema]) -> String {
    let mut rows: Vec<(&str, String, Vec<String>)> = Vec::new();
    for object in objects {
        for field in object.all_fields() {
            let need = match field.need {
                Presence::Required => "required".to_string(),
                Presence::Optional => "–".to_string(),
                Presence::Default(word) => format!("`{word}`"),
            };
            let row = format!("{} | {need} | {} |\n", value(&field.kind), field.about);
            let owner = format!("`{}`", object.name);
            match rows.iter_mut().find(|(name, known, _)| *name == field.name && *known == row) {
                Some((_, _, owners)) => owners.push(owner),
                None => rows.push((field.name, row, vec![owner])),
            }
        }
    }
    let mut text = "| key | value | default | meaning |\n|---|---|---|---|\n".to_string();
    for (name, row, owners) in &rows {
        let alone = rows.iter().filter(|(other, ..)| other == name).count() == 1;
        let owners = if alone { String::new() } else { format!(" of {}", owners.join(", ")) };
        text += &format!("| `{name}`{owners} | {row}");
    }
    text
}

/// A link to the heading of a set of types.
fn link(word: &str, objects: &[&MapSchema]) -> String {
    let same = |set: &[&MapSchema]| set.iter().map(|one| one.about).eq(objects.iter().map(|one| one.about));
    let set = sets().into_iter().find(|(_, set)| same(set));
    set.map_or(word.to_string(), |(title, _)| format!("[{word}](#types-of-{title})"))
}

/// A description of the values of a type.
fn value(kind: &ValueType) -> String {
    match kind {
        ValueType::Whole(0) | ValueType::Seed => "integer".into(),
        ValueType::Whole(least) => format!("integer, at least {least}"),
        ValueType::Number => "number".into(),
        ValueType::NotNegative => "number, at least 0".into(),
        ValueType::BelowOne => "number, at least 0 and below 1".into(),
        ValueType::Flag => "`true` or `false`".into(),
        ValueType::Text => "text".into(),
        ValueType::Pair(_) => "integer, or `[rows, columns]`".into(),
        ValueType::Sizes => "size, or `[maps, rows, columns]`".into(),
        ValueType::Choice(words) => {
            words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
        }
        ValueType::OneOf(objects) => link("type", objects),
        ValueType::NumberOr(objects) => format!("number, at least 0, or a {}", link("schedule", objects)),
        ValueType::Any => "anything".into(),
        ValueType::Many(ValueType::OneOf(objects)) => format!("list of {}", link("types", objects)),
        ValueType::Many(inner) => format!("list: {}", value(inner)),
    }
}
