//! Finds NVIDIA's libraries at run time and loads them: the driver, its compiler NVRTC, and NCCL.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::error::Error;

/// A library, and where to search for it.
pub(crate) struct LibrarySpec {
    /// Its name for users.
    pub title: &'static str,
    /// Its file names, preferred first.
    names: &'static [&'static str],
    /// The environment variable that may hold its full path.
    variable: &'static str,
    /// How users can install it.
    advice: &'static str,
}

pub(super) const DRIVER: LibrarySpec = LibrarySpec {
    title: "the NVIDIA driver",
    names: &["libcuda.so.1"],
    variable: "UNISONO_LIBCUDA",
    advice: "install NVIDIA's driver, or name its library in UNISONO_LIBCUDA; arrays in host memory need none of it",
};

pub(super) const NVRTC: LibrarySpec = LibrarySpec {
    title: "NVIDIA's run-time compiler (NVRTC)",
    names: &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
    variable: "UNISONO_LIBNVRTC",
    advice: "install it with `pip install nvidia-cuda-nvrtc` (PyTorch for CUDA brings it), or name it in UNISONO_LIBNVRTC",
};

pub(crate) const NCCL: LibrarySpec = LibrarySpec {
    title: "NCCL",
    names: &["libnccl.so.2", "libnccl.so"],
    variable: "UNISONO_LIBNCCL",
    advice: "install it with `pip install nvidia-nccl-cu13` (PyTorch for CUDA brings it), or name it in UNISONO_LIBNCCL",
};

/// A library that is loaded in this process. It is never unloaded: these libraries leave threads and exit handlers behind.
pub(crate) struct LoadedLibrary {
    pub path: PathBuf,
    pub library: &'static Library,
}

/// Folders of NVIDIA's packages in a Python environment, set by the binding.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Adds folders in which NVIDIA's libraries are searched for, before the loader's own path. For bindings, which know where
/// their language installs packages; call it before any other CUDA function.
///
/// ```
/// unisono::cuda::look_in(["/opt/environment/lib/python3.12/site-packages/nvidia/nccl/lib".into()]);
/// ```
pub fn look_in(folders: impl IntoIterator<Item = PathBuf>) {
    let mut known = FOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
    for folder in folders {
        if !known.contains(&folder) {
            known.push(folder);
        }
    }
}

/// The folders to search in addition to the loader's path.
fn folders() -> Vec<PathBuf> {
    let mut folders = FOLDERS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(environment) = env::var_os("VIRTUAL_ENV") {
        folders.extend(packages(&Path::new(&environment).join("lib")));
    }
    let system = ["/usr/local/cuda/lib64", "/usr/local/nvidia/lib64", "/usr/lib/wsl/lib"];
    folders.extend(system.map(PathBuf::from));
    folders
}

/// The folders `python3*/site-packages/nvidia/*/lib` of an environment's `lib`.
fn packages(lib: &Path) -> Vec<PathBuf> {
    let inside = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        found.sort();
        found
    };
    inside(lib)
        .iter()
        .flat_map(|python| inside(&python.join("site-packages/nvidia")))
        .map(|package| package.join("lib"))
        .filter(|folder| folder.is_dir())
        .collect()
}

