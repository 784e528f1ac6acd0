//! Compressed encodings: a header of encoding, element type and element count, followed by the elements.

use bytemuck::{Pod, Zeroable};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::Compression;
use crate::error::Result;
use crate::memory::DType;
use crate::tables::remote::wire::malformed;

/// All elements, uncompressed.
const RAW: u8 = 0;
/// Some elements only: their count, positions and values. All other elements decode to zero.
const SPARSE: u8 = 1;
const F16: u8 = 2;
const BF16: u8 = 3;
/// Block size, one scale per block, one byte per element.
const INT8: u8 = 4;

/// Length of the header.
pub(super) const HEADER_BYTES: usize = 10;

/// How many samples of an add are searched for zeros, and the consecutive elements of each.
const SAMPLES: usize = 64;
const SAMPLE: usize = 64;

/// An element type that may be encoded with loss of precision.
pub(super) trait LossyElement: Pod + Default + PartialOrd {
    const DTYPE: DType;
    fn to_f64(self) -> f64;
    fn from_f64(wide: f64) -> Self;
    fn to_f16(values: &[Self]) -> Vec<f16>;
    fn from_f16(halves: &[f16]) -> Vec<Self>;
    fn to_bf16(values: &[Self]) -> Vec<bf16>;
    fn from_bf16(halves: &[bf16]) -> Vec<Self>;
}

macro_rules! lossy_element {
    ($type:ty, $dtype:expr, $from:ident, $to:ident) => {
        impl LossyElement for $type {
            const DTYPE: DType = $dtype;
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
            fn from_f64(wide: f64) -> $type {
                wide as $type
            }
            fn to_f16(values: &[$type]) -> Vec<f16> {
                let mut halves = vec![f16::ZERO; values.len()];
                halves.$from(values);
                halves
            }
            fn from_f16(halves: &[f16]) -> Vec<$type> {
                let mut values = vec![0.0; halves.len()];
                halves.$to(&mut values);
                values
            }
            fn to_bf16(values: &[$type]) -> Vec<bf16> {
                let mut halves = vec![bf16::ZERO; values.len()];
                halves.$from(values);
                halves
            }
            fn from_bf16(halves: &[bf16]) -> Vec<$type> {
                let mut values = vec![0.0; halves.len()];
                halves.$to(&mut values);
                values
            }
        }
    };
}
lossy_element!(f32, DType::F32, convert_from_f32_slice, convert_to_f32_slice);
lossy_element!(f64, DType::F64, convert_from_f64_slice, convert_to_f64_slice);

/// Elements from bytes that need not be aligned.
pub(super) fn collect<T: Pod>(bytes: &[u8]) -> Vec<T> {
    let mut values = vec![T::zeroed(); bytes.len() / size_of::<T>()];
    let room: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
    room.copy_from_slice(&bytes[..room.len()]);
    values
}

fn header(encoding: u8, dtype: DType, count: usize, room: usize) -> Vec<u8> {
    let mut packed = Vec::with_capacity(HEADER_BYTES + room);
    packed.extend_from_slice(&[encoding, dtype as u8]);
    packed.extend_from_slice(&(count as u64).to_le_bytes());
    packed
}

/// Encodes all elements, uncompressed.
pub(super) fn raw(dtype: DType, elements: &[u8]) -> Vec<u8> {
    let mut packed = header(RAW, dtype, elements.len() / dtype.size(), elements.len());
    packed.extend_from_slice(elements);
    packed
}

/// Encodes with loss; `None` if a value cannot be represented (infinite, NaN, too large), or if the result would not be smaller.
/// `row` is the number of elements per row.
pub(super) fn lossy<T: LossyElement>(values: &[T], compression: Compression, row: usize) -> Option<Vec<u8>> {
    match compression {
        Compression::None => None,
        Compression::F16 => {
            let halves = T::to_f16(values);
            let fits = halves.iter().all(|half| half.is_finite());
            fits.then(|| dense(F16, T::DTYPE, bytemuck::cast_slice(&halves), values.len()))
        }
        Compression::BF16 => {
            let halves = T::to_bf16(values);
            let fits = halves.iter().all(|half| half.is_finite());
            fits.then(|| dense(BF16, T::DTYPE, bytemuck::cast_slice(&halves), values.len()))
        }
        Compression::Int8 => int8(values, row),
        Compression::TopK(fraction) => top_k(values, fraction),
    }
}

fn dense(encoding: u8, dtype: DType, bytes: &[u8], count: usize) -> Vec<u8> {
    let mut packed = header(encoding, dtype, count, bytes.len());
    packed.extend_from_slice(bytes);
    packed
}

