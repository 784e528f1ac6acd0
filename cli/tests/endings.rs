//! How `unisono run` ends: exit statuses, failing ranks, signals, and that no process is left.

mod common;

use common::*;
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn mistakes_are_named() {
    let no_program = finish(unisono(["run", "-n", "2", "no-such-program"]));
    assert_eq!(no_program.status.code(), Some(127));
    assert!(text(&no_program.stderr).contains("no-such-program"));
    let no_script = finish(unisono(["run", "-n", "2", "no-such-script.py"]));
    assert_eq!(no_script.status.code(), Some(127));
    assert!(text(&no_script.stderr).contains("no-such-script.py"));
    for (arguments, word) in [
        (["-n", "0"], "at least 1"),
        (["-n", "-1"], "at least 1"),
        (["-n", "99999999999"], "at most 4096 ranks"),
        (["--env", "x"], "NAME=VALUE"),
    ] {
        let output = finish(run_shell(&arguments, "echo started"));
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(word) && output.stdout.is_empty(), "{}", text(&output.stderr));
    }
}

#[test]
fn a_failing_rank_is_named_with_its_last_lines_and_ends_the_others() {
    let mark = mark();
    let script = "[ $UNISONO_RANK = 1 ] || exec sleep 1000; seq 30; echo wrong >&2; exit 3";
    let output = finish(run_shell(&["-n", "3", "--grace", "0.2", "--env", &mark], script));
    assert_eq!(output.status.code(), Some(3));
    let summary = text(&output.stderr);
    assert!(
        summary.contains("rank 1 (process ") && summary.contains("failed first: exit status 3"),
        "{summary}"
    );
    assert!(
        summary.contains("    30\n") && summary.contains("    wrong\n") && !summary.contains("    10\n"),
        "{summary}"
    );
    assert!(
        summary.contains("rank 0") && summary.contains("ended by the launcher with SIGTERM"),
        "{summary}"
    );
    assert_eq!(marked(&mark), []);
}

#[test]
fn other_ranks_get_time_to_raise_their_own_error() {
    let script = "[ $UNISONO_RANK = 0 ] && exit 7; sleep 0.3; echo my own error >&2; exit 9";
    let output = finish(run_shell(&["-n", "2"], script));
    assert_eq!(output.status.code(), Some(7));
    let summary = text(&output.stderr);
    assert!(summary.contains("[1] my own error") && summary.contains("exit status 9, "), "{summary}");
}

#[test]
fn a_rank_that_ignores_sigterm_is_killed() {
    let folder = Folder::new();
    let file = format!("FILE={}", folder.path("deaf"));
    // The first rank fails once the other ignores the signal.
    let script = "if [ $UNISONO_RANK = 0 ]; then until [ -e $FILE ]; do sleep 0.01; done; exit 1; fi
        trap '' TERM; : > $FILE; while true; do sleep 0.05; done";
    let start = Instant::now();
    let output = finish(run_shell(&["-n", "2", "--grace", "0.1", "--env", &file], script));
    assert_eq!(output.status.code(), Some(1));
    assert!(start.elapsed() > Duration::from_millis(1000), "SIGKILL comes a second after SIGTERM");
    assert!(text(&output.stderr).contains("ended by the launcher with SIGKILL"), "{}", text(&output.stderr));
}

#[test]
fn a_rank_that_exits_with_0_does_not_affect_the_others() {
    let output =
        finish(run_shell(&["-n", "2", "--grace", "0"], "[ $UNISONO_RANK = 0 ] || sleep 0.3; echo done"));
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(sorted_lines(&output), ["[0] done", "[1] done"]);
    assert!(output.stderr.is_empty());
}

#[test]
fn quiet_prints_only_the_output_of_ranks() {
    let output = finish(run_shell(&["-n", "2", "--quiet"], "exit 3"));
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(3), String::new()));
}

#[test]
fn the_exit_status_is_that_of_the_signal() {
    let output =
        finish(run_shell(&["-n", "2", "--grace", "0.1"], "[ $UNISONO_RANK = 0 ] && kill -9 $$; sleep 1000"));
    assert_eq!(output.status.code(), Some(137));
    assert!(text(&output.stderr).contains("rank 0"), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("failed first: SIGKILL"), "{}", text(&output.stderr));
}

