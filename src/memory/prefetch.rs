//! Asking for memory before it is needed, where a program knows and the processor cannot.

/// So many bytes are asked for; the processor itself continues a longer walk.
const MOST: usize = 1024;

/// Begins to bring memory into the first cache. It changes nothing, whatever is there.
#[inline(always)]
pub(crate) fn prefetch(start: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    fetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(start, bytes);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (start, bytes, MOST);
}

/// Begins to bring memory into the second cache, for a walk that is far ahead of its use. Twice as many lines can be under
/// way to that cache as to the first, and waiting for them holds up nothing.
#[inline(always)]
pub(crate) fn prefetch_early(start: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    fetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(start, bytes);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (start, bytes, MOST);
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn fetch<const HINT: i32>(start: *const u8, bytes: usize) {
    use std::arch::x86_64::_mm_prefetch;
    let last = bytes.clamp(1, MOST) - 1;
    // SAFETY: every x86-64 processor has this instruction, and it may be given any address.
    let line = |offset: usize| unsafe { _mm_prefetch::<HINT>(start.wrapping_add(offset).cast()) };
    (0..last).step_by(64).for_each(line);
    line(last);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_address_will_do() {
        let values = [1u8; 100];
        for (start, bytes) in [(values.as_ptr(), 100), (values.as_ptr(), 0), (std::ptr::null(), usize::MAX)] {
            prefetch(start, bytes);
            prefetch_early(start, bytes);
        }
        assert_eq!(values, [1; 100]);
    }
}