/// One scale per row, unless rows are so short that the scales would dominate, or so long that one outlier would degrade many
/// elements.
fn block_size(row: usize) -> usize {
    if (16..=1024).contains(&row) { row } else { 256 }
}

fn int8<T: LossyElement>(values: &[T], row: usize) -> Option<Vec<u8>> {
    let block = block_size(row);
    let mut scales = Vec::with_capacity(values.len().div_ceil(block));
    let mut bytes = Vec::with_capacity(values.len());
    for values in values.chunks(block) {
        // A NaN must not hide behind a comparison that is false.
        let largest = values.iter().fold(0.0, |most: f64, value| {
            let size = value.to_f64().abs();
            if size > most || size.is_nan() { size } else { most }
        });
        let scale = (largest / 127.0) as f32;
        if !(largest.is_finite() && scale.is_finite()) || values.iter().any(|value| value.to_f64().is_nan()) {
            return None;
        }
        scales.push(scale);
        let factor = if scale > 0.0 { 1.0 / f64::from(scale) } else { 0.0 };
        let byte = |value: &T| (value.to_f64() * factor).round().clamp(-127.0, 127.0) as i8;
        bytes.extend(values.iter().map(byte));
    }
    let mut packed = header(INT8, T::DTYPE, values.len(), 4 + 4 * scales.len() + bytes.len());
    packed.extend_from_slice(&(block as u32).to_le_bytes());
    packed.extend_from_slice(bytemuck::cast_slice(&scales));
    packed.extend_from_slice(bytemuck::cast_slice(&bytes));
    Some(packed)
}

fn top_k<T: LossyElement>(values: &[T], fraction: f64) -> Option<Vec<u8>> {
    if values.iter().any(|value| !value.to_f64().is_finite()) || u32::try_from(values.len()).is_err() {
        return None;
    }
    let most = ((values.len() as f64 * fraction).ceil() as usize).clamp(1, values.len().max(1));
    let mut positions: Vec<u32> = (0..values.len() as u32).collect();
    if most < positions.len() {
        let size = |position: &u32| values[*position as usize].to_f64().abs();
        positions.select_nth_unstable_by(most - 1, |one, other| size(other).total_cmp(&size(one)));
        positions.truncate(most);
        positions.sort_unstable();
    }
    positions.retain(|&position| values[position as usize] != T::default());
    sparse(T::DTYPE, values, &positions)
}

/// Encodes the elements at these positions; `None` if omitting the others saves nothing.
fn sparse<T: Pod>(dtype: DType, values: &[T], positions: &[u32]) -> Option<Vec<u8>> {
    let room = 8 + positions.len() * (4 + size_of::<T>());
    if room >= std::mem::size_of_val(values) {
        return None;
    }
    let mut packed = header(SPARSE, dtype, values.len(), room);
    packed.extend_from_slice(&(positions.len() as u64).to_le_bytes());
    packed.extend_from_slice(bytemuck::cast_slice(positions));
    positions
        .iter()
        .for_each(|&position| packed.extend_from_slice(bytemuck::bytes_of(&values[position as usize])));
    Some(packed)
}

/// Lossless: omits elements whose bits are all zero. `None` if that saves nothing.
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
    let kept = |elements: &[u8]| elements.chunks_exact(size_of::<T>()).filter(|bytes| nonzero(bytes)).count();
    // Most adds are dense: a few samples show that, without a pass over memory.
    if count > SAMPLES * SAMPLE * 16 {
        let sample = |index: usize| {
            let first = count / SAMPLES * index * size_of::<T>();
            kept(&elements[first..][..SAMPLE * size_of::<T>()])
        };
        if (0..SAMPLES).map(sample).sum::<usize>() * 4 > SAMPLES * SAMPLE * 3 {
            return None;
        }
    }
    if kept(elements) * 2 >= count || u32::try_from(count).is_err() {
        return None;
    }
    let values: Vec<T> = collect(elements);
    let zero = T::zeroed();
    let positions: Vec<u32> =
        (0..count as u32).filter(|&position| values[position as usize] != zero).collect();
    sparse(dtype, &values, &positions)
}

/// Compresses the elements of a reply; false if they stay uncompressed.
pub(crate) fn pack_reply(elements: Vec<u8>, dtype: DType, compression: Compression) -> (Vec<u8>, bool) {
    let packed = match (dtype, compression) {
        // A get returns all elements.
        (_, Compression::TopK(_)) => None,
        (DType::F32, _) => lossy(&collect::<f32>(&elements), compression, 0),
        (DType::F64, _) => lossy(&collect::<f64>(&elements), compression, 0),
        _ => None,
    };
    packed.map_or((elements, false), |packed| (packed, true))
}

