//! One rank as the launcher sees it: the leader of a process group and its two output pipes.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use super::{OutputStream, Termination};

pub(crate) struct RankProcess {
    pub(crate) pid: Pid,
    pipes: [Option<File>; 2],
    /// Number of times this rank was started before.
    pub(crate) restarts: usize,
    /// How the process terminated, and the time since the start of the job.
    pub(crate) ended: Option<(Termination, Duration)>,
    /// The last signal that the launcher sent to the rank.
    pub(crate) last_signal: Option<Signal>,
    /// What the rank was doing when the job began to end.
    pub(crate) activity: Option<String>,
}

impl RankProcess {
    /// Starts one rank. Must be called on a thread that lives as long as the launcher: the parent-death signal is sent when
    /// the thread that started the child exits, not when the process does.
    pub(crate) fn start(
        program: &[OsString],
        environment: &[(OsString, OsString)],
    ) -> io::Result<RankProcess> {
        let (executable, arguments) = program.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(executable);
        command
            .args(arguments)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        bind_to_launcher(&mut command);
        let mut child = command.spawn()?;
        let pipes = [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)];
        for pipe in pipes.iter().flatten() {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        // The standard library's handle is dropped: the supervisor waits for all children at once.
        let pid = Pid::from_child(&child);
        Ok(RankProcess {
            pid,
            pipes: pipes.map(|pipe| pipe.map(File::from)),
            restarts: 0,
            ended: None,
            last_signal: None,
            activity: None,
        })
    }

    pub(crate) fn alive(&self) -> bool {
        self.ended.is_none()
    }

    /// Sends a signal to the rank's process group, as a terminal would.
    pub(crate) fn send_signal(&mut self, signal: Signal) {
        // Once the process is reaped, its id may have been reused.
        if self.alive() {
            let _ = kill_process_group(self.pid, signal);
            self.last_signal = Some(signal);
        }
    }

    /// The pipes that are still open.
    pub(crate) fn open_pipes(&self) -> impl Iterator<Item = (OutputStream, BorrowedFd<'_>)> {
        let both = OutputStream::BOTH.into_iter().zip(&self.pipes);
        both.filter_map(|(stream, pipe)| Some((stream, pipe.as_ref()?.as_fd())))
    }

    /// Reads the available bytes. `None`: no data now. `Some(0)`: end of file; the pipe is closed.
    pub(crate) fn read(&mut self, stream: OutputStream, buffer: &mut [u8]) -> Option<usize> {
        let pipe = &mut self.pipes[stream as usize];
        match pipe.as_mut()?.read(buffer) {
            Ok(count @ 1..) => Some(count),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                None
            }
            Ok(0) | Err(_) => {
                *pipe = None;
                Some(0)
            }
        }
    }
}

/// Makes the child die with the launcher. As for a rank, the calling thread must live as long as the launcher.
pub(super) fn bind_to_launcher(command: &mut Command) {
    let launcher = rustix::process::getpid();
    // SAFETY: between fork and exec the closure makes two system calls; it takes no lock and allocates nothing.
    unsafe { command.pre_exec(move || die_with(launcher)) };
}

/// In the child: requests SIGKILL when the launcher dies, and fails if it has died already.
fn die_with(launcher: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    match rustix::process::getppid() == Some(launcher) {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(rustix::io::Errno::SRCH.raw_os_error())),
    }
}

/// Finds a program as a shell does: by path if the name contains a slash, otherwise in the folders of PATH.
pub(crate) fn find_program(name: &OsStr) -> Option<std::path::PathBuf> {
    let path = std::path::Path::new(name);
    if path.components().count() != 1 || name.as_encoded_bytes().contains(&b'/') {
        return path.is_file().then(|| path.to_path_buf());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|file| is_executable(file))
}

fn is_executable(file: &std::path::Path) -> bool {
    file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
}
