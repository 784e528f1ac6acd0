//! The C and Lua programs of the guide, and the C example: each is compiled and run, alone and on two ranks.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{C, Link, compile_file, have, library, run, scratch};
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

/// `make`, for the commands of the guide: its targets would build the library and the program again.
const MAKE: &str = r#"#!/bin/sh
[ "$1" = install ] && shift && exec env "$@" "$SCRIPTS/install"
"#;

#[test]
fn the_commands_of_the_guide_run() {
    let what = "the commands of the guide for C and Lua";
    let needed = ["cc", "pkg-config", "cmake", "luarocks"];
    // Built for the tests of the program; `cargo test --package unisono-c` alone does not.
    let built = std::env::current_exe().unwrap();
    let program = built.ancestors().nth(2).unwrap().join("unisono");
    if !program.exists() {
        return println!("left out: {what}, because {} was not built", program.display());
    }
    if !needed.iter().all(|name| have(name, what)) || !have_luajit() {
        return;
    }
    let home = scratch("guide");
    let _ = std::fs::remove_dir_all(&home);
    std::fs::create_dir_all(home.join("target")).unwrap();
    std::fs::create_dir_all(home.join("bin")).unwrap();
    for shared in ["bindings", "examples"] {
        symlink(root().join(shared), home.join(shared)).unwrap();
    }
    symlink(library(), home.join("target/release")).unwrap();
    std::fs::write(home.join("bin/make"), MAKE).unwrap();
    std::fs::set_permissions(home.join("bin/make"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(home.join("program.c"), &blocks(&guide(), "c")[0]).unwrap();
    std::fs::write(home.join("CMakeLists.txt"), &blocks(&guide(), "cmake")[0]).unwrap();
    let commands = blocks(&guide(), "sh");
    assert!(commands.len() >= 6, "{commands:?}");
    let ending = run(0, || {
        let mut shell = Command::new("sh");
        shell.args(["-euxc", &commands.concat()]).current_dir(&home).env("HOME", &home);
        shell.env("PATH", format!("{}:{}", home.join("bin").display(), std::env::var("PATH").unwrap()));
        shell.env("LIBRARY", library()).env("PROGRAM", &program).env("SCRIPTS", root().join("scripts"));
        shell.env_remove("UNISONO_LIBRARY").env_remove("PKG_CONFIG_PATH").env_remove("LUA_PATH");
        shell
    })
    .remove(0);
    assert!(ending.success, "{}", ending.output);
    assert_eq!(ending.output.matches("rank 3 of 4: 16").count(), 2, "{}", ending.output);
    for name in [".local/share/man/man1/unisono-run.1", ".local/share/bash-completion/completions/unisono"] {
        assert!(home.join(name).is_file(), "{name}");
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
