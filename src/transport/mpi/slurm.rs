//! Slurm steps: checks, before MPI starts, that `srun` offers a process management interface which the MPI library speaks.
//!
//! MPI finds the other ranks through such an interface: PMI (versions 1 and 2) or PMIx. Without it, MPICH makes every
//! task a world of one rank, and Open MPI ends the process; with one that it does not speak, MPICH ends it too.

use std::path::Path;
use std::{env, fs};

use super::library::LoadedMpi;
use super::search;
use crate::error::{Error, Result};

/// A task of a step with several tasks, started by `srun` itself.
struct SlurmTask {
    number: usize,
    tasks: usize,
    step: String,
    node: String,
    offers_pmi: bool,
    offers_pmix: bool,
}

impl SlurmTask {
    /// `None` outside such a step, and for ranks that another launcher has started inside it.
    fn detect(variable: impl Fn(&str) -> Option<String>) -> Option<SlurmTask> {
        let any = |names: &[&str]| names.iter().any(|name| variable(name).is_some());
        let number = variable("SLURM_PROCID")?.parse().ok()?;
        let tasks = variable("SLURM_STEP_NUM_TASKS")?.parse().ok().filter(|tasks| *tasks > 1)?;
        if any(&["OMPI_COMM_WORLD_RANK", "HYDI_CONTROL_FD", "UNISONO_RANK"]) {
            return None;
        }
        let part = |name| variable(name).unwrap_or_else(|| "?".into());
        Some(SlurmTask {
            number,
            tasks,
            step: format!("{}.{}", part("SLURM_JOB_ID"), part("SLURM_STEP_ID")),
            node: part("SLURMD_NODENAME"),
            // The last one is set on HPE Cray systems.
            offers_pmi: any(&["PMI_FD", "PMI_PORT", "PMI_CONTROL_PORT"]),
            offers_pmix: any(&["PMIX_NAMESPACE"]),
        })
    }

    /// Whether MPI can start, with a library of this version; `uses` returns whether the library, or one of its plug-ins,
    /// uses a shared library of this name.
    fn check(&self, version: &str, path: &Path, uses: impl Fn(&str) -> bool) -> Result<()> {
        let is_open_mpi = version.contains("Open MPI");
        let speaks_pmi = !is_open_mpi;
        let speaks_pmix = is_open_mpi || uses("libpmix.so");
        // Slurm's own libraries connect to srun without any of these variables.
        let connects_alone =
            ["libpmi.so", "libpmi2.so", "mca_pmix_s1.so", "mca_pmix_s2.so"].into_iter().any(uses);
        if connects_alone || (self.offers_pmi && speaks_pmi) || (self.offers_pmix && speaks_pmix) {
            return Ok(());
        }
        let (spoken, option) = if is_open_mpi { ("PMIx", "pmix") } else { ("PMI-2", "pmi2") };
        let offered = match (self.offers_pmi, self.offers_pmix) {
            (true, _) => "PMI-2 alone",
            (_, true) => "PMIx alone",
            _ => "none",
        };
        // Open MPI's version goes on with the name of its builder.
        let name = version.split(',').next().unwrap_or(version);
        let expected =
            format!("an interface to Slurm that {} speaks ({spoken})", super::describe(name, path));
        let SlurmTask { number, tasks, step, node, .. } = self;
        let received = format!("{offered} in task {number} of {tasks} of step {step}, on node {node}");
        let advice = format!(
            "start the step with `srun --mpi={option}` (`srun --mpi=list` lists what this Slurm has), start the ranks with \
             the mpiexec of that library inside the allocation, or place them all on one node, which needs no MPI"
        );
        Err(Error::usage("init", expected, received, advice).at_rank(*number))
    }
}

/// Rejects a library that cannot connect to the step of this process, before it ends the process itself.
pub(super) fn check(library: &LoadedMpi) -> Result<()> {
    let variable = |name: &str| env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    let Some(task) = SlurmTask::detect(variable) else { return Ok(()) };
    // Intel MPI loads the library that this variable names. An MPI that is already running needs no check.
    if env::var_os("I_MPI_PMI_LIBRARY").is_some() || library.is_initialised() {
        return Ok(());
    }
    let files = library_files(&fs::read_to_string("/proc/self/maps").unwrap_or_default());
    task.check(&library.version(), &library.path, |name| files.iter().any(|file| file.starts_with(name)))
}

