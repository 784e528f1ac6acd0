//! Programs written for Multiverso, linked with libmultiverso: alone, under our launcher and under MPICH's.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{C, CPP, Link, compile, have, run, succeed};

const SHARED: Link = Link::Shared("multiverso");

/// The flags of the synchronous program, among other arguments.
const SYNC: [&str; 5] = ["-sync=true", "data-file", "--sync=false", "-x=1", "-omp_threads=4"];

fn with(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

#[test]
fn asynchronous_programs_run_unchanged() {
    if have("cc", "the C programs for Multiverso") && have("c++", "the C++ program for Multiverso") {
        let program = compile("multiverso_async", C, SHARED);
        for size in [0, 1, 2, 4] {
            succeed(size, || Command::new(&program));
        }
        let program = compile("multiverso_async", CPP, SHARED);
        succeed(2, || Command::new(&program));
    }
}

#[test]
fn synchronous_programs_end_with_unequal_rounds() {
    if have("cc", "the C programs for Multiverso") {
        let program = compile("multiverso_sync", C, SHARED);
        for size in [0, 1, 2, 4] {
            succeed(size, || with(&program, &SYNC));
        }
    }
}

#[test]
fn flags_take_effect() {
    if have("cc", "the C programs for Multiverso") {
        let program = compile("multiverso_flags", C, SHARED);
        succeed(3, || with(&program, &["-updater_type=sgd", "-port=1", "updater"]));
        succeed(3, || with(&program, &["-ps_role=worker", "-port=1", "role"]));
        succeed(2, || with(&program, &["-ma=true", "-port=1", "average"]));
    }
}

#[test]
fn mistakes_are_printed_and_abort() {
    if !have("cc", "the C programs for Multiverso") {
        return;
    }
    let program = compile("multiverso_wrong", C, SHARED);
    let cases: [(&[&str], &str); 8] = [
        (&["early"], "MV_Barrier: "),
        (&["size"], "6 elements"),
        (&["row"], "4 at position 0"),
        (&["handler"], "never made"),
        (&["null"], "NULL"),
        (&["negative"], "-1"),
        (&["-updater_type=sdg", "x"], "did you mean `sgd`"),
        (&["-ps_role=boss", "x"], "\"boss\""),
    ];
    for (arguments, words) in cases {
        let ending = run(0, || with(&program, arguments)).remove(0);
        let said = ending.output.contains(words) && ending.output.contains("rank");
        assert!(!ending.success && said, "{arguments:?}: {}", ending.output);
    }
    let endings = run(2, || with(&program, &["row"]));
    for (rank, ending) in endings.iter().enumerate() {
        assert!(
            ending.output.contains(&format!("[rank {rank}] MV_AddMatrixTableByRows")),
            "{}",
            ending.output
        );
    }
}

#[test]
fn multiverso_programs_run_under_mpich() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = std::env::var_os("UNISONO_TEST_MPICH").map_or_else(|| root.join(".venv"), PathBuf::from);
    let mpiexec = folder.join("bin/mpiexec");
    let what = "the C programs under MPICH's launcher";
    if !mpiexec.exists() {
        println!("left out: {what} ({} is not there)", mpiexec.display());
        return;
    }
    if !have("cc", what) {
        return;
    }
    // On one host, on two, and with every rank on its own host; the hosts are simulated.
    let cases = [("1", "1"), ("2", "1"), ("4", "1"), ("4", "2"), ("3", "3")];
    for (name, arguments) in [("multiverso_async", &[][..]), ("multiverso_sync", &SYNC), ("tables", &[])] {
        let program = compile(name, C, SHARED);
        for (size, hosts) in cases {
            let ending = run(0, || {
                let mut command = Command::new(&mpiexec);
                command.args(["-n", size]).arg(&program).args(arguments).env("UNISONO_HOSTS", hosts);
                command
            })
            .remove(0);
            let all = ending.output.matches("all well").count() == size.parse::<usize>().unwrap();
            assert!(ending.success && all, "{name}, {size} ranks on {hosts} hosts: {}", ending.output);
        }
    }
}
