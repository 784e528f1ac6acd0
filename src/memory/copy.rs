//! Copying between ranks' memory. The C library's copy uses the processor's string instruction for middle sizes, which on
//! some processors moves a third of what plain wide loads and stores move; so plain wide loads and stores it is.

/// Below this many bytes the library's copy is as good.
const SHORT: usize = 1024;

/// Copies `bytes` bytes.
///
/// # Safety
/// `source` is valid for reading and `target` for writing so many bytes; they do not overlap, and nobody writes to them
/// meanwhile.
#[inline]
pub(crate) unsafe fn copy(source: *const u8, target: *mut u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    if bytes >= SHORT && std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the feature was just detected; the caller vouches for the pointers.
        return unsafe { copy_wide(source, target, bytes) };
    }
    // SAFETY: the caller vouches for the pointers.
    unsafe { target.copy_from_nonoverlapping(source, bytes) }
}

/// # Safety
/// As [`copy`], at least 128 bytes, and the processor has AVX.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn copy_wide(source: *const u8, target: *mut u8, bytes: usize) {
    use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_storeu_si256};
    const STRIDE: usize = 128;
    // SAFETY: every access lies inside the two ranges; the last stride may overlap the one before.
    unsafe {
        let stride = |at: usize| {
            let (from, to) = (source.add(at).cast::<__m256i>(), target.add(at).cast::<__m256i>());
            let (a, b) = (_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1)));
            let (c, d) = (_mm256_loadu_si256(from.add(2)), _mm256_loadu_si256(from.add(3)));
            _mm256_storeu_si256(to, a);
            _mm256_storeu_si256(to.add(1), b);
            _mm256_storeu_si256(to.add(2), c);
            _mm256_storeu_si256(to.add(3), d);
        };
        let mut at = 0;
        while at + STRIDE <= bytes {
            stride(at);
            at += STRIDE;
        }
        if at < bytes {
            stride(bytes - STRIDE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_exactly_what_was_asked_for() {
        let source: Vec<u8> = (0..10_000).map(|i| (i * 7 % 251) as u8).collect();
        for bytes in [0, 1, 127, 1023, 1024, 1025, 1151, 1152, 1153, 4096, 9000] {
            for shift in [0, 1, 33] {
                let mut target = vec![0xaau8; bytes + 2 * 64];
                // SAFETY: both vectors are long enough and distinct.
                unsafe { copy(source.as_ptr().add(shift), target.as_mut_ptr().add(64), bytes) };
                assert!(target[64..64 + bytes] == source[shift..shift + bytes], "{bytes} bytes at {shift}");
                assert!(target[..64].iter().chain(&target[64 + bytes..]).all(|&byte| byte == 0xaa));
            }
        }
    }
}
