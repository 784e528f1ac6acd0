//! Copies, adds and fills boxes of strided memory: the same indices of two arrays with different strides.

use std::ops::Range;

use half::{bf16, f16};

use super::DType;
use super::numbers::{Accumulator, StoredNumber};
use super::prefetch::prefetch_early;
use super::rows::RowWalk;
use super::stream::{store_fence, stream_chunk};

/// A box of indices, and the strides between neighbouring indices in the two arrays, in elements. Strides may be negative,
/// or zero if one element stands for many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strided<'a> {
    pub extents: &'a [usize],
    pub from: &'a [isize],
    pub to: &'a [isize],
}

/// Rows of at least this many bytes are copied with memcpy.
const LONG: usize = 64;

/// Boxes of at least this many bytes would evict the caches: their long rows are written with non-temporal stores.
const LARGE: usize = 16 << 20;
const STREAMED: usize = 512;

/// Bytes of a cache line.
const LINE: usize = 64;

/// The start of a box in an array, and the bytes of an element and of a row there.
struct Array {
    start: *const u8,
    element: usize,
    row: usize,
}

impl Array {
    fn of<T>(start: *const T, length: usize) -> Array {
        Array { start: start.cast(), element: size_of::<T>(), row: length * size_of::<T>() }
    }

    #[inline(always)]
    fn at(&self, offset: isize) -> *const u8 {
        self.start.wrapping_offset(offset * self.element as isize)
    }
}

impl Strided<'_> {
    /// The number of rows: the product of all extents but the last.
    pub fn row_count(&self) -> usize {
        self.extents[..self.extents.len() - 1].iter().product()
    }

    /// The length of a row and the strides inside it.
    fn row(&self) -> (usize, isize, isize) {
        let last = self.extents.len() - 1;
        (self.extents[last], self.from[last], self.to[last])
    }

    /// Calls `row` with the offsets of the rows with these numbers, and prefetches rows that are not contiguous. The
    /// hardware prefetcher follows contiguous rows.
    #[inline(always)]
    fn each_row(&self, rows: Range<usize>, [from, to]: [Array; 2], row: impl FnMut(isize, isize)) {
        let outer = self.extents.len().checked_sub(2);
        let apart = |strides: &[isize], array: &Array| {
            let far = |at: usize| strides[at].unsigned_abs() * array.element >= LINE;
            outer.is_some_and(|at| strides[at] != self.extents[at + 1] as isize && far(at))
        };
        let (from_apart, to_apart) = (apart(self.from, &from), apart(self.to, &to));
        let fetch = |source: isize, target: isize| {
            if from_apart {
                prefetch_early(from.at(source), from.row);
            }
            if to_apart {
                prefetch_early(to.at(target), to.row);
            }
        };
        RowWalk::new(self, rows).visit_all(from.row.max(to.row), fetch, row);
    }
}

/// Copies rows of a box whose elements have `element` bytes.
///
/// # Safety
/// All elements of these rows are valid for reading from `from` and for writing to `to`, which point to the first element of
/// the full box; the two do not overlap, and nothing else uses the target meanwhile.
pub(crate) unsafe fn copy(shape: &Strided, rows: Range<usize>, element: usize, from: *const u8, to: *mut u8) {
    let (length, from_stride, to_stride) = shape.row();
    // SAFETY: passed on from the caller; rows and strides stay inside the box.
    unsafe {
        if (from_stride, to_stride) == (1, 1) {
            let bytes = length * element;
            return match bytes {
                2 => copy_rows::<2>(shape, rows, element, from, to),
                4 => copy_rows::<4>(shape, rows, element, from, to),
                6 => copy_rows::<6>(shape, rows, element, from, to),
                8 => copy_rows::<8>(shape, rows, element, from, to),
                12 => copy_rows::<12>(shape, rows, element, from, to),
                16 => copy_rows::<16>(shape, rows, element, from, to),
                20 => copy_rows::<20>(shape, rows, element, from, to),
                24 => copy_rows::<24>(shape, rows, element, from, to),
                32 => copy_rows::<32>(shape, rows, element, from, to),
                _ if bytes < LONG => copy_elements(shape, rows, element, from, to),
                _ if bytes >= STREAMED && shape.extents.iter().product::<usize>() * element >= LARGE => {
                    stream_long_rows(shape, rows, element, from, to)
                }
                _ => copy_long_rows(shape, rows, element, from, to),
            };
        }
        copy_elements(shape, rows, element, from, to);
    }
}

