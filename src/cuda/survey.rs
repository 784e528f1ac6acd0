//! Which parts of CUDA this machine has, for `unisono doctor`.

use super::compiler::Compiler;
use super::device::{self, Device};
use super::driver::Driver;
use super::library::NCCL;
use crate::error::{Error, Result};

/// A library that was found, or why it was not.
pub type Component = Result<String, Error>;

/// What was found. Each entry names a version and a file, or states what is missing and where it was searched for.
///
/// ```
/// let survey = unisono::cuda::survey();
/// match &survey.driver {
///     Ok(driver) => println!("{driver}: {:?}", survey.devices),
///     Err(missing) => println!("{missing}"),
/// }
/// ```
#[derive(Debug)]
pub struct Survey {
    /// The driver.
    pub driver: Component,
    /// The devices, as text.
    pub devices: Vec<Component>,
    /// The kernel compiler, NVRTC.
    pub compiler: Component,
    /// NVIDIA's collectives between devices.
    pub nccl: Component,
}

/// Looks for the driver, its devices, NVRTC and NCCL.
pub fn survey() -> Survey {
    let driver = Driver::get();
    let count = driver.as_ref().ok().and_then(|driver| device::count(driver).ok()).unwrap_or(0);
    let device = |ordinal| {
        let device = Device::get(ordinal)?;
        let memory = memory(device.free_memory()?, device.memory());
        let (major, minor) = (device.architecture() / 10, device.architecture() % 10);
        Ok(format!("{}, {memory}, compute capability {major}.{minor}", device.name()))
    };
    let compiler = Compiler::get();
    Survey {
        driver: driver.map(|driver| format!("CUDA {}, {}", driver.version(), driver.path.display())),
        devices: (0..count).map(device).collect(),
        compiler: compiler.map(|found| format!("{}, {}", found.version(), found.path.display())),
        nccl: NCCL.load().map(|loaded| loaded.path.display().to_string()),
    }
}

/// The free and total memory of a device, as text.
fn memory(free: usize, all: usize) -> String {
    let gibibytes = |bytes: usize| bytes as f64 / (1u64 << 30) as f64;
    format!("{:.1} of {:.1} GiB free", gibibytes(free), gibibytes(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_in_gibibytes() {
        assert_eq!(memory(13_207_024_435, 150_001_731_994), "12.3 of 139.7 GiB free");
        assert_eq!(memory(0, 1 << 30), "0.0 of 1.0 GiB free");
    }
}
