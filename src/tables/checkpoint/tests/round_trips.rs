//! Tensors are read back as written, however they were split, and other programs can read the files too.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{ChecksumShare, open_share};
use super::*;

#[derive(Debug, Clone)]
struct Case {
    tensors: Vec<(TensorSpec, Vec<u8>)>,
    /// The pieces of each part: tensor, first row, rows.
    parts: Vec<Vec<(usize, usize, usize)>>,
    /// Rows to read: a tensor, and two numbers that are clamped to its rows.
    windows: Vec<(usize, usize, usize)>,
}

fn tensor() -> impl Strategy<Value = (DType, Vec<usize>, Vec<usize>, Vec<usize>)> {
    let shape = prop_oneof![
        1 => Just(vec![]),
        8 => (0..40usize, prop::collection::vec(0..5usize, 0..3)).prop_map(|(rows, mut columns)| {
            columns.insert(0, rows);
            columns
        }),
    ];
    let cuts = prop::collection::vec(0..41usize, 0..5);
    let writers = prop::collection::vec(0..4usize, 8);
    (prop::sample::select(DType::KERNELS.to_vec()), shape, cuts, writers)
}

fn case() -> impl Strategy<Value = Case> {
    let windows = prop::collection::vec((0..4usize, 0..41usize, 0..41usize), 0..12);
    (prop::collection::vec(tensor(), 0..4), windows).prop_map(|(drawn, windows)| {
        let mut case = Case { tensors: Vec::new(), parts: vec![Vec::new(); 4], windows };
        for (number, (dtype, shape, mut cuts, writers)) in drawn.into_iter().enumerate() {
            // The second name equals the key of a piece of the first.
            let name = ["a", "a[0..1]", "__metadata__", "tensor \"é\" \\ 1"][number].to_string();
            let (tensor, values) = filled(TensorSpec { name, dtype, shape }, number as u8);
            cuts.iter_mut().for_each(|cut| *cut = (*cut).min(tensor.rows()));
            cuts.extend([0, tensor.rows()]);
            cuts.sort();
            for (piece, writer) in cuts.windows(2).zip(writers) {
                case.parts[writer].push((number, piece[0], piece[1] - piece[0]));
            }
            case.tensors.push((tensor, values));
        }
        case
    })
}

