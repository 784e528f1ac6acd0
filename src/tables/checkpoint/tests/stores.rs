//! Conformance of all stores to the same contract.

use super::super::store::CheckpointStore;
use super::*;

fn each(check: impl Fn(&dyn CheckpointStore)) {
    for fixture in Fixture::both() {
        check(&*open_store("save", &fixture.target).unwrap());
    }
}

fn create(store: &dyn CheckpointStore, name: &str, bytes: &[u8], replace: bool) -> Result<()> {
    let partial = format!("{name}.partial");
    let mut upload = store.create(NewFile { name, partial: &partial, bytes: bytes.len() as u64, replace })?;
    bytes.chunks(5 << 20).try_for_each(|chunk| upload.write(chunk))?;
    upload.finish()
}

#[test]
fn a_file_is_there_when_it_is_finished() {
    each(|store| {
        assert!(store.open("a").unwrap().is_none());
        assert_eq!(store.names().unwrap(), [""; 0]);
        let mut upload =
            store.create(NewFile { name: "a", partial: "a.partial", bytes: 3, replace: false }).unwrap();
        upload.write(b"abc").unwrap();
        assert!(store.open("a").unwrap().is_none());
        upload.finish().unwrap();
        assert_eq!(store.names().unwrap(), ["a"]);
        store.remove("a").unwrap();
        assert_eq!(store.names().unwrap(), [""; 0]);
    });
}

#[test]
fn a_file_that_is_dropped_leaves_nothing() {
    each(|store| {
        for bytes in [1, 30 << 20] {
            let file = NewFile { name: "a", partial: "a.partial", bytes, replace: false };
            let mut upload = store.create(file).unwrap();
            upload.write(&vec![1; bytes as usize / 2]).unwrap();
            drop(upload);
            assert_eq!(store.names().unwrap(), [""; 0]);
        }
    });
}

#[test]
fn sizes_around_those_of_requests() {
    const PART: usize = 8 << 20;
    let bytes: Vec<u8> = (0..4 * PART + 5).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect();
    each(|store| {
        for length in [0, 1, PART - 1, PART, PART + 1, 2 * PART, 4 * PART + 5] {
            create(store, "a", &bytes[..length], true).unwrap();
            let blob = store.open("a").unwrap().unwrap();
            assert_eq!(blob.length(), length as u64);
            let mut back = vec![0; length];
            blob.read_at(0, &mut back).unwrap();
            assert!(back == bytes[..length], "{length}");
            let some = length / 3;
            blob.read_at(some as u64, &mut back[some..]).unwrap();
            assert!(back == bytes[..length], "{length}");
        }
    });
}

#[test]
fn a_file_ends_where_it_ends() {
    each(|store| {
        create(store, "a", b"abc", false).unwrap();
        let blob = store.open("a").unwrap().unwrap();
        assert!(blob.read_at(1, &mut [0; 3]).is_err());
        assert!(blob.read_at(7, &mut [0; 1]).is_err());
        assert!(blob.read_at(3, &mut []).is_ok());
    });
}

#[test]
fn only_who_says_so_replaces_a_file() {
    each(|store| {
        create(store, "a", b"abc", false).unwrap();
        assert!(create(store, "a", b"other", false).is_err());
        create(store, "a", b"other", true).unwrap();
        assert_eq!(store.open("a").unwrap().unwrap().length(), 5);
    });
}

#[test]
fn places_that_cannot_be() {
    for target in ["", "http://x/y", "S3://x", "://", "file://relative", "file://host/path"] {
        let error = open(target).err().expect(target);
        assert!(matches!(error, Error::Usage { .. }), "{target}: {error}");
    }
    let fixture = Fixture::folder();
    fixture.write("file", b"");
    let error = commit(&format!("{}/file", fixture.target), &new_id(), &[], &nothing()).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
    assert!(open(&format!("{}/file", fixture.target)).is_err());
}

#[cfg(not(feature = "cloud"))]
#[test]
fn clouds_need_their_feature() {
    for target in ["s3://bucket/folder", "gs://bucket/folder", "az://container/folder"] {
        let error = open(target).err().expect(target);
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        let advice = "--config-settings=build-args=\"--features cloud\"";
        assert!(error.to_string().contains(advice), "{error}");
    }
}

#[cfg(feature = "cloud")]
#[test]
fn clouds_are_found_by_their_url() {
    let store = open_store("load", "s3://bucket/some/folder/").unwrap();
    assert_eq!(store.location("manifest.json"), "s3://bucket/some/folder/manifest.json");
    assert!(open_store("load", "s3://").is_err());
}

/// The same tests on a remote store: needs credentials in the environment and UNISONO_TEST_BUCKET=s3://bucket.
#[cfg(feature = "cloud")]
#[test]
fn a_bucket_keeps_checkpoints() {
    let Ok(bucket) = std::env::var("UNISONO_TEST_BUCKET") else {
        println!("left out: a checkpoint in a bucket, because UNISONO_TEST_BUCKET names none");
        return;
    };
    let fixture = Fixture { target: format!("{bucket}/{}", Fixture::fresh()), folder: None };
    fixture.assert_rejected("an empty place");
    fixture.save(1);
    let shape = vec![5, (7 << 20) + 13];
    let tensors = vec![filled(TensorSpec { name: "big".into(), dtype: DType::U8, shape }, 3)];
    let id = new_id();
    let part = write_part_of(&fixture.target, &id, 0, &tensors, &[(0, 0, 5)]).unwrap();
    commit(&fixture.target, &id, &[part], &nothing()).unwrap();
    fixture.assert_holds(&tensors);
    assert_eq!(fixture.names().len(), 2, "files of the old one are gone: {:?}", fixture.names());
    let name = fixture.content().files[0].name.clone();
    fixture.remove(&name);
    assert!(fixture.assert_rejected("a data file is missing").contains(&name));
}
