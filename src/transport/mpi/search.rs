//! Candidate locations of MPI libraries on this machine, in the order in which they are tried.

use std::env;
use std::path::{Path, PathBuf};

use super::abi::Interface;
use crate::transport::process;

/// The library names that are tried, in order of preference: the standard ABI, Open MPI, MPICH (and Debian's name for
/// it).
const NAMES: [(&str, Interface); 5] = [
    ("libmpi_abi.so.1", Interface::Standard),
    ("libmpi_abi.so", Interface::Standard),
    ("libmpi.so.40", Interface::OpenMpi),
    ("libmpi.so.12", Interface::Mpich),
    ("libmpich.so.12", Interface::Mpich),
];

/// Folders that the loader searches by itself; listed only so that [`installed`] can enumerate their contents.
const SYSTEM: [&str; 7] = [
    "/usr/local/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib64/openmpi/lib",
    "/usr/lib64/mpich/lib",
    "/usr/lib",
];

/// Which MPI's launcher started this process. The library of another MPI would see a world of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MpiLauncher {
    OpenMpi,
    Mpich,
    /// Slurm, for libraries that speak PMIx: usually Open MPI.
    SlurmPmix,
    Unknown,
}

impl MpiLauncher {
    pub fn detect() -> MpiLauncher {
        MpiLauncher::from_variables(|name| env::var_os(name).is_some())
    }

    fn from_variables(is_set: impl Fn(&str) -> bool) -> MpiLauncher {
        if ["OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"].into_iter().any(&is_set) {
            MpiLauncher::OpenMpi
        } else if ["PMI_RANK", "PMI_FD", "HYDI_CONTROL_FD"].into_iter().any(&is_set) {
            MpiLauncher::Mpich
        } else if ["SLURM_PROCID", "PMIX_NAMESPACE"].into_iter().all(&is_set) {
            MpiLauncher::SlurmPmix
        } else {
            MpiLauncher::Unknown
        }
    }

    /// Whether this launcher and a library certainly belong to different MPIs, judging by the library's version string.
    pub fn contradicts(self, version: &str) -> bool {
        let is_open_mpi = version.contains("Open MPI");
        match self {
            MpiLauncher::OpenMpi => !is_open_mpi,
            // Slurm sets some of MPICH's variables for every MPI; only MPICH's own launcher sets this one.
            MpiLauncher::Mpich => is_open_mpi && env::var_os("HYDI_CONTROL_FD").is_some(),
            MpiLauncher::SlurmPmix | MpiLauncher::Unknown => false,
        }
    }

    /// Whether this launcher's ranks connect through a library with this ABI; the standard ABI may belong to any MPI.
    fn fits(self, interface: Interface) -> bool {
        match self {
            MpiLauncher::Unknown => true,
            MpiLauncher::OpenMpi | MpiLauncher::SlurmPmix => interface == Interface::OpenMpi,
            MpiLauncher::Mpich => interface != Interface::OpenMpi,
        }
    }
}

/// A candidate MPI library, as listed by [`mpi_libraries`](crate::transport::mpi_libraries).
///
/// ```
/// for library in unisono::transport::mpi_libraries() {
///     println!("{}: {}", library.interface, library.path.display());
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MpiLibrary {
    /// An absolute path, or a bare name for the loader's own search.
    pub path: PathBuf,
    /// The ABI that its file name implies.
    pub interface: Interface,
}

/// The candidates in order: first those that fit the launcher (beside the launcher, by the loader, in the environment's
/// folders), then all others.
pub(super) fn candidates(launcher: MpiLauncher) -> Vec<MpiLibrary> {
    let folders = [beside_launcher(), vec![PathBuf::new()], environment(), system()];
    let mut found: Vec<MpiLibrary> = Vec::new();
    for fitting in [true, false] {
        for folders in &folders {
            for (name, interface) in NAMES.into_iter().filter(|(_, i)| launcher.fits(*i) == fitting) {
                for folder in folders {
                    let candidate = MpiLibrary { path: folder.join(name), interface };
                    if !found.contains(&candidate) {
                        found.push(candidate);
                    }
                }
            }
        }
    }
    found
}

/// The MPI libraries that are already loaded in this process (importing mpi4py loads one).
pub(super) fn loaded(launcher: MpiLauncher) -> Vec<MpiLibrary> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut found = in_maps(&maps);
    found.sort_by_key(|candidate| !launcher.fits(candidate.interface));
    found
}

fn in_maps(maps: &str) -> Vec<MpiLibrary> {
    let mut found: Vec<MpiLibrary> = Vec::new();
    for path in maps.lines().filter_map(|line| line.find('/').map(|start| Path::new(&line[start..]))) {
        let Some(interface) = interface_of(path) else { continue };
        if !found.iter().any(|candidate| candidate.path == path) {
            found.push(MpiLibrary { path: path.into(), interface });
        }
    }
    found
}

