//! Saves that fail or are interrupted: the existing checkpoint stays, and files of other programs are not touched.

use super::super::{discard, names};
use super::*;

#[test]
fn a_new_checkpoint_takes_the_place_of_the_old() {
    for fixture in Fixture::both() {
        for seed in 0..4 {
            let tensors = fixture.save(seed);
            fixture.assert_holds(&tensors);
            assert_eq!(fixture.open().unwrap().metadata()["seed"], seed);
            assert_eq!(fixture.names().len(), 3, "files of the old one are gone: {:?}", fixture.names());
        }
    }
}

#[test]
fn the_old_one_stays_until_the_commit() {
    for fixture in Fixture::both() {
        let old = fixture.save(1);
        // A crash: data files without a manifest, and two unfinished files.
        let crashed = new_id();
        fixture.write_parts(&crashed, 2);
        fixture.write(&names::partial(&crashed, MANIFEST), b"{\"format\": ");
        fixture.write(&names::partial(&crashed, &names::data_file(&crashed, 9)), b"half of");
        fixture.assert_holds(&old);
        let id = new_id();
        let (parts, new) = fixture.write_parts(&id, 3);
        fixture.assert_holds(&old);
        commit(&fixture.target, &id, &parts, &nothing()).unwrap();
        fixture.assert_holds(&new);
    }
}

#[test]
fn leftovers_go_with_the_next_save_and_files_of_others_stay() {
    for fixture in Fixture::both() {
        fixture.save(1);
        let crashed = new_id();
        fixture.write_parts(&crashed, 2);
        fixture.write(&names::partial(&crashed, MANIFEST), b"{");
        let others = ["model.safetensors", "notes.txt", "0-0.safetensors", "a.partial"];
        others.iter().for_each(|name| fixture.write(name, b"mine"));
        // A save that began later may still be in progress; it is no leftover.
        let later = format!("f{}", &new_id()[1..]);
        fixture.write_parts(&later, 3);
        let tensors = fixture.save(4);
        fixture.assert_holds(&tensors);
        let names = fixture.names();
        assert!(!names.iter().any(|name| name.starts_with(&crashed)), "{names:?}");
        assert!(others.iter().all(|name| names.contains(&name.to_string())), "{names:?}");
        assert_eq!(names.iter().filter(|name| name.starts_with(&later)).count(), 2, "{names:?}");
    }
}

#[test]
fn a_clock_that_went_back_leaves_nothing() {
    let fixture = Fixture::memory();
    let late = format!("f{}", &new_id()[1..]);
    let (parts, _) = fixture.write_parts(&late, 1);
    commit(&fixture.target, &late, &parts, &nothing()).unwrap();
    let tensors = fixture.save(2);
    fixture.assert_holds(&tensors);
    assert_eq!(fixture.names().len(), 3);
}

#[test]
fn a_source_that_fails_leaves_nothing_of_its_part() {
    for fixture in Fixture::both() {
        let old = fixture.save(1);
        let before = fixture.names();
        let (tensor, values) =
            filled(TensorSpec { name: "big".into(), dtype: DType::U8, shape: vec![40 << 20] }, 1);
        let source = Slices { values: vec![&values], reads_left: Cell::new(1) };
        let pieces = [TensorPiece { tensor: &tensor, first_row: 0, rows: tensor.rows() }];
        assert!(write_part(&fixture.target, &new_id(), 0, &pieces, &source).is_err());
        assert_eq!(fixture.names(), before);
        fixture.assert_holds(&old);
    }
}

#[test]
fn a_save_that_is_given_up_is_discarded() {
    for fixture in Fixture::both() {
        let old = fixture.save(1);
        let id = new_id();
        fixture.write_parts(&id, 2);
        assert_eq!(fixture.names().len(), 5);
        discard(&fixture.target, &id).unwrap();
        assert_eq!(fixture.names().len(), 3);
        discard(&fixture.target, &fixture.content().id).unwrap();
        fixture.assert_holds(&old);
    }
}

