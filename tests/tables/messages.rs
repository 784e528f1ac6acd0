//! Error messages when ranks do not make the same call: they name the call that the user made.

use std::sync::Barrier;
use std::time::Duration;

use unisono::tables::{
    AddOptions, ArrayTable, Compression, Consistency, Role, TableKind, TableOptions, Tables, TablesCall,
    UpdaterChoice,
};
use unisono::{Error, Kind, Result, World};

use crate::{on_all_paths, with_tables};

const SOON: Duration = Duration::from_millis(300);
const LATE: Duration = Duration::from_secs(60);

fn named(name: &str) -> TableOptions {
    TableOptions { name: Some(name.into()), ..TableOptions::default() }
}

fn create(tables: &Tables, options: TableOptions) -> Result<ArrayTable<f32>> {
    ArrayTable::create(tables, 3, None, options)
}

/// The error of rank 0 for a collective call that it makes alone, while rank 1 does nothing.
fn error_alone(alone: impl Fn(&Tables) -> Result<()> + Sync) -> String {
    error_within(SOON, alone, |_| ())
}

/// The error of rank 0 for a collective call that it makes alone, while rank 1 does something else.
fn error_within(
    timeout: Duration,
    alone: impl Fn(&Tables) -> Result<()> + Sync,
    other: impl Fn(&World) + Sync,
) -> String {
    let end = Barrier::new(2);
    let mut texts = with_tables(2, |world, tables| {
        let text = match world.rank() {
            0 => alone(&tables.with_timeout(timeout)).unwrap_err().to_string(),
            _ => {
                other(world);
                String::new()
            }
        };
        end.wait();
        text
    });
    texts.swap_remove(0)
}

#[test]
fn creating_a_table_alone_names_the_table_and_the_missing_rank() {
    let text = error_alone(|tables| create(tables, named("weights")).map(drop));
    assert!(text.contains("making table \"weights\" #") && text.contains("waiting for rank 1"), "{text}");
    assert!(!text.contains("all_gather"), "{text}");
}

#[test]
fn saving_or_loading_alone_names_the_path_and_the_missing_rank() {
    let text = error_alone(|tables| tables.save("memory://alone"));
    assert!(text.contains("saving to \"memory://alone\" #") && text.contains("waiting for rank 1"), "{text}");
    let text = error_alone(|tables| tables.load("memory://alone"));
    assert!(text.contains("loading from \"memory://alone\" #"), "{text}");
}

#[test]
fn a_different_call_names_the_table_being_created() {
    let other = |world: &World| {
        let text = world.group().barrier().unwrap_err().to_string();
        assert!(text.contains("rank 0 called new table #") && !text.contains("uint8"), "{text}");
    };
    let text = error_within(LATE, |tables| create(tables, named("weights")).map(drop), other);
    assert!(text.contains("rank 0 called making table \"weights\""), "{text}");
    assert!(text.contains("rank 1 called barrier"), "{text}");
}

#[test]
fn a_get_behind_a_waiting_add_names_the_worker_that_the_add_waits_for() {
    let end = Barrier::new(2);
    with_tables(2, |world, tables| {
        let consistency = Consistency::Bsp { backup: 0, mean: false };
        let options = TableOptions { consistency, ..named("rounds") };
        let table = create(tables, options).unwrap();
        if world.rank() == 0 {
            let table = table.table().with_timeout(SOON);
            let (rows, options) = (unisono::tables::Rows::All, Default::default());
            table.get(rows, &mut [0; 12]).unwrap();
            // Waits in the background for the get of rank 1.
            table.add_soon(rows, &[0; 12], &options).unwrap();
            let error = table.get(rows, &mut [0; 12]).unwrap_err();
            assert!(error.to_string().contains("waiting for rank 1"), "{error}");
        }
        end.wait();
    });
}

