//! Bytes on the heap, aligned for every element type.

use std::ops::{Deref, DerefMut};

/// Zeroed bytes, in 8-byte words so that every element type is aligned.
#[derive(Default)]
pub(crate) struct AlignedBytes {
    words: Vec<u64>,
    bytes: usize,
}

impl AlignedBytes {
    /// This many zeroes.
    pub fn zeroed(bytes: usize) -> AlignedBytes {
        AlignedBytes { words: vec![0; bytes.div_ceil(size_of::<u64>())], bytes }
    }

    /// Appends zeroes, up to this many bytes in all.
    pub fn grow(&mut self, bytes: usize) {
        debug_assert!(bytes >= self.bytes);
        self.words.resize(bytes.div_ceil(size_of::<u64>()), 0);
        self.bytes = bytes;
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.bytes]
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.bytes]
    }
}