/// # Safety
/// As [`copy`], for rows of `BYTES` bytes.
unsafe fn copy_rows<const BYTES: usize>(
    shape: &Strided,
    rows: Range<usize>,
    element: usize,
    from: *const u8,
    to: *mut u8,
) {
    let size = element as isize;
    let arrays = [from, to.cast_const()].map(|start| Array { start, element, row: BYTES });
    shape.each_row(rows, arrays, |source, target| {
        // SAFETY: it is one of the rows.
        unsafe {
            let row = from.wrapping_offset(source * size).cast::<[u8; BYTES]>().read_unaligned();
            to.wrapping_offset(target * size).cast::<[u8; BYTES]>().write_unaligned(row);
        }
    });
}

/// # Safety
/// As [`copy`], for rows without gaps.
unsafe fn stream_long_rows(
    shape: &Strided,
    rows: Range<usize>,
    element: usize,
    from: *const u8,
    to: *mut u8,
) {
    let (size, bytes) = (element as isize, shape.row().0 * element);
    RowWalk::new(shape, rows).visit(usize::MAX, |source, target| {
        // SAFETY: it is one of the rows.
        unsafe {
            stream_chunk(from.wrapping_offset(source * size), to.wrapping_offset(target * size), bytes)
        };
    });
    store_fence();
}

/// # Safety
/// As [`copy`], for rows without gaps.
unsafe fn copy_long_rows(shape: &Strided, rows: Range<usize>, element: usize, from: *const u8, to: *mut u8) {
    let (size, bytes) = (element as isize, shape.row().0 * element);
    RowWalk::new(shape, rows).visit(usize::MAX, |source, target| {
        let (from, to) = (from.wrapping_offset(source * size), to.wrapping_offset(target * size));
        // SAFETY: it is one of the rows.
        unsafe { to.copy_from_nonoverlapping(from, bytes) };
    });
}

/// # Safety
/// As [`copy`].
unsafe fn copy_elements(shape: &Strided, rows: Range<usize>, element: usize, from: *const u8, to: *mut u8) {
    // SAFETY: passed on from the caller.
    unsafe {
        match element {
            1 => copy_each::<u8>(shape, rows, from.cast(), to.cast()),
            2 => copy_each::<u16>(shape, rows, from.cast(), to.cast()),
            4 => copy_each::<u32>(shape, rows, from.cast(), to.cast()),
            _ => copy_each::<u64>(shape, rows, from.cast(), to.cast()),
        }
    }
}

/// # Safety
/// As [`copy`], for elements of type `T`.
unsafe fn copy_each<T: Copy>(shape: &Strided, rows: Range<usize>, from: *const T, to: *mut T) {
    let (length, from_stride, to_stride) = shape.row();
    shape.each_row(rows, [Array::of(from, length), Array::of(to, length)], |source, target| {
        for index in 0..length as isize {
            // SAFETY: the element is one of the rows'.
            unsafe {
                let value = from.wrapping_offset(source + index * from_stride).read_unaligned();
                to.wrapping_offset(target + index * to_stride).write_unaligned(value);
            }
        }
    });
}

/// Bytes of the type in which elements are summed.
pub(crate) fn wide_size(dtype: DType) -> usize {
    match dtype {
        DType::F16 | DType::BF16 => 4,
        _ => dtype.size(),
    }
}

