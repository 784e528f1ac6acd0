//! `unisono run --restart`: failed ranks are restarted, until the restarts are used up.

mod common;

use common::*;
use std::sync::Arc;
use unisono::tables::{ArrayTable, Consistency, Role, TableOptions, Tables};
use unisono::{ReduceOp, World};

/// The variable that makes this test program a rank: how many of its processes die.
const DEATHS: &str = "UNISONO_TEST_DEATHS";

/// Not a test: a rank of the jobs below. Rank 1 kills itself between two calls, or inside one.
#[test]
fn rank() {
    let Ok(deaths) = std::env::var(DEATHS) else { return };
    let deaths: usize = deaths.parse().unwrap();
    let world = World::init().unwrap();
    if std::env::var("UNISONO_TEST_ROUNDS").is_ok() {
        return work_in_rounds(&world);
    }
    let inside = std::env::var("UNISONO_TEST_INSIDE").is_ok();
    world.resume();
    loop {
        let restarts = if world.rank() == 1 { world.restarts() } else { 0 };
        let mut values = [1, restarts as i64];
        world.group().all_reduce(&mut values, ReduceOp::Sum).unwrap();
        assert_eq!(values[0], world.size() as i64);
        if values[1] as usize == deaths {
            break;
        }
        if world.rank() == 1 {
            println!("process of restart {restarts} dies");
            die(&world, restarts, inside);
        } else if inside {
            std::thread::sleep(DEADLINE);
        }
    }
}

/// Rank 1 is killed between two rounds; the others end with an error.
fn work_in_rounds(world: &World) {
    let tables = Tables::join(world, Role::Both).unwrap();
    let options =
        TableOptions { consistency: Consistency::Bsp { backup: 0, mean: false }, ..TableOptions::default() };
    let table = ArrayTable::<f32>::create(&tables, 3, None, options).unwrap();
    for step in 0.. {
        if world.rank() == 1 && step == 3 {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
        }
        table.add(&[1.0; 3]).unwrap();
        table.get(&mut [0.0; 3]).unwrap();
    }
}

/// By a signal or, every other time, by an error that shuts the world down in order.
fn die(world: &World, restarts: usize, inside: bool) {
    if inside {
        let (sender, receiver) = std::sync::mpsc::channel();
        // The interrupt hook is called while the rank waits inside the call.
        let waits = Arc::new(move || sender.send(()).is_err());
        let _pending = world.group().start(|group| group.with_interrupt(waits).barrier());
        receiver.recv().unwrap();
    }
    assert!(restarts.is_multiple_of(2), "an error of the program's own");
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
}

/// `unisono run` with these arguments, and this test program as the rank.
fn run_ranks(arguments: &[&str], deaths: usize) -> std::process::Command {
    let mut command = unisono(["run"]);
    let program = std::env::current_exe().unwrap();
    command.args(arguments).arg("--").arg(program).args(["--exact", "rank", "--nocapture"]);
    command.env(DEATHS, deaths.to_string());
    command
}

const FAILS_TWICE: &str =
    "echo try $UNISONO_RESTARTS; [ $UNISONO_RANK = 0 ] || [ $UNISONO_RESTARTS = 2 ] || exit 5";

#[test]
fn a_rank_that_fails_twice_and_then_succeeds_succeeds() {
    let folder = Folder::new();
    let arguments = ["-n", "2", "--restart", "2", "--log-dir", folder.0.to_str().unwrap()];
    let output = finish(run_shell(&arguments, FAILS_TWICE));
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert_eq!(sorted_lines(&output), ["[0] try 0", "[1] try 0", "[1] try 1", "[1] try 2"]);
    assert_eq!(errors.lines().count(), 2, "one line for each restart: {errors}");
    for (line, end) in errors.lines().zip(["(restart 1 of 2)", "(restart 2 of 2)"]) {
        assert!(line.starts_with("unisono: rank 1 (process ") && line.ends_with(end), "{line}");
        assert!(
            line.contains("failed: exit status 5,") && line.contains("started again as process"),
            "{line}"
        );
    }
    let log = std::fs::read_to_string(folder.0.join("rank-1.log")).unwrap();
    assert_eq!(log, "try 0\ntry 1\ntry 2\n");
}

#[test]
fn a_failure_after_the_last_restart_ends_the_job() {
    let mark = mark();
    let script = "[ $UNISONO_RANK = 1 ] || exec sleep 1000; printf 'try %s' $UNISONO_RESTARTS; exit 6";
    let output = finish(run_shell(&["-n", "2", "--restart", "2", "--grace", "0", "--env", &mark], script));
    assert_eq!(output.status.code(), Some(6));
    let summary = text(&output.stderr);
    assert!(
        summary.contains("rank 1 (process ") && summary.contains("failed first: exit status 6"),
        "{summary}"
    );
    assert!(summary.contains("started again 2 times before"), "{summary}");
    assert!(summary.contains("its last lines:\n    try 0\n    try 1\n    try 2\n"), "{summary}");
    assert!(marked(&mark).is_empty());
}

