//! A small all_reduce on the device, to test whether it works and by which path.

use std::time::Instant;

use super::super::Raw;
use crate::cuda::{Device, DeviceMemory};
use crate::error::{Error, Result};
use crate::memory::{DType, ReduceOp};

const ELEMENTS: usize = 1000;
const CALLS: usize = 100;

impl Raw<'_> {
    /// Tests all_reduce on device memory: returns the path between the members, and the seconds of the fastest of 100 calls.
    /// Collective; fails if a result is wrong.
    pub fn trial(&self, device: u32) -> Result<(&'static str, f64)> {
        let path = self.path(device)?;
        let device = Device::get(device)?;
        let memory = DeviceMemory::new(&device, 4 * ELEMENTS)?;
        // SAFETY: the memory lives until this function returns, and all its calls have.
        let span = unsafe { memory.span() };
        let mut fastest = f64::INFINITY;
        let mut values = vec![1i32; ELEMENTS];
        for _ in 0..CALLS {
            values.fill(1);
            // SAFETY: both have the same length, and the copy is waited for.
            unsafe { device.stream().copy(memory.address(), values.as_ptr().addr() as u64, memory.bytes())? };
            device.stream().synchronize()?;
            let start = Instant::now();
            self.all_reduce(span, DType::I32, ReduceOp::Sum)?;
            fastest = fastest.min(start.elapsed().as_secs_f64());
            // SAFETY: as above.
            unsafe {
                device.stream().copy(values.as_mut_ptr().addr() as u64, memory.address(), memory.bytes())?
            };
            device.stream().synchronize()?;
            if values.iter().any(|&value| value != self.group.size() as i32) {
                return Err(Error::internal("all_reduce", format!("a wrong sum in CUDA memory, by {path}")));
            }
        }
        Ok((path, fastest))
    }
}