/// Adds a box of elements to a box of sums, which have the wider type in which elements are summed; integers wrap around.
///
/// # Safety
/// As [`copy`]; the target's elements are initialised and have the size that [`wide_size`] returns.
pub(crate) unsafe fn add(shape: &Strided, dtype: DType, from: *const u8, to: *mut u8) {
    // SAFETY: passed on from the caller.
    unsafe {
        match dtype {
            DType::F32 => add_each::<f32>(shape, from.cast(), to.cast()),
            DType::F64 => add_each::<f64>(shape, from.cast(), to.cast()),
            DType::F16 => add_each::<f16>(shape, from.cast(), to.cast()),
            DType::BF16 => add_each::<bf16>(shape, from.cast(), to.cast()),
            DType::I8 => add_each::<i8>(shape, from.cast(), to.cast()),
            DType::U8 => add_each::<u8>(shape, from.cast(), to.cast()),
            DType::I32 => add_each::<i32>(shape, from.cast(), to.cast()),
            DType::I64 => add_each::<i64>(shape, from.cast(), to.cast()),
            _ => unreachable!("a halo of {dtype} was rejected"),
        }
    }
}

/// # Safety
/// As [`add`].
unsafe fn add_each<T: StoredNumber>(shape: &Strided, from: *const T, to: *mut T::Wide) {
    let (length, from_stride, to_stride) = shape.row();
    let arrays = [Array::of(from, length), Array::of(to, length)];
    shape.each_row(0..shape.row_count(), arrays, |source, target| {
        // SAFETY: all elements lie inside the box; they are added one after the other, because several may go to the same
        // sum.
        unsafe {
            let (from, to) = (from.offset(source), to.offset(target));
            if (from_stride, to_stride) == (1, 1) {
                for index in 0..length {
                    let sum = to.add(index).read_unaligned().add(from.add(index).read_unaligned().widen());
                    to.add(index).write_unaligned(sum);
                }
                return;
            }
            for index in 0..length as isize {
                let place = to.offset(index * to_stride);
                let value = from.offset(index * from_stride).read_unaligned().widen();
                place.write_unaligned(place.read_unaligned().add(value));
            }
        }
    });
}

/// Rounds sums to elements, once.
pub(crate) fn narrow(dtype: DType, wide: &[u8], out: &mut [u8]) {
    fn each<T: StoredNumber<Wide = f32>>(wide: &[u8], out: &mut [u8]) {
        for (wide, out) in wide.chunks_exact(4).zip(out.chunks_exact_mut(2)) {
            let narrow = T::narrow(bytemuck::pod_read_unaligned(wide));
            // SAFETY: both half types are two bytes without padding.
            out.copy_from_slice(&unsafe { std::mem::transmute_copy::<T, [u8; 2]>(&narrow) });
        }
    }
    assert_eq!(wide.len() / wide_size(dtype), out.len() / dtype.size());
    match dtype {
        DType::F16 => each::<f16>(wide, out),
        DType::BF16 => each::<bf16>(wide, out),
        _ => out.copy_from_slice(wide),
    }
}

