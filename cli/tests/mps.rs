//! `unisono run --mps`: the job's daemon starts before its ranks and ends with them, however they end. The daemon here is a
//! script that behaves like NVIDIA's.

mod common;

use common::*;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// Listens on a named pipe, has a server in its own session, and exits when it reads `quit`.
const DAEMON: &str = r#"#!/bin/sh
control=$CUDA_MPS_PIPE_DIRECTORY/control
if [ "$1" != -f ]; then
    [ -p "$control" ] || { echo "Cannot find MPS control daemon process"; exit 1; }
    exec cat > "$control"
fi
echo "devices: ${CUDA_VISIBLE_DEVICES-all}" >> "$CUDA_MPS_LOG_DIRECTORY/control.log"
case $DAEMON in
    broken) echo "no permission to do that"; exit 3;;
    silent) exec sleep 1000;;
esac
setsid sleep 1000 &
mkfifo "$control"
while true; do
    read -r line < "$control"
    if [ "$line" = quit ] && [ "$DAEMON" != deaf ]; then
        kill $!
        rm "$control"
        exit 0
    fi
done
"#;

/// One job with its daemon's program, and the marks by which its processes and files are found later.
struct Job {
    programs: Folder,
    mark: String,
}

impl Job {
    fn new() -> Job {
        let programs = Folder::new();
        let program = programs.0.join("nvidia-cuda-mps-control");
        std::fs::write(&program, DAEMON).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        Job { programs, mark: mark() }
    }

    /// A command with the daemon's program on PATH and a mark in the environment of every process.
    fn prepare(&self, mut command: Command) -> Command {
        let (name, value) = self.mark.split_once('=').unwrap();
        let path = format!("{}:{}", self.programs.0.display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).env(name, value).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env_remove("CUDA_MPS_PIPE_DIRECTORY").env_remove("CUDA_MPS_LOG_DIRECTORY");
        command
    }

    fn run(&self, arguments: &[&str], script: &str) -> Command {
        self.prepare(run_shell(&[&["--mps", "-n", "2"], arguments].concat(), script))
    }

    fn assert_nothing_is_left(&self, folder: &str) {
        eventually("the end of every process", || marked(&self.mark).is_empty());
        eventually("the end of the folder", || !Path::new(folder).exists());
    }
}

/// Prints the folder, then continues.
fn telling(rest: &str) -> String {
    format!("echo folder $CUDA_MPS_PIPE_DIRECTORY; {rest}")
}

fn folder_of(lines: &str) -> String {
    let folder = lines.lines().find_map(|line| line.split_once("folder ")).expect("a line with the folder").1;
    assert!(folder.starts_with('/') && folder.len() < 80, "{folder}");
    folder.trim().to_string()
}

/// Waits until both ranks have printed the folder.
fn await_folder(child: &mut Child) -> String {
    folder_of(&await_lines(child, 2, |line| line.contains("folder ")).concat())
}

fn errors(output: &Output) -> String {
    text(&output.stderr)
}

#[test]
fn ranks_find_a_private_daemon_that_ends_with_them() {
    let job = Job::new();
    let script = telling(
        "[ $CUDA_MPS_LOG_DIRECTORY = $CUDA_MPS_PIPE_DIRECTORY ] && [ -p $CUDA_MPS_PIPE_DIRECTORY/control ] || exit 9
        stat -c 'mode %a' $CUDA_MPS_PIPE_DIRECTORY; cat $CUDA_MPS_LOG_DIRECTORY/control.log",
    );
    let mut command = job.run(&[], &script);
    // A socket's path cannot be this long. Device numbers apply to the ranks only.
    command.env("TMPDIR", job.programs.path(&"x".repeat(100))).env("CUDA_VISIBLE_DEVICES", "1");
    let output = finish(command);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert_eq!(errors(&output), "");
    let lines = text(&output.stdout);
    assert_eq!(lines.matches("mode 700").count(), 2, "{lines}");
    assert_eq!(lines.matches("devices: all").count(), 2, "{lines}");
    job.assert_nothing_is_left(&folder_of(&lines));
}

