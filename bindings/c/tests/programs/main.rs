//! Real C programs, compiled and run: alone, on several ranks, as C++, linked statically, and under valgrind.

mod harness;
mod installed;
mod lua;
mod multiverso;
mod pages;

use std::path::Path;
use std::process::Command;

use harness::{C, CPP, Link, compile, have, scratch, succeed};

const SHARED: Link = Link::Shared("unisono");

#[test]
fn collectives_work_on_one_to_four_ranks() {
    if have("cc", "the C programs") {
        let program = compile("collectives", C, SHARED);
        for size in [0, 1, 2, 3, 4] {
            succeed(size, || Command::new(&program));
        }
    }
}

#[test]
fn the_header_compiles_as_cpp() {
    if have("c++", "the C++ program") {
        for name in ["collectives", "key_value"] {
            let program = compile(name, CPP, SHARED);
            succeed(2, || Command::new(&program));
        }
    }
}

#[test]
fn the_static_library_works() {
    if have("cc", "the statically linked C program") {
        let program = compile("collectives", C, Link::Static);
        succeed(2, || Command::new(&program));
    }
}

#[test]
fn mistakes_return_a_status_and_a_message() {
    if have("cc", "the C program of mistakes") {
        let program = compile("mistakes", C, SHARED);
        for size in [0, 2, 3] {
            succeed(size, || Command::new(&program));
        }
    }
}

#[test]
fn hostile_arguments_never_crash() {
    if have("cc", "the C program of hostile arguments") {
        let program = compile("hostile", C, SHARED);
        succeed(0, || {
            let mut command = Command::new(&program);
            command.arg(unisono::testing::fuzz_iterations().to_string());
            command
        });
    }
}

#[test]
fn tables_work_on_one_to_four_ranks() {
    if have("cc", "the C programs of tables") {
        let program = compile("tables", C, SHARED);
        for size in [0, 1, 2, 3, 4] {
            let folder = scratch(&format!("checkpoint-{size}"));
            let _ = std::fs::remove_dir_all(&folder);
            succeed(size, || {
                let mut command = Command::new(&program);
                command.env("CHECK_FOLDER", &folder);
                command
            });
        }
        let program = compile("key_value", C, SHARED);
        for size in [0, 1, 2, 4] {
            succeed(size, || Command::new(&program));
        }
        let program = compile("roles", C, SHARED);
        succeed(4, || Command::new(&program));
    }
}

/// The programs that run under valgrind.
const EXAMINED: [&str; 5] = ["collectives", "mistakes", "tables", "key_value", "multiverso_async"];

#[test]
fn valgrind_finds_nothing() {
    let what = "the C programs under valgrind";
    if !have("cc", what) || !have("valgrind", what) {
        return;
    }
    // Valgrind leaves little address space: this test starts itself again with less memory per rank.
    if std::env::var_os("UNISONO_HEAP").is_none() {
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "valgrind_finds_nothing", "--nocapture"]).env("UNISONO_HEAP", "256");
        let output = again.output().unwrap();
        return assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    for name in EXAMINED {
        let program = compile(name, C, Link::Shared("multiverso"));
        succeed(2, || valgrind(&program));
    }
}

/// The program under valgrind: an invalid access or a definitely lost block is an error. Possibly lost blocks are not:
/// Rust's standard library refers to a thread's data by an interior pointer.
fn valgrind(program: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--error-exitcode=9", "--leak-check=full"]);
    command.args(["--errors-for-leak-kinds=definite", "--child-silent-after-fork=yes"]);
    command.arg(program).arg("--no-fork");
    command
}
