//! Software prefetching, for access patterns that the program knows and the CPU cannot predict.

/// The most bytes that are prefetched; the hardware prefetcher continues a longer sequential access.
const MOST: usize = 1024;

/// Prefetches memory into the L1 cache. It has no other effect, whatever the address.
#[inline(always)]
pub(crate) fn prefetch(start: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    fetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(start, bytes);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (start, bytes, MOST);
}

/// Prefetches memory into the L2 cache, for accesses far ahead. Twice as many lines can be in flight to that cache as to L1,
/// and waiting for them stalls nothing.
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
    // SAFETY: every x86-64 CPU has this instruction, and it accepts any address.
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
