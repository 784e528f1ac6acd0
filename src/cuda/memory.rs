//! Owned memory: on the device, pinned on the host, and other host memory that is pinned temporarily.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::context::Context;
use super::device::Device;
use super::span::Span;
use crate::error::Result;

/// Pinned for every device of the process.
const PORTABLE: u32 = 1;

/// Bytes on a device, freed when dropped. Their initial contents are undefined.
///
/// ```
/// # fn main() -> unisono::Result<()> {
/// use unisono::cuda::{Device, DeviceMemory};
/// if let Ok(device) = Device::get(0) {
///     let memory = DeviceMemory::new(&device, 1000)?;
///     assert_eq!(memory.bytes(), 1000);
/// }
/// # Ok(())
/// # }
/// ```
pub struct DeviceMemory {
    context: Context,
    device: u32,
    address: u64,
    bytes: usize,
}

impl DeviceMemory {
    /// Allocates `bytes` bytes, aligned to 256. Other processes of the host can open them.
    pub fn new(device: &Arc<Device>, bytes: usize) -> Result<DeviceMemory> {
        let context = device.context;
        let _entered = context.enter()?;
        let mut address = 0;
        // SAFETY: writes one address.
        let code = unsafe { (context.driver.functions.memory_allocate)(&mut address, bytes.max(1)) };
        let device = device.ordinal();
        context.driver.check(code, "CUDA memory", || format!("{bytes} bytes on device {device}"))?;
        Ok(DeviceMemory { context, device, address, bytes })
    }

    /// The address of the first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The number of bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The ordinal of the device.
    pub fn device(&self) -> u32 {
        self.device
    }

    /// All of it, for calls that take spans.
    ///
    /// # Safety
    /// As [`Span::lent`]: the memory outlives the calls that take the span.
    pub unsafe fn span(&self) -> Span {
        // SAFETY: the memory is on this device; the caller vouches for the rest.
        unsafe { Span::lent(self.device, self.address, self.bytes) }
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: allocated above; the driver waits for work that uses it.
            unsafe { (self.context.driver.functions.memory_free)(self.address) };
        }
    }
}

/// Pinned host memory, which the device copies at full speed; freed when dropped. It is initially zero.
pub struct PinnedMemory {
    context: Context,
    pointer: *mut u8,
    bytes: usize,
}

// SAFETY: plain memory that this value owns.
unsafe impl Send for PinnedMemory {}
// SAFETY: as above; it changes only through a mutable borrow.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    /// Allocates `bytes` bytes.
    pub fn new(device: &Arc<Device>, bytes: usize) -> Result<PinnedMemory> {
        let context = device.context;
        let _entered = context.enter()?;
        let mut pointer = std::ptr::null_mut();
        // SAFETY: writes one address.
        let code = unsafe { (context.driver.functions.host_allocate)(&mut pointer, bytes.max(1), PORTABLE) };
        context.driver.check(code, "pinned memory", || format!("{bytes} bytes"))?;
        let pointer: *mut u8 = pointer.cast();
        // SAFETY: just allocated, with at least one byte.
        unsafe { pointer.write_bytes(0, bytes) };
        Ok(PinnedMemory { context, pointer, bytes })
    }

    /// The address of the first byte, for copies.
    pub fn address(&self) -> u64 {
        self.pointer.addr() as u64
    }
}

impl Deref for PinnedMemory {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: allocated and filled above; the device writes to it only in copies whose caller vouches for it.
        unsafe { std::slice::from_raw_parts(self.pointer, self.bytes) }
    }
}

impl DerefMut for PinnedMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.pointer, self.bytes) }
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: allocated above; the driver waits for copies that use it.
            unsafe { (self.context.driver.functions.host_free)(self.pointer.cast()) };
        }
    }
}

/// Host memory that another owner allocated, pinned until this is dropped, so that the device copies it at full speed.
pub struct Registered {
    context: Context,
    pointer: *mut u8,
    /// The address of the first byte for kernels.
    address: u64,
}

// SAFETY: only the driver's registration of the memory is held here, and the driver may be called from any thread.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

impl Registered {
    /// Pins `bytes` bytes, which may be shared with other processes.
    ///
    /// # Safety
    /// The memory stays mapped as long as the result lives.
    pub unsafe fn new(device: &Arc<Device>, pointer: *mut u8, bytes: usize) -> Result<Registered> {
        let context = device.context;
        let (_entered, functions) = (context.enter()?, &context.driver.functions);
        let say = || format!("{bytes} bytes of host memory cannot be pinned");
        // SAFETY: the caller vouches for the memory.
        let code = unsafe { (functions.host_register)(pointer.cast(), bytes, PORTABLE) };
        context.driver.check(code, "pinned memory", say)?;
        let mut registered = Registered { context, pointer, address: 0 };
        // SAFETY: the memory was just registered; writes one address.
        let code = unsafe { (functions.host_address)(&mut registered.address, pointer.cast(), 0) };
        context.driver.check(code, "pinned memory", say)?;
        Ok(registered)
    }

    /// The address of the first byte for kernels.
    pub fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: registered above.
            unsafe { (self.context.driver.functions.host_unregister)(self.pointer.cast()) };
        }
    }
}
