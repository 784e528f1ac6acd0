//! Finds NaN values.

use super::DType;

/// Elements that are checked together; only a block that contains a NaN is searched for its index.
const BLOCK: usize = 1024;

/// The index of the first NaN in `bytes`, elements of `dtype` at any alignment. Only types of tables are searched.
pub(crate) fn contains_nan(bytes: &[u8], dtype: DType) -> Option<usize> {
    match dtype {
        DType::F32 => first(bytes, |bytes| f32::from_ne_bytes(bytes).is_nan()),
        DType::F64 => first(bytes, |bytes| f64::from_ne_bytes(bytes).is_nan()),
        // All bits of the exponent, and at least one of the mantissa.
        DType::F16 => first(bytes, |bytes| u16::from_ne_bytes(bytes) & 0x7fff > 0x7c00),
        DType::BF16 => first(bytes, |bytes| u16::from_ne_bytes(bytes) & 0x7fff > 0x7f80),
        _ => None,
    }
}

fn first<const SIZE: usize>(bytes: &[u8], is_nan: impl Fn([u8; SIZE]) -> bool) -> Option<usize> {
    let (elements, _) = bytes.as_chunks::<SIZE>();
    // Without an early exit inside a block, the compiler vectorises the check.
    let found = |block: &[[u8; SIZE]]| block.iter().fold(false, |any, element| any | is_nan(*element));
    let block = elements.chunks(BLOCK).position(found)?;
    let inside = elements[block * BLOCK..].iter().position(|element| is_nan(*element))?;
    Some(block * BLOCK + inside)
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    #[test]
    fn the_first_nan_is_found_wherever_it_is() {
        fn check<T: super::super::Element>(one: T, infinity: T, nan: [T; 2]) {
            for length in [0, 1, 7, BLOCK, 3 * BLOCK + 5] {
                let mut values = vec![one; length];
                if let Some(value) = values.first_mut() {
                    *value = infinity;
                }
                assert_eq!(contains_nan(bytemuck::cast_slice(&values), T::DTYPE), None);
                for place in [0, 3, BLOCK - 1, BLOCK, 2 * BLOCK + 1, 3 * BLOCK + 4] {
                    if place < length {
                        values[place] = nan[0];
                        values[length - 1] = nan[1];
                        let bytes: &[u8] = bytemuck::cast_slice(&values);
                        assert_eq!(contains_nan(bytes, T::DTYPE), Some(place), "{:?}", T::DTYPE);
                        let mut shifted = vec![0u8];
                        shifted.extend_from_slice(bytes);
                        assert_eq!(contains_nan(&shifted[1..], T::DTYPE), Some(place), "at any alignment");
                        (values[place], values[length - 1]) = (one, one);
                    }
                }
            }
        }
        check(1.0, f32::NEG_INFINITY, [f32::NAN, -f32::NAN]);
        check(1.0, f64::INFINITY, [f64::NAN, -f64::NAN]);
        check(f16::ONE, f16::INFINITY, [f16::from_bits(0x7c01), f16::from_bits(0xffff)]);
        check(bf16::ONE, bf16::NEG_INFINITY, [bf16::from_bits(0x7f81), bf16::from_bits(0xffff)]);
        assert_eq!(contains_nan(&[0xff; 64], DType::I32), None);
    }
}
