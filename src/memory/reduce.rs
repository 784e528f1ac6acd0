//! The reduction kernel: folds several buffers into one, in the given order, and writes the result to several destinations.
//!
//! The order is part of the contract: ranks pass their buffers in rank order, so every rank gets the same bits. Sources are
//! read once and destinations written once, with the running values in registers.

use half::{bf16, f16};

use super::bits::{Bits, Truth};
use super::complex::Complex;
use super::numbers::{Accumulator, StoredNumber};
use super::{DType, ReduceOp};

/// Sources, destinations, and the number of elements.
struct FoldJob<'a> {
    count: usize,
    sources: &'a [*const u8],
    destinations: &'a [*mut u8],
    divisor: usize,
}

/// Folds `sources` in order with `operation` and stores the result in every destination. `Avg` divides by the number of
/// sources.
///
/// # Safety
/// Every pointer is valid for `count` elements of `dtype` (any alignment). A destination may be one of the sources, but must
/// not partially overlap one. Nothing else writes to any of this memory meanwhile.
pub(crate) unsafe fn combine(
    dtype: DType,
    operation: ReduceOp,
    count: usize,
    sources: &[*const u8],
    destinations: &[*mut u8],
) {
    #[cfg(all(test, not(unisono_loom)))]
    if super::meter::count((sources.len() + destinations.len()) * count * dtype.size()) {
        return;
    }
    let divisor = if operation == ReduceOp::Avg { sources.len() } else { 1 };
    let job = FoldJob { count, sources, destinations, divisor };
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("f16c") {
        // SAFETY: the features were just detected; the caller vouches for the pointers.
        return unsafe { combine_avx2(dtype, operation, &job) };
    }
    // SAFETY: the caller vouches for the pointers.
    unsafe { combine_any(dtype, operation, &job) }
}

/// Divides every value: the last step of a mean whose sum was computed in several places.
pub(crate) fn divide(bytes: &mut [u8], dtype: DType, divisor: usize) {
    let pointer = bytes.as_mut_ptr();
    let job =
        FoldJob { count: bytes.len() / dtype.size(), sources: &[pointer], destinations: &[pointer], divisor };
    // SAFETY: the source is the destination, and the count covers complete elements of `bytes`.
    unsafe { combine_any(dtype, ReduceOp::Avg, &job) }
}

/// The same code, compiled for wider registers. It never fuses multiply and add, so results do not change.
///
/// # Safety
/// As [`combine`], and the CPU has AVX2 and F16C.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
unsafe fn combine_avx2(dtype: DType, operation: ReduceOp, job: &FoldJob) {
    // SAFETY: passed on from the caller.
    unsafe { combine_any(dtype, operation, job) }
}

/// # Safety
/// As [`combine`].
#[inline(always)]
unsafe fn combine_any(dtype: DType, operation: ReduceOp, job: &FoldJob) {
    // SAFETY: passed on from the caller; `dtype` names the element type of the pointers.
    unsafe {
        match dtype {
            DType::F32 => by_operation::<f32>(operation, job),
            DType::F64 => by_operation::<f64>(operation, job),
            DType::F16 => by_operation::<f16>(operation, job),
            DType::BF16 => by_operation::<bf16>(operation, job),
            DType::I8 => by_any_operation::<i8>(operation, job),
            DType::U8 => by_any_operation::<u8>(operation, job),
            DType::I16 => by_any_operation::<i16>(operation, job),
            DType::U16 => by_any_operation::<u16>(operation, job),
            DType::I32 => by_any_operation::<i32>(operation, job),
            DType::U32 => by_any_operation::<u32>(operation, job),
            DType::I64 => by_any_operation::<i64>(operation, job),
            DType::U64 => by_any_operation::<u64>(operation, job),
            DType::Bool => by_any_operation::<Truth>(operation, job),
            DType::C64 => by_operation::<Complex<f32>>(operation, job),
            DType::C128 => by_operation::<Complex<f64>>(operation, job),
            _ => unreachable!("{operation} of {dtype} was rejected"),
        }
    }
}

