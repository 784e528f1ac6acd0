//! `unisono init`: its project works, and no existing file is ever changed.

mod common;

use common::*;
use std::fs;
use std::path::Path;

const NAMES: [&str; 4] = [".gitignore", "README.md", "digits.yaml", "train.py"];

/// Runs `unisono init` and returns its exit status and its errors.
fn init(folder: &Path) -> (Option<i32>, String) {
    let output = finish(unisono(["init".as_ref(), folder.as_os_str()]));
    (output.status.code(), text(&output.stderr))
}

/// The names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn the_experiment_of_a_project_runs() {
    let folder = Folder::new();
    let project = folder.0.join("some/where/myproject");
    assert_eq!(init(&project).0, Some(0));
    assert_eq!(names(&project), NAMES);
    let readme = fs::read_to_string(project.join("README.md")).unwrap();
    assert!(readme.starts_with("# myproject\n"), "{readme}");
    // The script needs Python: tests/python runs the whole page.
    let experiments = ["unisono train", "unisono check", "unisono predict"];
    let commands: Vec<&str> =
        readme.lines().filter(|line| experiments.iter().any(|begin| line.starts_with(begin))).collect();
    assert_eq!(commands.len(), 3, "{readme}");
    for line in commands {
        let words = line.split(" #").next().unwrap().split_whitespace().skip(1);
        let mut command = unisono(words);
        command.current_dir(&project);
        let output = finish(command);
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
    }
    assert!(project.join("runs/digits/metrics.csv").is_file());
}

#[test]
fn files_of_others_stay_as_they_are() {
    for name in NAMES {
        let folder = Folder::new();
        let file = folder.0.join(name);
        fs::write(&file, "mine").unwrap();
        let (status, errors) = init(&folder.0);
        assert_eq!(status, Some(2), "{name}");
        assert!(errors.contains(name) && errors.contains("choose another folder"), "{errors}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
        assert_eq!(names(&folder.0), [name], "nothing is written beside it");
        // A link is a file, too, even if it leads nowhere, or elsewhere.
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink(folder.0.join("target"), &file).unwrap();
        assert_eq!(init(&folder.0).0, Some(2), "{name}");
        assert_eq!(names(&folder.0), [name], "nothing is written through a link");
    }
}

#[test]
fn a_folder_with_other_files_gets_a_project_once() {
    let folder = Folder::new();
    fs::write(folder.0.join("notes.txt"), "mine").unwrap();
    assert_eq!(init(&folder.0).0, Some(0));
    let script = folder.0.join("train.py");
    fs::write(&script, "changed").unwrap();
    let (status, errors) = init(&folder.0);
    assert_eq!(status, Some(2));
    assert!(NAMES.iter().all(|name| errors.contains(name)), "{errors}");
    assert_eq!(fs::read_to_string(&script).unwrap(), "changed");
    assert_eq!(fs::read_to_string(folder.0.join("notes.txt")).unwrap(), "mine");
}

#[test]
fn what_cannot_be_written_leaves_nothing_behind() {
    let folder = Folder::new();
    fs::write(folder.0.join("file"), "mine").unwrap();
    let (status, errors) = init(&folder.0.join("file/project"));
    assert_eq!(status, Some(2));
    assert!(errors.contains("file/project") && errors.contains("nothing was changed"), "{errors}");
    assert_eq!(names(&folder.0), ["file"]);
    // A folder whose name the file system does not take: its new parent is removed again.
    let (status, errors) = init(&folder.0.join("new").join("x".repeat(300)));
    assert_eq!(status, Some(2), "{errors}");
    assert_eq!(names(&folder.0), ["file"]);
}
