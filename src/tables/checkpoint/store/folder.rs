//! Checkpoints in a folder of the file system.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::{Blob, CheckpointStore, NewFile, Upload};
use crate::error::{Error, Result};

/// Bytes per read or write: large enough for throughput, small enough to stay in a CPU cache.
const CHUNK_BYTES: usize = 1 << 20;

pub(super) struct FolderStore {
    operation: &'static str,
    path: PathBuf,
}

impl FolderStore {
    pub(super) fn new(operation: &'static str, path: PathBuf) -> FolderStore {
        FolderStore { operation, path }
    }

    fn error(&self, path: &Path) -> impl Fn(io::Error) -> Error + use<> {
        let (operation, location) = (self.operation, path.display().to_string());
        move |error| {
            let advice = match error.kind() {
                ErrorKind::NotFound => "check the path",
                ErrorKind::NotADirectory | ErrorKind::AlreadyExists => "name a folder of its own",
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "make room, or name another folder",
                _ => "check that this process may read and write the folder",
            };
            Error::io(operation, location.clone(), error, advice)
        }
    }
}

impl CheckpointStore for FolderStore {
    fn location(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }

    fn chunk(&self) -> usize {
        CHUNK_BYTES
    }

    fn create(&self, file: NewFile) -> Result<Box<dyn Upload + '_>> {
        let error = self.error(&self.path);
        let missing: Vec<&Path> = self.path.ancestors().take_while(|path| !path.is_dir()).collect();
        fs::create_dir_all(&self.path).map_err(&error)?;
        for path in missing.into_iter().filter_map(Path::parent) {
            let here = if path.as_os_str().is_empty() { Path::new(".") } else { path };
            sync_folder(here).map_err(&error)?;
        }
        let target = self.path.join(file.name);
        if !file.replace && target.try_exists().map_err(&error)? {
            return Err(self.error(&target)(ErrorKind::AlreadyExists.into()));
        }
        let partial = self.path.join(file.partial);
        let created = OpenOptions::new().write(true).create_new(true).open(&partial);
        let file = created.map_err(self.error(&partial))?;
        Ok(Box::new(PartialFile { folder: self, file, partial, target, finished: false }))
    }

    fn open(&self, name: &str) -> Result<Option<Box<dyn Blob>>> {
        let path = self.path.join(name);
        let error = self.error(&path);
        // Check the file type before opening: opening a pipe would block until it has a writer.
        let kind = match fs::metadata(&path) {
            Ok(found) => found,
            Err(missing) if missing.kind() == ErrorKind::NotFound => return Ok(None),
            Err(other) => return Err(error(other)),
        };
        if !kind.is_file() {
            return Err(error(io::Error::new(ErrorKind::InvalidInput, "it is not a file")));
        }
        let file = File::open(&path).map_err(&error)?;
        let length = file.metadata().map_err(&error)?.len();
        Ok(Some(Box::new(FileBlob { operation: self.operation, path, file, length })))
    }

    fn names(&self) -> Result<Vec<String>> {
        let error = self.error(&self.path);
        let entries = match fs::read_dir(&self.path) {
            Err(missing) if missing.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(&error)?,
        };
        let names = entries.map(|entry| Ok(entry.map_err(&error)?.file_name().into_string().ok()));
        names.filter_map(Result::transpose).collect()
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.path.join(name);
        fs::remove_file(&path).map_err(self.error(&path))
    }
}

/// A file under its temporary name.
struct PartialFile<'a> {
    folder: &'a FolderStore,
    file: File,
    partial: PathBuf,
    target: PathBuf,
    finished: bool,
}

impl Upload for PartialFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(self.folder.error(&self.partial))
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        let error = self.folder.error(&self.target);
        self.file.sync_all().map_err(&error)?;
        fs::rename(&self.partial, &self.target).map_err(&error)?;
        self.finished = true;
        sync_folder(&self.folder.path).map_err(&error)
    }
}

impl Drop for PartialFile<'_> {
    fn drop(&mut self) {
        if !self.finished {
            // If this fails too, the next successful save removes the file.
            let _ = fs::remove_file(&self.partial);
        }
    }
}

/// Makes directory entries durable; some file systems need no such call and reject it.
fn sync_folder(path: &Path) -> io::Result<()> {
    match File::open(path)?.sync_all() {
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => Ok(()),
        other => other,
    }
}

/// An open file: it stays readable even if a later save unlinks it.
struct FileBlob {
    operation: &'static str,
    path: PathBuf,
    file: File,
    length: u64,
}

impl Blob for FileBlob {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(out, offset).map_err(|error| {
            let location = format!("{} from byte {offset} on", self.path.display());
            Error::io(
                self.operation,
                location,
                error,
                "check the disk, and that nothing else writes this file",
            )
        })
    }
}
