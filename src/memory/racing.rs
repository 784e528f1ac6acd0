//! Copies of memory that others may be writing.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Copies the bytes at `source` by atomic loads. Each word is one that was there, but words may belong to different states: the caller
/// must find out, by a version number, whether anything changed meanwhile, and discard the copy in that case. Writers may use
/// plain stores; docs/design/006-tables.md explains what the language says about that.
///
/// # Safety
/// `source` is valid for reading as many bytes as `target` has, and is in memory that the process may also write.
#[inline]
pub(crate) unsafe fn copy_racing(source: *mut u8, target: &mut [u8]) {
    let before = (source.addr().wrapping_neg() % size_of::<u64>()).min(target.len());
    let (first, rest) = target.split_at_mut(before);
    // SAFETY: all addresses are in the source, for which the caller vouches, and words are aligned.
    unsafe {
        copy_bytes(source, first);
        let (words, last) = rest.as_chunks_mut::<{ size_of::<u64>() }>();
        let from = source.add(before).cast::<u64>();
        for (index, word) in words.iter_mut().enumerate() {
            *word = AtomicU64::from_ptr(from.add(index)).load(Ordering::Relaxed).to_ne_bytes();
        }
        copy_bytes(from.add(words.len()).cast(), last);
    }
}

/// # Safety
/// As [`copy_racing`].
unsafe fn copy_bytes(source: *mut u8, target: &mut [u8]) {
    for (index, byte) in target.iter_mut().enumerate() {
        // SAFETY: passed on from the caller.
        *byte = unsafe { AtomicU8::from_ptr(source.add(index)).load(Ordering::Relaxed) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_exactly_what_was_asked_for() {
        let mut source: Vec<u8> = (0..300).map(|index| (index * 7 % 251) as u8).collect();
        for (start, bytes) in
            (0..20).flat_map(|start| (0..40).chain([200, 255]).map(move |bytes| (start, bytes)))
        {
            let mut target = vec![0xaa; bytes + 2];
            // SAFETY: the source is long enough.
            unsafe { copy_racing(source.as_mut_ptr().add(start), &mut target[1..=bytes]) };
            assert_eq!(target[1..=bytes], source[start..start + bytes], "{bytes} from {start}");
            assert_eq!([target[0], target[bytes + 1]], [0xaa; 2]);
        }
    }
}
