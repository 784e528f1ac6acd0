//! Named tensors in files: reads and writes safetensors, reads `.npz`.

use std::collections::BTreeMap;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use unisono::{Error, Result};

use crate::data::read_npz;
use crate::number::Number;

/// A tensor in double precision, which represents both number types exactly.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct F64Tensor {
    pub(super) shape: Vec<usize>,
    pub(super) values: Vec<f64>,
}

pub(super) type TensorMap = BTreeMap<String, F64Tensor>;

/// The metadata key of the checkpoint's own settings.
const KEY: &str = "unisono";

/// The key of the checksum next to them.
const CHECKSUM: &str = "checksum";

fn damaged(path: &Path, received: impl std::fmt::Display) -> Error {
    let what = format!("read {}", path.display());
    Error::usage(what, "whole tensors", received.to_string(), "put the whole file back; this one is damaged")
}

/// Serialises tensors, with settings and a checksum.
pub(super) fn pack<T: Number>(tensors: &[(String, Vec<usize>, &[T])], settings: &str) -> Result<Vec<u8>> {
    let kind = if T::NAME == "f32" { Dtype::F32 } else { Dtype::F64 };
    let failed = |error| Error::internal("write checkpoint", format!("{error}"));
    let mut views = BTreeMap::new();
    for (name, shape, values) in tensors {
        let view = TensorView::new(kind, shape.clone(), bytemuck::cast_slice(values)).map_err(failed)?;
        views.insert(name.clone(), view);
    }
    let sum = checksum(settings, views.iter().map(|(name, view)| (name.as_str(), view)));
    let metadata = [(KEY.to_string(), settings.to_string()), (CHECKSUM.into(), sum.to_string())];
    // With a single metadata key, equal weights give equal bytes.
    let metadata = serde_json::json!(metadata).to_string();
    let metadata = std::collections::HashMap::from([(KEY.to_string(), metadata)]);
    safetensors::serialize(views, Some(metadata)).map_err(failed)
}

/// The checksum over the full contents of a checkpoint: settings, names, types, shapes and values.
fn checksum<'a, 'data: 'a>(
    settings: &str,
    tensors: impl Iterator<Item = (&'a str, &'a TensorView<'data>)>,
) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(settings.as_bytes());
    for (name, view) in tensors {
        hasher.update(format!("\n{name} {:?} {:?}\n", view.dtype(), view.shape()).as_bytes());
        hasher.update(view.data());
    }
    hasher.finalize()
}

/// The checksum of older checkpoints, which did not cover settings and shapes.
fn checksum_of_numbers<'a, 'data: 'a>(
    tensors: impl Iterator<Item = (&'a str, &'a TensorView<'data>)>,
) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for (name, view) in tensors {
        hasher.update(name.as_bytes());
        hasher.update(view.data());
    }
    hasher.finalize()
}

/// The tensors of a safetensors file, and the settings if it is one of our checkpoints.
pub(super) fn unpack(path: &Path, bytes: &[u8]) -> Result<(TensorMap, Option<String>)> {
    let file = SafeTensors::deserialize(bytes).map_err(|error| damaged(path, error))?;
    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|error| damaged(path, error))?;
    let ours = metadata.metadata().as_ref().and_then(|map| map.get(KEY));
    let mut settings = None;
    if let Some(text) = ours {
        let pairs: Vec<(String, String)> =
            serde_json::from_str(text).map_err(|error| damaged(path, error))?;
        let find = |key: &str| pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone());
        let mut names: Vec<(&str, TensorView<'_>)> = file.iter().collect();
        names.sort_by_key(|(name, _)| name.to_string());
        settings = find(KEY);
        let tensors = || names.iter().map(|(name, view)| (*name, view));
        let (written, sum) = match find(CHECKSUM) {
            Some(written) => (Some(written), checksum(settings.as_deref().unwrap_or_default(), tensors())),
            None => (find("crc32"), checksum_of_numbers(tensors())),
        };
        if written != Some(sum.to_string()) {
            return Err(damaged(path, "contents that differ from their checksum"));
        }
    }
    let mut tensors = TensorMap::new();
    for (name, view) in file.iter() {
        let values = match view.dtype() {
            Dtype::F32 => numbers(view.data(), |bytes| f64::from(f32::from_le_bytes(bytes))),
            Dtype::F64 => numbers(view.data(), f64::from_le_bytes),
            other => return Err(damaged(path, format!("`{name}` of type {other:?}, not F32 or F64"))),
        };
        tensors.insert(name.to_string(), F64Tensor { shape: view.shape().to_vec(), values });
    }
    Ok((tensors, settings))
}

fn numbers<const SIZE: usize>(bytes: &[u8], convert: impl Fn([u8; SIZE]) -> f64) -> Vec<f64> {
    bytes.chunks_exact(SIZE).map(|chunk| convert(chunk.try_into().expect("chunks have this size"))).collect()
}

/// The tensors of a `.safetensors` or `.npz` file, and the settings if it is one of our checkpoints.
pub(super) fn read(path: &Path) -> Result<(TensorMap, Option<String>)> {
    if path.extension().is_some_and(|suffix| suffix == "npz") {
        let arrays = read_npz(path)?.into_iter();
        let tensors = arrays.map(|(name, array)| {
            let tensor = F64Tensor { values: array.doubles(), shape: array.shape };
            (name, tensor)
        });
        return Ok((tensors.collect(), None));
    }
    let advice = "set `initial_weights` to its path";
    let bytes = std::fs::read(path)
        .map_err(|error| Error::io("read weights", path.display().to_string(), error, advice))?;
    unpack(path, &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_come_back_and_every_flipped_bit_is_seen() {
        let values = [0.1_f32, -2.5, 1e-30, 7.0];
        let tensors =
            [("a/weights".to_string(), vec![2, 2], &values[..]), ("b".into(), vec![1], &values[..1])];
        let bytes = pack(&tensors, "settings").expect("they can be packed");
        assert_eq!(
            bytes,
            pack(&tensors, "settings").expect("they can be packed"),
            "the same bytes each time"
        );
        let path = Path::new("x.safetensors");
        let (found, settings) = unpack(path, &bytes).expect("they are whole");
        assert_eq!(settings.as_deref(), Some("settings"));
        assert_eq!(found["a/weights"].values[0], f64::from(0.1_f32));
        for at in (bytes.len() - 20..bytes.len()).chain(0..40) {
            let mut broken = bytes.clone();
            broken[at] ^= 4;
            // With a changed key, the file no longer counts as one of our checkpoints, and has no settings.
            let settings = unpack(path, &broken).ok().and_then(|(_, settings)| settings);
            assert_eq!(settings, None, "byte {at}");
        }
        for length in 0..bytes.len() {
            assert!(unpack(path, &bytes[..length]).is_err());
        }
    }

    #[test]
    fn damaged_checkpoints() {
        let values = [0.1_f32, -2.5, 1e-30, 7.0];
        let tensors =
            [("a/weights".to_string(), vec![2, 2], &values[..]), ("b".into(), vec![1], &values[..1])];
        let good = [pack(&tensors, "settings").expect("they can be packed")];
        let path = Path::new("damaged.safetensors");
        let expected = unpack(path, &good[0]).expect("they are whole");
        crate::fuzz::fuzz!(|script: &[u8]| {
            let damaged = unisono::testing::mutate(&good, script);
            // Without our metadata, it is a file of another program, which has no checksum.
            if let Ok(found @ (_, Some(_))) = unpack(path, &damaged) {
                assert_eq!(found, expected, "a damaged checkpoint was accepted");
            }
        });
    }
}
