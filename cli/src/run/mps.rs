//! Chooses the Multi-Process Service for `--mps`: an existing daemon, or one started for the job.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::launcher::mps::{FOLDERS, PIPE_VARIABLE, PROGRAM, find, has_daemon};

/// The daemon that `--mps` selects.
pub(super) enum Service {
    /// A daemon started for the job, with this program.
    Own(PathBuf),
    /// The daemon that the environment names, which may not be running; the text is a message for the user.
    Shared(String),
}

impl Service {
    /// Chooses by the environment of the ranks: that of this process, overridden by the user's options. The error is a
    /// message for the user.
    pub(super) fn choose(asked: &[(OsString, OsString)]) -> Result<Service, String> {
        let asked =
            asked.iter().rev().find(|(name, _)| name == PIPE_VARIABLE).map(|(_, value)| value.clone());
        let folder = asked.or_else(|| std::env::var_os(PIPE_VARIABLE)).filter(|folder| !folder.is_empty());
        if let Some(folder) = folder {
            let folder = Path::new(&folder);
            let is = format!("--mps: {PIPE_VARIABLE} is {}", folder.display());
            return Ok(Service::Shared(match has_daemon(folder) {
                true => format!("{is}: ranks use the daemon there"),
                false => format!(
                    "{is}, but no daemon is there: start it, or unset the variable for one of the job's own"
                ),
            }));
        }
        find().map(Service::Own).ok_or_else(|| {
            let places = FOLDERS.join(" or ");
            format!("--mps needs {PROGRAM}, which is not on PATH nor in {places}; it comes with NVIDIA's driver. Run without --mps: ranks that share a device then take turns")
        })
    }

    /// The program to start, if any.
    pub(super) fn program(self) -> Option<PathBuf> {
        match self {
            Service::Own(program) => Some(program),
            Service::Shared(_) => None,
        }
    }
}