#[test]
fn restarts_are_counted_for_the_entire_job() {
    let script = "[ $UNISONO_RESTARTS = 1 ] || exit 4";
    assert_eq!(finish(run_shell(&["-n", "3", "--restart", "3"], script)).status.code(), Some(0));
    assert_eq!(finish(run_shell(&["-n", "3", "--restart", "2"], script)).status.code(), Some(4));
}

#[test]
fn quiet_restarts_print_nothing() {
    let output = finish(run_shell(&["-n", "2", "--restart", "2", "--quiet"], FAILS_TWICE));
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

#[test]
fn a_rank_that_fails_before_init_joins_the_others() {
    let check = concat!("exec ", env!("CARGO_BIN_EXE_unisono"), " check-rank shm");
    let script = format!("[ $UNISONO_RANK = 0 ] || [ $UNISONO_RESTARTS = 2 ] || exit 5; {check}");
    let output = finish(run_shell(&["-n", "2", "--restart", "2"], &script));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn processes_of_a_failed_rank_are_killed_before_its_restart() {
    // The second process would find the child of the first. (A zombie has no executable any more.)
    let script = "[ $UNISONO_RANK = 0 ] && exit 0
        if [ $UNISONO_RESTARTS = 0 ]; then sleep 1000 & echo $! > $FILE; kill -9 $$; fi
        ! test -e /proc/$(cat $FILE)/exe";
    let folder = Folder::new();
    let file = format!("FILE={}", folder.0.join("child").display());
    let output = finish(run_shell(&["-n", "2", "--restart", "1", "--env", &file], script));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn a_job_whose_rank_dies_between_calls_continues() {
    let mark = mark();
    let output = finish(run_ranks(&["-n", "3", "--restart", "5", "--env", &mark], 5));
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}\n{}", text(&output.stdout));
    assert_eq!(errors.matches("failed: SIGKILL").count(), 3, "{errors}");
    assert_eq!(errors.matches("failed: exit status 101").count(), 2, "{errors}");
    // On one core, the test program prints its own name before it.
    let printed = text(&output.stdout);
    let is_reported = |line: &str| line.starts_with("[1] ") && line.ends_with("process of restart 4 dies");
    assert!(printed.lines().any(is_reported), "{printed}");
    assert!(marked(&mark).is_empty());
    let used_up = finish(run_ranks(&["-n", "3", "--restart", "4", "--env", &mark], 5));
    assert_eq!(used_up.status.code(), Some(137));
    let errors = text(&used_up.stderr);
    assert!(errors.contains("PeerLost") && errors.contains("failed first: SIGKILL"), "{errors}");
    assert!(marked(&mark).is_empty());
}

#[test]
fn a_job_whose_rank_dies_inside_a_call_ends() {
    let arguments = ["-n", "2", "--restart", "5", "--grace", "0", "--env", "UNISONO_TEST_INSIDE=1"];
    let output = finish(run_ranks(&arguments, 1));
    assert_eq!(output.status.code(), Some(137));
    let errors = text(&output.stderr);
    assert!(errors.contains("rank 1") && errors.contains("cannot be started again"), "{errors}");
    assert!(errors.contains("its process ended inside a collective call"), "{errors}");
}

#[test]
fn a_job_of_rounds_ends_with_the_first_worker_that_fails() {
    let arguments = ["-n", "3", "--restart", "5", "--env", "UNISONO_TEST_ROUNDS=1"];
    let output = finish(run_ranks(&arguments, 1));
    assert_eq!(output.status.code(), Some(137));
    let errors = text(&output.stderr);
    assert!(
        errors.contains("a table with consistency bsp, whose rounds cannot continue without"),
        "{errors}"
    );
    assert!(!errors.contains("(restart "), "no restart is wasted: {errors}");
}

#[test]
fn an_interrupt_is_not_a_failure() {
    let mut command = run_shell(&["-n", "2", "--restart", "9"], "echo ready; exec sleep 1000");
    let mut child =
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    await_lines(&mut child, 2, |line| line.ends_with("ready\n"));
    kill("INT", child.id());
    let output = finish_child(child);
    assert_eq!(output.status.code(), Some(130));
    assert!(!text(&output.stderr).contains("started again"), "{}", text(&output.stderr));
}
