//! Saves that end early or badly: the checkpoint that was there stays, and nothing of others is touched.

use super::super::{discard, names};
use super::*;

#[test]
fn a_new_checkpoint_takes_the_place_of_the_old() {
    for place in Place::both() {
        for seed in 0..4 {
            let tensors = place.save(seed);
            place.holds(&tensors);
            assert_eq!(place.open().unwrap().metadata()["seed"], seed);
            assert_eq!(place.names().len(), 3, "files of the old one are gone: {:?}", place.names());
        }
    }
}

#[test]
fn the_old_one_stays_until_the_commit() {
    for place in Place::both() {
        let old = place.save(1);
        // A crash: data files without a manifest, and two files that were not finished.
        let crashed = new_id();
        place.write_parts(&crashed, 2);
        place.write(&names::partial(&crashed, MANIFEST), b"{\"format\": ");
        place.write(&names::partial(&crashed, &names::data_file(&crashed, 9)), b"half of");
        place.holds(&old);
        let id = new_id();
        let (parts, new) = place.write_parts(&id, 3);
        place.holds(&old);
        commit(&place.target, &id, &parts, &nothing()).unwrap();
        place.holds(&new);
    }
}

#[test]
fn leftovers_go_with_the_next_save_and_files_of_others_stay() {
    for place in Place::both() {
        place.save(1);
        let crashed = new_id();
        place.write_parts(&crashed, 2);
        place.write(&names::partial(&crashed, MANIFEST), b"{");
        let others = ["model.safetensors", "notes.txt", "0-0.safetensors", "a.partial"];
        others.iter().for_each(|name| place.write(name, b"mine"));
        // A save that began later is somebody's work, not a leftover.
        let later = format!("f{}", &new_id()[1..]);
        place.write_parts(&later, 3);
        let tensors = place.save(4);
        place.holds(&tensors);
        let names = place.names();
        assert!(!names.iter().any(|name| name.starts_with(&crashed)), "{names:?}");
        assert!(others.iter().all(|name| names.contains(&name.to_string())), "{names:?}");
        assert_eq!(names.iter().filter(|name| name.starts_with(&later)).count(), 2, "{names:?}");
    }
}

#[test]
fn a_clock_that_went_back_leaves_nothing() {
    let place = Place::memory();
    let late = format!("f{}", &new_id()[1..]);
    let (parts, _) = place.write_parts(&late, 1);
    commit(&place.target, &late, &parts, &nothing()).unwrap();
    let tensors = place.save(2);
    place.holds(&tensors);
    assert_eq!(place.names().len(), 3);
}

#[test]
fn a_source_that_fails_leaves_nothing_of_its_part() {
    for place in Place::both() {
        let old = place.save(1);
        let before = place.names();
        let (tensor, values) =
            filled(Tensor { name: "big".into(), dtype: DType::U8, shape: vec![40 << 20] }, 1);
        let source = Slices { values: vec![&values], most: Cell::new(1) };
        let pieces = [Piece { tensor: &tensor, first_row: 0, rows: tensor.rows() }];
        assert!(write_part(&place.target, &new_id(), 0, &pieces, &source).is_err());
        assert_eq!(place.names(), before);
        place.holds(&old);
    }
}

#[test]
fn a_save_that_is_given_up_is_discarded() {
    for place in Place::both() {
        let old = place.save(1);
        let id = new_id();
        place.write_parts(&id, 2);
        assert_eq!(place.names().len(), 5);
        discard(&place.target, &id).unwrap();
        assert_eq!(place.names().len(), 3);
        discard(&place.target, &place.content().id).unwrap();
        place.holds(&old);
    }
}

#[test]
fn parts_that_do_not_fit_are_not_committed() {
    let place = Place::memory();
    let old = place.save(1);
    let id = new_id();
    let (parts, _) = place.write_parts(&id, 2);
    let refused = |parts: &[Part], id: &str, why: &str| {
        let error = commit(&place.target, id, parts, &nothing()).expect_err(why);
        assert!(matches!(error, Error::Usage { .. }), "{why}: {error}");
        place.holds(&old);
    };
    refused(&parts[..1], &id, "rows are missing");
    refused(&[parts[0].clone(), parts[0].clone(), parts[1].clone()], &id, "a part twice");
    refused(&parts, &new_id(), "parts of another save");
    refused(&parts, "../x", "no id");
    let other = filled(Tensor { name: "weights".into(), dtype: DType::F32, shape: vec![3, 5] }, 1);
    let strange = write_part_of(&place.target, &id, 2, &[other], &[(0, 0, 3)]).unwrap();
    refused(&[parts[0].clone(), parts[1].clone(), strange], &id, "another shape");
    let deep = (0..200).fold(Value::Null, |inner, _| json!([inner]));
    assert!(commit(&place.target, &id, &parts, &deep).is_err(), "what cannot be read is not written");
    place.holds(&old);
    place.write(&names::data_file(&id, 1), b"short");
    refused(&parts, &id, "a file of another length");
    place.remove(&names::data_file(&id, 1));
    refused(&parts, &id, "a file that is not here, as on another host");
    assert!(Part::from_bytes(b"{}").is_err());
}

#[test]
fn wrong_pieces_are_not_written() {
    let place = Place::memory();
    let tensor = |shape: Vec<usize>| Tensor { name: "w".into(), dtype: DType::F32, shape };
    let write = |tensor: &Tensor, first_row, rows, id: &str| {
        let source = Slices { values: vec![&[0; 64]], most: Cell::new(usize::MAX) };
        write_part(&place.target, id, 0, &[Piece { tensor, first_row, rows }], &source).map(drop)
    };
    let id = new_id();
    assert!(write(&tensor(vec![4, 4]), 3, 2, &id).is_err());
    assert!(write(&tensor(vec![4, 4]), usize::MAX, 2, &id).is_err());
    assert!(write(&tensor(vec![4, usize::MAX]), 0, 1, &id).is_err());
    assert!(write(&tensor(vec![4, 4]), 0, 4, "../../etc").is_err());
    assert_eq!(place.names(), [""; 0]);
    write(&tensor(vec![4, 4]), 0, 4, &id).unwrap();
    assert!(write(&tensor(vec![4, 4]), 0, 4, &id).is_err(), "a part is written once");
}

#[test]
fn folders_of_others_are_left_alone() {
    for place in Place::both() {
        let theirs = br#"{"name": "a web page", "version": "3"}"#;
        place.write(MANIFEST, theirs);
        let tensors = [filled(Tensor { name: "w".into(), dtype: DType::U8, shape: vec![3] }, 1)];
        assert!(write_part_of(&place.target, &new_id(), 0, &tensors, &[(0, 0, 3)]).is_err());
        assert!(commit(&place.target, &new_id(), &[], &nothing()).is_err());
        assert_eq!((place.read(MANIFEST).as_slice(), place.names().len()), (theirs.as_slice(), 1));
    }
}

#[test]
fn a_damaged_checkpoint_can_be_replaced() {
    let place = Place::memory();
    place.save(1);
    let text = String::from_utf8(place.read(MANIFEST)).unwrap();
    place.write(MANIFEST, text.replace("crc32:", "crc32:0").as_bytes());
    place.refused("it is damaged");
    let tensors = place.save(2);
    place.holds(&tensors);
    assert_eq!(place.names().len(), 3);
}

#[test]
fn who_has_opened_it_can_read_on() {
    let place = Place::folder();
    let old = place.save(1);
    let checkpoint = place.open().unwrap();
    place.save(2);
    assert_eq!(read(&checkpoint, "weights", 0, 5), old[0].1);
}