/// # Safety
/// As [`combine`], with elements of type `T`.
#[inline(always)]
unsafe fn by_operation<T: StoredNumber>(operation: ReduceOp, job: &FoldJob) {
    // SAFETY: passed on from the caller.
    unsafe {
        match operation {
            ReduceOp::Sum | ReduceOp::Avg => fold::<T>(job, T::Wide::add),
            ReduceOp::Prod => fold::<T>(job, T::Wide::multiply),
            ReduceOp::Min => fold::<T>(job, T::Wide::minimum),
            ReduceOp::Max => fold::<T>(job, T::Wide::maximum),
            _ => unreachable!("{operation} is not defined for the type and was rejected"),
        }
    }
}

/// # Safety
/// As [`combine`], with elements of type `T`.
#[inline(always)]
unsafe fn by_any_operation<T: StoredNumber<Wide: Bits>>(operation: ReduceOp, job: &FoldJob) {
    // SAFETY: passed on from the caller.
    unsafe {
        match operation {
            ReduceOp::Band => fold::<T>(job, T::Wide::bit_and),
            ReduceOp::Bor => fold::<T>(job, T::Wide::bit_or),
            ReduceOp::Bxor => fold::<T>(job, T::Wide::bit_xor),
            ReduceOp::Land => fold_truth::<T>(job, T::Wide::bit_and),
            ReduceOp::Lor => fold_truth::<T>(job, T::Wide::bit_or),
            _ => by_operation::<T>(operation, job),
        }
    }
}

/// Folds the truth of the values: a single source, too, becomes 0 or 1.
///
/// # Safety
/// As [`combine`], with elements of type `T`.
#[inline(always)]
unsafe fn fold_truth<T: StoredNumber<Wide: Bits>>(
    job: &FoldJob,
    operation: impl Fn(T::Wide, T::Wide) -> T::Wide,
) {
    // SAFETY: passed on from the caller; a truth is stored as its number.
    unsafe { fold_from::<T>(job, T::Wide::truth, operation) }
}

/// # Safety
/// As [`combine`], with elements of type `T`.
#[inline(always)]
unsafe fn fold<T: StoredNumber>(job: &FoldJob, operation: impl Fn(T::Wide, T::Wide) -> T::Wide) {
    // SAFETY: passed on from the caller.
    unsafe { fold_from::<T>(job, |value| value, operation) }
}

/// Folds what `read` makes of the values.
///
/// # Safety
/// As [`combine`], with elements of type `T`.
#[inline(always)]
unsafe fn fold_from<T: StoredNumber>(
    job: &FoldJob,
    read: impl Fn(T::Wide) -> T::Wide,
    operation: impl Fn(T::Wide, T::Wide) -> T::Wide,
) {
    let Some((first, others)) = job.sources.split_first() else { return };
    let mut start = 0;
    while start + LANES <= job.count {
        // SAFETY: all lanes are below `job.count`, for which the caller vouches.
        unsafe { fold_lanes::<T, LANES>(job, (*first, others), start, (&read, &operation)) };
        start += LANES;
    }
    for index in start..job.count {
        // SAFETY: the index is below `job.count`, for which the caller vouches.
        unsafe { fold_lanes::<T, 1>(job, (*first, others), index, (&read, &operation)) };
    }
}

/// Elements that are folded at once. Fewer leave the loop's overhead visible; more do not fit into the vector registers.
const LANES: usize = 64;

