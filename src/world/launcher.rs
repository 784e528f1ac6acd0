//! Launcher detection: which launcher started this process, and its rank, read from the environment variables of each
//! launcher.

use std::fs;

use crate::error::{Error, Result};
use crate::transport::process;

/// This process's placement according to its launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RankPlacement {
    /// The launcher's name.
    pub launcher: &'static str,
    pub rank: usize,
    /// The number of ranks; zero if the launcher does not state it and MPI must be asked.
    pub size: usize,
    /// This rank's local rank, if the launcher states it.
    pub local_rank: Option<usize>,
    pub local_size: Option<usize>,
    /// A name known to all ranks of this job on this host and unique to it; `None` if the launcher's process is not
    /// visible from here, as in a container that it started.
    pub job: Option<String>,
    /// How often the launcher has restarted this rank.
    pub restarts: usize,
}

/// The environment variables of one launcher.
struct LauncherVariables {
    name: &'static str,
    rank: &'static str,
    size: &'static str,
    local_rank: &'static str,
    local_size: &'static str,
    /// A variable that identifies the job; empty if the launcher's process identifies it instead.
    job: &'static str,
}

/// The name of our own launcher.
pub(crate) const OWN: &str = "unisono run";

/// PyTorch's launcher.
pub(crate) const TORCHRUN: &str = "torchrun";

/// MPICH's launcher, and others that set PMI's variables.
const PMI: &str = "MPICH (PMI)";

/// In detection order: the most likely innermost launcher first.
const LAUNCHERS: [LauncherVariables; 5] = [
    LauncherVariables {
        name: OWN,
        rank: "UNISONO_RANK",
        size: "UNISONO_SIZE",
        local_rank: "UNISONO_RANK",
        local_size: "UNISONO_SIZE",
        job: "UNISONO_JOB",
    },
    LauncherVariables {
        name: TORCHRUN,
        rank: "RANK",
        size: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        local_size: "LOCAL_WORLD_SIZE",
        job: "",
    },
    LauncherVariables {
        name: "Open MPI",
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_size: "OMPI_COMM_WORLD_LOCAL_SIZE",
        job: "",
    },
    LauncherVariables {
        name: PMI,
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        local_rank: "MPI_LOCALRANKID",
        local_size: "MPI_LOCALNRANKS",
        job: "",
    },
    LauncherVariables {
        name: "Slurm",
        rank: "SLURM_PROCID",
        size: "SLURM_STEP_NUM_TASKS",
        local_rank: "SLURM_LOCALID",
        local_size: "SLURM_STEP_TASKS_PER_NODE",
        job: "SLURM_JOB_ID",
    },
];

/// Detects the launcher; without one, this process is a world of one rank.
pub(crate) fn detect(variable: impl Fn(&str) -> Option<String>) -> Result<RankPlacement> {
    for launcher in &LAUNCHERS {
        // Both must be set: some shells inherit one of them from a surrounding job.
        if variable(launcher.rank).is_some()
            && variable(launcher.size).is_some()
            && !(launcher.name == PMI && srun_offers_pmi(&variable))
        {
            return read(launcher, &variable);
        }
    }
    // A PMIx-only launcher states the rank but not the number of ranks.
    if let (Some(rank), Some(job)) = (variable("PMIX_RANK"), variable("PMIX_NAMESPACE")) {
        return Ok(RankPlacement {
            launcher: "PMIx",
            rank: number("PMIx", "PMIX_RANK", &rank)?,
            size: 0,
            local_rank: None,
            local_size: None,
            job: Some(job),
            restarts: 0,
        });
    }
    Ok(RankPlacement {
        launcher: "none",
        rank: 0,
        size: 1,
        local_rank: Some(0),
        local_size: Some(1),
        job: Some(String::new()),
        restarts: 0,
    })
}

/// Whether PMI's variables are those of `srun --mpi=pmi2`. Slurm's own variables then say more: whether all ranks are on
/// one host. MPICH's launcher inside a step replaces some of the variables, and adds the last one.
fn srun_offers_pmi(variable: &impl Fn(&str) -> Option<String>) -> bool {
    let same = |one: &str, other: &str| variable(one).is_some() && variable(one) == variable(other);
    let step =
        variable("SLURM_JOB_ID").zip(variable("SLURM_STEP_ID")).map(|(job, step)| format!("{job}.{step}"));
    same("PMI_RANK", "SLURM_PROCID")
        && same("PMI_SIZE", "SLURM_STEP_NUM_TASKS")
        && step.is_some()
        && variable("PMI_JOBID") == step
        && variable("HYDI_CONTROL_FD").is_none()
}

