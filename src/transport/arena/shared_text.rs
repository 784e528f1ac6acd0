//! A short text in shared memory: its owner writes it, and every peer may read it at any time.

use super::futex::{AtomicU32, Ordering};

/// A text of at most `4 * WORDS` bytes; zeroes are no text.
#[repr(C)]
pub(super) struct SharedText<const WORDS: usize> {
    bytes: AtomicU32,
    words: [AtomicU32; WORDS],
}

impl<const WORDS: usize> SharedText<WORDS> {
    const CAPACITY: usize = 4 * WORDS;

    /// Publishes a text; one that is too long loses its beginning.
    pub fn set(&self, text: &str) {
        let bytes = text.as_bytes();
        let bytes = &bytes[bytes.len().saturating_sub(Self::CAPACITY)..];
        for (word, chunk) in self.words.iter().zip(bytes.chunks(4)) {
            let mut padded = [0; 4];
            padded[..chunk.len()].copy_from_slice(chunk);
            word.store(u32::from_ne_bytes(padded), Ordering::Relaxed);
        }
        self.bytes.store(bytes.len() as u32, Ordering::Release);
    }

    /// The text, or `None` if there is none. Mixes two texts if the owner replaces one meanwhile.
    pub fn get(&self) -> Option<String> {
        let bytes = (self.bytes.load(Ordering::Acquire) as usize).min(Self::CAPACITY);
        if bytes == 0 {
            return None;
        }
        let words = self.words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
        let text: Vec<u8> = words.take(bytes).collect();
        Some(String::from_utf8_lossy(&text).into_owned())
    }
}

#[cfg(test)]
impl<const WORDS: usize> SharedText<WORDS> {
    pub fn new() -> Self {
        SharedText { bytes: AtomicU32::new(0), words: std::array::from_fn(|_| AtomicU32::new(0)) }
    }
}

#[cfg(all(test, not(unisono_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_text_comes_back_and_a_long_one_keeps_its_end() {
        let text = SharedText::<2>::new();
        assert_eq!(text.get(), None);
        for (written, read) in [("abc", "abc"), ("directory/file:7", "y/file:7"), ("12345678", "12345678")] {
            text.set(written);
            assert_eq!(text.get().as_deref(), Some(read));
        }
        text.bytes.store(u32::MAX, Ordering::Relaxed);
        assert_eq!(text.get().as_deref(), Some("12345678"));
    }
}