/// Folds `LANES` elements from `start` on. All sources are read before any destination is written, so that the compiler may use
/// wide registers although a destination may be a source.
///
/// # Safety
/// As [`combine`], with elements of type `T`; all lanes are inside the buffers.
#[inline(always)]
unsafe fn fold_lanes<T: StoredNumber, const LANES: usize>(
    job: &FoldJob,
    (first, others): (*const u8, &[*const u8]),
    start: usize,
    (convert, operation): (&impl Fn(T::Wide) -> T::Wide, &impl Fn(T::Wide, T::Wide) -> T::Wide),
) {
    let mut values = [T::Wide::default(); LANES];
    let mut other_values = [T::Wide::default(); LANES];
    // SAFETY: guaranteed by the caller.
    let read =
        |source: *const u8| unsafe { source.cast::<T>().add(start).cast::<[T; LANES]>().read_unaligned() };
    T::widen_all(&read(first), &mut values);
    for value in &mut values {
        *value = convert(*value);
    }
    for &other in others {
        T::widen_all(&read(other), &mut other_values);
        for (value, other) in values.iter_mut().zip(&other_values) {
            *value = operation(*value, convert(*other));
        }
    }
    if job.divisor > 1 {
        for value in &mut values {
            *value = value.divide(job.divisor);
        }
    }
    let mut result = [T::default(); LANES];
    T::narrow_all(&values, &mut result);
    for destination in job.destinations {
        // SAFETY: guaranteed by the caller.
        unsafe { destination.cast::<T>().add(start).cast::<[T; LANES]>().write_unaligned(result) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T: bytemuck::Pod>(
        dtype: DType,
        operation: ReduceOp,
        rows: &[Vec<T>],
        outputs: usize,
    ) -> Vec<Vec<T>> {
        let count = rows[0].len();
        let mut results = vec![rows[0].clone(); outputs];
        let sources: Vec<_> = rows.iter().map(|row| row.as_ptr().cast()).collect();
        let destinations: Vec<_> = results.iter_mut().map(|row| row.as_mut_ptr().cast()).collect();
        // SAFETY: all vectors have `count` elements and do not overlap.
        unsafe { combine(dtype, operation, count, &sources, &destinations) };
        results
    }

    #[test]
    fn folds_in_order_for_any_number_of_sources_and_destinations() {
        for sources in 1..=5 {
            for outputs in 1..=4 {
                for count in [0, 1, 7, 1024, 2500] {
                    let rows: Vec<Vec<f32>> = (0..sources)
                        .map(|s| (0..count).map(|i| (i * 31 + s * 17) as f32 * 0.1).collect())
                        .collect();
                    let expected: Vec<f32> = (0..count)
                        .map(|i| rows[1..].iter().fold(rows[0][i], |sum, row| sum + row[i]))
                        .collect();
                    for result in run(DType::F32, ReduceOp::Sum, &rows, outputs) {
                        assert_eq!(result, expected);
                    }
                    let mean: Vec<f32> = expected.iter().map(|sum| sum / sources as f32).collect();
                    assert_eq!(run(DType::F32, ReduceOp::Avg, &rows, 1)[0], mean);
                }
            }
        }
    }

    #[test]
    fn minimum_and_maximum_keep_nan_from_either_side() {
        let rows = vec![vec![1.0f64, f64::NAN, 3.0], vec![f64::NAN, 2.0, 4.0]];
        let low = &run(DType::F64, ReduceOp::Min, &rows, 1)[0];
        let high = &run(DType::F64, ReduceOp::Max, &rows, 1)[0];
        assert!(low[0].is_nan() && low[1].is_nan() && high[0].is_nan() && high[1].is_nan());
        assert_eq!((low[2], high[2]), (3.0, 4.0));
    }

    #[test]
    fn half_types_are_summed_in_single_precision_and_rounded_once() {
        // 2048 + 1 + 1 is 2050 in f16, but 2048 when each step is rounded.
        let rows: Vec<Vec<f16>> = [2048.0, 1.0, 1.0].map(|x| vec![f16::from_f32(x); 3]).to_vec();
        assert_eq!(run(DType::F16, ReduceOp::Sum, &rows, 1)[0][0].to_f32(), 2050.0);
        let rows: Vec<Vec<bf16>> = [256.0, 1.0, 1.0].map(|x| vec![bf16::from_f32(x); 3]).to_vec();
        assert_eq!(run(DType::BF16, ReduceOp::Sum, &rows, 1)[0][0].to_f32(), 258.0);
    }

    #[test]
    fn bfloat16_rounds_as_the_half_crate_does() {
        for bits in (0..=u32::MAX).step_by(65_521) {
            let wide = f32::from_bits(bits);
            let (ours, theirs) = (bf16::narrow(wide), bf16::from_f32(wide));
            assert!(ours == theirs || (ours.is_nan() && theirs.is_nan()), "{wide} gave {ours} and {theirs}");
        }
    }

    #[test]
    fn integers_wrap_around() {
        assert_eq!(run(DType::U8, ReduceOp::Sum, &[vec![200u8], vec![100]], 1)[0], [44]);
        assert_eq!(run(DType::I8, ReduceOp::Prod, &[vec![64i8], vec![4], vec![1]], 1)[0], [0]);
    }

    #[test]
    fn bits_are_combined_and_logical_operations_return_zero_or_one() {
        let rows = [vec![0b1100u16, 0, 7], vec![0b1010, 0, 0], vec![0b1001, 0, 0xffff]];
        let fold = |operation| run(DType::U16, operation, &rows, 2)[1].clone();
        assert_eq!(fold(ReduceOp::Band), [0b1000, 0, 0]);
        assert_eq!(fold(ReduceOp::Bor), [0b1111, 0, 0xffff]);
        assert_eq!(fold(ReduceOp::Bxor), [0b1111, 0, 0xfff8]);
        assert_eq!(fold(ReduceOp::Land), [1, 0, 0]);
        assert_eq!(fold(ReduceOp::Lor), [1, 0, 1]);
        assert_eq!(run(DType::I64, ReduceOp::Land, &[vec![-5i64, 0]], 1)[0], [1, 0], "of a single source");
        assert_eq!(run(DType::I8, ReduceOp::Band, &[vec![-1i8], vec![0x70]], 1)[0], [0x70]);
    }

    #[test]
    fn booleans_are_normalised_and_counted_once() {
        let rows = [vec![0u8, 1, 2, 0xff], vec![0, 1, 0, 0]];
        for (operation, expected) in [
            (ReduceOp::Sum, [0, 1, 1, 1]),
            (ReduceOp::Max, [0, 1, 1, 1]),
            (ReduceOp::Lor, [0, 1, 1, 1]),
            (ReduceOp::Bor, [0, 1, 1, 1]),
            (ReduceOp::Prod, [0, 1, 0, 0]),
            (ReduceOp::Min, [0, 1, 0, 0]),
            (ReduceOp::Land, [0, 1, 0, 0]),
            (ReduceOp::Band, [0, 1, 0, 0]),
            (ReduceOp::Bxor, [0, 0, 1, 1]),
        ] {
            assert_eq!(run(DType::Bool, operation, &rows, 1)[0], expected, "{operation}");
        }
    }

    #[test]
    fn complex_numbers_are_added_multiplied_and_divided() {
        let rows: Vec<Vec<[f64; 2]>> = vec![vec![[1.0, 2.0]; 70], vec![[3.0, -1.0]; 70]];
        let fold = |operation| run(DType::C128, operation, &rows, 1)[0].clone();
        assert_eq!(fold(ReduceOp::Sum), vec![[4.0, 1.0]; 70]);
        assert_eq!(fold(ReduceOp::Avg), vec![[2.0, 0.5]; 70]);
        assert_eq!(fold(ReduceOp::Prod), vec![[5.0, 5.0]; 70]);
        let rows: Vec<Vec<[f32; 2]>> = vec![vec![[0.0, 1.0]; 3]; 4];
        assert_eq!(run(DType::C64, ReduceOp::Prod, &rows, 1)[0], vec![[1.0, 0.0]; 3]);
        let mut sums = [9.0f32, 3.0].map(f32::to_ne_bytes).concat();
        divide(&mut sums, DType::C64, 3);
        assert_eq!(sums, [3.0f32, 1.0].map(f32::to_ne_bytes).concat());
    }

    #[test]
    fn every_defined_reduction_has_a_kernel() {
        for dtype in DType::ALL {
            for operation in ReduceOp::ALL.into_iter().filter(|operation| operation.takes(dtype)) {
                let bytes = vec![vec![0u8; 65 * dtype.size()]; 3];
                let sources: Vec<_> = bytes.iter().map(|row| row.as_ptr()).collect();
                let mut result = bytes[0].clone();
                // SAFETY: all buffers have 65 elements and do not overlap.
                unsafe { combine(dtype, operation, 65, &sources, &[result.as_mut_ptr()]) };
                assert_eq!(result, bytes[0], "{operation} of {dtype} zeros");
            }
        }
    }

    #[test]
    fn a_destination_may_be_a_source() {
        let mut rows = [vec![1i64, 2, 3], vec![10, 20, 30], vec![5, 5, 5]];
        let destination: *mut u8 = rows[1].as_mut_ptr().cast();
        let sources = [rows[0].as_ptr().cast(), destination.cast_const(), rows[2].as_ptr().cast()];
        // SAFETY: all vectors have three elements; the destination is exactly the second source.
        unsafe { combine(DType::I64, ReduceOp::Sum, 3, &sources, &[destination]) };
        assert_eq!(rows[1], [16, 27, 38]);
    }
}
