//! Checkpoints in an object store: memory for tests, and cloud stores behind the feature `cloud`.

use std::sync::{Arc, LazyLock};

use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{Error as ObjectError, MultipartUpload, ObjectStore, ObjectStoreExt};
use tokio::task::JoinSet;

use super::runtime::Runtime;
use super::{Blob, CheckpointStore, NewFile, Upload};
use crate::error::{Error, Result};

/// Bytes per request: object stores require parts of at least 5 MiB, and all but the last of equal size.
const PART_BYTES: usize = 8 << 20;
/// Maximum number of parts per object; the limit of S3 is 10,000.
const MAX_PARTS: u64 = 9_000;
/// Maximum number of concurrent requests.
const CONCURRENT_REQUESTS: usize = 4;

/// The store of `memory://`: two calls in one process must see the same objects without passing a handle between them.
static MEMORY: LazyLock<Arc<InMemory>> = LazyLock::new(Arc::default);

/// The objects under one prefix.
#[derive(Clone)]
pub(super) struct Objects {
    operation: &'static str,
    target: String,
    prefix: Path,
    store: Arc<dyn ObjectStore>,
    runtime: Arc<Runtime>,
}

impl Objects {
    pub(super) fn in_memory(operation: &'static str, target: &str, prefix: &str) -> Result<Objects> {
        Objects::new(operation, target, MEMORY.clone(), Path::from(prefix))
    }

    pub(super) fn new(
        operation: &'static str,
        target: &str,
        store: Arc<dyn ObjectStore>,
        prefix: Path,
    ) -> Result<Objects> {
        let target = target.trim_end_matches('/').into();
        Ok(Objects { operation, target, prefix, store, runtime: Arc::new(Runtime::new(operation)?) })
    }

    fn wait<F>(&self, future: F) -> Result<F::Output>
    where
        F: Future + Send,
        F::Output: Send,
    {
        self.runtime.wait(self.operation, future)
    }

    fn error(&self, name: &str, error: ObjectError) -> Error {
        let advice = "check the URL, the credentials in the environment, and the network";
        Error::io(self.operation, self.location(name), error, advice)
    }

    fn path(&self, name: &str) -> Path {
        self.prefix.clone().join(name)
    }

    fn length(&self, name: &str) -> Result<Option<u64>> {
        match self.wait(self.store.head(&self.path(name)))? {
            Ok(found) => Ok(Some(found.size)),
            Err(ObjectError::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.error(name, error)),
        }
    }
}

impl CheckpointStore for Objects {
    fn location(&self, name: &str) -> String {
        format!("{}/{name}", self.target)
    }

    fn chunk(&self) -> usize {
        CONCURRENT_REQUESTS * PART_BYTES
    }

    fn create(&self, file: NewFile) -> Result<Box<dyn Upload + '_>> {
        if !file.replace && self.length(file.name)?.is_some() {
            let location = self.location(file.name);
            let there = std::io::ErrorKind::AlreadyExists;
            return Err(Error::io(self.operation, location, there, "give every save its own id"));
        }
        let part = usize::try_from(file.bytes.div_ceil(MAX_PARTS)).unwrap_or(usize::MAX).max(PART_BYTES);
        let (objects, name, path) = (self, file.name.to_string(), self.path(file.name));
        let upload = if file.bytes > part as u64 {
            let begun = self.wait(self.store.put_multipart(&path))?;
            Some(begun.map_err(|error| self.error(file.name, error))?)
        } else {
            None
        };
        let buffer = Vec::with_capacity(part.min(file.bytes as usize));
        Ok(Box::new(MultipartWriter { objects, name, path, upload, part, buffer, tasks: JoinSet::new() }))
    }

    fn open(&self, name: &str) -> Result<Option<Box<dyn Blob>>> {
        let found = self.length(name)?;
        Ok(found.map(|length| Box::new(ObjectBlob { objects: self.clone(), name: name.into(), length }) as _))
    }

    fn names(&self) -> Result<Vec<String>> {
        let listed = self.wait(self.store.list_with_delimiter(Some(&self.prefix)))?;
        let objects = listed.map_err(|error| self.error("", error))?.objects;
        Ok(objects.iter().filter_map(|object| object.location.filename()).map(String::from).collect())
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.path(name);
        self.wait(self.store.delete(&path))?.map_err(|error| self.error(name, error))
    }
}

