//! `unisono init`: writes a small project to start from, and never changes an existing file.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use unisono::{Error, Result};

use crate::stdout;

#[derive(Args)]
pub(crate) struct InitArgs {
    /// The folder of the project; it is created if it does not exist.
    folder: PathBuf,
}

/// The files of a project. In their text, `PROJECT` is the name of its folder.
const FILES: [(&str, &str); 4] = [
    ("README.md", include_str!("README.md")),
    ("train.py", include_str!("train.py")),
    ("digits.yaml", include_str!("digits.yaml")),
    (".gitignore", include_str!("gitignore")),
];

/// Writes a project; returns the exit status.
pub(crate) fn init(options: &InitArgs) -> i32 {
    let folder = &options.folder;
    match create(folder) {
        Ok(()) => {
            stdout::line(format_args!(
                "created {} in {}",
                FILES.map(|(name, _)| name).join(", "),
                folder.display()
            ));
            stdout::line("start there with: unisono run -n 2 -- train.py");
            0
        }
        Err(error) => crate::train::failed(&error),
    }
}

/// Writes all files, or none.
fn create(folder: &Path) -> Result<()> {
    let existing: Vec<String> = FILES
        .iter()
        .map(|(name, _)| folder.join(name))
        .filter(|path| path.symlink_metadata().is_ok())
        .map(|path| path.display().to_string())
        .collect();
    if !existing.is_empty() {
        let advice = "choose another folder, or move what is there";
        return Err(Error::usage("init", "a folder without these files", existing.join(", "), advice));
    }
    let missing: Vec<&Path> =
        folder.ancestors().filter(|path| !path.as_os_str().is_empty() && !path.exists()).collect();
    let mut written = Vec::new();
    write_all(folder, &mut written).map_err(|error| {
        // Only what this call created: a file that appeared meanwhile belongs to another program.
        for path in &written {
            let _ = fs::remove_file(path);
        }
        for path in &missing {
            let _ = fs::remove_dir(path);
        }
        let what = format!("creating a project in {}", folder.display());
        Error::io("init", what, error, "nothing was changed; choose a new folder that you can write to")
    })
}

/// Writes all files and records each before its text is written.
fn write_all(folder: &Path, written: &mut Vec<PathBuf>) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let absolute = folder.canonicalize()?;
    let name = absolute.file_name().unwrap_or("project".as_ref()).to_string_lossy();
    for (file, text) in FILES {
        let path = folder.join(file);
        let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        written.push(path);
        file.write_all(text.replace("PROJECT", &name).as_bytes())?;
    }
    Ok(())
}