/// The bytes of a number as an element; integers truncate towards zero and saturate.
pub(crate) fn value_of(dtype: DType, value: f64) -> [u8; 8] {
    let mut bytes = [0; 8];
    let mut put = |value: &[u8]| bytes[..value.len()].copy_from_slice(value);
    match dtype {
        DType::F32 => put(&(value as f32).to_ne_bytes()),
        DType::F64 => put(&value.to_ne_bytes()),
        DType::F16 => put(&f16::from_f64(value).to_ne_bytes()),
        DType::BF16 => put(&bf16::from_f64(value).to_ne_bytes()),
        DType::I8 => put(&(value as i8).to_ne_bytes()),
        DType::U8 => put(&(value as u8).to_ne_bytes()),
        DType::I32 => put(&(value as i32).to_ne_bytes()),
        DType::I64 => put(&(value as i64).to_ne_bytes()),
        _ => unreachable!("a halo of {dtype} was rejected"),
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The offsets of all elements of a box, by definition.
    fn offsets(extents: &[usize], strides: &[isize]) -> Vec<isize> {
        extents.iter().zip(strides).fold(vec![0], |offsets, (&extent, stride)| {
            offsets.iter().flat_map(|at| (0..extent as isize).map(move |i| at + i * stride)).collect()
        })
    }

    /// Extents, strides of two arrays, and the start of the first.
    type Shape = (&'static [usize], &'static [isize], &'static [isize], isize);

    const SHAPES: [Shape; 7] = [
        (&[5], &[1], &[1], 0),
        (&[1000], &[1], &[1], 0),
        (&[3, 4], &[7, 1], &[4, 1], 0),
        (&[2, 3, 3], &[50, 9, 1], &[30, 8, 1], 0),
        (&[2, 5], &[-9, 1], &[5, 1], 9),
        (&[4, 6], &[10, -1], &[6, 1], 5),
        (&[3, 3], &[5, 0], &[3, 1], 0),
    ];

    #[test]
    fn boxes_of_every_element_size_arrive() {
        for (extents, from, to, start) in SHAPES {
            let shape = Strided { extents, from, to };
            for element in [1, 2, 4, 8] {
                let source: Vec<u8> = (0..1200 * element).map(|at| (at * 7 % 251) as u8).collect();
                let mut target = vec![0xee; 1200 * element];
                // SAFETY: all offsets are below 1200 and the vectors are distinct.
                unsafe {
                    copy(
                        &shape,
                        0..shape.row_count(),
                        element,
                        source.as_ptr().add(start as usize * element),
                        target.as_mut_ptr(),
                    );
                }
                let mut expected = vec![0xee; 1200 * element];
                for (from, to) in offsets(extents, from).into_iter().zip(offsets(extents, to)) {
                    let (from, to) = ((start + from) as usize * element, to as usize * element);
                    expected[to..to + element].copy_from_slice(&source[from..from + element]);
                }
                assert!(target == expected, "{shape:?} of {element} bytes");
            }
        }
    }

    #[test]
    fn large_boxes_arrive_past_the_caches() {
        let (rows, length, pitch) = (LARGE / 4 / 1000 + 1, 1000, 1003);
        let source: Vec<u32> = (0..(rows * pitch) as u32).collect();
        let mut target = vec![u32::MAX; rows * length];
        let shape =
            Strided { extents: &[rows, length], from: &[pitch as isize, 1], to: &[length as isize, 1] };
        // SAFETY: both vectors have room for all rows.
        unsafe { copy(&shape, 0..rows, 4, source.as_ptr().cast(), target.as_mut_ptr().cast()) };
        let right = |(at, &value): (usize, &u32)| value == (at / length * pitch + at % length) as u32;
        assert!(target.iter().enumerate().all(right));
    }

    #[test]
    fn sums_gather_what_stands_for_many() {
        for (extents, to, from, start) in SHAPES {
            let shape = Strided { extents, from, to };
            let source: Vec<f16> = (0..1200).map(|at| f16::from_f32((at % 13) as f32)).collect();
            let mut sums = vec![1.0f32; 1200];
            // SAFETY: all offsets are below 1200.
            unsafe {
                let target = sums.as_mut_ptr().offset(start);
                add(&shape, DType::F16, source.as_ptr().cast(), target.cast());
            }
            let mut expected = vec![1.0f32; 1200];
            for (from, to) in offsets(extents, from).into_iter().zip(offsets(extents, to)) {
                expected[(start + to) as usize] += source[from as usize].to_f32();
            }
            assert_eq!(sums, expected, "{shape:?}");
        }
    }

    #[test]
    fn halves_are_rounded_once() {
        let wide = [1.0f32, 2048.5, 0.1];
        let mut out = [0u8; 6];
        narrow(DType::F16, bytemuck::cast_slice(&wide), &mut out);
        assert_eq!(bytemuck::pod_read_unaligned::<f16>(&out[4..]), f16::from_f32(0.1));
        assert_eq!(value_of(DType::I8, f64::NEG_INFINITY)[0] as i8, i8::MIN);
        assert_eq!(f32::from_ne_bytes(value_of(DType::F32, 0.5)[..4].try_into().unwrap()), 0.5);
    }
}