/// Decompresses the elements of an add, which must be `bytes` bytes of this type.
pub(crate) fn unpack(packed: &[u8], dtype: DType, bytes: usize) -> Result<Vec<u8>> {
    let (found, count) = read_header(packed)?;
    if found != dtype || count.checked_mul(dtype.size()) != Some(bytes) {
        let expected = bytes / dtype.size();
        return Err(malformed(format!("{count} x {found} where {expected} x {dtype} should follow")));
    }
    elements(packed, dtype, count)
}

/// Decompresses the elements of a reply; their number is bounded by its length.
pub(crate) fn unpack_reply(packed: &[u8]) -> Result<Vec<u8>> {
    let (dtype, count) = read_header(packed)?;
    if packed[0] == SPARSE || count > packed.len() {
        return Err(malformed(format!("{count} elements in {} bytes", packed.len())));
    }
    elements(packed, dtype, count)
}

fn read_header(packed: &[u8]) -> Result<(DType, usize)> {
    let short = || malformed(format!("{} bytes of packed elements", packed.len()));
    let (header, _) = packed.split_first_chunk::<HEADER_BYTES>().ok_or_else(short)?;
    let (count, _) = header[2..].split_first_chunk().ok_or_else(short)?;
    let dtype = DType::from_number(header[1]).filter(|dtype| dtype.has_kernels());
    let dtype = dtype.ok_or_else(|| malformed(format!("element type {}", header[1])))?;
    Ok((dtype, u64::from_le_bytes(*count) as usize))
}

fn elements(packed: &[u8], dtype: DType, count: usize) -> Result<Vec<u8>> {
    let (encoding, body) = (packed[0], &packed[HEADER_BYTES..]);
    match (encoding, dtype) {
        (RAW, _) => expect_length(body, count.checked_mul(dtype.size())).map(<[u8]>::to_vec),
        (SPARSE, _) => decode_sparse(body, dtype, count),
        (_, DType::F32) => decode_lossy::<f32>(encoding, body, count),
        (_, DType::F64) => decode_lossy::<f64>(encoding, body, count),
        _ => Err(malformed(format!("{dtype} in form {encoding}"))),
    }
}

fn expect_length(body: &[u8], bytes: Option<usize>) -> Result<&[u8]> {
    match bytes == Some(body.len()) {
        true => Ok(body),
        false => Err(malformed(format!("{} bytes of packed elements", body.len()))),
    }
}

fn decode_sparse(body: &[u8], dtype: DType, count: usize) -> Result<Vec<u8>> {
    let size = dtype.size();
    let short = || malformed(format!("{} bytes of pairs", body.len()));
    let (kept, body) = body.split_first_chunk().ok_or_else(short)?;
    let kept = u64::from_le_bytes(*kept) as usize;
    let body = expect_length(body, kept.checked_mul(4 + size))?;
    let (positions, values) = body.split_at(4 * kept);
    let mut elements = vec![0; count * size];
    for (position, value) in positions.as_chunks::<4>().0.iter().zip(values.chunks_exact(size)) {
        let position = u32::from_le_bytes(*position) as usize;
        let place = elements.get_mut(position.saturating_mul(size)..).and_then(|rest| rest.get_mut(..size));
        let place = place.ok_or_else(|| malformed(format!("position {position} of {count}")))?;
        place.copy_from_slice(value);
    }
    Ok(elements)
}

fn decode_lossy<T: LossyElement>(encoding: u8, body: &[u8], count: usize) -> Result<Vec<u8>> {
    let values = match encoding {
        F16 => T::from_f16(&collect(expect_length(body, count.checked_mul(2))?)),
        BF16 => T::from_bf16(&collect(expect_length(body, count.checked_mul(2))?)),
        INT8 => {
            let short = || malformed(format!("{} bytes of packed elements", body.len()));
            let (block, body) = body.split_first_chunk().ok_or_else(short)?;
            let block = u32::from_le_bytes(*block) as usize;
            if block == 0 {
                return Err(malformed("blocks of no elements"));
            }
            let scales = count.div_ceil(block);
            let body = expect_length(body, scales.checked_mul(4).and_then(|bytes| bytes.checked_add(count)))?;
            let (scales, bytes) = body.split_at(4 * scales);
            let scales: Vec<f32> = collect(scales);
            let value = |(byte, scale): (&u8, f32)| T::from_f64(f64::from(*byte as i8) * f64::from(scale));
            let blocks = bytes.chunks(block).zip(scales);
            blocks.flat_map(|(bytes, scale)| bytes.iter().map(move |byte| value((byte, scale)))).collect()
        }
        other => return Err(malformed(format!("elements in form {other}"))),
    };
    Ok(bytemuck::cast_slice(&values).to_vec())
}