#[test]
fn nothing_is_left_after_a_failing_rank() {
    let job = Job::new();
    let script = telling("[ $UNISONO_RANK = 0 ] && exit 3; sleep 1000");
    let output = finish(job.run(&["--grace", "0.1"], &script));
    assert_eq!(output.status.code(), Some(3), "{}", errors(&output));
    job.assert_nothing_is_left(&folder_of(&text(&output.stdout)));
}

#[test]
fn a_restarted_rank_finds_the_same_daemon() {
    let job = Job::new();
    let script = telling(
        "[ $UNISONO_RANK$UNISONO_RESTARTS = 00 ] && kill -9 $$; [ -p $CUDA_MPS_PIPE_DIRECTORY/control ]",
    );
    let output = finish(job.run(&["--restart", "1"], &script));
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let lines = text(&output.stdout);
    let folder = folder_of(&lines);
    assert_eq!(lines.matches(&format!("folder {folder}\n")).count(), 3, "{lines}");
    job.assert_nothing_is_left(&folder);
}

#[test]
fn nothing_is_left_after_a_signal() {
    for (signal, status) in [("TERM", Some(143)), ("INT", Some(130)), ("KILL", None)] {
        let job = Job::new();
        let mut child = job.run(&[], &telling("exec sleep 1000")).spawn().unwrap();
        let folder = await_folder(&mut child);
        assert!(Path::new(&folder).exists());
        kill(signal, child.id());
        let output = finish_child(child);
        assert_eq!(output.status.code(), status, "{}", errors(&output));
        job.assert_nothing_is_left(&folder);
    }
}

#[test]
fn a_launcher_killed_at_any_time_leaves_no_daemon() {
    let job = Job::new();
    for moment in 0..15 {
        let mut command = job.run(&[], "exec sleep 1000");
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // The test varies the time of the kill, so it sleeps instead of waiting for an event.
        std::thread::sleep(Duration::from_micros(1500 * moment));
        kill("KILL", child.id());
        child.wait().unwrap();
    }
    eventually("the end of every process", || marked(&job.mark).is_empty());
}

#[test]
fn an_unresponsive_daemon_is_killed() {
    let job = Job::new();
    let mut command = job.run(&[], &telling("true"));
    command.env("DAEMON", "deaf");
    let output = finish(command);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    job.assert_nothing_is_left(&folder_of(&text(&output.stdout)));
}

#[test]
fn a_daemon_that_dies_is_reported() {
    let job = Job::new();
    let mut child = job
        .run(&[], &telling("until [ -e $CUDA_MPS_PIPE_DIRECTORY/go ]; do sleep 0.01; done"))
        .spawn()
        .unwrap();
    let folder = await_folder(&mut child);
    let is_daemon = |pid: &u32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.ends_with(b"nvidia-cuda-mps-control\0-f\0")
    };
    let daemon = marked(&job.mark).into_iter().find(is_daemon).expect("a daemon");
    kill("KILL", daemon);
    eventually("the daemon's end", || !Path::new(&format!("/proc/{daemon}")).exists());
    std::fs::write(format!("{folder}/go"), "").unwrap();
    let output = finish_child(child);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let words = errors(&output);
    assert!(words.contains("the MPS daemon (process") && words.contains("SIGKILL"), "{words}");
    job.assert_nothing_is_left(&folder);
}

#[test]
fn a_daemon_that_cannot_start_is_an_error_with_its_log() {
    let job = Job::new();
    let temporary = Folder::new();
    let mut command = job.run(&[], "echo started");
    command.env("DAEMON", "broken").env("TMPDIR", &temporary.0);
    let output = finish(command);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()));
    let words = errors(&output);
    for word in ["exit status 3", "no permission to do that", "devices: ", "without --mps"] {
        assert!(words.contains(word), "{word} is not in {words}");
    }
    eventually("the end of every process", || marked(&job.mark).is_empty());
    assert_eq!(std::fs::read_dir(&temporary.0).unwrap().count(), 0);
}

