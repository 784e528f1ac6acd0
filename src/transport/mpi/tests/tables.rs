//! Tables between ranks that share no memory, over each MPI: minimal test tables that exercise requests, and real
//! key-value and user-defined tables.

use std::sync::Arc;
use std::time::Instant;

use super::failures::{report_and_exit, signal_rank_1};
use super::jobs::{self, MpiJob, installations};
use super::user_defined;
use crate::memory::DType;
use crate::tables::remote::tests as toys;
use crate::tables::{
    AddOptions, ArrayTable, Compression, Consistency, KeyType, KeyValueTable, Keys, OwnedKeys, Role,
    TableOptions, Tables,
};
use crate::transport::Transport;
use crate::world::World;

/// A rank of the world that the launcher describes.
pub fn rank() {
    let world = World::init().unwrap();
    let transport = world.group().transport().clone();
    toys::every_rank(&transport);
    keys(&world);
    user_defined::run(&world).unwrap();
    // One write, so that the lines of several ranks do not interleave.
    print!("{}", format_args!("tables are exact over {}\n", world.transport()));
}

/// Keys of both types, added by all ranks in rounds and checked by all.
fn keys(world: &World) {
    let tables = Tables::join(world, Role::Both).unwrap();
    let options =
        TableOptions { consistency: Consistency::Bsp { backup: 0, mean: false }, ..TableOptions::default() };
    let numbers = KeyValueTable::create(&tables, KeyType::Int, 2, DType::I64, options).unwrap();
    let options = TableOptions { compression: Compression::Int8, ..TableOptions::default() };
    let words = KeyValueTable::create(&tables, KeyType::Bytes, 1, DType::F32, options).unwrap();
    let (ranks, none) = (world.size() as i64, AddOptions::default());
    let all: Vec<i64> = (-2000..2000).collect();
    for round in 1..=3i64 {
        let delta: Vec<i64> = all.iter().flat_map(|key| [*key, 1]).collect();
        numbers.add(Keys::Int(&all), bytemuck::cast_slice(&delta), &none).unwrap();
        let mut values = vec![0i64; 8000];
        numbers.get(Keys::Int(&all), bytemuck::cast_slice_mut(&mut values)).unwrap();
        let times = round * ranks;
        let right = |(row, key): (&[i64], &i64)| row == [key * times, times];
        assert!(values.chunks_exact(2).zip(&all).all(right), "round {round}");
    }
    let texts: Vec<String> = (0..100).map(|number| format!("word {number}")).collect();
    let texts: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
    words.add_soon(Keys::Bytes(&texts), bytemuck::cast_slice(&[1f32; 100]), &none).unwrap();
    tables.barrier().unwrap();
    assert_eq!((numbers.len().unwrap(), words.len().unwrap()), (4000, 100));
    assert_eq!(numbers.items().unwrap().keys, OwnedKeys::Int(all));
    assert_eq!(words.contains(Keys::Bytes(&[b"word 7", b"word"])).unwrap(), [true, false]);
    let items = words.items().unwrap();
    let values: &[[u8; 4]] = items.values.as_chunks().0;
    assert!(values.iter().all(|&value| f32::from_ne_bytes(value) == ranks as f32));
    tables.barrier().unwrap();
}

/// Rank 1 dies while the others wait for its reply.
pub fn killed() {
    let mpi = Arc::new(super::cases::start());
    let transport: Arc<dyn Transport> = mpi.clone();
    let (error, took) =
        toys::a_server_dies(&transport, || signal_rank_1(&mpi, rustix::process::Signal::KILL));
    report_and_exit(&*mpi, &error, Instant::now() - took);
}

/// Rank 1, a worker that owns no rows, dies while the others work in rounds with it.
pub fn killed_worker() {
    let world = World::init().unwrap();
    let role = if world.rank() == 1 { Role::Worker } else { Role::Both };
    let tables = Tables::join(&world, role).unwrap();
    let options =
        TableOptions { consistency: Consistency::Bsp { backup: 0, mean: false }, ..TableOptions::default() };
    let table = ArrayTable::<i64>::create(&tables, 10, None, options).unwrap();
    for step in 0.. {
        let began = Instant::now();
        if world.rank() == 1 && step == 5 {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::KILL).expect("the signal is sent");
        }
        if let Err(error) = table.add(&[1; 10]).and_then(|()| table.get(&mut [0; 10])) {
            assert_eq!(step, 5, "{error}");
            report_and_exit(&**world.group().transport(), &error, began);
        }
    }
}

#[test]
fn tables_are_exact_over_mpi_alone_and_over_pretended_hosts() {
    for installation in installations() {
        for (variable, value, transport, sizes) in
            [("UNISONO_TRANSPORT", "mpi", "mpi", &[2, 3, 4][..]), ("UNISONO_HOSTS", "2", "shm+mpi", &[3, 4])]
        {
            for &ranks in sizes {
                let end = MpiJob::new(&installation, ranks, "tables").variable(variable, value).run();
                let report = format!("{}, {variable}, {ranks} ranks:\n{}", installation.name, end.output);
                assert!(end.success, "{report}");
                let line = format!("tables are exact over {transport}\n");
                assert_eq!(end.output.matches(&line).count(), ranks, "{report}");
                println!("{}, {variable}, {ranks} ranks: {:.1} s", installation.name, end.seconds);
            }
        }
    }
}

#[test]
fn a_killed_server_is_named() {
    rank_1_is_named("killed server", "");
}

#[test]
fn a_killed_worker_of_another_host_is_named() {
    rank_1_is_named("killed worker", "mpi");
}

fn rank_1_is_named(case: &str, transport: &str) {
    for installation in installations() {
        let notes = jobs::folder("tables");
        let job = MpiJob::new(&installation, 3, case).notes(&notes).variable("UNISONO_TRANSPORT", transport);
        let end = job.variable("UNISONO_TIMEOUT", "30").run();
        let read = |rank: &str| std::fs::read_to_string(notes.join(rank)).unwrap_or_default();
        let noticed = ["0", "2"].map(read);
        let _ = std::fs::remove_dir_all(&notes);
        let report = format!("{}, {:.1} s, {noticed:?}:\n{}", installation.name, end.seconds, end.output);
        if installation.is_open_mpi {
            // Its launcher ends the job by itself.
            assert!(!end.success, "{report}");
        } else {
            assert!(noticed.iter().all(|note| note.contains("lost rank 1")), "{report}");
        }
    }
}