fn read(launcher: &LauncherVariables, variable: &impl Fn(&str) -> Option<String>) -> Result<RankPlacement> {
    let read = |name: &str| variable(name).map(|text| number(launcher.name, name, &text)).transpose();
    let below = |(name, value): (&str, usize), (limit_name, limit): (&str, usize)| match value < limit {
        true => Ok(()),
        false => Err(Error::usage(
            "init",
            format!("{name} below {limit_name} ({limit})"),
            value.to_string(),
            format!("{} sets both; do not set them by hand", launcher.name),
        )),
    };
    let rank = read(launcher.rank)?.unwrap_or(0);
    let size = read(launcher.size)?.unwrap_or(1);
    below((launcher.rank, rank), (launcher.size, size))?;
    // Slurm writes "2(x3)" for three hosts with two tasks each: only a plain number means one host.
    let local_size = variable(launcher.local_size).and_then(|text| text.parse().ok());
    let local_rank = read(launcher.local_rank)?;
    if let Some(local_size) = local_size {
        below((launcher.local_rank, local_rank.unwrap_or(0)), (launcher.local_size, local_size))?;
    }
    let job = match variable(launcher.job) {
        // Our own launcher may run inside a Slurm step; its job name is already complete.
        Some(job) if launcher.name == OWN => Some(job),
        Some(job) => {
            Some([Some(job), variable("SLURM_STEP_ID")].into_iter().flatten().collect::<Vec<_>>().join("."))
        }
        None => ancestor(launcher.rank).map(|name| format!("{}-{name}", launcher.rank.to_lowercase())),
    };
    Ok(RankPlacement {
        launcher: launcher.name,
        rank,
        size,
        local_rank,
        local_size,
        job,
        restarts: if launcher.name == OWN { read("UNISONO_RESTARTS")?.unwrap_or(0) } else { 0 },
    })
}

/// Parses a number set by a launcher: 32 bits, as ranks exchange it.
fn number(launcher: &str, name: &str, text: &str) -> Result<usize> {
    text.parse::<u32>().map(|number| number as usize).map_err(|_| {
        let advice = format!("{launcher} sets it; do not set it by hand");
        Error::usage("init", format!("a number in {name}"), format!("{text:?}"), advice)
    })
}