#[test]
fn a_signal_ends_the_wait_for_a_daemon() {
    let job = Job::new();
    let temporary = Folder::new();
    let mut command = job.run(&[], "echo started");
    command.env("DAEMON", "silent").env("TMPDIR", &temporary.0);
    let child = command.spawn().unwrap();
    eventually("a daemon", || {
        let mut folders = std::fs::read_dir(&temporary.0).unwrap().flatten();
        folders.any(|folder| folder.path().join("control.log").exists())
    });
    kill("TERM", child.id());
    let output = finish_child(child);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(143), String::new()));
    assert!(errors(&output).contains("SIGTERM came before any rank"), "{}", errors(&output));
    eventually("the end of every process", || marked(&job.mark).is_empty());
    assert_eq!(std::fs::read_dir(&temporary.0).unwrap().count(), 0);
}

#[test]
fn an_existing_daemon_is_used() {
    let job = Job::new();
    let theirs = job.programs.path("");
    let mut command = job.run(&[], &telling("true"));
    command.env("CUDA_MPS_PIPE_DIRECTORY", &theirs);
    let output = finish(command);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert_eq!(text(&output.stdout).matches(&format!("folder {theirs}\n")).count(), 2);
    assert!(errors(&output).contains("no daemon is there"), "{}", errors(&output));
    std::fs::write(job.programs.path("control"), "").unwrap();
    let output = finish(job.run(&["--env", &format!("CUDA_MPS_PIPE_DIRECTORY={theirs}")], "true"));
    assert!(errors(&output).contains("ranks use the daemon there"), "{}", errors(&output));
    assert!(job.programs.0.join("control").exists(), "what is theirs stays");
}

#[test]
fn a_missing_program_is_an_error_before_any_rank_starts() {
    if ["/usr/local/nvidia/bin", "/usr/bin"]
        .iter()
        .any(|folder| Path::new(folder).join("nvidia-cuda-mps-control").exists())
    {
        return eprintln!("left out: this machine has the program");
    }
    let mut command = unisono(["run", "--mps", "-n", "2", "--", "sh", "-c", "echo started"]);
    command.env("PATH", "/usr/bin:/bin").env_remove("CUDA_MPS_PIPE_DIRECTORY");
    let output = finish(command);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), String::new()));
    let words = errors(&output);
    assert!(words.contains("nvidia-cuda-mps-control") && words.contains("without --mps"), "{words}");
    assert_eq!(words.lines().count(), 1, "{words}");
}

#[test]
fn doctor_reports_whether_a_daemon_runs() {
    let job = Job::new();
    let folder = job.programs.path("daemon");
    let line = || {
        let mut command = job.prepare(unisono(["doctor"]));
        command.env("CUDA_MPS_PIPE_DIRECTORY", &folder).env("CUDA_MPS_LOG_DIRECTORY", &folder);
        let report = text(&finish(command).stdout);
        report.lines().find(|line| line.contains("  MPS ")).map(String::from).expect("a line about MPS")
    };
    assert!(line().contains("no daemon runs"), "{}", line());
    std::fs::create_dir(&folder).unwrap();
    let mut command = job.prepare(Command::new(job.programs.path("nvidia-cuda-mps-control")));
    command.arg("-f").env("CUDA_MPS_PIPE_DIRECTORY", &folder).env("CUDA_MPS_LOG_DIRECTORY", &folder);
    let mut daemon = command.spawn().unwrap();
    eventually("a daemon", || Path::new(&folder).join("control").exists());
    let found = line();
    std::fs::write(Path::new(&folder).join("control"), "quit\n").unwrap();
    daemon.wait().unwrap();
    assert!(found.contains("a daemon runs"), "{found}");
}
