//! Atomically commits the parts written by all writers as one checkpoint, and removes what it replaces.

use std::collections::HashMap;

use serde_json::Value;

use super::manifest::{self, Manifest, PartManifest, StoredTensor};
use super::names::{self, MANIFEST};
use super::open::read_manifest_text;
use super::store::{CheckpointStore, NewFile, open_store};
use crate::error::{Error, Result};

/// Commits these parts as the checkpoint at `target`. Called once, after all writers are done; returns when the new checkpoint
/// would survive a power failure. Until then a reader finds the old one, also after a crash.
pub(crate) fn commit(target: &str, id: &str, parts: &[PartManifest], tables: &Value) -> Result<()> {
    names::check_id("save", id)?;
    let store = open_store("save", target)?;
    let old = reject_foreign(&*store)?;
    let content = merge(id, parts, tables)?;
    for file in &content.files {
        let found = store.open(&file.name)?.map(|blob| blob.length());
        if found != Some(file.bytes) {
            let received = found.map_or("no file".to_string(), |found| format!("{found} bytes"));
            let expected = format!("{} bytes in {}", file.bytes, store.location(&file.name));
            let advice = "save to a place that all hosts share, and that no other job saves to";
            return Err(Error::usage("save", expected, received, advice));
        }
    }
    let text = manifest::encode(&content)?;
    // A manifest that a reader would reject must not replace a checkpoint that a reader accepts.
    manifest::decode("save", &store.location(MANIFEST), &text)?;
    let partial = names::partial(id, MANIFEST);
    let file = NewFile { name: MANIFEST, partial: &partial, bytes: text.len() as u64, replace: true };
    let mut upload = store.create(file)?;
    upload.write(&text)?;
    upload.finish()?;
    let replaced = old.as_deref();
    remove(&*store, |other| other != id && (other < id || Some(other) == replaced));
    Ok(())
}

/// Removes the files of a save that will not be committed. The existing checkpoint stays.
pub(crate) fn discard(target: &str, id: &str) -> Result<()> {
    names::check_id("save", id)?;
    let store = open_store("save", target)?;
    if reject_foreign(&*store)?.as_deref() != Some(id) {
        remove(&*store, |other| other == id);
    }
    Ok(())
}

/// The id of the existing checkpoint, if it can be read. A `manifest.json` of another program is an error: the folder is not
/// ours.
pub(super) fn reject_foreign(store: &dyn CheckpointStore) -> Result<Option<String>> {
    let Some(text) = read_manifest_text("save", store)? else { return Ok(None) };
    if !manifest::is_unisono_manifest(&text) {
        return Err(Error::usage(
            "save",
            format!("no {MANIFEST} of another program in the folder"),
            store.location(MANIFEST),
            "save to a folder of its own, or remove that file",
        ));
    }
    Ok(manifest::decode("save", MANIFEST, &text).ok().map(|content| content.id))
}

/// Merges all parts: concatenates the files, and groups the pieces by tensor.
fn merge(id: &str, parts: &[PartManifest], tables: &Value) -> Result<Manifest> {
    let mut content = Manifest {
        id: id.into(),
        tables: tables.clone(),
        files: Vec::new(),
        tensors: Vec::<StoredTensor>::new(),
    };
    let mut known = HashMap::new();
    let wrong = |expected: String, received: String| {
        Error::usage("save", expected, received, "have all writers write the same tensors under one id")
    };
    for part in parts {
        if part.id != id {
            return Err(wrong(format!("parts of the save {id}"), format!("one of {}", part.id)));
        }
        let first = content.files.len();
        content.files.extend(part.file.clone());
        for stored in &part.tensors {
            let number = *known.entry(stored.name.as_str()).or_insert(content.tensors.len());
            if number == content.tensors.len() {
                content.tensors.push(StoredTensor { pieces: Vec::new(), ..stored.clone() });
            }
            let whole = &mut content.tensors[number];
            if (&whole.dtype, &whole.shape) != (&stored.dtype, &stored.shape) {
                let expected = format!("`{}` of {} {:?} everywhere", whole.name, whole.dtype, whole.shape);
                return Err(wrong(expected, format!("{} {:?}", stored.dtype, stored.shape)));
            }
            let renumbered = stored.pieces.iter().cloned().map(|mut piece| {
                piece.file += first;
                piece
            });
            whole.pieces.extend(renumbered);
        }
    }
    manifest::check(&content).map_err(|(expected, received)| wrong(expected, received))?;
    Ok(content)
}

/// Removes the files of the saves that `unwanted` selects. A file that cannot be removed only takes space, so that is no error.
fn remove(store: &dyn CheckpointStore, unwanted: impl Fn(&str) -> bool) {
    let names = store.names().unwrap_or_else(|error| {
        tracing::warn!("files of earlier saves stay: {error}");
        Vec::new()
    });
    for name in names.iter().filter(|name| names::id_of(name).is_some_and(&unwanted)) {
        if let Err(error) = store.remove(name) {
            tracing::warn!("a file of an earlier save stays: {error}");
        }
    }
}