/// A multipart upload; a small object is sent in one request. The object becomes visible when all of it is sent.
struct MultipartWriter<'a> {
    objects: &'a Objects,
    name: String,
    path: Path,
    upload: Option<Box<dyn MultipartUpload>>,
    part: usize,
    buffer: Vec<u8>,
    tasks: JoinSet<object_store::Result<()>>,
}

impl MultipartWriter<'_> {
    /// Sends the contents of the buffer and waits until at most this many parts are in flight.
    fn send(&mut self, limit: usize) -> Result<()> {
        let Some(upload) = &mut self.upload else { return Ok(()) };
        let next =
            (!self.buffer.is_empty()).then(|| upload.put_part(std::mem::take(&mut self.buffer).into()));
        let tasks = &mut self.tasks;
        let sent = self.objects.wait(async move {
            if let Some(next) = next {
                tasks.spawn(next);
            }
            while tasks.len() > limit {
                if let Some(done) = tasks.join_next().await {
                    done.map_err(generic_error)??;
                }
            }
            Ok(())
        })?;
        sent.map_err(|error| self.objects.error(&self.name, error))
    }
}

impl Upload for MultipartWriter<'_> {
    fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at(bytes.len().min(self.part - self.buffer.len()));
            self.buffer.extend_from_slice(now);
            bytes = rest;
            if self.buffer.len() == self.part && self.upload.is_some() {
                self.send(CONCURRENT_REQUESTS - 1)?;
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.send(0)?;
        let done = match &mut self.upload {
            Some(upload) => self.objects.wait(upload.complete())?,
            None => {
                let bytes = std::mem::take(&mut self.buffer);
                self.objects.wait(self.objects.store.put(&self.path, bytes.into()))?
            }
        };
        done.map_err(|error| self.objects.error(&self.name, error))?;
        self.upload = None;
        Ok(())
    }
}

impl Drop for MultipartWriter<'_> {
    fn drop(&mut self) {
        if let Some(mut upload) = self.upload.take() {
            self.tasks.abort_all();
            // If this fails too, the store's own policy for incomplete uploads applies.
            let _ = self.objects.wait(async move { upload.abort().await });
        }
    }
}

struct ObjectBlob {
    objects: Objects,
    name: String,
    length: u64,
}

impl Blob for ObjectBlob {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let path = self.objects.path(&self.name);
        let store = &self.objects.store;
        let read = self.objects.wait(async move {
            let mut at = offset;
            for group in out.chunks_mut(CONCURRENT_REQUESTS * PART_BYTES) {
                let mut tasks = JoinSet::new();
                let mut parts: Vec<_> = group.chunks_mut(PART_BYTES).collect();
                for (number, part) in parts.iter().enumerate() {
                    let range = at..at + part.len() as u64;
                    at = range.end;
                    let (store, path) = (store.clone(), path.clone());
                    tasks.spawn(async move { (number, store.get_range(&path, range).await) });
                }
                while let Some(done) = tasks.join_next().await {
                    let (number, bytes) = done.map_err(generic_error)?;
                    let (bytes, part) = (bytes?, &mut parts[number]);
                    if bytes.len() != part.len() {
                        return Err(generic_error("it ends before its length"));
                    }
                    part.copy_from_slice(&bytes);
                }
            }
            Ok(())
        })?;
        read.map_err(|error| self.objects.error(&self.name, error))
    }
}

fn generic_error(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ObjectError {
    ObjectError::Generic { store: "unisono", source: source.into() }
}
