//! Cores, memory, limits of shared memory, and the launcher of this process.

use std::fs;

use rustix::fs::{MemfdFlags, memfd_create, statvfs};

use super::report::{Mark, ReportSection};
use crate::launcher::numa_nodes;

pub(super) fn machine() -> ReportSection {
    let mut section = ReportSection::new("Machine");
    section.add(Mark::Fact, "unisono", env!("CARGO_PKG_VERSION"));
    section.add(Mark::Fact, "cores", cores());
    section.add(
        Mark::Fact,
        "NUMA nodes",
        format!("{}; unisono run --bind gives each rank its own cores", numa_nodes()),
    );
    section.add(Mark::Fact, "memory", memory());
    let is_set = |name: &str| std::env::var_os(name).is_some();
    let launcher = match launcher(is_set) {
        Some(SLURM) => format!("this process was started by {SLURM}, {}", slurm_interface(is_set)),
        Some(name) => format!("this process was started by {name}"),
        None => "none (a world of one rank)".into(),
    };
    section.add(Mark::Fact, "launcher", launcher);
    section
}

pub(super) fn shared_memory() -> ReportSection {
    let mut section = ReportSection::new("Shared memory");
    match memfd_create("unisono-doctor", MemfdFlags::CLOEXEC)
        .and_then(|file| rustix::fs::ftruncate(&file, 1 << 20).map(|()| file))
        .map_err(std::io::Error::from)
        .and_then(|file| std::io::Write::write_all(&mut fs::File::from(file), &[1; 4096]))
    {
        Ok(()) => section.add(Mark::Ok, "memfd", "works; it is limited by memory alone"),
        Err(error) => section.add(Mark::Failed, "memfd", format!("{error}; a container may forbid it")),
    }
    match statvfs("/dev/shm") {
        Ok(info) => {
            let bytes = |blocks: u64| gigabytes((blocks * info.f_frsize) as f64);
            let text = format!("{} of {} free", bytes(info.f_bavail), bytes(info.f_blocks));
            section.add(Mark::Ok, "/dev/shm", text);
        }
        Err(error) => section.add(Mark::Missing, "/dev/shm", format!("{error}; memfd serves instead")),
    }
    let (mark, text) = namespaces();
    section.add(mark, "namespaces", text);
    let overcommit = match read("/proc/sys/vm/overcommit_memory").as_deref() {
        Some("0") => "heuristic (0)",
        Some("1") => "always (1)",
        Some("2") => "never (2): every job's memory is counted in full from its start",
        _ => "unknown",
    };
    section.add(Mark::Fact, "overcommit", overcommit);
    section.add(Mark::Fact, "locked memory", "not needed");
    section
}

/// Containers on one machine have separate namespaces: their ranks do not share memory.
fn namespaces() -> (Mark, String) {
    let number = |kind: &str| {
        let link = fs::read_link(format!("/proc/self/ns/{kind}")).ok()?;
        let digits = link.to_str()?.trim_matches(|character: char| !character.is_ascii_digit());
        Some(digits.to_string())
    };
    let shown = fs::read_link("/proc/self").ok().and_then(|link| link.to_str()?.parse().ok());
    match (number("pid"), number("net")) {
        _ if shown != Some(std::process::id()) => {
            let text = "/proc shows another PID namespace; ranks cannot see each other and use MPI";
            (Mark::Failed, text.into())
        }
        (Some(pid), Some(net)) => {
            (Mark::Fact, format!("PID {pid}, network {net}; ranks share memory if both are the same"))
        }
        _ => (Mark::Fact, "unknown".into()),
    }
}

fn cores() -> String {
    let usable = std::thread::available_parallelism().map_or(1, usize::from);
    let online = read("/proc/cpuinfo").map_or(0, |text| text.matches("processor\t").count());
    let allowed = rustix::thread::sched_getaffinity(None).map_or(0, |set| set.count());
    let mut text = format!("{usable} usable, {} online, affinity allows {allowed}", online.max(usable));
    if let Some((quota, period)) =
        read("/sys/fs/cgroup/cpu.max").as_deref().and_then(|text| text.split_once(' '))
        && let (Ok(quota), Ok(period)) = (quota.parse::<f64>(), period.parse::<f64>())
    {
        text += &format!(", the control group allows {:.1}", quota / period);
    }
    text
}

fn memory() -> String {
    let information = read("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| {
        let line = information.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_end_matches("kB").trim().parse::<f64>().ok().map(|kilobytes| kilobytes * 1024.0)
    };
    let bytes = |name| field(name).map_or_else(|| "unknown".into(), gigabytes);
    let mut text = format!("{} in all, {} available", bytes("MemTotal:"), bytes("MemAvailable:"));
    if let Some(limit) = read("/sys/fs/cgroup/memory.max").and_then(|text| text.parse::<f64>().ok()) {
        text += &format!(", the control group allows {}", gigabytes(limit));
    }
    text
}

const SLURM: &str = "Slurm";

/// The launcher whose environment variables are set.
fn launcher(is_set: impl Fn(&str) -> bool) -> Option<&'static str> {
    // `srun --mpi=pmi2` sets the variables of MPICH too.
    let pmi_size =
        if is_set("PMI_JOBID") && is_set("SLURM_STEP_ID") { "HYDI_CONTROL_FD" } else { "PMI_SIZE" };
    let known = [
        ("unisono run", ["UNISONO_RANK", "UNISONO_SIZE"]),
        ("torchrun", ["RANK", "WORLD_SIZE"]),
        ("Open MPI", ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"]),
        ("MPICH (PMI)", ["PMI_RANK", pmi_size]),
        (SLURM, ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS"]),
    ];
    known.into_iter().find(|(_, names)| names.iter().all(|name| is_set(name))).map(|(launcher, _)| launcher)
}

/// How MPI can find the other tasks of a Slurm step.
fn slurm_interface(is_set: impl Fn(&str) -> bool) -> &'static str {
    match (is_set("PMIX_NAMESPACE"), is_set("PMI_FD")) {
        (true, _) => "with PMIx for MPI (Open MPI)",
        (_, true) => "with PMI-2 for MPI (MPICH)",
        _ => "without an interface for MPI: enough for ranks on one node",
    }
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_string())
}

pub(super) fn gigabytes(bytes: f64) -> String {
    format!("{:.1} GB", bytes / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launcher_needs_all_its_variables() {
        assert_eq!(launcher(|_| false), None);
        assert_eq!(launcher(|name| name == "RANK"), None);
        assert_eq!(launcher(|name| name.starts_with("PMI_")), Some("MPICH (PMI)"));
        assert_eq!(launcher(|_| true), Some("unisono run"));
        let srun = |name: &str| name.starts_with("SLURM_") || name.starts_with("PMI_");
        assert_eq!(launcher(srun), Some(SLURM));
        assert_eq!(launcher(|name| srun(name) || name == "HYDI_CONTROL_FD"), Some("MPICH (PMI)"));
        assert!(slurm_interface(srun).contains("PMI-2"));
        assert!(slurm_interface(|name| name == "PMIX_NAMESPACE").contains("PMIx"));
        assert!(slurm_interface(|_| false).contains("one node"));
    }
}
