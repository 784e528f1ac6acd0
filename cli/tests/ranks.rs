//! Real ranks under the launcher: collectives work, and a job that hangs reports where.

mod common;

use common::*;
use std::collections::HashSet;
use std::process::Stdio;

/// This program itself, as one rank of a small test job.
const CHECK: &str = concat!("exec ", env!("CARGO_BIN_EXE_unisono"), " check-rank shm");

#[test]
fn ranks_find_each_other_over_shared_memory() {
    let output = finish(run_shell(&["-n", "2"], CHECK));
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("[0] time "));
}

#[test]
fn ranks_have_the_variables_of_pytorch() {
    let print = "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT";
    let output = finish(run_shell(&["-n", "2", "--env", "MASTER_PORT=7", "--env", "UNISONO_RANK=7"], print));
    assert_eq!(sorted_lines(&output), ["[0] 0 2 0 2 127.0.0.1 7", "[1] 1 2 1 2 127.0.0.1 7"]);

    let output = finish(run_shell(&["-n", "3"], "echo $MASTER_PORT"));
    let lines = sorted_lines(&output);
    let ports: HashSet<u16> =
        lines.iter().map(|line| line.split_once("] ").unwrap().1.parse().unwrap()).collect();
    assert_eq!(ports.len(), 1, "{ports:?}");
}

#[test]
fn bound_ranks_have_their_share_of_the_cores() {
    let cores = |arguments: &[&str]| {
        let output = finish(run_shell(
            arguments,
            "grep Cpus_allowed_list /proc/self/status; env -u OMP_NUM_THREADS nproc",
        ));
        assert!(output.status.success(), "{}", text(&output.stderr));
        sorted_lines(&output)
    };
    let allowed: usize = cores(&["-n", "1"])[0].strip_prefix("[0] ").unwrap().parse().unwrap();
    let bound = cores(&["-n", "2", "--bind"]);
    for (rank, count) in [allowed / 2, allowed - allowed / 2].into_iter().enumerate() {
        let count = count.max(1).to_string();
        assert!(bound.contains(&format!("[{rank}] {count}")), "{bound:?}");
    }
    let lists: HashSet<_> = bound
        .iter()
        .filter_map(|line| line.split_once("Cpus_allowed_list:\t"))
        .map(|(_, list)| list)
        .collect();
    assert_eq!(lists.len(), allowed.min(2), "{bound:?}");
}

#[test]
fn a_job_that_hangs_reports_what_ranks_were_doing() {
    let script = format!("[ $UNISONO_RANK = 0 ] && exec sleep 1000; {CHECK}");
    // On a busy machine, programs start slowly.
    for seconds in ["1", "5", "25"] {
        let output = finish(run_shell(&["-n", "2", "--timeout", seconds], &script));
        assert_eq!(output.status.code(), Some(124));
        let summary = text(&output.stderr);
        let does =
            |rank: &str, what: &str| summary.lines().any(|line| line.contains(rank) && line.contains(what));
        assert!(does("rank 0 ", "init"), "{summary}");
        if does("rank 1 ", "all_reduce") || does("rank 1 ", "barrier") {
            return;
        }
        assert!(does("rank 1 ", "init"), "{summary}");
    }
    panic!("rank 1 never reached a call");
}

#[test]
fn survivors_name_a_killed_rank_themselves() {
    let script = format!("[ $UNISONO_RANK = 0 ] && {{ sleep 0.3; kill -9 $$; }}; {CHECK}");
    let output = finish(run_shell(&["-n", "2"], &script));
    assert_eq!(output.status.code(), Some(137));
    let summary = text(&output.stderr);
    assert!(summary.contains("rank 0 (process ") && summary.contains("failed first: SIGKILL"), "{summary}");
    assert!(summary.contains("[1] rank 1: "), "the survivor's own error is shown: {summary}");
}

#[test]
fn a_killed_launcher_leaves_no_memory() {
    let before = shared_files();
    let script = format!("echo ready; [ $UNISONO_RANK = 0 ] && exec sleep 1000; {CHECK}");
    let mark = mark();
    let mut command = run_shell(&["-n", "2", "--env", &mark], &script);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    await_lines(&mut child, 2, |line| line.ends_with("ready\n"));
    kill("KILL", child.id());
    child.wait().unwrap();
    eventually("the end of every process", || marked(&mark).is_empty());
    assert_eq!(shared_files().into_iter().filter(|file| !before.contains(file)).collect::<Vec<_>>(), [""; 0]);
}

/// The files of unisono in /dev/shm; anonymous memory has no file there and ends with its last process.
fn shared_files() -> Vec<String> {
    let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("unisono")).collect()
}

#[test]
fn doctor_finds_shared_memory_working() {
    let output = finish(unisono(["doctor"]));
    let report = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{report}");
    for word in ["cores", "copy", "memfd", "/dev/shm", "Python", "threads"] {
        assert!(report.contains(word), "{word} is not in {report}");
    }
    let line = report.lines().find(|line| line.contains("shared memory  ")).unwrap();
    assert!(line.trim_start().starts_with("ok"), "{line}");
}

#[test]
fn doctor_prints_json() {
    let output = finish(unisono(["doctor", "--json"]));
    let report = text(&output.stdout);
    assert!(
        report.starts_with("{\"version\": ")
            && report.contains("\"name\": \"shared memory\", \"mark\": \"ok\"")
    );
    assert_eq!(report.lines().count(), 1, "nothing but JSON");
}

#[test]
fn bench_measures_and_checks_every_verb() {
    let folder = Folder::new();
    let file = folder.0.join("results.json");
    let arguments = ["--ranks", "2,3", "--sizes", "4KiB,100KB", "--seconds", "0.01", "--json"];
    let mut command = unisono(["bench", "collectives"]);
    command.args(arguments).arg(&file);
    let output = finish(command);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    let verbs = [
        "all_reduce",
        "broadcast",
        "scatter",
        "gather",
        "all_gather",
        "reduce",
        "reduce_scatter",
        "scan",
        "all_to_all",
    ];
    for word in
        verbs.into_iter().chain(["send_recv", "barrier", "2 ranks", "3 ranks", "4 KiB", "100 KB", "arena"])
    {
        assert!(table.contains(word), "{word} is not in {table}");
    }
    let json = std::fs::read_to_string(&file).unwrap();
    assert!(json.contains("\"verb\": \"all_reduce\", \"what\": \"private\", \"bytes\": 4096"), "{json}");
}

#[test]
fn bench_measures_and_checks_tables() {
    let folder = Folder::new();
    let file = folder.0.join("results.json");
    let sizes =
        ["--sizes", "4KiB,100KB", "--rows", "1000", "--columns", "5", "--listed", "300", "--tables", "3"];
    let mut command = unisono(["bench", "tables", "--workers", "1,3", "--seconds", "0.01"]);
    command.args(sizes).arg("--json").arg(&file);
    let output = finish(command);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    let figures =
        ["get 4 KiB / copy", "add 100 KB / y += x", "row get / gather", "row add / scatter-add", "key add"];
    for word in
        figures.into_iter().chain(["get 100 floats", "3 tables / 1", "1 workers", "3 workers", "≥ 60 %"])
    {
        assert!(table.contains(word), "{word} is not in {table}");
    }
    let json = std::fs::read_to_string(&file).unwrap();
    assert!(json.contains("\"workers\": 3, \"name\": \"row get / gather\", \"size\": 300"), "{json}");
    assert_eq!(json.matches("\"wanted_median_seconds\"").count(), 1, "only for one worker: {json}");
}
