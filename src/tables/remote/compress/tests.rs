//! Compressed elements decode to near values and are smaller on the wire; residuals make up for the loss.

use std::collections::HashMap;

use half::{bf16, f16};
use proptest::prelude::*;

use super::encodings::{HEADER_BYTES, collect};
use super::{Compression, Packer, RowIds, pack_reply, unpack, unpack_reply};
use crate::memory::DType;

const LOSSY: [Compression; 5] = [
    Compression::F16,
    Compression::BF16,
    Compression::Int8,
    Compression::TopK(0.1),
    Compression::TopK(0.0001),
];

fn bytes<T: bytemuck::Pod>(values: &[T]) -> Vec<u8> {
    bytemuck::cast_slice(values).to_vec()
}

/// The add as the server decodes it.
fn arrives(packer: &mut Packer, dtype: DType, units: RowIds, delta: &[u8]) -> Vec<u8> {
    let (payload, packed) = packer.pack(units, delta);
    if packed { unpack(&payload, dtype, delta.len()).unwrap() } else { payload.into_owned() }
}

/// Values of very different magnitudes, including zeros and values that no half type can represent.
fn values() -> impl Strategy<Value = f64> {
    prop_oneof![
        3 => -1.0..1.0,
        1 => -1e-6..1e-6,
        1 => Just(0.0),
        1 => -1000.0..1000.0,
        1 => prop_oneof![Just(1e6), Just(-7e4), Just(65504.0), Just(65519.9), Just(1e-30)],
    ]
}

/// Rows, and one value per element.
type Add = (Vec<i64>, Vec<f64>);

fn adds() -> impl Strategy<Value = (usize, Vec<Add>)> {
    (1usize..70).prop_flat_map(|row| {
        let add = prop::collection::vec(0i64..6, 1..5).prop_flat_map(move |rows| {
            let count = rows.len() * row;
            (Just(rows), prop::collection::vec(values(), count))
        });
        (Just(row), prop::collection::vec(add, 1..12))
    })
}

/// For every row, the values received and the residual add up to the values sent.
fn nothing_is_lost<T: super::encodings::LossyElement>(
    compression: Compression,
    row: usize,
    adds: &[Add],
) -> Result<(), TestCaseError> {
    let mut packer = Packer::new(T::DTYPE, row, compression);
    let mut balance: HashMap<(i64, usize), (f64, f64)> = HashMap::new();
    for (rows, delta) in adds {
        let delta: Vec<T> = delta.iter().map(|&value| T::from_f64(value)).collect();
        let found = arrives(&mut packer, T::DTYPE, RowIds::List(rows), &bytes(&delta));
        let found: Vec<T> = collect(&found);
        for (index, (sent, found)) in delta.iter().zip(&found).enumerate() {
            let (total, size) = balance.entry((rows[index / row], index % row)).or_default();
            *total += sent.to_f64() - found.to_f64();
            *size += sent.to_f64().abs() + found.to_f64().abs();
        }
    }
    let precision = if T::DTYPE == DType::F32 { 1e-6 } else { 1e-14 };
    for ((id, column), (total, size)) in balance {
        let kept = packer.residual(id).get(column).copied().unwrap_or(0.0);
        prop_assert!((total - kept).abs() <= precision * size, "row {id}: {total} is owed, {kept} is kept");
    }
    Ok(())
}

proptest! {
    #[test]
    fn what_arrives_and_what_is_kept_is_what_was_sent((row, adds) in adds()) {
        for compression in LOSSY {
            nothing_is_lost::<f32>(compression, row, &adds)?;
            nothing_is_lost::<f64>(compression, row, &adds)?;
        }
    }

    #[test]
    fn zeros_left_out_come_back(
        dtype in prop::sample::select(&DType::KERNELS[..]), words in prop::collection::vec(any::<u64>(), 0..300), gaps in 1usize..9
    ) {
        let mut elements = bytes(&words);
        // Keep every `gaps`-th element and clear the others.
        for (index, element) in elements.chunks_mut(dtype.size()).enumerate() {
            if index % gaps != 0 {
                element.fill(0);
            }
        }
        let mut packer = Packer::new(dtype, 1, Compression::None);
        let (payload, packed) = packer.pack(RowIds::From(0), &elements);
        prop_assert!(payload.len() <= elements.len() + HEADER_BYTES);
        prop_assert_eq!(arrives(&mut packer, dtype, RowIds::From(0), &elements), elements.clone());
        // One position and one value per nonzero element: pays off if there are few.
        let pairs = HEADER_BYTES + 8 + (words.len() * 8 / dtype.size() / gaps + 1) * (4 + dtype.size());
        prop_assert!(packed || gaps <= 2 || pairs >= elements.len());
    }

    #[test]
    fn replies_are_near(values in prop::collection::vec(-100.0f32..100.0, 0..700)) {
        for (compression, error) in [(Compression::F16, 0.05), (Compression::BF16, 0.5), (Compression::Int8, 0.5)] {
            let (payload, packed) = pack_reply(bytes(&values), DType::F32, compression);
            prop_assert!(packed);
            let found: Vec<f32> = collect(&unpack_reply(&payload).unwrap());
            prop_assert_eq!(found.len(), values.len());
            prop_assert!(found.iter().zip(&values).all(|(found, value)| (found - value).abs() <= error));
            let doubles: Vec<f64> = values.iter().map(|&value| f64::from(value)).collect();
            let (payload, _) = pack_reply(bytes(&doubles), DType::F64, compression);
            let found: Vec<f64> = collect(&unpack_reply(&payload).unwrap());
            prop_assert!(found.iter().zip(&doubles).all(|(found, value)| (found - value).abs() <= f64::from(error)));
        }
    }

    #[test]
    fn hostile_bytes_are_rejected(bytes in prop::collection::vec(any::<u8>(), 0..80), encoding in 0u8..6, count in 0u64..40) {
        let mut bytes = bytes;
        if bytes.len() >= HEADER_BYTES {
            bytes[0] = encoding;
            bytes[1] = 1 + bytes[1] % 8;
            bytes[2..HEADER_BYTES].copy_from_slice(&count.to_le_bytes());
        }
        let _ = unpack_reply(&bytes);
        for dtype in DType::KERNELS {
            let _ = unpack(&bytes, dtype, count as usize * dtype.size());
        }
    }

    #[test]
    fn a_cut_or_bent_message_is_rejected(values in prop::collection::vec(-1.0f32..1.0, 1..200), cut in 0usize..500, at in 0usize..900) {
        for compression in LOSSY {
            let (payload, _) = Packer::new(DType::F32, 8, compression).pack(RowIds::From(0), bytes(&values));
            prop_assert!(unpack(&payload[..cut.min(payload.len() - 1)], DType::F32, values.len() * 4).is_err());
            let mut bent = payload.into_owned();
            let at = at % bent.len();
            bent[at] ^= 0x41;
            let _ = unpack(&bent, DType::F32, values.len() * 4);
        }
    }
}

