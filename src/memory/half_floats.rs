//! Converts slices of half types to f32 and back, f16 eight at a time if the CPU has instructions for it.
//!
//! The loops are inlined into kernels that are compiled for these instructions, so the calls cost nothing there.

use std::ops::Range;

use half::{bf16, f16};

use super::DType;
use super::numbers::StoredNumber;

/// Elements that are converted at once.
const BLOCK: usize = 1024;

/// The values of a half type in single precision, the form in which partial results travel; `None` for other types.
pub(crate) fn to_single(bytes: &[u8], dtype: DType) -> Option<Vec<f32>> {
    let widen = match dtype {
        DType::F16 => widen_bytes::<f16>,
        DType::BF16 => widen_bytes::<bf16>,
        _ => return None,
    };
    let mut wide = vec![0.0; bytes.len() / dtype.size()];
    widen(bytes, &mut wide);
    Some(wide)
}

/// As [`to_single`], for some ranges of the bytes, which become ranges of the result's bytes.
pub(crate) fn to_single_ranges(bytes: &[u8], ranges: &mut [Range<usize>], dtype: DType) -> Option<Vec<f32>> {
    let mut wide = Vec::new();
    for range in ranges {
        let values = to_single(&bytes[range.clone()], dtype)?;
        let start = size_of_val(&wide[..]);
        *range = start..start + size_of_val(&values[..]);
        wide.extend(values);
    }
    Some(wide)
}

/// Rounds each value to a half type; `bytes` has space for all of them.
pub(crate) fn from_single(wide: &[f32], bytes: &mut [u8], dtype: DType) {
    match dtype {
        DType::F16 => narrow_bytes::<f16>(wide, bytes),
        DType::BF16 => narrow_bytes::<bf16>(wide, bytes),
        _ => unreachable!("{dtype} is no half type"),
    }
}

// Callers' bytes may have any alignment: each block is converted in an aligned array.
fn widen_bytes<T: StoredNumber<Wide = f32> + bytemuck::Pod>(bytes: &[u8], wide: &mut [f32]) {
    let mut block = [T::default(); BLOCK];
    for (bytes, wide) in bytes.chunks(BLOCK * size_of::<T>()).zip(wide.chunks_mut(BLOCK)) {
        let block = &mut block[..wide.len()];
        bytemuck::cast_slice_mut(block).copy_from_slice(bytes);
        T::widen_all(block, wide);
    }
}

fn narrow_bytes<T: StoredNumber<Wide = f32> + bytemuck::Pod>(wide: &[f32], bytes: &mut [u8]) {
    let mut block = [T::default(); BLOCK];
    for (bytes, wide) in bytes.chunks_mut(BLOCK * size_of::<T>()).zip(wide.chunks(BLOCK)) {
        let block = &mut block[..wide.len()];
        T::narrow_all(wide, block);
        bytes.copy_from_slice(bytemuck::cast_slice(block));
    }
}

/// Widens a slice into another of the same length.
#[inline(always)]
pub(super) fn widen(narrow: &[f16], wide: &mut [f32]) {
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut))]
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
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut))]
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
/// The CPU has F16C.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "f16c")]
unsafe fn widen_eight(narrow: [f16; 8]) -> [f32; 8] {
    bytemuck::cast(std::arch::x86_64::_mm256_cvtph_ps(bytemuck::cast(narrow)))
}

/// # Safety
/// The CPU has F16C.
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
