//! The commands of docs/guide/experiments.md, run in sequence in one folder, as a newcomer types them.

mod common;

use common::*;
use std::path::Path;

/// The code blocks of a language on a page, in order.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let opening = format!("```{language}\n");
    page.split(&opening[..]).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

#[test]
fn the_commands_of_the_guide_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("docs/guide/experiments.md")).unwrap();
    let folder = Folder::new();
    let folder = &folder.0;
    for shared in ["experiments", "examples"] {
        std::os::unix::fs::symlink(root.join(shared), folder.join(shared)).unwrap();
    }
    for text in blocks(&page, "yaml") {
        // A block that is a file names it in its first line.
        if let Some(name) = text.lines().next().and_then(|line| line.strip_prefix("# ")) {
            std::fs::write(folder.join(name), text).unwrap();
        }
    }
    let commands: Vec<&str> = blocks(&page, "sh")
        .into_iter()
        .flat_map(str::lines)
        .filter(|line| line.starts_with("unisono "))
        .collect();
    assert!(commands.len() >= 8, "{commands:?}");
    for line in commands {
        let mut command = unisono(line.split_whitespace().skip(1));
        command.current_dir(folder);
        let output = finish(command);
        assert!(output.status.success(), "{line}:\n{}", text(&output.stderr));
    }
    for name in [
        "runs/digits/metrics.csv",
        "runs/digits/filters.png",
        "runs/narrow/loss.svg",
        "runs/wide/experiment.yaml",
        "runs/neon/metrics.jsonl",
        "trace.json",
    ] {
        assert!(folder.join(name).is_file(), "{name}");
    }
}

/// `make schema` writes the tables; otherwise this test compares them.
#[test]
fn the_guide_lists_every_key() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/experiments.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let tables = text(&finish(unisono(["schema", "--markdown"])).stdout);
    let (before, rest) = page.split_once("<!-- keys -->\n").expect("a mark before the tables");
    let (found, after) = rest.split_once("<!-- end of keys -->").expect("a mark after the tables");
    if std::env::var_os("UNISONO_WRITE_SCHEMA").is_some() {
        let page = format!("{before}<!-- keys -->\n\n{}\n\n<!-- end of keys -->{after}", tables.trim());
        return std::fs::write(path, page).unwrap();
    }
    assert!(found.trim() == tables.trim(), "the tables of keys differ from the schema: run `make schema`");
}
