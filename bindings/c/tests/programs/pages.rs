//! The C and Lua programs of the guide, and the C example: each is compiled and run, alone and on two ranks.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{C, Link, compile_file, have, run, scratch};
use crate::lua::{have_luajit, luajit, root};

/// The code blocks of a language on a page.
fn blocks(page: &Path, language: &str) -> Vec<String> {
    let text = std::fs::read_to_string(page).unwrap();
    let opening = format!("```{language}\n");
    let block = |rest: &str| rest.split("\n```").next().unwrap().to_owned() + "\n";
    text.split(&opening).skip(1).map(block).collect()
}

fn guide() -> PathBuf {
    root().join("docs/guide/c-and-lua.md")
}

fn runs(command: impl Fn() -> Command) {
    for size in [0, 2] {
        for ending in run(size, &command) {
            assert!(ending.success, "on {size} ranks: {}", ending.output);
        }
    }
}

#[test]
fn the_programs_of_the_guide_run() {
    let programs = blocks(&guide(), "c");
    assert_eq!(programs.len(), 2);
    if have("cc", "the C programs of the guide") {
        for (number, program) in programs.iter().enumerate() {
            let source = scratch(&format!("guide-{number}.c"));
            std::fs::write(&source, program).unwrap();
            let program = compile_file(&source, C, Link::Shared("multiverso"));
            runs(|| Command::new(&program));
        }
    }
}

#[test]
fn the_lua_programs_of_the_guide_run() {
    let programs = blocks(&guide(), "lua");
    assert_eq!(programs.len(), 1);
    if have_luajit() {
        let source = scratch("guide.lua");
        std::fs::create_dir_all(source.parent().unwrap()).unwrap();
        std::fs::write(&source, &programs[0]).unwrap();
        runs(|| luajit(&source, &[]));
    }
}

#[test]
fn the_example_finds_the_weights() {
    if have("cc", "the C example") {
        let source = root().join("examples/tables/linear_regression.c");
        let program = compile_file(&source, C, Link::Shared("unisono"));
        runs(|| Command::new(&program));
    }
}
