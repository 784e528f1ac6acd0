//! The Lua binding and its example, run by luajit: alone and on several ranks.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{have, library, run, scratch, succeed};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// luajit with a program, whose path may be relative to the repository; it finds the binding, and the library that cargo built.
pub fn luajit(program: impl AsRef<Path>, arguments: &[&str]) -> Command {
    let folder = root().join("bindings/lua");
    let path = format!("{0}/?.lua;{0}/?/init.lua;{0}/tests/?.lua;;", folder.display());
    let mut command = Command::new("luajit");
    command.arg(root().join(program)).args(arguments).env("LUA_PATH", path);
    command.env("UNISONO_LIBRARY", library().join("libunisono.so"));
    command
}

/// Whether luajit is installed; if not, reports that tests are skipped.
pub fn have_luajit() -> bool {
    let found = Command::new("luajit").arg("-v").output();
    found.is_ok() || have("luajit", "the Lua binding")
}

#[test]
fn lua_tables_work_with_torch_and_without() {
    if !have_luajit() {
        return;
    }
    for size in [0, 1, 2, 4] {
        for torch in ["torch", "none"] {
            let folder = scratch(&format!("lua-checkpoint-{size}-{torch}"));
            let _ = std::fs::remove_dir_all(&folder);
            succeed(size, || {
                let mut command = luajit("bindings/lua/tests/tables.lua", &[torch]);
                command.env("CHECK_FOLDER", &folder);
                command
            });
        }
    }
}

#[test]
fn lua_programs_for_multiverso_run() {
    if have_luajit() {
        for size in [0, 2, 3] {
            succeed(size, || luajit("bindings/lua/tests/multiverso.lua", &[]));
        }
    }
}

#[test]
fn lua_mistakes_are_errors() {
    if have_luajit() {
        succeed(0, || luajit("bindings/lua/tests/mistakes.lua", &[]));
    }
}

#[test]
fn lua_reports_the_library_path_that_failed() {
    if !have_luajit() {
        return;
    }
    let ending = run(0, || {
        let mut command = luajit("bindings/lua/tests/multiverso.lua", &[]);
        command.env("UNISONO_LIBRARY", "/no/such/library.so");
        command
    })
    .remove(0);
    let said = ending.output.contains("/no/such/library.so") && ending.output.contains("make lib");
    assert!(!ending.success && said, "{}", ending.output);
    // Without the variable, the library is found on the system's search path.
    let ending = run(0, || {
        let mut command = luajit("bindings/lua/tests/multiverso.lua", &[]);
        command.env_remove("UNISONO_LIBRARY").env("LD_LIBRARY_PATH", library());
        command
    })
    .remove(0);
    assert!(ending.success, "{}", ending.output);
}

#[test]
fn lua_learns_exclusive_or() {
    if have_luajit() {
        for size in [0, 2, 4] {
            for ending in run(size, || luajit("examples/tables/xor.lua", &[])) {
                assert!(ending.success, "{}", ending.output);
            }
        }
    }
}
