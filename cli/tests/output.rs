//! How `unisono run` shows the output of the ranks.

mod common;

use common::*;

#[test]
fn every_line_has_its_rank_and_keeps_its_stream() {
    let output = finish(run_shell(&["-n", "3"], "echo out $UNISONO_RANK of $UNISONO_SIZE; echo error >&2"));
    assert!(output.status.success());
    assert_eq!(sorted_lines(&output), ["[0] out 0 of 3", "[1] out 1 of 3", "[2] out 2 of 3"]);
    assert_eq!(text(&output.stderr).matches("] error\n").count(), 3);
}

#[test]
fn prefixes_are_aligned_and_uncoloured_in_a_pipe() {
    let output = finish(run_shell(&["-n", "11"], "echo x"));
    let lines = sorted_lines(&output);
    assert_eq!((lines[0].as_str(), lines[10].as_str()), ("[ 0] x", "[10] x"));
}

#[test]
fn the_separator_may_be_left_out_and_the_program_keeps_its_options() {
    let output = finish(unisono(["run", "-n", "1", "echo", "-n", "5", "--timeout"]));
    assert_eq!(text(&output.stdout), "[0] 5 --timeout\n");
}

#[test]
fn a_last_line_without_a_newline_is_shown() {
    let output = finish(run_shell(&["-n", "2"], "printf 'first\\nlast'"));
    assert_eq!(sorted_lines(&output), ["[0] first", "[0] last", "[1] first", "[1] last"]);
}

#[test]
fn bytes_that_are_not_utf8_pass_unchanged() {
    let output = finish(run_shell(&["-n", "1"], "printf '\\377\\376 \\200\\n'"));
    assert_eq!(output.stdout, b"[0] \xff\xfe \x80\n");
}

#[test]
fn progress_bars_show_each_state() {
    let output = finish(run_shell(&["-n", "1"], "printf '\\r 1%%\\r 2%%\\r\\n'"));
    assert_eq!(text(&output.stdout), "[0]  1%\n[0]  2%\n");
}

#[test]
fn very_long_lines_are_cut_and_nothing_is_lost() {
    let output = finish(run_shell(&["-n", "2"], "head -c 3000000 /dev/zero | tr '\\0' x"));
    let lines = sorted_lines(&output);
    assert!(lines.len() > 20 && lines.iter().all(|line| line.len() < 20_000));
    assert_eq!(lines.iter().map(|line| line.len() - "[0] ".len()).sum::<usize>(), 6_000_000);
}

#[test]
fn many_lines_are_never_mixed() {
    let output = finish(run_shell(&["-n", "2"], "seq 100000"));
    for rank in 0..2 {
        let prefix = format!("[{rank}] ");
        let all = text(&output.stdout);
        let own = all.lines().filter_map(|line| line.strip_prefix(&prefix));
        assert!(own.map(|line| line.parse::<u32>().unwrap()).eq(1..=100_000));
    }
    assert_eq!(output.stdout.iter().filter(|&&byte| byte == b'\n').count(), 200_000);
}

#[test]
fn logs_contain_all_output_without_prefixes() {
    let folder = Folder::new();
    let logs = folder.0.join("new/logs");
    let script = "echo out $UNISONO_RANK; echo error >&2; printf 'no end'";
    let output = finish(run_shell(&["-n", "2", "--log-dir", logs.to_str().unwrap()], script));
    assert!(output.status.success());
    for rank in 0..2 {
        let log = std::fs::read_to_string(logs.join(format!("rank-{rank}.log"))).unwrap();
        assert!(
            log.contains(&format!("out {rank}\n")) && log.contains("error\n") && log.contains("no end"),
            "{log}"
        );
        assert!(!log.contains('['), "{log}");
    }
}

#[test]
fn a_log_folder_that_cannot_be_created_is_an_error() {
    let output = finish(run_shell(&["-n", "1", "--log-dir", "/dev/null/logs"], "echo started"));
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/dev/null/logs") && output.stdout.is_empty());
}

#[test]
fn ranks_have_empty_input_and_their_variables() {
    let script = "cat; echo $COLOUR-$UNISONO_TIMEOUT-$PYTHONUNBUFFERED";
    let arguments = ["-n", "1", "--env", "COLOUR=blue=green", "--wait-timeout", "2.5"];
    let mut command = run_shell(&arguments, script);
    command.env_remove("PYTHONUNBUFFERED").env_remove("UNISONO_TIMEOUT");
    assert_eq!(text(&finish(command).stdout), "[0] blue=green-2.5-1\n");
    let mut command = run_shell(&["-n", "1"], script);
    command.env("PYTHONUNBUFFERED", "0").env_remove("UNISONO_TIMEOUT").env_remove("COLOUR");
    assert_eq!(text(&finish(command).stdout), "[0] --0\n");
}