#[test]
fn messages_shrink() {
    let values: Vec<f32> = (0..100_000).map(|index| ((index * 37 % 1000) as f32 - 500.0) / 300.0).collect();
    let whole = values.len() * 4;
    for (compression, part) in [
        (Compression::F16, 0.501),
        (Compression::BF16, 0.501),
        (Compression::Int8, 0.27),
        (Compression::TopK(0.01), 0.021),
        (Compression::TopK(0.1), 0.21),
    ] {
        let (payload, packed) =
            Packer::new(DType::F32, 100, compression).pack(RowIds::From(0), bytes(&values));
        assert!(packed && payload.len() as f64 <= whole as f64 * part, "{compression}: {}", payload.len());
    }
    let mut sparse = vec![0f64; 10_000];
    (0..10_000).step_by(100).for_each(|index| sparse[index] = index as f64 + 1.0);
    let (payload, packed) =
        Packer::new(DType::F64, 10, Compression::None).pack(RowIds::From(0), bytes(&sparse));
    assert!(packed && payload.len() < 100 * 12 + 30, "{}", payload.len());
    let (payload, packed) =
        Packer::new(DType::F32, 10, Compression::None).pack(RowIds::From(0), bytes(&values));
    assert!(!packed && payload.len() == whole, "dense adds travel as they are");
}

#[test]
fn what_no_form_can_hold_travels_whole() {
    for compression in LOSSY {
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut packer = Packer::new(DType::F32, 4, compression);
            let delta = [1.0, odd, -2.5, 1e-9];
            let found = arrives(&mut packer, DType::F32, RowIds::From(7), &bytes(&delta));
            assert_eq!(found, bytes(&delta), "{compression}");
            assert_eq!(packer.residual(7), [0.0; 0], "{compression}");
        }
        let large = [1e300, 2.0, 3.0, 4.0];
        let found = arrives(
            &mut Packer::new(DType::F64, 4, compression),
            DType::F64,
            RowIds::From(0),
            &bytes(&large),
        );
        let found: Vec<f64> = collect(&found);
        assert_eq!(found[0], 1e300, "{compression}");
        let (reply, packed) = pack_reply(bytes(&[f32::NAN, 1.0]), DType::F32, compression);
        assert!(!packed && reply == bytes(&[f32::NAN, 1.0]));
    }
}

#[test]
fn half_types_and_integers_lose_nothing() {
    let halves = [f16::from_f32(1.5), f16::from_f32(-0.1)];
    let upper = [bf16::from_f32(1.5), bf16::from_f32(-0.1)];
    for compression in LOSSY {
        for (dtype, delta) in [
            (DType::F16, bytes(&halves)),
            (DType::BF16, bytes(&upper)),
            (DType::I32, bytes(&[7i32, -1])),
            (DType::I64, bytes(&[1i64 << 40, -1])),
        ] {
            let mut packer = Packer::new(dtype, 2, compression);
            assert_eq!(arrives(&mut packer, dtype, RowIds::From(0), &delta), delta);
            assert!(!pack_reply(delta, dtype, compression).1);
        }
    }
}

/// Small steps that int8 cannot represent beside a large one arrive eventually.
#[test]
fn small_steps_arrive_in_the_end() {
    for compression in LOSSY {
        let mut packer = Packer::new(DType::F32, 300, compression);
        let mut delta = vec![1e-3f32; 300];
        delta[0] = 1.0;
        let mut sum = vec![0f64; 300];
        for _ in 0..3000 {
            let found: Vec<f32> = collect(&arrives(&mut packer, DType::F32, RowIds::From(0), &bytes(&delta)));
            sum.iter_mut().zip(found).for_each(|(sum, found)| *sum += f64::from(found));
        }
        // Part of the last values may still be in the residual: for the smallest top-k fraction, some hundred steps.
        assert!(sum[1..].iter().all(|sum| (sum - 3.0).abs() < 1.0), "{compression}: {:?}", &sum[..5]);
    }
}

#[test]
fn names_are_read_and_written() {
    for text in ["none", "float16", "bfloat16", "int8", "topk:0.01", "topk:1"] {
        assert_eq!(Compression::parse(text).unwrap().to_string(), text);
    }
    assert_eq!(Compression::parse("bf16").unwrap(), Compression::BF16);
    for text in ["", "f8", "topk", "topk:", "topk:0", "topk:2", "topk:-1", "topk:nan", "int8:3"] {
        assert!(Compression::parse(text).is_err(), "{text}");
    }
}
