//! Slices of f16 to f32 and back, eight at a time where the processor has instructions for it.
//!
//! The loops are inlined into kernels that are compiled for these instructions; there, nothing is left of the calls.

use half::f16;

/// Widens a slice into another of the same length.
#[inline(always)]
pub(super) fn widen(narrow: &[f16], wide: &mut [f32]) {
    let mut done = 0;
    #[cfg(target_arch = "x86_64")]
    if narrow.len() >= 8 && std::arch::is_x86_feature_detected!("f16c") {
        for (narrow, wide) in narrow.as_chunks::<8>().0.iter().zip(wide.as_chunks_mut::<8>().0) {
            // SAFETY: the feature was just detected.
            *wide = unsafe { widen_eight(*narrow) };
            done += 8;
        }
    }
    for (narrow, wide) in narrow[done..].iter().zip(&mut wide[done..]) {
        *wide = narrow.to_f32();
    }
}

/// Narrows a slice into another of the same length: to the nearest, ties to even.
#[inline(always)]
pub(super) fn narrow(wide: &[f32], narrow: &mut [f16]) {
    let mut done = 0;
    #[cfg(target_arch = "x86_64")]
    if wide.len() >= 8 && std::arch::is_x86_feature_detected!("f16c") {
        for (wide, narrow) in wide.as_chunks::<8>().0.iter().zip(narrow.as_chunks_mut::<8>().0) {
            // SAFETY: the feature was just detected.
            *narrow = unsafe { narrow_eight(*wide) };
            done += 8;
        }
    }
    for (wide, narrow) in wide[done..].iter().zip(&mut narrow[done..]) {
        *narrow = f16::from_f32(*wide);
    }
}

/// # Safety
/// The processor has F16C.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "f16c")]
unsafe fn widen_eight(narrow: [f16; 8]) -> [f32; 8] {
    bytemuck::cast(std::arch::x86_64::_mm256_cvtph_ps(bytemuck::cast(narrow)))
}

/// # Safety
/// The processor has F16C.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "f16c")]
unsafe fn narrow_eight(wide: [f32; 8]) -> [f16; 8] {
    use std::arch::x86_64::{_MM_FROUND_TO_NEAREST_INT, _mm256_cvtps_ph};
    bytemuck::cast(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(bytemuck::cast(wide)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_converted_as_the_half_crate_does() {
        let all: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        let mut wide = vec![0.0; all.len()];
        widen(&all, &mut wide);
        let same = |a: f16, b: f16| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
        assert!(all.iter().zip(&wide).all(|(a, b)| a.is_nan() && b.is_nan() || a.to_f32() == *b));

        let wide: Vec<f32> = (0..=u32::MAX).step_by(4099).map(f32::from_bits).collect();
        for length in [0, 1, 7, 8, 9, 50, wide.len()] {
            let mut found = vec![f16::ZERO; length];
            narrow(&wide[wide.len() - length..], &mut found);
            let expected = wide[wide.len() - length..].iter().map(|wide| f16::from_f32(*wide));
            assert!(found.iter().zip(expected).all(|(a, b)| same(*a, b)));
        }
    }
}
