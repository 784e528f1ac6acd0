//! The files of a run's folder: the names that belong to a run, and how they are written.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use unisono::{Error, Result};

/// All files that a run may write, except for its checkpoints and TensorBoard's event file.
const NAMES: &[&str] = &[
    "experiment.yaml",
    "metrics.csv",
    "metrics.jsonl",
    "batches.csv",
    "loss.svg",
    "filters.png",
    "reconstructions.png",
    "spot_check.csv",
    "stimuli.png",
];

/// The name of the checkpoint folder in a run's folder.
pub(super) const CHECKPOINTS: &str = "checkpoints";
const EVENTS: &str = "events.out.tfevents.";
const EVENTS_SUFFIX: &str = ".unisono";
const PARTIAL_SUFFIX: &str = ".part";

/// The name of the checkpoint after this number of epochs.
pub(super) fn checkpoint_name(epochs: usize) -> String {
    format!("epoch-{epochs:06}.safetensors")
}

/// The number of epochs in the name of a checkpoint; `None` for names that no run uses.
fn epochs_of(name: &str) -> Option<usize> {
    let epochs = name.strip_prefix("epoch-")?.strip_suffix(".safetensors")?.parse().ok()?;
    (checkpoint_name(epochs) == name).then_some(epochs)
}

/// The name of the event file of a run that started at this time, in seconds since 1970.
pub(super) fn events_name(seconds: u64) -> String {
    format!("{EVENTS}{seconds:010}{EVENTS_SUFFIX}")
}

fn is_events(name: &str) -> bool {
    name.starts_with(EVENTS) && name.ends_with(EVENTS_SUFFIX)
}

/// The sorted names in a folder; empty if there is no folder. Names that are not UTF-8 never belong to a run.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// The checkpoints of a folder, oldest first. All other files are ignored.
pub(super) fn saved(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<(usize, String)> =
        names(folder).into_iter().filter_map(|name| Some((epochs_of(&name)?, name))).collect();
    found.sort();
    found.into_iter().map(|(_, name)| folder.join(name)).collect()
}

/// The event files of runs in a folder, oldest first.
pub(super) fn saved_events(folder: &Path) -> Vec<PathBuf> {
    names(folder).into_iter().filter(|name| is_events(name)).map(|name| folder.join(name)).collect()
}

/// The files of a folder that a run would write, or has written.
pub(super) fn existing_run_files(folder: &Path) -> Vec<String> {
    let is_own = |name: &String| NAMES.contains(&name.as_str()) || is_events(name);
    let checkpoints = names(&folder.join(CHECKPOINTS)).into_iter().filter(|name| epochs_of(name).is_some());
    let checkpoints = checkpoints.map(|name| format!("{CHECKPOINTS}/{name}"));
    names(folder).into_iter().filter(is_own).chain(checkpoints).collect()
}

/// A temporary path with the process id as suffix, so that concurrent processes use different names.
fn partial_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".{}{PARTIAL_SUFFIX}", std::process::id()));
    name.into()
}

/// Removes the partial files that a killed process left in a run's folder.
pub(super) fn remove_partial_files(folder: &Path) {
    let whole = |name: &str| -> Option<String> {
        let (whole, process) = name.strip_suffix(PARTIAL_SUFFIX)?.rsplit_once('.')?;
        process.bytes().all(|digit| digit.is_ascii_digit()).then(|| whole.to_string())
    };
    for (folder, is_own) in [
        (folder.to_path_buf(), (|name| NAMES.contains(&name)) as fn(&str) -> bool),
        (folder.join(CHECKPOINTS), |name| epochs_of(name).is_some()),
    ] {
        for name in names(&folder).into_iter().filter(|name| whole(name).is_some_and(|name| is_own(&name))) {
            // A file that cannot be removed does no harm.
            let _ = std::fs::remove_file(folder.join(name));
        }
    }
}

/// Writes a file atomically: to a temporary file, synced to disk, then renamed. Only a regular file is replaced: a symbolic
/// link is followed, and a pipe or a device is written to directly.
pub(super) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    let is_link = |path: &Path| path.symlink_metadata().is_ok_and(|found| found.is_symlink());
    // A link to a pipe of this process, or to a file that does not exist yet, has no canonical path.
    let target = if is_link(path) { path.canonicalize() } else { Ok(path.to_path_buf()) };
    let target = target.unwrap_or_else(|_| path.to_path_buf());
    let replaceable = match target.symlink_metadata() {
        Ok(found) => found.is_file(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    };
    if !replaceable {
        return write_through(&target, bytes).map_err(|error| write_error(path, error));
    }
    let partial = partial_path(&target);
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&partial)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&partial, &target)
    };
    write().map_err(|error| {
        // Only the first error is reported.
        let _ = std::fs::remove_file(&partial);
        write_error(path, error)
    })
}