/// The ABI implied by a file name, if it is the name of an MPI library.
pub(super) fn interface_of(path: &Path) -> Option<Interface> {
    let name = path.file_name()?.to_str()?;
    if name.starts_with("libmpi_abi.so") {
        Some(Interface::Standard)
    } else if name.starts_with("libmpi.so.40") {
        Some(Interface::OpenMpi)
    } else if ["libmpi.so.12", "libmpich.so.12", "libmpi_cray.so.12"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
    {
        Some(Interface::Mpich)
    } else {
        None
    }
}

/// Every MPI library on this machine, each file once. Only file names are examined: no library is loaded, because two
/// MPIs in one process interfere with each other. To query a version, load the library in a process of its own.
pub fn installed() -> Vec<MpiLibrary> {
    let launcher = MpiLauncher::detect();
    let named = env::var_os("UNISONO_LIBMPI").map(PathBuf::from);
    let named = named.and_then(|path| interface_of(&path).map(|interface| MpiLibrary { path, interface }));
    let mut files: Vec<PathBuf> = Vec::new();
    let mut found = Vec::new();
    for candidate in loaded(launcher).into_iter().chain(named).chain(candidates(launcher)) {
        let Ok(file) = candidate.path.canonicalize() else { continue };
        if candidate.path.is_absolute() && !files.contains(&file) {
            files.push(file);
            found.push(candidate);
        }
    }
    found
}

/// Folders that the launcher points to: its own installation is the one that its ranks must use.
fn beside_launcher() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    folders.extend(env::var_os("OMPI_LIBDIR_LOC").map(PathBuf::from));
    folders.extend(env::var_os("OPAL_PREFIX").map(|prefix| Path::new(&prefix).join("lib")));
    // A shell or another wrapper may be between the launcher and this process.
    let ancestors = std::iter::successors(process::parent(std::process::id()), |pid| process::parent(*pid));
    let programs = ancestors.take(6).filter_map(|pid| std::fs::read_link(format!("/proc/{pid}/exe")).ok());
    folders.extend(programs.filter_map(|program| library_folder(&program)));
    unique(folders)
}

/// Folders of the Python environment, of this program and of the `mpiexec` in PATH.
fn environment() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    folders.extend(env::var_os("VIRTUAL_ENV").map(|prefix| Path::new(&prefix).join("lib")));
    // Symlinks are not resolved: a virtual environment's python is a link, and its own lib/ is beside the link.
    let started_as = env::args_os().next().map(PathBuf::from).filter(|path| path.is_absolute());
    folders.extend(started_as.and_then(|program| library_folder(&program)));
    folders.extend(env::current_exe().ok().and_then(|program| library_folder(&program)));
    let path = env::var_os("PATH").unwrap_or_default();
    let launcher = env::split_paths(&path).map(|folder| folder.join("mpiexec")).find(|file| file.is_file());
    folders.extend(launcher.and_then(|program| library_folder(&program)));
    folders.extend(env::var_os("CONDA_PREFIX").map(|prefix| Path::new(&prefix).join("lib")));
    unique(folders)
}

fn system() -> Vec<PathBuf> {
    let path = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = env::split_paths(&path).filter(|folder| folder.is_absolute());
    unique(folders.chain(SYSTEM.iter().map(PathBuf::from)).filter(|folder| folder.is_dir()).collect())
}

/// `PREFIX/lib` of a program `PREFIX/bin/NAME`.
fn library_folder(program: &Path) -> Option<PathBuf> {
    Some(program.parent()?.parent()?.join("lib"))
}

fn unique(folders: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for folder in folders {
        if !found.contains(&folder) {
            found.push(folder);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_launcher_is_known_by_its_variables() {
        assert_eq!(MpiLauncher::from_variables(|name| name == "OMPI_COMM_WORLD_SIZE"), MpiLauncher::OpenMpi);
        assert_eq!(MpiLauncher::from_variables(|name| name == "PMI_RANK"), MpiLauncher::Mpich);
        assert_eq!(MpiLauncher::from_variables(|_| false), MpiLauncher::Unknown);
        let pmix = |name: &str| ["SLURM_PROCID", "PMIX_NAMESPACE"].contains(&name);
        assert_eq!(MpiLauncher::from_variables(pmix), MpiLauncher::SlurmPmix);
        assert_eq!(MpiLauncher::from_variables(|name| pmix(name) || name == "PMI_FD"), MpiLauncher::Mpich);
    }

    #[test]
    fn the_launchers_own_family_comes_first() {
        let first = |launcher| candidates(launcher).remove(0).interface;
        assert_eq!(first(MpiLauncher::OpenMpi), Interface::OpenMpi);
        assert_eq!(first(MpiLauncher::Mpich), Interface::Standard);
        assert!(
            candidates(MpiLauncher::Mpich).iter().any(|candidate| candidate.interface == Interface::OpenMpi)
        );
    }

    #[test]
    fn loaded_libraries_are_read_from_the_memory_map() {
        let maps = "7f00-7f01 r-xp 00000000 08:01 1 /opt/a/lib/libmpi.so.12.5.0\n\
                    7f01-7f02 r--p 00000000 08:01 1 /opt/a/lib/libmpi.so.12.5.0\n\
                    7f02-7f03 r-xp 00000000 08:01 2 /opt/b/lib/libmpi_mpifh.so.40\n\
                    7f03-7f04 rw-p 00000000 00:00 0 [heap]\n";
        let found = in_maps(maps);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].interface, Interface::Mpich);
    }
}
