//! Storage backends for checkpoints: a folder, memory, or an object store, behind one small interface.

#[cfg(feature = "cloud")]
mod cloud;
mod folder;
mod objects;
mod runtime;

use std::path::PathBuf;

use crate::error::{Error, Result};

/// A flat set of files.
pub(super) trait CheckpointStore: Send + Sync {
    /// The location of the file with this name, for error messages.
    fn location(&self, name: &str) -> String;

    /// The preferred number of bytes per read or write.
    fn chunk(&self) -> usize;

    /// Starts writing a file, which becomes visible only when it is finished.
    fn create(&self, file: NewFile) -> Result<Box<dyn Upload + '_>>;

    /// Opens the file with this name; `None` if it does not exist.
    fn open(&self, name: &str) -> Result<Option<Box<dyn Blob>>>;

    /// The names of all files.
    fn names(&self) -> Result<Vec<String>>;

    fn remove(&self, name: &str) -> Result<()>;
}

/// A file to be created.
pub(super) struct NewFile<'a> {
    pub name: &'a str,
    /// The name it may have until it is complete.
    pub partial: &'a str,
    /// The number of bytes that will be written.
    pub bytes: u64,
    /// Whether it may replace an existing file.
    pub replace: bool,
}

/// A file that is being written. If it is dropped unfinished, nothing is left behind.
pub(super) trait Upload {
    fn write(&mut self, bytes: &[u8]) -> Result<()>;

    /// When this returns, the file is visible and survives a power failure.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// A file that is being read.
pub(super) trait Blob: Send + Sync {
    fn length(&self) -> u64;

    /// Fills `out` from `offset` on; an error if the file is too short.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()>;
}

/// The store for a path or URL.
pub(super) fn open_store(operation: &'static str, target: &str) -> Result<Box<dyn CheckpointStore>> {
    let unknown = |received: String| {
        let expected = "a path, or a URL that begins with file://, memory://, s3://, gs:// or az://";
        Error::usage(operation, expected, received, "name the folder of the checkpoint")
    };
    match target.split_once("://") {
        None if target.is_empty() => Err(unknown("an empty one".into())),
        None => Ok(Box::new(folder::FolderStore::new(operation, PathBuf::from(target)))),
        Some(("file", rest)) => {
            let path = file_path(rest).ok_or_else(|| unknown(format!("`{target}`")))?;
            Ok(Box::new(folder::FolderStore::new(operation, path)))
        }
        Some(("memory", rest)) => Ok(Box::new(objects::Objects::in_memory(operation, target, rest)?)),
        Some(("s3" | "gs" | "az", _)) => cloud(operation, target),
        Some(_) => Err(unknown(format!("`{target}`"))),
    }
}

#[cfg(feature = "cloud")]
fn cloud(operation: &'static str, target: &str) -> Result<Box<dyn CheckpointStore>> {
    Ok(Box::new(cloud::connect(operation, target)?))
}

#[cfg(not(feature = "cloud"))]
fn cloud(operation: &'static str, target: &str) -> Result<Box<dyn CheckpointStore>> {
    Err(Error::unsupported(
        operation,
        format!("this build of unisono cannot reach `{target}`"),
        "use a path, or build it with the feature `cloud`: \
         pip install ./bindings/python --config-settings=build-args=\"--features cloud\", \
         make lib FEATURES=cloud, or --features cloud for cargo",
    ))
}

/// The path of a `file://` URL: on this host, absolute, percent-decoded.
fn file_path(rest: &str) -> Option<PathBuf> {
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    if !path.starts_with('/') {
        return None;
    }
    let mut bytes = Vec::with_capacity(path.len());
    let mut parts = path.split('%');
    bytes.extend_from_slice(parts.next()?.as_bytes());
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok().filter(|byte| *byte != 0)?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    Some(PathBuf::from(<std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(bytes)))
}

#[test]
fn file_urls_are_absolute_paths() {
    let path = |rest| file_path(rest).map(|path| path.to_string_lossy().into_owned());
    assert_eq!(path("/a/b%20c").as_deref(), Some("/a/b c"));
    assert_eq!(path("localhost/a").as_deref(), Some("/a"));
    for wrong in ["a/b", "elsewhere/a", "", "/a%2", "/a%zz", "/a%00", "/a%+1"] {
        assert_eq!(path(wrong), None, "{wrong}");
    }
}