fn check(fixture: &Fixture, case: &Case) {
    let id = new_id();
    let parts = case.parts.iter().enumerate().map(|(number, pieces)| {
        let part = write_part_of(&fixture.target, &id, number, &case.tensors, pieces).unwrap();
        PartManifest::from_bytes(&part.to_bytes()).unwrap()
    });
    let parts: Vec<PartManifest> = parts.collect();
    commit(&fixture.target, &id, &parts, &json!({ "case": case.parts })).unwrap();
    fixture.assert_holds(&case.tensors);
    let checkpoint = fixture.open().unwrap();
    assert_eq!(checkpoint.id(), id);
    assert_eq!(checkpoint.metadata(), &json!({ "case": case.parts }));
    for &(number, from, to) in &case.windows {
        let Some((tensor, values)) = case.tensors.get(number) else { continue };
        let (from, to) = (from.min(to).min(tensor.rows()), from.max(to).min(tensor.rows()));
        let row = tensor.row_bytes();
        assert_eq!(read(&checkpoint, &tensor.name, from, to - from), values[from * row..to * row]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn in_memory(case in case()) {
        check(&Fixture::memory(), &case);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn in_a_folder(case in case()) {
        check(&Fixture::folder(), &case);
    }
}

#[test]
fn several_chunks() {
    for fixture in Fixture::both() {
        // Not a multiple of any chunk; the larger files go to an object store in several requests.
        let shape = vec![5, (7 << 20) + 13];
        let tensors = vec![filled(TensorSpec { name: "big".into(), dtype: DType::U8, shape }, 3)];
        let id = new_id();
        let part = write_part_of(&fixture.target, &id, 0, &tensors, &[(0, 0, 5)]).unwrap();
        commit(&fixture.target, &id, &[part], &nothing()).unwrap();
        fixture.assert_holds(&tensors);
        let checkpoint = fixture.open().unwrap();
        assert!(read(&checkpoint, "big", 1, 3) == tensors[0].1[(7 << 20) + 13..4 * ((7 << 20) + 13)]);
    }
}

#[test]
fn file_urls_and_paths_are_the_same_place() {
    let fixture = Fixture::folder();
    let tensors = fixture.save(1);
    let url = Fixture { target: format!("file://{}", fixture.target), folder: None };
    url.assert_holds(&tensors);
    assert!(fixture.names().contains(&MANIFEST.to_string()));
}

#[test]
fn numbers_in_metadata_keep_their_bits() {
    let fixture = Fixture::memory();
    let values = json!([0.1, 1e-320, f64::MAX, 5e-324, u64::MAX, i64::MIN]);
    commit(&fixture.target, &new_id(), &[], &values).unwrap();
    assert_eq!(fixture.open().unwrap().metadata(), &values);
}

#[test]
fn several_readers_divide_the_checksums() {
    let fixture = Fixture::memory();
    fixture.save(1);
    let damaged = fixture.content().files[1].name.clone();
    let mut bytes = fixture.read(&damaged);
    *bytes.last_mut().unwrap() ^= 1;
    fixture.write(&damaged, &bytes);
    let opens = |index, of| open_share(&fixture.target, ChecksumShare { index, of }).is_ok();
    assert_eq!([opens(0, 1), opens(0, 2), opens(1, 2), opens(2, 3)], [false, true, false, true]);
}

#[test]
fn rows_that_are_not_there_are_rejected() {
    let fixture = Fixture::memory();
    fixture.save(1);
    let checkpoint = fixture.open().unwrap();
    let row = checkpoint.tensor("weights").unwrap().row_bytes();
    let mut out = vec![0; 2 * row];
    for (tensor, first_row, rows) in [
        ("weight", 0, 2),
        ("weights", 4, 2),
        ("weights", 0, 1),
        ("weights", usize::MAX, 2),
        ("weights", 0, 3),
    ] {
        assert!(checkpoint.read_rows(tensor, first_row, rows, &mut out).is_err(), "{tensor} {first_row}");
    }
    checkpoint.read_rows("weights", 3, 2, &mut out).unwrap();
    checkpoint.read_rows("weights", 5, 0, &mut []).unwrap();
}

/// Reads a safetensors file by its specification, without any code of this crate.
#[test]
fn data_files_are_safetensors_files() {
    let fixture = Fixture::folder();
    let id = new_id();
    let tensors: Vec<_> = DType::KERNELS
        .iter()
        .map(|&dtype| filled(TensorSpec { name: dtype.name().into(), dtype, shape: vec![3, 5] }, dtype as u8))
        .collect();
    let cuts: Vec<_> = (0..tensors.len()).flat_map(|number| [(number, 0, 1), (number, 1, 2)]).collect();
    write_part_of(&fixture.target, &id, 7, &tensors, &cuts).unwrap();
    let bytes = std::fs::read(fixture.folder.as_ref().unwrap().join(format!("{id}-7.safetensors"))).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    assert!(length.is_multiple_of(8) && bytes[8] == b'{');
    let data = &bytes[8 + length..];
    let sizes =
        [("F32", 4), ("F64", 8), ("F16", 2), ("BF16", 2), ("I8", 1), ("U8", 1), ("I32", 4), ("I64", 8)];
    let mut found = 0;
    for ((tensor, values), (name, size)) in tensors.iter().zip(sizes) {
        for (first, last) in [(0, 1), (1, 3)] {
            let entry = &header[format!("{}[{first}..{last}]", tensor.name)];
            assert_eq!(entry["dtype"], name);
            assert_eq!(entry["shape"], json!([last - first, 5]));
            let offset = |end: usize| entry["data_offsets"][end].as_u64().unwrap() as usize;
            assert_eq!(data[offset(0)..offset(1)], values[first * 5 * size..last * 5 * size]);
            assert_eq!(offset(0) % size, 0, "{name} is aligned");
            found += offset(1) - offset(0);
        }
    }
    assert_eq!(found, data.len());
    assert!(header["__metadata__"].as_object().unwrap().values().all(Value::is_string));
}