/// The names of the files in a memory map, and of the plug-ins beside the MPI libraries among them: Open MPI loads its
/// plug-ins when it starts.
fn library_files(maps: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut folders = Vec::new();
    for path in maps.lines().filter_map(|line| line.find('/').map(|start| Path::new(&line[start..]))) {
        if search::interface_of(path).is_some() {
            folders.extend(path.parent().map(|folder| [folder.join("openmpi"), folder.join("openmpi3")]));
        }
        names.extend(path.file_name().map(|name| name.to_string_lossy().into_owned()));
    }
    folders.sort_unstable();
    folders.dedup();
    let plug_ins =
        folders.iter().flatten().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    names.extend(plug_ins.map(|file| file.file_name().to_string_lossy().into_owned()));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: [(&str, &str); 5] = [
        ("SLURM_PROCID", "3"),
        ("SLURM_STEP_NUM_TASKS", "4"),
        ("SLURM_JOB_ID", "77"),
        ("SLURM_STEP_ID", "0"),
        ("SLURMD_NODENAME", "host2"),
    ];
    const PMI: (&str, &str) = ("PMI_FD", "10");
    const PMIX: (&str, &str) = ("PMIX_NAMESPACE", "slurm.pmix.77.0");
    const MPICH: &str = "MPICH Version: 5.0.2";
    const OPEN_MPI: &str = "Open MPI v4.1.4, package: Debian OpenMPI";

    fn task(more: &[(&str, &str)]) -> Option<SlurmTask> {
        let variables = [&STEP, more].concat();
        SlurmTask::detect(|name| {
            variables.iter().rev().find(|(key, _)| *key == name).map(|(_, value)| value.to_string())
        })
    }

    fn outcome(offered: &[(&str, &str)], version: &str, used: &str) -> Result<()> {
        task(offered).unwrap().check(version, Path::new("libmpi.so"), |name| name == used)
    }

    #[test]
    fn each_library_needs_its_own_interface() {
        for (offered, mpich, open_mpi) in [
            (vec![], false, false),
            (vec![PMI], true, false),
            (vec![PMIX], false, true),
            (vec![PMI, PMIX], true, true),
        ] {
            assert_eq!(outcome(&offered, MPICH, "").is_ok(), mpich, "{offered:?}");
            assert_eq!(outcome(&offered, OPEN_MPI, "").is_ok(), open_mpi, "{offered:?}");
        }
        assert!(outcome(&[PMIX], MPICH, "libpmix.so").is_ok());
        assert!(outcome(&[], MPICH, "libpmi2.so").is_ok(), "Slurm's own library needs no variable");
        assert!(outcome(&[], OPEN_MPI, "mca_pmix_s1.so").is_ok(), "and so does a plug-in that uses it");
    }

    #[test]
    fn the_error_names_the_task_and_the_option() {
        let error = outcome(&[], MPICH, "").unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Usage);
        let text = error.to_string();
        for part in [
            "rank 3: init",
            MPICH,
            "(PMI-2)",
            "none in task 3 of 4 of step 77.0, on node host2",
            "--mpi=pmi2",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = outcome(&[PMI], OPEN_MPI, "").unwrap_err().to_string();
        assert!(
            text.contains("PMI-2 alone in task") && text.contains("Open MPI v4.1.4 (libmpi.so)"),
            "{text}"
        );
    }

    #[test]
    fn plug_ins_beside_the_library_count() {
        let folder = std::env::temp_dir().join(format!("unisono-plug-ins-{}", std::process::id()));
        fs::create_dir_all(folder.join("openmpi")).unwrap();
        fs::write(folder.join("openmpi/mca_pmix_s1.so"), "").unwrap();
        let line = |path: &Path| format!("7f00-7f01 r-xp 00000000 08:01 1 {}\n", path.display());
        let maps = line(&folder.join("libmpi.so.40.1")) + &line(Path::new("/opt/lib/libpmix.so.2"));
        assert_eq!(library_files(&maps), ["libmpi.so.40.1", "libpmix.so.2", "mca_pmix_s1.so"]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn only_tasks_that_srun_started_are_checked() {
        assert!(task(&[]).is_some());
        assert!(task(&[("SLURM_STEP_NUM_TASKS", "1")]).is_none());
        assert!(task(&[("SLURM_STEP_NUM_TASKS", "many")]).is_none());
        for inner in ["OMPI_COMM_WORLD_RANK", "HYDI_CONTROL_FD", "UNISONO_RANK"] {
            assert!(task(&[(inner, "0")]).is_none(), "{inner}");
        }
        assert!(SlurmTask::detect(|_| None).is_none());
    }
}
