//! The packed forms: which they are, the element type and the number of elements in front, then the elements.

use bytemuck::{Pod, Zeroable};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::Compression;
use crate::error::Result;
use crate::memory::DType;
use crate::tables::remote::wire::foreign;

/// Every element as it is.
const PLAIN: u8 = 0;
/// Only some elements: how many, their positions, their values. The others are zero.
const PAIRS: u8 = 1;
const HALF: u8 = 2;
const UPPER_HALF: u8 = 3;
/// Elements in a block, a scale for each block, a byte for each element.
const BYTES: u8 = 4;

/// Bytes in front of the elements.
pub(super) const FRONT: usize = 10;

/// A type that may lose precision on the way.
pub(super) trait Real: Pod + Default + PartialOrd {
    const DTYPE: DType;
    fn wide(self) -> f64;
    fn narrow(wide: f64) -> Self;
    fn halves(values: &[Self]) -> Vec<f16>;
    fn from_halves(halves: &[f16]) -> Vec<Self>;
    fn upper_halves(values: &[Self]) -> Vec<bf16>;
    fn from_upper_halves(halves: &[bf16]) -> Vec<Self>;
}

macro_rules! real {
    ($type:ty, $dtype:expr, $from:ident, $to:ident) => {
        impl Real for $type {
            const DTYPE: DType = $dtype;
            fn wide(self) -> f64 {
                f64::from(self)
            }
            fn narrow(wide: f64) -> $type {
                wide as $type
            }
            fn halves(values: &[$type]) -> Vec<f16> {
                let mut halves = vec![f16::ZERO; values.len()];
                halves.$from(values);
                halves
            }
            fn from_halves(halves: &[f16]) -> Vec<$type> {
                let mut values = vec![0.0; halves.len()];
                halves.$to(&mut values);
                values
            }
            fn upper_halves(values: &[$type]) -> Vec<bf16> {
                let mut halves = vec![bf16::ZERO; values.len()];
                halves.$from(values);
                halves
            }
            fn from_upper_halves(halves: &[bf16]) -> Vec<$type> {
                let mut values = vec![0.0; halves.len()];
                halves.$to(&mut values);
                values
            }
        }
    };
}
real!(f32, DType::F32, convert_from_f32_slice, convert_to_f32_slice);
real!(f64, DType::F64, convert_from_f64_slice, convert_to_f64_slice);

/// Elements out of bytes that need not be aligned.
pub(super) fn collect<T: Pod>(bytes: &[u8]) -> Vec<T> {
    let mut values = vec![T::zeroed(); bytes.len() / size_of::<T>()];
    let room: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
    room.copy_from_slice(&bytes[..room.len()]);
    values
}

fn front(form: u8, dtype: DType, count: usize, room: usize) -> Vec<u8> {
    let mut packed = Vec::with_capacity(FRONT + room);
    packed.extend_from_slice(&[form, dtype as u8]);
    packed.extend_from_slice(&(count as u64).to_le_bytes());
    packed
}

/// Every element as it is.
pub(super) fn plain(dtype: DType, elements: &[u8]) -> Vec<u8> {
    let mut packed = front(PLAIN, dtype, elements.len() / dtype.size(), elements.len());
    packed.extend_from_slice(elements);
    packed
}

/// Packs with some loss; `None` where a value does not fit the form (infinite, not a number, too large), or the form would
/// not be smaller. `row` is how many elements belong together.
pub(super) fn lossy<T: Real>(values: &[T], compression: Compression, row: usize) -> Option<Vec<u8>> {
    match compression {
        Compression::None => None,
        Compression::F16 => {
            let halves = T::halves(values);
            let fits = halves.iter().all(|half| half.is_finite());
            fits.then(|| whole(HALF, T::DTYPE, bytemuck::cast_slice(&halves), values.len()))
        }
        Compression::BF16 => {
            let halves = T::upper_halves(values);
            let fits = halves.iter().all(|half| half.is_finite());
            fits.then(|| whole(UPPER_HALF, T::DTYPE, bytemuck::cast_slice(&halves), values.len()))
        }
        Compression::Int8 => eight_bits(values, row),
        Compression::TopK(fraction) => largest(values, fraction),
    }
}

fn whole(form: u8, dtype: DType, bytes: &[u8], count: usize) -> Vec<u8> {
    let mut packed = front(form, dtype, count, bytes.len());
    packed.extend_from_slice(bytes);
    packed
}

/// A row has one scale, unless rows are so short that scales would weigh, or so long that one value would spoil many.
fn block_of(row: usize) -> usize {
    if (16..=1024).contains(&row) { row } else { 256 }
}