#[test]
fn the_time_limit_ends_the_job_and_reports_what_ranks_were_doing() {
    let mark = mark();
    let output =
        finish(run_shell(&["-n", "2", "--timeout", "0.3", "--env", &mark], "sleep 1000 & sleep 1000"));
    assert_eq!(output.status.code(), Some(124));
    let summary = text(&output.stderr);
    assert!(
        summary.contains("--timeout 0.30 s") && summary.contains("rank 0") && summary.contains("rank 1"),
        "{summary}"
    );
    assert_eq!(marked(&mark), []);
}

#[test]
fn a_stopped_rank_is_terminated() {
    let output = finish(run_shell(&["-n", "2", "--timeout", "0.5"], "kill -STOP $$"));
    assert_eq!(output.status.code(), Some(124));
}

#[test]
fn an_interrupt_reaches_every_rank() {
    let script = "trap 'echo interrupted; exit 0' INT; echo ready; while true; do sleep 0.05; done";
    let mut command = run_shell(&["-n", "3"], script);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    await_lines(&mut child, 3, |line| line.ends_with("ready\n"));
    kill("INT", child.id());
    await_lines(&mut child, 3, |line| line.ends_with("interrupted\n"));
    assert_eq!(finish_child(child).status.code(), Some(130));
}

#[test]
fn a_second_interrupt_kills() {
    let script = "trap 'echo no' INT TERM; echo ready; while true; do sleep 0.05; done";
    let mut command = run_shell(&["-n", "2"], script);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    await_lines(&mut child, 2, |line| line.ends_with("ready\n"));
    kill("INT", child.id());
    await_lines(&mut child, 2, |line| line.ends_with("no\n"));
    kill("INT", child.id());
    assert_eq!(finish_child(child).status.code(), Some(130));
}

#[test]
fn sigterm_and_sighup_are_forwarded() {
    for (signal, status) in [("TERM", 143), ("HUP", 129)] {
        let mut command = run_shell(&["-n", "2"], "echo ready; exec sleep 1000");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        await_lines(&mut child, 2, |line| line.ends_with("ready\n"));
        kill(signal, child.id());
        assert_eq!(finish_child(child).status.code(), Some(status));
    }
}

#[test]
fn processes_left_by_ranks_are_killed() {
    let mark = mark();
    // One child in the rank's process group, one in its own session, one that ignores signals.
    let script =
        "sleep 1000 & setsid sleep 1000 & (trap '' TERM; setsid sh -c 'while true; do sleep 1; done') &";
    let output = finish(run_shell(&["-n", "2", "--env", &mark], script));
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(marked(&mark), []);
}

#[test]
fn a_killed_launcher_leaves_no_process() {
    let mark = mark();
    let script = "sleep 1000 & setsid sleep 1000 & (sleep 0.01; exec setsid sh -c 'echo grandchild; sleep 1000') & wait";
    for _ in 0..5 {
        let mut command = run_shell(&["-n", "2", "--env", &mark], script);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        await_lines(&mut child, 2, |line| line.ends_with("grandchild\n"));
        // During exec, a process has no environment for a moment.
        eventually("eight processes", || marked(&mark).len() >= 8);
        kill("KILL", child.id());
        child.wait().unwrap();
        eventually("the end of every process", || marked(&mark).is_empty());
    }
}

#[test]
fn a_launcher_killed_at_any_time_leaves_no_process() {
    let mark = mark();
    for moment in 0..20 {
        let mut command = run_shell(&["-n", "2", "--env", &mark], "setsid sleep 1000 & sleep 1000 & wait");
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        // The test varies the time of the kill, so it sleeps instead of waiting for an event.
        std::thread::sleep(Duration::from_micros(700 * moment));
        kill("KILL", child.id());
        child.wait().unwrap();
    }
    eventually("the end of every process", || marked(&mark).is_empty());
}

#[test]
fn ranks_die_with_the_launcher_even_without_its_reaper() {
    let mark = mark();
    let mut command = run_shell(&["-n", "2", "--env", &mark], "echo ready; exec sleep 1000");
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    await_lines(&mut child, 2, |line| line.ends_with("ready\n"));
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
    let is_reaper = |pid: &u32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap().ends_with(b"reaper\0");
    let reaper = children.split_whitespace().map(|pid| pid.parse().unwrap()).find(is_reaper);
    kill("KILL", reaper.expect("a reaper"));
    kill("KILL", child.id());
    child.wait().unwrap();
    eventually("the end of every rank", || marked(&mark).is_empty());
}
