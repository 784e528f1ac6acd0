//! A minimal JSON writer for benchmark and diagnostic results.

use std::fmt;

/// A JSON value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Json {
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(&'static str, Json)>),
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Json::Number(value) if value.is_finite() => write!(f, "{value}"),
            // JSON has no infinities and no NaN.
            Json::Number(_) => f.write_str("null"),
            Json::Text(text) => write_text(f, text),
            Json::List(items) => write_items(f, '[', ']', items.iter().map(|item| (None, item))),
            Json::Object(items) => {
                write_items(f, '{', '}', items.iter().map(|(name, item)| (Some(*name), item)))
            }
        }
    }
}

fn write_items<'a>(
    f: &mut fmt::Formatter<'_>,
    open: char,
    close: char,
    items: impl Iterator<Item = (Option<&'a str>, &'a Json)>,
) -> fmt::Result {
    write!(f, "{open}")?;
    for (index, (name, item)) in items.enumerate() {
        f.write_str(if index > 0 { ", " } else { "" })?;
        if let Some(name) = name {
            write_text(f, name)?;
            f.write_str(": ")?;
        }
        write!(f, "{item}")?;
    }
    write!(f, "{close}")
}

fn write_text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for character in text.chars() {
        match character {
            '"' | '\\' => write!(f, "\\{character}")?,
            '\n' => f.write_str("\\n")?,
            control if control < ' ' => write!(f, "\\u{:04x}", u32::from(control))?,
            other => write!(f, "{other}")?,
        }
    }
    f.write_str("\"")
}

impl From<&str> for Json {
    fn from(text: &str) -> Json {
        Json::Text(text.into())
    }
}

impl From<f64> for Json {
    fn from(number: f64) -> Json {
        Json::Number(number)
    }
}

impl From<usize> for Json {
    fn from(number: usize) -> Json {
        Json::Number(number as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_look_as_they_should() {
        let value = Json::Object(vec![
            ("a", Json::List(vec![Json::Number(1.0), Json::Number(0.5), Json::Number(f64::NAN)])),
            ("b", "tab\t \"quoted\" \\ ä\n".into()),
            ("c", Json::Object(vec![("d", 3usize.into()), ("e", Json::List(vec![]))])),
        ]);
        let text = r#"{"a": [1, 0.5, null], "b": "tab\u0009 \"quoted\" \\ ä\n", "c": {"d": 3, "e": []}}"#;
        assert_eq!(value.to_string(), text);
    }
}