fn eight_bits<T: Real>(values: &[T], row: usize) -> Option<Vec<u8>> {
    let block = block_of(row);
    let mut scales = Vec::with_capacity(values.len().div_ceil(block));
    let mut bytes = Vec::with_capacity(values.len());
    for values in values.chunks(block) {
        // Not a number must not hide behind a comparison that is false.
        let largest = values.iter().fold(0.0, |most: f64, value| {
            let size = value.wide().abs();
            if size > most || size.is_nan() { size } else { most }
        });
        let scale = (largest / 127.0) as f32;
        if !(largest.is_finite() && scale.is_finite()) || values.iter().any(|value| value.wide().is_nan()) {
            return None;
        }
        scales.push(scale);
        let factor = if scale > 0.0 { 1.0 / f64::from(scale) } else { 0.0 };
        let byte = |value: &T| (value.wide() * factor).round().clamp(-127.0, 127.0) as i8;
        bytes.extend(values.iter().map(byte));
    }
    let mut packed = front(BYTES, T::DTYPE, values.len(), 4 + 4 * scales.len() + bytes.len());
    packed.extend_from_slice(&(block as u32).to_le_bytes());
    packed.extend_from_slice(bytemuck::cast_slice(&scales));
    packed.extend_from_slice(bytemuck::cast_slice(&bytes));
    Some(packed)
}

fn largest<T: Real>(values: &[T], fraction: f64) -> Option<Vec<u8>> {
    if values.iter().any(|value| !value.wide().is_finite()) || u32::try_from(values.len()).is_err() {
        return None;
    }
    let most = ((values.len() as f64 * fraction).ceil() as usize).clamp(1, values.len().max(1));
    let mut positions: Vec<u32> = (0..values.len() as u32).collect();
    if most < positions.len() {
        let size = |position: &u32| values[*position as usize].wide().abs();
        positions.select_nth_unstable_by(most - 1, |one, other| size(other).total_cmp(&size(one)));
        positions.truncate(most);
        positions.sort_unstable();
    }
    positions.retain(|&position| values[position as usize] != T::default());
    pairs(T::DTYPE, values, &positions)
}

/// The elements at these positions; `None` where leaving the others out saves nothing.
fn pairs<T: Pod>(dtype: DType, values: &[T], positions: &[u32]) -> Option<Vec<u8>> {
    let room = 8 + positions.len() * (4 + size_of::<T>());
    if room >= std::mem::size_of_val(values) {
        return None;
    }
    let mut packed = front(PAIRS, dtype, values.len(), room);
    packed.extend_from_slice(&(positions.len() as u64).to_le_bytes());
    packed.extend_from_slice(bytemuck::cast_slice(positions));
    positions
        .iter()
        .for_each(|&position| packed.extend_from_slice(bytemuck::bytes_of(&values[position as usize])));
    Some(packed)
}

/// Leaves zeros out, without loss: only elements whose bits are all zero. `None` where that saves nothing.
pub(super) fn without_zeros(dtype: DType, elements: &[u8]) -> Option<Vec<u8>> {
    match dtype.size() {
        1 => nonzero::<u8>(dtype, elements),
        2 => nonzero::<u16>(dtype, elements),
        4 => nonzero::<u32>(dtype, elements),
        _ => nonzero::<u64>(dtype, elements),
    }
}

fn nonzero<T: Pod + PartialEq + Zeroable>(dtype: DType, elements: &[u8]) -> Option<Vec<u8>> {
    let count = elements.len() / size_of::<T>();
    let nonzero = |bytes: &[u8]| bytemuck::pod_read_unaligned::<T>(bytes) != T::zeroed();
    // Count first: most adds are dense, and pay one pass over memory for this.
    let kept = elements.chunks_exact(size_of::<T>()).filter(|bytes| nonzero(bytes)).count();
    if kept * 2 >= count || u32::try_from(count).is_err() {
        return None;
    }
    let values: Vec<T> = collect(elements);
    let zero = T::zeroed();
    let positions: Vec<u32> =
        (0..count as u32).filter(|&position| values[position as usize] != zero).collect();
    pairs(dtype, &values, &positions)
}

/// Packs the elements of a reply; false when they stay plain.
pub(crate) fn pack_reply(elements: Vec<u8>, dtype: DType, compression: Compression) -> (Vec<u8>, bool) {
    let packed = match (dtype, compression) {
        // A get is whole.
        (_, Compression::TopK(_)) => None,
        (DType::F32, _) => lossy(&collect::<f32>(&elements), compression, 0),
        (DType::F64, _) => lossy(&collect::<f64>(&elements), compression, 0),
        _ => None,
    };
    packed.map_or((elements, false), |packed| (packed, true))
}

