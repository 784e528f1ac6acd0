//! A device: its context, its own streams, and the kernels compiled for it.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError};

use super::compiler;
use super::context::{Context, ContextGuard};
use super::driver::{Driver, Handle};
use super::error::ALREADY_ENABLED;
use super::kernel::{Kernel, KernelSource};
use super::stream::Stream;
use crate::error::Result;

const MULTIPROCESSORS: c_int = 16;
const MAJOR: c_int = 75;
const MINOR: c_int = 76;

/// One CUDA device of this process.
///
/// ```
/// match unisono::cuda::Device::get(0) {
///     Ok(device) => println!("{} has {} multiprocessors", device.name(), device.multiprocessors()),
///     Err(missing) => println!("{missing}"),
/// }
/// ```
pub struct Device {
    ordinal: u32,
    name: String,
    uuid: [u8; 16],
    multiprocessors: u32,
    /// Compute capability as in "sm_90".
    architecture: u32,
    bytes: usize,
    pub(super) context: Context,
    stream: Stream,
    copy_stream: Stream,
    modules: Mutex<HashMap<(&'static str, String), Module>>,
}

/// Compiled code of one source, loaded on the device and never unloaded.
#[derive(Clone, Copy)]
struct Module(Handle);

// SAFETY: a driver handle that any thread may use.
unsafe impl Send for Module {}

/// The number of devices that this process sees.
pub(super) fn count(driver: &Driver) -> Result<u32> {
    let mut count = 0;
    // SAFETY: writes one number.
    let code = unsafe { (driver.functions.device_count)(&mut count) };
    driver.check(code, "CUDA devices", || "they cannot be counted".into())?;
    Ok(count as u32)
}

/// The UUID of the device with this ordinal.
fn identity(driver: &Driver, ordinal: u32) -> Option<[u8; 16]> {
    let (mut raw, mut uuid) = (0, [0u8; 16]);
    // SAFETY: each call writes one result into memory of its size.
    let found = unsafe {
        (driver.functions.device_get)(&mut raw, ordinal as c_int) == 0
            && (driver.functions.device_uuid)(&mut uuid, raw) == 0
    };
    found.then_some(uuid)
}

impl Device {
    /// The device with this ordinal, as CUDA_VISIBLE_DEVICES counts them. A process has one object per ordinal.
    pub fn get(ordinal: u32) -> Result<Arc<Device>> {
        static DEVICES: Mutex<Vec<Arc<Device>>> = Mutex::new(Vec::new());
        let driver = Driver::get()?;
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = devices.iter().find(|device| device.ordinal == ordinal) {
            return Ok(known.clone());
        }
        let device = Arc::new(Device::start(driver, ordinal)?);
        devices.push(device.clone());
        Ok(device)
    }

    /// Lets this device's kernels access the memory of another device of this process (by its UUID).
    pub(crate) fn reach(&self, uuid: &[u8; 16]) -> Result<()> {
        if self.uuid == *uuid {
            return Ok(());
        }
        let driver = self.context.driver;
        // Only the intended device gets a context: each context takes memory of its device.
        let is_other = |ordinal: &u32| identity(driver, *ordinal) == Some(*uuid);
        let Some(other) = (0..count(driver)?).find(is_other) else { return Ok(()) };
        let other = Device::get(other)?;
        let _entered = self.context.enter()?;
        // SAFETY: both contexts live as long as the process.
        let code = unsafe { (driver.functions.context_peer)(other.context.raw, 0) };
        let code = if code == ALREADY_ENABLED { 0 } else { code };
        let say = || format!("device {} cannot reach device {}", self.ordinal, other.ordinal);
        driver.check(code, "CUDA devices", say)
    }