#[test]
fn parts_that_do_not_fit_are_not_committed() {
    let fixture = Fixture::memory();
    let old = fixture.save(1);
    let id = new_id();
    let (parts, _) = fixture.write_parts(&id, 2);
    let rejected = |parts: &[PartManifest], id: &str, why: &str| {
        let error = commit(&fixture.target, id, parts, &nothing()).expect_err(why);
        assert!(matches!(error, Error::Usage { .. }), "{why}: {error}");
        fixture.assert_holds(&old);
    };
    rejected(&parts[..1], &id, "rows are missing");
    rejected(&[parts[0].clone(), parts[0].clone(), parts[1].clone()], &id, "a part twice");
    rejected(&parts, &new_id(), "parts of another save");
    rejected(&parts, "../x", "no id");
    let other = filled(TensorSpec { name: "weights".into(), dtype: DType::F32, shape: vec![3, 5] }, 1);
    let strange = write_part_of(&fixture.target, &id, 2, &[other], &[(0, 0, 3)]).unwrap();
    rejected(&[parts[0].clone(), parts[1].clone(), strange], &id, "another shape");
    let deep = (0..200).fold(Value::Null, |inner, _| json!([inner]));
    assert!(commit(&fixture.target, &id, &parts, &deep).is_err(), "what cannot be read is not written");
    fixture.assert_holds(&old);
    fixture.write(&names::data_file(&id, 1), b"short");
    rejected(&parts, &id, "a file of another length");
    fixture.remove(&names::data_file(&id, 1));
    rejected(&parts, &id, "a file that is not here, as on another host");
    assert!(PartManifest::from_bytes(b"{}").is_err());
}

#[test]
fn wrong_pieces_are_not_written() {
    let fixture = Fixture::memory();
    let tensor = |shape: Vec<usize>| TensorSpec { name: "w".into(), dtype: DType::F32, shape };
    let write = |tensor: &TensorSpec, first_row, rows, id: &str| {
        let source = Slices { values: vec![&[0; 64]], reads_left: Cell::new(usize::MAX) };
        write_part(&fixture.target, id, 0, &[TensorPiece { tensor, first_row, rows }], &source).map(drop)
    };
    let id = new_id();
    assert!(write(&tensor(vec![4, 4]), 3, 2, &id).is_err());
    assert!(write(&tensor(vec![4, 4]), usize::MAX, 2, &id).is_err());
    assert!(write(&tensor(vec![4, usize::MAX]), 0, 1, &id).is_err());
    assert!(write(&tensor(vec![4, 4]), 0, 4, "../../etc").is_err());
    assert_eq!(fixture.names(), [""; 0]);
    write(&tensor(vec![4, 4]), 0, 4, &id).unwrap();
    assert!(write(&tensor(vec![4, 4]), 0, 4, &id).is_err(), "a part is written once");
}

#[test]
fn folders_of_others_are_left_alone() {
    for fixture in Fixture::both() {
        let theirs = br#"{"name": "a web page", "version": "3"}"#;
        fixture.write(MANIFEST, theirs);
        let tensors = [filled(TensorSpec { name: "w".into(), dtype: DType::U8, shape: vec![3] }, 1)];
        assert!(write_part_of(&fixture.target, &new_id(), 0, &tensors, &[(0, 0, 3)]).is_err());
        assert!(commit(&fixture.target, &new_id(), &[], &nothing()).is_err());
        assert_eq!((fixture.read(MANIFEST).as_slice(), fixture.names().len()), (theirs.as_slice(), 1));
    }
}

#[test]
fn a_damaged_checkpoint_can_be_replaced() {
    let fixture = Fixture::memory();
    fixture.save(1);
    let text = String::from_utf8(fixture.read(MANIFEST)).unwrap();
    fixture.write(MANIFEST, text.replace("crc32:", "crc32:0").as_bytes());
    fixture.assert_rejected("it is damaged");
    let tensors = fixture.save(2);
    fixture.assert_holds(&tensors);
    assert_eq!(fixture.names().len(), 3);
}

#[test]
fn who_has_opened_it_can_read_on() {
    let fixture = Fixture::folder();
    let old = fixture.save(1);
    let checkpoint = fixture.open().unwrap();
    fixture.save(2);
    assert_eq!(read(&checkpoint, "weights", 0, 5), old[0].1);
}
