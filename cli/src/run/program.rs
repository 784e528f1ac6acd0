//! Resolves the program that the user named to a command line.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::launcher::find_program;

/// Exit status of a shell if the program does not exist.
pub(crate) const NOT_FOUND: i32 = 127;

/// The command line of a rank: the program itself, run by Python if it is a `.py` file. The error is a message for the
/// user.
pub(crate) fn command_line(program: &[OsString], this_program: &[OsString]) -> Result<Vec<OsString>, String> {
    let name = &program[0];
    let path = Path::new(name);
    if path.extension() == Some(OsStr::new("py")) {
        if !path.is_file() {
            return Err(format!("program {} not found", path.display()));
        }
        let python = python(this_program)
            .ok_or_else(|| format!("{} needs Python, but there is no python3 on PATH; install Python, or activate its virtual environment", path.display()))?;
        return Ok(std::iter::once(python.into_os_string()).chain(program.iter().cloned()).collect());
    }
    if find_program(name).is_some() {
        return Ok(program.to_vec());
    }
    let hint = match path.is_file() && path.components().count() == 1 {
        true => format!("; to start the file in this folder, write ./{}", path.display()),
        false => String::new(),
    };
    Err(format!("program {} not found{hint}", path.display()))
}

/// The current Python: the one that runs this program, else the active virtual environment's, else the first on PATH.
pub(crate) fn python(this_program: &[OsString]) -> Option<PathBuf> {
    let own = this_program.first().map(PathBuf::from).filter(|path| is_python(path));
    let active = || std::env::var_os("VIRTUAL_ENV").map(|folder| Path::new(&folder).join("bin/python"));
    own.or_else(|| active().filter(|path| path.is_file()))
        .or_else(|| find_program(OsStr::new("python3")))
        .or_else(|| find_program(OsStr::new("python")))
}

fn is_python(path: &Path) -> bool {
    path.file_name()
        .and_then(OsStr::to_str)
        .is_some_and(|name| name.starts_with("python") || name.starts_with("pypy"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_python_that_runs_us_comes_first() {
        let ours = [OsString::from("/env/bin/python3.11"), "-m".into(), "unisono".into()];
        assert_eq!(python(&ours), Some(PathBuf::from("/env/bin/python3.11")));
        assert_ne!(python(&["/usr/bin/unisono".into()]), Some(PathBuf::from("/usr/bin/unisono")));
    }
}