impl LibrarySpec {
    /// What to try, in order: what this process has loaded already, what the user names, the known folders, the loader's
    /// path.
    fn candidates(&self) -> Vec<PathBuf> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let mut found = self.in_maps(&maps);
        if let Some(named) = env::var_os(self.variable) {
            found.push(named.into());
            return found;
        }
        for folder in folders() {
            found.extend(self.names.iter().map(|name| folder.join(name)).filter(|file| file.exists()));
        }
        found.extend(self.names.iter().map(PathBuf::from));
        found
    }

    /// The files of this library in a process's memory map.
    fn in_maps(&self, maps: &str) -> Vec<PathBuf> {
        let stem = self.names[0].split(".so").next().unwrap_or_default();
        let is_it = |path: &&Path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.strip_prefix(stem).is_some_and(|rest| rest.starts_with(".so"))
        };
        let paths = maps.lines().filter_map(|line| line.find('/').map(|start| Path::new(&line[start..])));
        let mut found: Vec<PathBuf> = paths.filter(is_it).map(PathBuf::from).collect();
        found.dedup();
        found
    }

    /// Loads the first candidate that can be loaded.
    pub fn load(&self) -> Result<LoadedLibrary, Error> {
        if !cfg!(feature = "cuda") {
            let advice = "build with the feature `cuda`; the Python package has it";
            return Err(Error::unsupported("CUDA", "this build of unisono is without CUDA", advice));
        }
        let mut tried = Vec::new();
        for path in self.candidates() {
            // SAFETY: loading runs the library's constructors; NVIDIA's only set up their own tables.
            match unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) } {
                Ok(library) => {
                    tracing::debug!(path = %path.display(), "found {}", self.title);
                    return Ok(LoadedLibrary { path, library: Box::leak(Box::new(library)) });
                }
                Err(_) if !path.is_absolute() => tried.push(format!("{} (loader's path)", path.display())),
                Err(problem) => tried.push(format!("{} ({problem})", path.display())),
            }
        }
        let what = format!("{} was not found; tried {}", self.title, tried.join(", "));
        Err(Error::unsupported("CUDA", what, self.advice))
    }

    /// The error for a library that lacks a function.
    pub fn too_old(&self, loaded: &LoadedLibrary, problem: &libloading::Error) -> Error {
        let what = format!("{} ({}) cannot be used: {problem}", self.title, loaded.path.display());
        Error::unsupported("CUDA", what, format!("use a newer one; {}", self.advice))
    }
}

/// Declares a table of C functions and how to load it from a library; each function returns an `int`.
macro_rules! functions {
    ($(#[$note:meta])* $table:ident { $($name:ident = $symbol:literal ($($argument:ty),*);)* }) => {
        $(#[$note])*
        pub(super) struct $table {
            $(pub $name: unsafe extern "C" fn($($argument),*) -> std::ffi::c_int,)*
        }

        impl $table {
            /// # Safety
            /// The library's functions of these names have these arguments, and it stays loaded.
            unsafe fn load(
                library: &libloading::os::unix::Library,
            ) -> Result<$table, libloading::Error> {
                // SAFETY: the caller vouches for the types.
                unsafe { Ok($table { $($name: *library.get($symbol)?,)* }) }
            }
        }
    };
}
pub(crate) use functions;

#[cfg(test)]
mod tests {
    use super::*;

    const NOWHERE: LibrarySpec = LibrarySpec {
        title: "a library that does not exist",
        names: &["libunisono-nowhere.so.1"],
        variable: "UNISONO_LIBNOWHERE",
        advice: "there is no such library",
    };

    #[test]
    fn a_missing_library_is_one_error_that_says_what_and_where() {
        let Err(error) = NOWHERE.load() else { panic!("there is no such library") };
        assert_eq!(error.kind(), crate::error::Kind::Unsupported);
        let expected = match cfg!(feature = "cuda") {
            true => {
                ["a library that does not exist was not found", "libunisono-nowhere.so.1 (loader's path)"]
            }
            false => ["this build of unisono is without CUDA", "feature `cuda`"],
        };
        assert!(expected.iter().all(|words| error.to_string().contains(words)), "{error}");
    }

    #[test]
    fn a_library_of_this_process_comes_first() {
        let maps = "7f00-7f01 r-xp 00000000 08:01 1 /opt/lib/libcudart.so.12\n\
                    7f01-7f02 r-xp 00000000 08:01 2 /usr/lib/libcuda.so.580.1\n\
                    7f02-7f03 r--p 00000000 08:01 2 /usr/lib/libcuda.so.580.1\n";
        assert_eq!(DRIVER.in_maps(maps), [PathBuf::from("/usr/lib/libcuda.so.580.1")]);
        assert!(NCCL.in_maps(maps).is_empty());
    }
}