/// Writes to a pipe or a device. A pipe without a reader is an error, because opening it would block.
fn write_through(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut options = File::options();
    options.write(true).create(true).truncate(true).custom_flags(nonblocking);
    let mut file = options.open(path)?;
    rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::empty())?;
    file.write_all(bytes)
}

/// Appends to a file and syncs it to disk. A process that is killed in between may leave half a line.
pub(super) fn append(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let mut file = File::options().append(true).create(true).open(path)?;
        file.write_all(bytes)?;
        file.sync_data()
    };
    write().map_err(|error| write_error(path, error))
}

fn write_error(path: &Path, error: std::io::Error) -> Error {
    Error::io("write", path.display().to_string(), error, "make room, or give another --out")
}

/// Locks a run's folder for this process, until the returned file is dropped or the process ends. File systems without locks
/// provide no exclusion.
pub(super) fn lock(folder: &Path) -> Result<File> {
    let path = folder.join(".lock");
    let failed = |error| Error::io("lock", path.display().to_string(), error, "give another --out");
    let file = File::options().append(true).create(true).open(&path).map_err(failed)?;
    match file.try_lock() {
        Err(std::fs::TryLockError::WouldBlock) => {
            let received = format!("{}, which another process is writing to", folder.display());
            let advice = "wait until it ends, or give another --out";
            Err(Error::usage("train", "a folder of its own", received, advice))
        }
        Ok(()) | Err(std::fs::TryLockError::Error(_)) => Ok(file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_a_run_gives_are_its_own() {
        assert_eq!(
            [7, 1_234_567].map(|epochs| epochs_of(&checkpoint_name(epochs))),
            [Some(7), Some(1_234_567)]
        );
        for foreign in ["best", "epoch-7", "epoch-000007a", "epoch-+00007", "epoch-0000007", "epoch-"] {
            assert_eq!(epochs_of(&format!("{foreign}.safetensors")), None, "{foreign}");
        }
        assert_eq!(epochs_of("epoch-000007.safetensors.12.part"), None);
        assert!(is_events(&events_name(1)) && !is_events("events.out.tfevents.1.host"));
    }

    #[test]
    fn only_regular_files_are_replaced() {
        let folder = std::env::temp_dir().join(format!("unisono-whole-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        let [file, link, dangling, pipe] = ["file", "link", "dangling", "pipe"].map(|name| folder.join(name));
        std::fs::write(&file, "old").expect("it can be written");
        std::os::unix::fs::symlink("file", &link).expect("a link can be made");
        std::os::unix::fs::symlink("new", &dangling).expect("a link can be made");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).expect("a pipe can be made");
        write_atomically(&link, b"through the link").expect("the file behind it can be written");
        assert_eq!(std::fs::read(&file).expect("it is there"), b"through the link");
        write_atomically(&dangling, b"made").expect("the file that it names can be made");
        assert_eq!(std::fs::read(folder.join("new")).expect("it was made"), b"made");
        assert!(
            [&link, &dangling]
                .iter()
                .all(|link| link.symlink_metadata().is_ok_and(|found| found.is_symlink()))
        );
        assert!(write_atomically(&pipe, b"unread").is_err(), "no process reads the pipe");
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || std::fs::read(pipe)
        });
        // The reader may not have opened its end yet.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while write_atomically(&pipe, b"read").is_err() {
            assert!(std::time::Instant::now() < deadline, "the reader never came");
            std::thread::yield_now();
        }
        assert_eq!(reader.join().expect("it ended").expect("it read"), b"read");
        assert!(!pipe.is_file(), "the pipe is still one");
        std::fs::remove_dir_all(&folder).expect("it can be removed");
    }

    #[test]
    fn checkpoints_are_sorted_by_their_epochs_and_halves_are_removed() {
        let folder = std::env::temp_dir().join(format!("unisono-files-{}", std::process::id()));
        let checkpoints = folder.join(CHECKPOINTS);
        std::fs::create_dir_all(&checkpoints).expect("a folder can be made");
        let (old, new) = (checkpoint_name(999_999), checkpoint_name(1_000_000));
        for name in [&new, &old, "zzz.safetensors", "epoch-000003.safetensors.8.part", "mine.8.part"] {
            std::fs::write(checkpoints.join(name), b"").expect("it can be written");
        }
        assert_eq!(saved(&checkpoints), [checkpoints.join(&old), checkpoints.join(&new)]);
        remove_partial_files(&folder);
        let mut expected = vec![new, old, "mine.8.part".into(), "zzz.safetensors".into()];
        expected.sort();
        assert_eq!(names(&checkpoints), expected);
        std::fs::remove_dir_all(&folder).expect("it can be removed");
    }
}