#[test]
fn python_programs_run_with_python() {
    let folder = Folder::new();
    let script = folder.0.join("program.py");
    std::fs::write(&script, "import os, sys; print(os.environ['UNISONO_RANK'], sys.argv[1:])").unwrap();
    let output = finish(unisono(["run", "-n", "2", script.to_str().unwrap(), "-x", "1"]));
    assert_eq!(sorted_lines(&output), ["[0] 0 ['-x', '1']", "[1] 1 ['-x', '1']"], "{}", text(&output.stderr));
}

#[test]
fn a_full_disk_is_an_error() {
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let experiment = concat!(env!("CARGO_MANIFEST_DIR"), "/../experiments/iris.yaml");
    for arguments in [
        &["schema"][..],
        &["schema", "--help"],
        &["grad", experiment, "--tries", "1"],
        &["run", "-n", "2", "echo", "hello"],
        &["run", "-n", "2", "-q", "yes"],
    ] {
        let mut command = unisono(arguments);
        let child = command.stdout(full()).stderr(std::process::Stdio::piped()).spawn().unwrap();
        let output = finish_child(child);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {errors}");
        assert_eq!(errors.matches("No space left on device").count(), 1, "{arguments:?}: {errors}");
    }
}

#[test]
fn a_closed_output_pipe_ends_the_job() {
    let mut child = run_shell(&["-n", "2"], "yes").stdout(std::process::Stdio::piped()).spawn().unwrap();
    await_lines(&mut child, 2, |line| line.ends_with("] y\n"));
    drop(child.stdout.take());
    eventually("the end of the job", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(141));
}

#[test]
fn shells_can_read_completions_and_manual_pages_name_every_option() {
    for shell in ["bash", "zsh", "fish"] {
        let output = finish(unisono(["completions", shell]));
        let script = text(&output.stdout);
        assert!(
            output.status.success() && script.contains("restart") && script.contains("doctor"),
            "{shell}"
        );
        assert!(!script.contains("reaper"), "{shell}: a command of the launcher itself");
    }
    let script = text(&finish(unisono(["completions", "bash"])).stdout).to_string();
    let mut complete = std::process::Command::new("bash");
    let wanted =
        "COMP_WORDS=(unisono do); COMP_CWORD=1; _unisono unisono do unisono; echo \"${COMPREPLY[*]}\"";
    complete.args(["-c", &format!("{script}\n{wanted}")]);
    assert_eq!(text(&finish(complete).stdout), "doctor\n");

    let page = finish(unisono(["man", "run"]));
    assert!(text(&page.stdout).contains("unisono\\-run") && text(&page.stdout).contains("\\-\\-restart"));
    let all = finish(unisono(["man"]));
    assert!(text(&all.stdout).contains("unisono\\-train(1)") && !text(&all.stdout).contains("reaper"));
    let unknown = finish(unisono(["man", "fly"]));
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("expected one of init, run, train"), "{}", text(&unknown.stderr));
}

#[test]
fn manual_pages_are_written_for_the_program_and_every_command() {
    let folder = Folder::new();
    let written = folder.0.join("man");
    let output = finish(unisono(["man".as_ref(), "--out".as_ref(), written.as_os_str()]));
    assert!(output.status.success() && output.stdout.is_empty(), "{}", text(&output.stderr));
    let program = text(&finish(unisono(["man"])).stdout);
    let mut names: Vec<String> = std::fs::read_dir(&written)
        .unwrap()
        .map(|file| text(file.unwrap().file_name().as_encoded_bytes()))
        .collect();
    names.sort();
    for name in &names {
        let listed = name.strip_suffix(".1").unwrap().replace('-', "\\-");
        assert!(program.contains(&listed), "{name} is not in the page of the program");
    }
    for name in ["unisono.1", "unisono-run.1", "unisono-train.1", "unisono-man.1"] {
        assert!(names.contains(&name.to_string()), "{names:?}");
    }
    let page = std::fs::read(written.join("unisono-run.1")).unwrap();
    assert_eq!(page, finish(unisono(["man", "run"])).stdout);

    let blocked = finish(unisono(["man".as_ref(), "--out".as_ref(), written.join("unisono.1").as_os_str()]));
    assert_eq!(blocked.status.code(), Some(2));
    assert!(text(&blocked.stderr).contains("unisono.1"), "{}", text(&blocked.stderr));
}
