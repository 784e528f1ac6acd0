//! NVIDIA's Multi-Process Service (MPS) for one job: kernels of ranks that share a device run concurrently.
//!
//! The control daemon runs in the foreground as a child of the launcher, like a rank. It starts a server when the first rank
//! uses a device. Daemon and server write only to one private folder, which is removed with the job.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

use super::rank::{bind_to_launcher, find_program};
use super::{Termination, processes};

/// The variable that tells MPS clients in which folder the daemon listens.
pub(crate) const PIPE_VARIABLE: &str = "CUDA_MPS_PIPE_DIRECTORY";
const LOG_VARIABLE: &str = "CUDA_MPS_LOG_DIRECTORY";
const DEVICES_VARIABLE: &str = "CUDA_VISIBLE_DEVICES";
/// The control daemon; without arguments the same program is the client that sends it commands.
pub(crate) const PROGRAM: &str = "nvidia-cuda-mps-control";
/// Folders where drivers install it, searched after PATH.
pub(crate) const FOLDERS: [&str; 2] = ["/usr/local/nvidia/bin", "/usr/bin"];
/// Log of the daemon's standard output and error, in addition to the logs that it writes itself.
const OUTPUT: &str = "output.log";
/// Number of lines shown from the end of each log.
const TAIL_LINES: usize = 10;
/// Maximum length, in bytes, of the parent folder's path: socket paths in the folder must stay below 108 bytes.
const MAX_PARENT_LENGTH: usize = 40;

/// The path of the control daemon, if it is installed.
pub(crate) fn find() -> Option<PathBuf> {
    let usual =
        || FOLDERS.iter().find_map(|folder| find_program(Path::new(folder).join(PROGRAM).as_os_str()));
    find_program(OsStr::new(PROGRAM)).or_else(usual)
}

/// Whether a daemon listens, or has listened, in this folder.
pub(crate) fn has_daemon(folder: &Path) -> bool {
    folder.join("control").exists()
}

/// A daemon, its folder, and how it exited.
pub(super) struct Mps {
    program: PathBuf,
    folder: String,
    marker: (String, String),
    pub(super) pid: Pid,
    pub(super) ended: Option<Termination>,
    /// Whether the daemon was asked to quit.
    pub(super) quitting: bool,
}

impl Mps {
    /// Starts a daemon that dies with the launcher. `marker` identifies the job in the environment of the daemon and its server.
    pub(super) fn start(program: &Path, folder: String, marker: (String, String)) -> io::Result<Mps> {
        let output = File::create(Path::new(&folder).join(OUTPUT))?;
        let mut command = command(program, &folder, &marker);
        command.arg("-f").stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let pid = Pid::from_child(&command.spawn()?);
        Ok(Mps { program: program.into(), folder, marker, pid, ended: None, quitting: false })
    }

    /// The environment variables that make a rank use this daemon.
    pub(super) fn variables(&self) -> [(OsString, OsString); 2] {
        [PIPE_VARIABLE, LOG_VARIABLE].map(|name| (name.into(), OsString::from(&self.folder)))
    }

    pub(super) fn folder(&self) -> &Path {
        Path::new(&self.folder)
    }

    pub(super) fn is_up(&self) -> bool {
        self.ended.is_none() && has_daemon(self.folder())
    }

    /// Asks the daemon to quit, through its own client program, without waiting for it.
    pub(super) fn ask_to_quit(&mut self) -> io::Result<()> {
        self.quitting = true;
        let mut command = command(&self.program, &self.folder, &self.marker);
        let mut client = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        client.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?.write_all(b"quit\n")
    }

    /// All processes started with this daemon's folder: the daemon, its server, and descendants of ranks that escaped.
    pub(super) fn processes(&self) -> Vec<Pid> {
        processes::with_environment(format!("{PIPE_VARIABLE}={}", self.folder).as_bytes())
    }

    /// Kills the daemon's process group, unless the daemon was reaped: its process group id may then have been reused.
    pub(super) fn kill(&mut self) {
        self.quitting = true;
        if self.ended.is_none() {
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
    }

    /// The last lines of the daemon's logs, as a sentence.
    pub(super) fn log_tail(&self) -> String {
        let mut shown = String::new();
        for name in ["control.log", "server.log", OUTPUT] {
            let log = fs::read(self.folder().join(name)).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            let lines: Vec<&str> = log.lines().collect();
            for line in &lines[lines.len().saturating_sub(TAIL_LINES)..] {
                shown += &format!("\n    {line}");
            }
        }
        match shown.is_empty() {
            true => "It wrote nothing".into(),
            false => format!("Its last lines:{shown}"),
        }
    }
}

/// The program in the environment of a daemon's folder, in its own process group: Ctrl-C must reach the launcher only.
fn command(program: &Path, folder: &str, marker: &(String, String)) -> Command {
    let mut command = Command::new(program);
    command.env(PIPE_VARIABLE, folder).env(LOG_VARIABLE, folder).env(&marker.0, &marker.1).process_group(0);
    // A server numbers its visible devices from 0, and ranks index into that list: a device number would be applied twice.
    if std::env::var_os(DEVICES_VARIABLE).is_some_and(|devices| !are_uuids(&devices)) {
        command.env_remove(DEVICES_VARIABLE);
    }
    bind_to_launcher(&mut command);
    command
}

/// Whether devices are given by UUID, which has the same meaning in every process.
fn are_uuids(devices: &OsStr) -> bool {
    let is_uuid = |name: &str| name.starts_with("GPU-") || name.starts_with("MIG-");
    devices.to_str().is_some_and(|devices| devices.split(',').map(str::trim).all(is_uuid))
}

/// Creates a folder that only this user can access, with a path short enough for sockets.
pub(super) fn private_folder() -> io::Result<String> {
    let is_short =
        |path: &String| path.starts_with('/') && path.len() <= MAX_PARENT_LENGTH && !path.contains('\n');
    let asked = std::env::temp_dir().into_os_string().into_string().ok();
    let parent = asked.filter(is_short).unwrap_or_else(|| "/tmp".into());
    let parent = parent.trim_end_matches('/');
    let pid = std::process::id();
    let mut last = io::ErrorKind::AlreadyExists.into();
    // A previous process with the same process id may have left a folder.
    for attempt in 0..100 {
        let folder = format!("{parent}/unisono-mps-{pid}-{attempt}");
        match DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_devices_are_passed_on() {
        assert!(are_uuids(OsStr::new("GPU-1a2b, MIG-3c")));
        assert!(
            !are_uuids(OsStr::new("0")) && !are_uuids(OsStr::new("GPU-1a,1")) && !are_uuids(OsStr::new(""))
        );
    }

    #[test]
    fn folders_are_private_and_differ() {
        let (one, other) = (private_folder().unwrap(), private_folder().unwrap());
        let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&one).unwrap());
        for folder in [&one, &other] {
            fs::remove_dir(folder).unwrap();
        }
        assert_ne!(one, other);
        assert_eq!(mode & 0o777, 0o700);
    }
}
