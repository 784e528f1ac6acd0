//! Toy tables between ranks that share no memory, over each MPI.

use std::sync::Arc;
use std::time::Instant;

use super::failures::{leave_a_note, signal_rank_1};
use super::jobs::{self, Job, installations};
use crate::tables::remote::tests as toys;
use crate::transport::Transport;
use crate::world::World;

/// A rank of a world that the launcher describes.
pub fn rank() {
    let world = World::init().unwrap();
    let transport = world.group().core.common.transport.clone();
    toys::every_rank(&transport);
    // One write, so that the lines of several ranks do not mix.
    print!("{}", format_args!("tables are exact over {}\n", world.transport()));
}

/// Rank 1 dies while the others wait for its answer.
pub fn killed() {
    let mpi = Arc::new(super::cases::start());
    let transport: Arc<dyn Transport> = mpi.clone();
    let (error, took) =
        toys::a_server_dies(&transport, || signal_rank_1(&mpi, rustix::process::Signal::KILL));
    leave_a_note(&mpi, &error, Instant::now() - took);
}

#[test]
fn tables_are_exact_over_mpi_alone_and_over_pretended_hosts() {
    for installation in installations() {
        for (variable, value, transport, sizes) in
            [("UNISONO_TRANSPORT", "mpi", "mpi", &[2, 3, 4][..]), ("UNISONO_HOSTS", "2", "shm+mpi", &[3, 4])]
        {
            for &ranks in sizes {
                let end = Job::new(&installation, ranks, "tables").variable(variable, value).run();
                let told = format!("{}, {variable}, {ranks} ranks:\n{}", installation.name, end.output);
                assert!(end.success, "{told}");
                let line = format!("tables are exact over {transport}\n");
                assert_eq!(end.output.matches(&line).count(), ranks, "{told}");
                println!("{}, {variable}, {ranks} ranks: {:.1} s", installation.name, end.seconds);
            }
        }
    }
}

#[test]
fn a_killed_server_is_named() {
    for installation in installations() {
        let notes = jobs::folder("tables");
        let end = Job::new(&installation, 3, "killed server").notes(&notes).run();
        let read = |rank: &str| std::fs::read_to_string(notes.join(rank)).unwrap_or_default();
        let noticed = ["0", "2"].map(read);
        let _ = std::fs::remove_dir_all(&notes);
        let told = format!("{}, {:.1} s, {noticed:?}:\n{}", installation.name, end.seconds, end.output);
        if installation.is_open_mpi {
            // Its launcher ends the job by itself.
            assert!(!end.success, "{told}");
        } else {
            assert!(noticed.iter().all(|note| note.contains("lost rank 1")), "{told}");
        }
    }
}
