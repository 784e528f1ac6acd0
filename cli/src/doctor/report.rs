//! The report of `unisono doctor`, as aligned text and as JSON.

use std::fmt;

use crate::json::Json;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// Information, neither good nor bad.
    Fact,
    Ok,
    Missing,
    Failed,
}

impl Mark {
    fn word(self) -> &'static str {
        match self {
            Mark::Fact => "",
            Mark::Ok => "ok",
            Mark::Missing => "missing",
            Mark::Failed => "failed",
        }
    }
}

pub(super) struct ReportEntry {
    mark: Mark,
    name: String,
    value: String,
}

/// Entries under a title.
pub(super) struct ReportSection {
    title: &'static str,
    entries: Vec<ReportEntry>,
}

impl ReportSection {
    pub(super) fn new(title: &'static str) -> ReportSection {
        ReportSection { title, entries: Vec::new() }
    }

    pub(super) fn add(&mut self, mark: Mark, name: impl Into<String>, value: impl Into<String>) {
        self.entries.push(ReportEntry { mark, name: name.into(), value: value.into() });
    }

    pub(super) fn mark_of(&self, name: &str) -> Option<Mark> {
        self.entries.iter().find(|entry| entry.name == name).map(|entry| entry.mark)
    }
}

impl fmt::Display for ReportSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        for ReportEntry { mark, name, value } in &self.entries {
            // The lines of a message are aligned to its column.
            let value = value.trim().replace('\n', &format!("\n{:33}", ""));
            writeln!(f, "  {:<8}{name:<23}{value}", mark.word())?;
        }
        Ok(())
    }
}

pub(super) fn json(sections: &[ReportSection]) -> Json {
    let entry = |entry: &ReportEntry| {
        let mark = if entry.mark == Mark::Fact { "fact" } else { entry.mark.word() };
        Json::Object(vec![
            ("name", entry.name.as_str().into()),
            ("mark", mark.into()),
            ("value", entry.value.as_str().into()),
        ])
    };
    let section = |section: &ReportSection| {
        let entries = section.entries.iter().map(entry).collect();
        Json::Object(vec![("title", section.title.into()), ("entries", Json::List(entries))])
    };
    Json::Object(vec![
        ("version", env!("CARGO_PKG_VERSION").into()),
        ("sections", Json::List(sections.iter().map(section).collect())),
    ])
}
