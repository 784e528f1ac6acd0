//! The names of a checkpoint's files: each contains the id of its save, which distinguishes leftovers from a user's files.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};

/// The file that turns data files into a checkpoint.
pub(super) const MANIFEST: &str = "manifest.json";

/// A new id for one save: the time, then random bits, in 32 hexadecimal digits. Ids sort by age. One rank generates it; all
/// writers of the save use the same id.
pub(crate) fn new_id() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanoseconds = since.map_or(0, |since| since.as_nanos() as u64);
    // The standard library seeds each of these from the operating system.
    let random = RandomState::new().build_hasher().finish();
    format!("{nanoseconds:016x}{random:016x}")
}

pub(super) fn is_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

pub(super) fn check_id(operation: &str, id: &str) -> Result<()> {
    if is_id(id) {
        return Ok(());
    }
    Err(Error::usage(operation, "an id of 32 hexadecimal digits", format!("`{id}`"), "take one from new_id"))
}

pub(super) fn data_file(id: &str, part: usize) -> String {
    format!("{id}-{part}.safetensors")
}

/// The temporary name of a file until it is complete.
pub(super) fn partial(id: &str, name: &str) -> String {
    let own = name.strip_prefix(id).and_then(|rest| rest.strip_prefix('-')).unwrap_or(name);
    format!("{id}-{own}.partial")
}

/// The id of the save that wrote this data file, `None` for other names. This also keeps names in a manifest from escaping the
/// folder.
pub(super) fn id_of_data(name: &str) -> Option<&str> {
    let (id, rest) = name.split_at_checked(32)?;
    let part = rest.strip_prefix('-')?.strip_suffix(".safetensors")?;
    let plain = part.parse::<usize>().is_ok_and(|number| number.to_string() == part);
    (is_id(id) && plain).then_some(id)
}

/// The id of the save that wrote this file, complete or partial; `None` for the manifest and for files of other programs.
pub(super) fn id_of(name: &str) -> Option<&str> {
    let whole = name.strip_suffix(".partial");
    let of_manifest =
        whole.and_then(|name| name.strip_suffix(MANIFEST)?.strip_suffix('-')).filter(|id| is_id(id));
    of_manifest.or_else(|| id_of_data(whole.unwrap_or(name)))
}

#[test]
fn a_name_tells_its_save() {
    let id = new_id();
    assert!(is_id(&id) && id != new_id());
    let data = data_file(&id, 12);
    assert_eq!(id_of_data(&data), Some(id.as_str()));
    for name in [&data, &partial(&id, &data), &partial(&id, MANIFEST)] {
        assert_eq!(id_of(name), Some(id.as_str()), "{name}");
    }
    assert_eq!(partial(&id, &data), format!("{data}.partial"));
}

#[test]
fn files_of_others_are_not_ours() {
    let id = new_id();
    let names = [
        MANIFEST.to_string(),
        "model.safetensors".into(),
        format!("../{id}-0.safetensors"),
        format!("{id}-0.safetensors/../x"),
        format!("{id}-00.safetensors"),
        format!("{id}-+1.safetensors"),
        format!("{id}-.safetensors"),
        format!("{id}-0.safetensors.bak"),
        format!("{}-0.safetensors", id.to_uppercase() + "x"),
        format!("{}é-0.safetensors", &id[..31]),
    ];
    for name in names {
        assert_eq!(id_of(&name), None, "{name}");
    }
}