#[test]
fn a_worker_that_never_ticks_gets_advice_to_tick() {
    let end = Barrier::new(2);
    with_tables(2, |world, tables| {
        let options = TableOptions { consistency: Consistency::Ssp { bound: 1 }, ..named("steps") };
        let table = create(tables, options).unwrap();
        let expect_advice = |steps: &str| {
            let table = table.table().with_timeout(SOON);
            let text = table.get(unisono::tables::Rows::All, &mut [0; 12]).unwrap_err().to_string();
            assert!(
                text.contains("rank 1") && text.contains(steps) && text.contains("steps timed out"),
                "{text}"
            );
        };
        if world.rank() == 0 {
            (0..2).for_each(|_| table.tick().unwrap());
            expect_advice("never called tick() on this table");
        }
        end.wait();
        if world.rank() == 1 {
            table.tick().unwrap();
        }
        end.wait();
        if world.rank() == 0 {
            table.tick().unwrap();
            expect_advice("at step 1 of this table");
        }
        end.wait();
    });
}

#[test]
fn options_that_the_updater_does_not_use_are_rejected_by_name() {
    with_tables(2, |_, tables| {
        let fails_with = |result: Result<()>, words: &[&str]| {
            let error = result.unwrap_err();
            let text = error.to_string();
            assert_eq!(error.kind(), Kind::Usage, "{text}");
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        };
        let momentum = AddOptions { momentum: Some(0.9), ..AddOptions::default() };
        let sgd = || TableOptions { updater: UpdaterChoice::named("sgd").unwrap(), ..named("w") };
        let made = create(tables, TableOptions { add: momentum, ..sgd() }).map(drop);
        fails_with(made, &["table \"w\"", "`sgd`", "momentum=0.9", "nesterov"]);
        let table = create(tables, sgd()).unwrap();
        let added = table.table().add(unisono::tables::Rows::All, &[0; 12], &momentum);
        fails_with(added, &["rank ", "table \"w\"", "`sgd`", "momentum=0.9", "nesterov"]);
        tables.barrier().unwrap();
        let adam = TableOptions { updater: UpdaterChoice::named("adam").unwrap(), ..named("integers") };
        let integers = ArrayTable::<i32>::create(tables, 3, None, adam).map(drop);
        fails_with(integers, &["\"integers\"", "`adam`", "int32"]);
        let table = table.table();
        fails_with(table.check_option("momentun"), &["did you mean `momentum`?", "\"w\""]);
        tables.barrier().unwrap();
    });
}

#[test]
fn options_of_the_table_are_compared() {
    on_all_paths(2, |world, tables| {
        let adam = |lr| TableOptions {
            updater: UpdaterChoice::named("adam").unwrap(),
            add: AddOptions { lr, ..AddOptions::default() },
            ..named("weights")
        };
        let plain = || adam(None);
        let others = [
            (adam(Some(0.5)), "lr 0.5"),
            (TableOptions { reject_nan: true, ..plain() }, "rejects NaN"),
            (TableOptions { compression: Compression::TopK(0.25), ..plain() }, "compressed to topk:0.25"),
        ];
        for (other, words) in others {
            let options = if world.rank() == 1 { other } else { plain() };
            let error = create(tables, options).map(drop).unwrap_err();
            assert_eq!(error.kind(), Kind::Usage, "{error}");
            assert!(error.to_string().contains(words), "{words}: {error}");
        }
        // The updater's defaults may be given explicitly or omitted.
        let table = create(tables, adam((world.rank() == 1).then_some(0.001))).unwrap();
        tables.barrier().unwrap();
        drop(table);
    });
}