/// The plain elements of a packed add: so many bytes of that type.
pub(crate) fn unpack(packed: &[u8], dtype: DType, bytes: usize) -> Result<Vec<u8>> {
    let (found, count) = read_front(packed)?;
    if found != dtype || count.checked_mul(dtype.size()) != Some(bytes) {
        let expected = bytes / dtype.size();
        return Err(foreign(format!("{count} x {found} where {expected} x {dtype} should follow")));
    }
    elements(packed, dtype, count)
}

/// The plain elements of a packed reply; how many they are is bounded by its length.
pub(crate) fn unpack_reply(packed: &[u8]) -> Result<Vec<u8>> {
    let (dtype, count) = read_front(packed)?;
    if packed[0] == PAIRS || count > packed.len() {
        return Err(foreign(format!("{count} elements in {} bytes", packed.len())));
    }
    elements(packed, dtype, count)
}

fn read_front(packed: &[u8]) -> Result<(DType, usize)> {
    let short = || foreign(format!("{} bytes of packed elements", packed.len()));
    let (front, _) = packed.split_first_chunk::<FRONT>().ok_or_else(short)?;
    let (count, _) = front[2..].split_first_chunk().ok_or_else(short)?;
    let dtype = DType::from_number(front[1]).ok_or_else(|| foreign(format!("element type {}", front[1])))?;
    Ok((dtype, u64::from_le_bytes(*count) as usize))
}

fn elements(packed: &[u8], dtype: DType, count: usize) -> Result<Vec<u8>> {
    let (form, body) = (packed[0], &packed[FRONT..]);
    match (form, dtype) {
        (PLAIN, _) => exactly(body, count.checked_mul(dtype.size())).map(<[u8]>::to_vec),
        (PAIRS, _) => scattered(body, dtype, count),
        (_, DType::F32) => reals::<f32>(form, body, count),
        (_, DType::F64) => reals::<f64>(form, body, count),
        _ => Err(foreign(format!("{dtype} in form {form}"))),
    }
}

fn exactly(body: &[u8], bytes: Option<usize>) -> Result<&[u8]> {
    match bytes == Some(body.len()) {
        true => Ok(body),
        false => Err(foreign(format!("{} bytes of packed elements", body.len()))),
    }
}

fn scattered(body: &[u8], dtype: DType, count: usize) -> Result<Vec<u8>> {
    let size = dtype.size();
    let short = || foreign(format!("{} bytes of pairs", body.len()));
    let (kept, body) = body.split_first_chunk().ok_or_else(short)?;
    let kept = u64::from_le_bytes(*kept) as usize;
    let body = exactly(body, kept.checked_mul(4 + size))?;
    let (positions, values) = body.split_at(4 * kept);
    let mut elements = vec![0; count * size];
    for (position, value) in positions.as_chunks::<4>().0.iter().zip(values.chunks_exact(size)) {
        let position = u32::from_le_bytes(*position) as usize;
        let place = elements.get_mut(position.saturating_mul(size)..).and_then(|rest| rest.get_mut(..size));
        let place = place.ok_or_else(|| foreign(format!("position {position} of {count}")))?;
        place.copy_from_slice(value);
    }
    Ok(elements)
}

fn reals<T: Real>(form: u8, body: &[u8], count: usize) -> Result<Vec<u8>> {
    let values = match form {
        HALF => T::from_halves(&collect(exactly(body, count.checked_mul(2))?)),
        UPPER_HALF => T::from_upper_halves(&collect(exactly(body, count.checked_mul(2))?)),
        BYTES => {
            let short = || foreign(format!("{} bytes of packed elements", body.len()));
            let (block, body) = body.split_first_chunk().ok_or_else(short)?;
            let block = u32::from_le_bytes(*block) as usize;
            if block == 0 {
                return Err(foreign("blocks of no elements"));
            }
            let scales = count.div_ceil(block);
            let body = exactly(body, scales.checked_mul(4).and_then(|bytes| bytes.checked_add(count)))?;
            let (scales, bytes) = body.split_at(4 * scales);
            let scales: Vec<f32> = collect(scales);
            let value = |(byte, scale): (&u8, f32)| T::narrow(f64::from(*byte as i8) * f64::from(scale));
            let blocks = bytes.chunks(block).zip(scales);
            blocks.flat_map(|(bytes, scale)| bytes.iter().map(move |byte| value((byte, scale)))).collect()
        }
        other => return Err(foreign(format!("elements in form {other}"))),
    };
    Ok(bytemuck::cast_slice(&values).to_vec())
}
