//! The header of a safetensors file: a length, then JSON with the offsets of each tensor; every field is validated.

use std::collections::HashSet;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::manifest::FORMAT;
use crate::memory::DType;

/// Size of the length field at the start of the file.
pub(super) const LENGTH_BYTES: usize = 8;
/// The longest header that the reference implementation reads, in bytes.
pub(super) const MAX_HEADER_BYTES: u64 = 100_000_000;
/// A key that no tensor may have.
pub(super) const METADATA: &str = "__metadata__";

/// One tensor in a file; its offsets are relative to the end of the header.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TensorEntry {
    pub key: String,
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub begin: u64,
    pub end: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryFields {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (u64, u64),
}

fn type_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "F32",
        DType::F64 => "F64",
        DType::F16 => "F16",
        DType::BF16 => "BF16",
        DType::I8 => "I8",
        DType::U8 => "U8",
        DType::I32 => "I32",
        DType::I64 => "I64",
        DType::Bool => "BOOL",
        DType::I16 => "I16",
        DType::U16 => "U16",
        DType::U32 => "U32",
        DType::U64 => "U64",
        DType::C64 => "C64",
        DType::C128 => "C128",
        DType::F8E4M3FN => "F8_E4M3",
        DType::F8E4M3FNUZ => "F8_E4M3FNUZ",
        DType::F8E5M2 => "F8_E5M2",
        DType::F8E5M2FNUZ => "F8_E5M2FNUZ",
        DType::F8E8M0FNU => "F8_E8M0",
    }
}

/// The length and the JSON, padded with spaces so that the data is aligned to 8 bytes.
pub(super) fn encode(id: &str, entries: &[TensorEntry]) -> Vec<u8> {
    let mut map = Map::new();
    map.insert(METADATA.into(), json!({ "format": FORMAT, "id": id }));
    for entry in entries {
        let fields = json!({
            "dtype": type_name(entry.dtype), "shape": entry.shape, "data_offsets": [entry.begin, entry.end],
        });
        map.insert(entry.key.clone(), fields);
    }
    let text = Value::Object(map).to_string();
    let length = text.len().next_multiple_of(8);
    let mut bytes = (length as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes.resize(LENGTH_BYTES + length, b' ');
    bytes
}

/// Decodes the JSON of a file that has `data` bytes after it. The entries are sorted by offset and cover the data exactly. The
/// error describes what is wrong.
pub(super) fn decode(json: &[u8], data: u64) -> Result<Vec<TensorEntry>, String> {
    let UniqueKeys(fields) = parse::<UniqueKeys<Box<RawValue>>>(json)?;
    let mut entries = Vec::with_capacity(fields.len());
    for (key, value) in fields {
        let text = value.get().as_bytes();
        if key == METADATA {
            parse::<UniqueKeys<String>>(text)?;
        } else {
            let fields = parse::<EntryFields>(text).map_err(|error| format!("for `{key}`: {error}"))?;
            entries.push(entry(key, fields)?);
        }
    }
    entries.sort_by_key(|entry| (entry.begin, entry.end));
    let mut at = 0;
    for entry in &entries {
        if entry.begin != at {
            let TensorEntry { key, begin, end, .. } = entry;
            return Err(format!("`{key}` at bytes {begin}..{end}, where byte {at} comes next"));
        }
        at = entry.end;
    }
    if at != data {
        return Err(format!("tensors of {at} bytes, where {data} bytes follow the header"));
    }
    Ok(entries)
}

fn entry(key: String, fields: EntryFields) -> Result<TensorEntry, String> {
    let EntryFields { dtype, shape, data_offsets: (begin, end) } = fields;
    let known = DType::ALL.into_iter().find(|known| type_name(*known) == dtype);
    let dtype = known.ok_or_else(|| format!("`{key}` of the unknown type `{dtype}`"))?;
    let size = shape.iter().try_fold(dtype.size() as u64, |size, axis| size.checked_mul(*axis as u64));
    if size.is_none() || end.checked_sub(begin) != size {
        return Err(format!("`{key}` of shape {shape:?} and type {dtype} at bytes {begin}..{end}"));
    }
    Ok(TensorEntry { key, dtype, shape, begin, end })
}

fn parse<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(json).map_err(|error| error.to_string())
}

/// A JSON object without duplicate keys: for a duplicate key, readers may disagree on which value counts.
struct UniqueKeys<V>(Vec<(String, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for UniqueKeys<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs<V>(std::marker::PhantomData<V>);

        impl<'de, V: Deserialize<'de>> Visitor<'de> for Pairs<V> {
            type Value = UniqueKeys<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                let mut seen = HashSet::new();
                while let Some((key, value)) = access.next_entry::<String, V>()? {
                    if !seen.insert(key.clone()) {
                        return Err(serde::de::Error::custom(format_args!("the key `{key}` twice")));
                    }
                    pairs.push((key, value));
                }
                Ok(UniqueKeys(pairs))
            }
        }

        deserializer.deserialize_map(Pairs(std::marker::PhantomData))
    }
}