#[test]
fn a_failure_on_one_rank_is_the_same_kind_of_error_on_all() {
    let file = std::env::temp_dir().join(format!("unisono-{}-a-file", std::process::id()));
    std::fs::write(&file, "no folder").unwrap();
    let inside = file.join("checkpoint").to_str().unwrap().to_string();
    on_all_paths(3, |world, tables| {
        let expect = |result: Result<()>, kind: Kind, word: &str| {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(word), "{error}");
            error.to_string()
        };
        let table = create(tables, named("weights")).unwrap();
        let text = expect(tables.save(&inside), Kind::Io, "a-file");
        // The first rank of each host writes.
        assert!(world.local_rank() == 0 || text.contains("on rank "), "{text}");
        expect(tables.load(&inside), Kind::Io, "a-file");
        if !cfg!(feature = "cloud") {
            expect(tables.save("s3://bucket/checkpoint"), Kind::Unsupported, "cloud");
        }
        let text = expect(create(tables, named("weights")).map(drop), Kind::Usage, "a new name");
        assert!(text.contains(&format!("rank {}", world.rank())), "{text}");
        let short = ArrayTable::create(tables, 3, Some(&[1.0f32]), named("short")).map(drop);
        let text = expect(short, Kind::Usage, "initial values");
        assert!(world.rank() == 0 || text.contains("on rank 0"), "{text}");
        // Options that only the last rank rejects.
        let backup = if world.rank() == 2 { 3 } else { 1 };
        let rounds =
            TableOptions { consistency: Consistency::Bsp { backup, mean: false }, ..named("rounds") };
        let text = expect(create(tables, rounds).map(drop), Kind::Usage, "fewer backup workers");
        assert!(world.rank() == 2 || text.contains("on rank 2"), "{text}");
        tables.barrier().unwrap();
        drop(table);
    });
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn what_a_binding_rejects_on_one_rank_is_an_error_on_all() {
    let kinds = [
        TableKind::Array,
        TableKind::Matrix,
        TableKind::SparseMatrix,
        TableKind::KeyValue,
        TableKind::Custom,
    ];
    let creations = kinds.map(|kind| TablesCall::Create { kind, name: None });
    on_all_paths(3, |world, tables| {
        for (number, &call) in creations.iter().chain([&TablesCall::Save, &TablesCall::Load]).enumerate() {
            let rejected = Error::usage("table", "a number", "\"three\"", "convert it");
            let text = match (world.rank(), call) {
                (1, _) => {
                    tables.reject(call, &rejected).unwrap();
                    "rank 1".into()
                }
                (_, TablesCall::Save) => tables.save("memory://rejected").unwrap_err().to_string(),
                (_, TablesCall::Load) => tables.load("memory://rejected").unwrap_err().to_string(),
                _ => create(tables, named("weights")).err().unwrap().to_string(),
            };
            let expected = "on rank 1: expected a number, received \"three\"; convert it";
            assert!(world.rank() == 1 || text.ends_with(expected), "{number}: {text}");
            // All ranks are in step, and nothing is left of the table.
            let table = create(tables, named("weights")).unwrap();
            table.add(&[1.0; 3]).unwrap();
            tables.barrier().unwrap();
            let mut values = [0.0; 3];
            table.get(&mut values).unwrap();
            assert_eq!(values, [3.0; 3]);
            tables.barrier().unwrap();
        }
    });
}

#[test]
fn a_role_that_one_rank_cannot_read_is_an_error_on_all() {
    unisono::testing::spawn_worlds(3, |world| {
        let role = if world.rank() == 1 { Role::from_name("wrker") } else { Ok(Role::Both) };
        let text = Tables::join_as(world, role).err().unwrap().to_string();
        assert!(text.starts_with(&format!("rank {}: ", world.rank())) && text.contains("wrker"), "{text}");
        assert!(world.rank() == 1 || text.contains("on rank 1: "), "{text}");
        Tables::join(world, Role::Both).unwrap().barrier().unwrap();
    });
}

#[test]
fn different_checkpoint_paths_are_rejected() {
    with_tables(2, |world, tables| {
        let mine = format!("memory://place-{}", world.rank());
        for result in [tables.save(&mine), tables.load(&mine)] {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), Kind::Usage, "{error}");
            let text = error.to_string();
            assert!(["place-0", "place-1"].iter().all(|place| text.contains(place)), "{text}");
        }
    });
}