    fn start(driver: &'static Driver, ordinal: u32) -> Result<Device> {
        let say = |what: &str| format!("CUDA device {ordinal}: {what}");
        let check = |code, what: &str| driver.check(code, "CUDA device", || say(what));
        let functions = &driver.functions;
        let (mut raw, mut text, mut uuid, mut bytes) = (0, [0u8; 128], [0u8; 16], 0);
        let mut context = std::ptr::null_mut();
        // SAFETY: each call writes one result into memory of its size.
        unsafe {
            check((functions.device_get)(&mut raw, ordinal as c_int), "there is none")?;
            check((functions.device_name)(text.as_mut_ptr().cast(), text.len() as c_int, raw), "no name")?;
            check((functions.device_uuid)(&mut uuid, raw), "no identity")?;
            check((functions.device_memory)(&mut bytes, raw), "no memory")?;
            check((functions.context_retain)(&mut context, raw), "its context cannot be made")?;
        }
        let attribute = |number: c_int| {
            let mut value = 0;
            // SAFETY: writes one number.
            let code = unsafe { (functions.device_attribute)(&mut value, number, raw) };
            check(code, "an attribute cannot be read").map(|()| value as u32)
        };
        let context = Context { driver, raw: context };
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        Ok(Device {
            ordinal,
            name: String::from_utf8_lossy(&text[..end]).into_owned(),
            uuid,
            multiprocessors: attribute(MULTIPROCESSORS)?,
            architecture: 10 * attribute(MAJOR)? + attribute(MINOR)?,
            bytes,
            context,
            stream: Stream::of(context)?,
            copy_stream: Stream::of(context)?,
            modules: Mutex::default(),
        })
    }

    /// Makes this the thread's current device until the guard is dropped, for libraries that use the current one.
    pub(crate) fn enter(&self) -> Result<ContextGuard> {
        self.context.enter()
    }

    /// Its ordinal in this process.
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Its name ("NVIDIA H200").
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its UUID, the same in every process of its host.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// The number of multiprocessors: a launch should have several blocks for each.
    pub fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    /// Its compute capability, 90 for 9.0.
    pub fn architecture(&self) -> u32 {
        self.architecture
    }

    /// The size of its memory, in bytes.
    pub fn memory(&self) -> usize {
        self.bytes
    }

    /// Bytes of its memory that are free now. Every process with a context on the device, including this one, has taken
    /// some.
    pub fn free_memory(&self) -> Result<usize> {
        let driver = self.context.driver;
        let _entered = self.context.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two numbers, about the device whose context is current.
        let code = unsafe { (driver.functions.memory_info)(&mut free, &mut total) };
        let say = || format!("device {} does not say how much of its memory is free", self.ordinal);
        driver.check(code, "CUDA memory", say)?;
        Ok(free)
    }

    /// The library's own stream, which never waits for other streams implicitly. Callers order their work before ours on it.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// A stream for copies of messages, on which nothing else is ordered.
    pub(crate) fn copy_stream(&self) -> &Stream {
        &self.copy_stream
    }

    /// A kernel by its name, compiled at first use.
    pub fn kernel(&self, source: &KernelSource, name: &str) -> Result<Kernel> {
        self.kernel_with(source, &[], name)
    }

    /// As [`Device::kernel`], compiled with these macros ("TYPE=float"): each combination is compiled at its first use.
    pub fn kernel_with(&self, source: &KernelSource, macros: &[&str], name: &str) -> Result<Kernel> {
        let driver = self.context.driver;
        let _entered = self.context.enter()?;
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (source.name, macros.join(" "));
        let module = match modules.get(&key) {
            Some(known) => *known,
            None => {
                let image = compiler::compile(source, macros, self.architecture)?;
                let mut raw = std::ptr::null_mut();
                // SAFETY: the image is complete, or NUL-terminated PTX, as the driver expects it.
                let code = unsafe { (driver.functions.module_load)(&mut raw, image.as_ptr().cast()) };
                driver.check(code, "CUDA kernel", || format!("{} cannot be loaded", source.name))?;
                modules.insert(key, Module(raw));
                Module(raw)
            }
        };
        Kernel::find(self.context, module.0, source, name)
    }
}
