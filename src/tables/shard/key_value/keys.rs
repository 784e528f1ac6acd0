//! Keys, which are integers or byte strings: the server of each, and its hash.

use crate::error::{Error, Result};
use crate::tables::remote::RowList;
use crate::tables::spec::init::mix;

/// The type of a table's keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyType {
    /// 64-bit signed integers.
    Int,
    /// Byte strings of any length.
    Bytes,
}

impl KeyType {
    /// The type's name: "int" or "bytes".
    pub fn name(self) -> &'static str {
        match self {
            KeyType::Int => "int",
            KeyType::Bytes => "bytes",
        }
    }

    /// Parses a type's name.
    pub fn from_name(name: &str) -> Result<KeyType> {
        match name {
            "int" => Ok(KeyType::Int),
            "bytes" => Ok(KeyType::Bytes),
            _ => Err(Error::usage("key type", "int or bytes", format!("{name:?}"), "write one of these")),
        }
    }
}

/// The keys of a call; a key may be listed more than once.
#[derive(Debug, Clone, Copy)]
pub enum Keys<'a> {
    /// For tables of [`KeyType::Int`].
    Int(&'a [i64]),
    /// For tables of [`KeyType::Bytes`].
    Bytes(&'a [&'a [u8]]),
}

/// Keys that a table returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnedKeys {
    /// From tables of [`KeyType::Int`].
    Int(Vec<i64>),
    /// From tables of [`KeyType::Bytes`].
    Bytes(Vec<Vec<u8>>),
}

/// One key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum KeyRef<'a> {
    Int(i64),
    Bytes(&'a [u8]),
}

impl Keys<'_> {
    /// Number of keys.
    pub fn len(&self) -> usize {
        match self {
            Keys::Int(keys) => keys.len(),
            Keys::Bytes(keys) => keys.len(),
        }
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The keys' type.
    pub fn key_type(&self) -> KeyType {
        match self {
            Keys::Int(_) => KeyType::Int,
            Keys::Bytes(_) => KeyType::Bytes,
        }
    }

    #[inline]
    pub(crate) fn at(&self, position: usize) -> KeyRef<'_> {
        match self {
            Keys::Int(keys) => KeyRef::Int(keys[position]),
            Keys::Bytes(keys) => KeyRef::Bytes(keys[position]),
        }
    }

    pub(crate) fn to_owned(self) -> OwnedKeys {
        match self {
            Keys::Int(keys) => OwnedKeys::Int(keys.to_vec()),
            Keys::Bytes(keys) => OwnedKeys::Bytes(keys.iter().map(|key| key.to_vec()).collect()),
        }
    }
}

impl From<OwnedKeys> for RowList {
    fn from(keys: OwnedKeys) -> RowList {
        match keys {
            OwnedKeys::Int(keys) => RowList::List(keys),
            OwnedKeys::Bytes(keys) => RowList::Keys(keys),
        }
    }
}

impl OwnedKeys {
    /// No keys.
    pub(crate) fn none(kind: KeyType) -> OwnedKeys {
        match kind {
            KeyType::Int => OwnedKeys::Int(Vec::new()),
            KeyType::Bytes => OwnedKeys::Bytes(Vec::new()),
        }
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        match self {
            OwnedKeys::Int(keys) => keys.len(),
            OwnedKeys::Bytes(keys) => keys.len(),
        }
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends keys of the same type.
    pub(crate) fn append(&mut self, more: OwnedKeys) {
        match (self, more) {
            (OwnedKeys::Int(all), OwnedKeys::Int(more)) => all.extend(more),
            (OwnedKeys::Bytes(all), OwnedKeys::Bytes(more)) => all.extend(more),
            _ => unreachable!("all keys of a table have one type"),
        }
    }

    /// Calls `body` with these keys, borrowed.
    pub fn with<R>(&self, body: impl FnOnce(Keys) -> R) -> R {
        match self {
            OwnedKeys::Int(keys) => body(Keys::Int(keys)),
            OwnedKeys::Bytes(keys) => body(Keys::Bytes(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>())),
        }
    }
}

impl KeyRef<'_> {
    /// The key's server and its mixed hash. The server of an integer is its non-negative remainder by the number of servers; that
    /// of a byte string is its hash's remainder.
    #[inline]
    pub fn server_and_hash(self, servers: usize) -> (usize, u64) {
        match self {
            KeyRef::Int(key) => (key.rem_euclid(servers as i64) as usize, mix(key as u64)),
            KeyRef::Bytes(key) => {
                let hash = hash(key);
                ((hash % servers as u64) as usize, mix(hash))
            }
        }
    }
}

/// 64-bit FNV-1a (Fowler, Noll and Vo): the same on every machine and in every version.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_of_a_key_is_its_remainder() {
        for (key, servers, server) in [(7, 3, 1), (0, 1, 0), (-1, 3, 2), (i64::MIN, 4, 0), (i64::MAX, 2, 1)] {
            assert_eq!(KeyRef::Int(key).server_and_hash(servers).0, server, "{key} over {servers}");
        }
    }

    /// Published test vectors of the hash.
    #[test]
    fn bytes_are_hashed_as_everywhere() {
        assert_eq!(hash(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(hash(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
