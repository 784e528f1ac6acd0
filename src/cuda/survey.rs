//! What this machine has of CUDA, for `unisono doctor`.

use super::compiler::Compiler;
use super::device::{self, Device};
use super::driver::Driver;
use super::library::NCCL;
use crate::error::{Error, Result};

/// A library that was found, or why not.
pub type Component = Result<String, Error>;

/// What was found. Each line names a version and a file, or says what is missing and where it was looked for.
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
    /// The devices, in words.
    pub devices: Vec<Component>,
    /// The compiler of kernels.
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
        let gigabytes = device.memory() as f64 / 1e9;
        let (major, minor) = (device.architecture() / 10, device.architecture() % 10);
        Ok(format!("{}, {gigabytes:.1} GB, compute capability {major}.{minor}", device.name()))
    };
    let compiler = Compiler::get();
    Survey {
        driver: driver.map(|driver| format!("CUDA {}, {}", driver.version(), driver.path.display())),
        devices: (0..count).map(device).collect(),
        compiler: compiler.map(|found| format!("{}, {}", found.version(), found.path.display())),
        nccl: NCCL.load().map(|loaded| loaded.path.display().to_string()),
    }
}
