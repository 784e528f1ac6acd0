//! Finds the device that an address belongs to.

use std::ffi::c_int;
use std::sync::Arc;

use super::device::Device;
use super::driver::Driver;
use crate::error::Result;

/// The ordinal of the device that an address belongs to.
const DEVICE_ORDINAL: c_int = 9;

impl Device {
    /// The device whose memory contains an address.
    pub fn of_address(address: u64) -> Result<Arc<Device>> {
        let driver = Driver::get()?;
        let mut ordinal: c_int = 0;
        // SAFETY: writes one number; the driver only looks the address up.
        let code = unsafe {
            (driver.functions.pointer_attribute)((&raw mut ordinal).cast(), DEVICE_ORDINAL, address)
        };
        driver.check(code, "CUDA memory", || format!("{address:#x} is no address of a device"))?;
        Device::get(ordinal as u32)
    }
}