/// Identifies the launcher, or its daemon on this host, as the nearest ancestor without `variable` in its environment:
/// all ranks of this job share it, even with a shell in between. `None` if it is outside this process's PID or network
/// namespace.
fn ancestor(variable: &str) -> Option<String> {
    let prefix = format!("{variable}=");
    let mut pid = process::own_pid();
    loop {
        // Processes outside the namespace have pid 0.
        pid = process::parent(pid).filter(|&parent| parent > 0)?;
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        if !environment.split(|&byte| byte == 0).any(|entry| entry.starts_with(prefix.as_bytes())) {
            break;
        }
    }
    let networks = [process::network_namespace(Some(pid)), process::network_namespace(None)];
    let reachable = networks[0] == networks[1] || networks.contains(&0);
    reachable.then(|| format!("{pid}-{}", process::start_time(pid).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect_in(variables: &[(&str, &str)]) -> Result<RankPlacement> {
        detect(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string()))
    }

    #[test]
    fn a_plain_process_is_alone() {
        let found = detect_in(&[]).unwrap();
        assert_eq!((found.launcher, found.rank, found.size), ("none", 0, 1));
    }

    #[test]
    fn each_launcher_is_recognised() {
        let own = [("UNISONO_RANK", "2"), ("UNISONO_SIZE", "4"), ("UNISONO_JOB", "abc")];
        let found = detect_in(&own).unwrap();
        assert_eq!((found.launcher, found.rank, found.size, found.job.as_deref()), (OWN, 2, 4, Some("abc")));
        assert_eq!((found.local_rank, found.local_size), (Some(2), Some(4)));

        let torchrun = [("RANK", "3"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "2")];
        let found = detect_in(&torchrun).unwrap();
        assert_eq!((found.launcher, found.rank), ("torchrun", 3));
        assert_eq!((found.local_rank, found.local_size), (Some(1), Some(2)));

        let own =
            [("UNISONO_RANK", "0"), ("UNISONO_SIZE", "2"), ("UNISONO_JOB", "5-a"), ("SLURM_STEP_ID", "1")];
        assert_eq!(detect_in(&own).unwrap().job.as_deref(), Some("5-a"));
        let open_mpi = [
            ("OMPI_COMM_WORLD_RANK", "3"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ];
        let found = detect_in(&open_mpi).unwrap();
        assert_eq!((found.launcher, found.local_rank, found.local_size), ("Open MPI", Some(1), Some(2)));
        let found = detect_in(&open_mpi[..2]).unwrap();
        assert_eq!((found.launcher, found.local_rank, found.local_size), ("Open MPI", None, None));
        let mpich =
            [("PMI_RANK", "3"), ("PMI_SIZE", "4"), ("MPI_LOCALRANKID", "1"), ("MPI_LOCALNRANKS", "2")];
        let found = detect_in(&mpich).unwrap();
        assert_eq!((found.launcher, found.local_rank, found.local_size), ("MPICH (PMI)", Some(1), Some(2)));
        let slurm = [
            ("SLURM_PROCID", "5"),
            ("SLURM_STEP_NUM_TASKS", "6"),
            ("SLURM_LOCALID", "1"),
            ("SLURM_STEP_TASKS_PER_NODE", "2(x3)"),
            ("SLURM_JOB_ID", "77"),
            ("SLURM_STEP_ID", "1"),
        ];
        let found = detect_in(&slurm).unwrap();
        assert_eq!((found.launcher, found.job.as_deref()), ("Slurm", Some("77.1")));
        assert_eq!((found.local_rank, found.local_size), (Some(1), None));
    }

    #[test]
    fn pmix_alone_does_not_pass_for_a_world_of_one() {
        let pmix = [("PMIX_RANK", "1"), ("PMIX_NAMESPACE", "prterun-host-7@1")];
        let found = detect_in(&pmix).unwrap();
        assert_eq!((found.launcher, found.rank, found.size), ("PMIx", 1, 0));
        assert_eq!((found.local_rank, found.local_size), (None, None));
    }

    #[test]
    fn srun_is_told_from_an_mpi_launcher_inside_its_step() {
        let srun = [
            ("SLURM_PROCID", "1"),
            ("SLURM_STEP_NUM_TASKS", "2"),
            ("SLURM_LOCALID", "1"),
            ("SLURM_STEP_TASKS_PER_NODE", "2"),
            ("SLURM_JOB_ID", "77"),
            ("SLURM_STEP_ID", "1"),
            ("PMI_RANK", "1"),
            ("PMI_SIZE", "2"),
            ("PMI_JOBID", "77.1"),
        ];
        let found = detect_in(&srun).unwrap();
        assert_eq!((found.launcher, found.rank, found.local_size), ("Slurm", 1, Some(2)));
        for changed in [("PMI_JOBID", "77.0"), ("PMI_SIZE", "4"), ("PMI_RANK", "0"), ("HYDI_CONTROL_FD", "7")]
        {
            let inner: Vec<_> = std::iter::once(changed).chain(srun).collect();
            assert_eq!(detect_in(&inner).unwrap().launcher, PMI, "{changed:?}");
        }
    }

    #[test]
    fn our_own_launcher_wins_inside_another() {
        let both = [
            ("PMI_RANK", "0"),
            ("PMI_SIZE", "1"),
            ("UNISONO_RANK", "1"),
            ("UNISONO_SIZE", "2"),
            ("UNISONO_JOB", "j"),
        ];
        assert_eq!(detect_in(&both).unwrap().launcher, OWN);
    }

    #[test]
    fn nonsense_is_rejected_with_the_variable_named() {
        let error = detect_in(&[("RANK", "first"), ("WORLD_SIZE", "2")]).unwrap_err().to_string();
        assert!(error.contains("RANK") && error.contains("first"), "{error}");
        let error = detect_in(&[("RANK", "2"), ("WORLD_SIZE", "2")]).unwrap_err().to_string();
        assert!(error.contains("RANK below WORLD_SIZE"), "{error}");
        let local = [("RANK", "0"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "4"), ("LOCAL_WORLD_SIZE", "4")];
        let error = detect_in(&local).unwrap_err().to_string();
        assert!(error.contains("LOCAL_RANK below LOCAL_WORLD_SIZE"), "{error}");
        // A malformed rank must not be mistaken for a process without a launcher.
        let error = detect_in(&[("PMIX_RANK", "first"), ("PMIX_NAMESPACE", "job")]).unwrap_err().to_string();
        assert!(error.contains("PMIX_RANK"), "{error}");
    }
}
