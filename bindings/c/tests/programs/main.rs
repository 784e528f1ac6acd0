//! Real C programs, compiled and run: alone, as several ranks, as C++, linked statically, and under valgrind.

mod harness;
mod multiverso;

use std::process::Command;

use harness::{C, CPP, Link, compile, have, succeed};

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
fn the_header_is_cpp_too() {
    if have("c++", "the C++ program") {
        let program = compile("collectives", CPP, SHARED);
        succeed(2, || Command::new(&program));
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
fn mistakes_give_a_status_and_a_text() {
    if have("cc", "the C program of mistakes") {
        let program = compile("mistakes", C, SHARED);
        for size in [0, 2, 3] {
            succeed(size, || Command::new(&program));
        }
    }
}

#[test]
fn tables_work_on_one_to_four_ranks() {
    if have("cc", "the C programs of tables") {
        let program = compile("tables", C, SHARED);
        for size in [0, 1, 2, 3, 4] {
            succeed(size, || Command::new(&program));
        }
        let program = compile("roles", C, SHARED);
        succeed(4, || Command::new(&program));
    }
}

#[test]
fn valgrind_finds_nothing() {
    if !have("cc", "the C programs under valgrind") || !have("valgrind", "the C programs under valgrind") {
        return;
    }
    for name in ["collectives", "mistakes", "tables", "multiverso_async"] {
        let program = compile(name, C, SHARED);
        succeed(2, || valgrind(&program));
    }
}

/// The program under valgrind: a wrong access or a lost block is an error.
fn valgrind(program: &std::path::Path) -> Command {
    let mut command = Command::new("valgrind");
    command.args([
        "--quiet",
        "--error-exitcode=9",
        "--leak-check=full",
        "--errors-for-leak-kinds=definite,possible",
    ]);
    command.args(["--child-silent-after-fork=yes"]).arg(program).arg("--no-fork");
    command
}
