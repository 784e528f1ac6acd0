//! Numbers for distinct keys: which positions of a list have the same row or key.

use std::hash::{DefaultHasher, Hasher};

use crate::memory::prefetch::prefetch;
use crate::tables::spec::init::mix;

/// A row or key of a list.
pub(crate) trait IndexedKey: Clone + Ord {
    /// A hash, all of whose bits depend on the key.
    fn mixed(&self) -> u64;
}

impl IndexedKey for u32 {
    fn mixed(&self) -> u64 {
        mix(u64::from(*self))
    }
}

impl IndexedKey for i64 {
    fn mixed(&self) -> u64 {
        mix(*self as u64)
    }
}

impl IndexedKey for &[u8] {
    fn mixed(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write(self);
        hasher.finish()
    }
}

impl IndexedKey for Vec<u8> {
    fn mixed(&self) -> u64 {
        self.as_slice().mixed()
    }
}

/// Distinct keys, numbered in the order in which they first appear: a hash table with open addressing.
pub(crate) struct KeyIndex<K> {
    keys: Vec<K>,
    /// A power of two places. Each is free (0), or holds a key's number plus one and, above it, the upper half of its hash.
    places: Vec<u64>,
}

const FEWEST_PLACES: usize = 16;

/// How far ahead places are prefetched, in keys.
const PREFETCH_DISTANCE: usize = 12;

impl<K: IndexedKey> KeyIndex<K> {
    /// An index with room for about `count` keys; it grows as needed.
    pub fn new(count: usize) -> KeyIndex<K> {
        let places = (2 * count).next_power_of_two().max(FEWEST_PLACES);
        KeyIndex { keys: Vec::new(), places: vec![0; places] }
    }

    /// The number of a key: the next one if the key is new.
    #[inline]
    pub fn number(&mut self, key: &K) -> usize {
        let (hash, most) = (key.mixed(), self.places.len() - 1);
        let tag = hash >> 32 << 32;
        let mut at = hash as usize & most;
        loop {
            let place = self.places[at];
            if place == 0 {
                break;
            }
            let number = (place as u32 - 1) as usize;
            if place >> 32 << 32 == tag && self.keys[number] == *key {
                return number;
            }
            at = (at + 1) & most;
        }
        self.keys.push(key.clone());
        self.places[at] = tag | self.keys.len() as u64;
        if 2 * self.keys.len() > self.places.len() {
            self.grow();
        }
        self.keys.len() - 1
    }

    #[cold]
    fn grow(&mut self) {
        let most = 4 * self.places.len() - 1;
        self.places = vec![0; most + 1];
        for (number, key) in self.keys.iter().enumerate() {
            let hash = key.mixed();
            let mut at = hash as usize & most;
            while self.places[at] != 0 {
                at = (at + 1) & most;
            }
            self.places[at] = hash >> 32 << 32 | (number as u64 + 1);
        }
    }

    /// The number of each key of a list.
    pub fn numbers(&mut self, keys: &[K]) -> Vec<u32> {
        let mut numbers = Vec::with_capacity(keys.len());
        for (position, key) in keys.iter().enumerate() {
            if let Some(later) = keys.get(position + PREFETCH_DISTANCE) {
                let place = later.mixed() as usize & (self.places.len() - 1);
                prefetch(self.places.as_ptr().wrapping_add(place).cast(), size_of::<u64>());
            }
            numbers.push(self.number(key) as u32);
        }
        numbers
    }

    /// The distinct keys, by number.
    pub fn keys(&self) -> &[K] {
        &self.keys
    }

    pub fn into_keys(self) -> Vec<K> {
        self.keys
    }
}

/// Lists up to this length are compared pair by pair.
const SHORT: usize = 12;

/// The index of a list and the number of each of its keys, if any key occurs more than once.
pub(crate) fn index_of_repeats<K: IndexedKey>(keys: &[K]) -> Option<(KeyIndex<K>, Vec<u32>)> {
    let is_short = keys.len() <= SHORT;
    // The usual result of a caller that has made them distinct.
    let is_increasing = || keys.is_sorted_by(|one, other| one < other);
    let repeats = |(position, key): (usize, &K)| keys[..position].contains(key);
    if if is_short { !keys.iter().enumerate().any(repeats) } else { is_increasing() } {
        return None;
    }
    // A list with repeats has fewer distinct keys; without, the index grows.
    let mut index = KeyIndex::new(keys.len() / 4);
    let numbers = index.numbers(keys);
    (index.keys().len() < keys.len()).then_some((index, numbers))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn check<K: IndexedKey + std::hash::Hash + std::fmt::Debug>(keys: &[K]) {
        let mut expected = HashMap::new();
        let mut distinct = Vec::new();
        let numbers: Vec<u32> = keys
            .iter()
            .map(|key| {
                *expected.entry(key.clone()).or_insert_with(|| {
                    distinct.push(key.clone());
                    distinct.len() as u32 - 1
                })
            })
            .collect();
        match index_of_repeats(keys) {
            None => assert_eq!(distinct.len(), keys.len(), "no repeats"),
            Some((index, found)) => {
                assert!(distinct.len() < keys.len());
                assert_eq!((found, index.into_keys()), (numbers, distinct));
            }
        }
    }

    proptest! {
        #[test]
        fn numbers_are_those_of_a_map(
            few in proptest::collection::vec(-3i64..3, 0..40),
            many in proptest::collection::vec(any::<i64>(), 0..400),
            wide in proptest::collection::vec(0u32..500, 0..2000),
            texts in proptest::collection::vec(proptest::collection::vec(0u8..2, 0..4), 0..60),
        ) {
            check(&few);
            check(&many);
            check(&wide);
            check(&texts);
            check(&texts.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }
    }

    #[test]
    fn lists_without_repeats_and_of_one_key_are_told_apart() {
        check::<i64>(&[]);
        check(&[i64::MIN]);
        check(&[i64::MAX; 1000]);
        check(&(0..5000i64).collect::<Vec<_>>());
        check(&(0..5000i64).rev().collect::<Vec<_>>());
    }
}
